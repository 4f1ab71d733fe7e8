% For SWI-Prolog: naive reverse for ever.
append_([], L, L).
append_([H|T], L, [H|R]) :- append_(T, L, R).
reverse_([], []).
reverse_([H|T], R) :- reverse_(T, S), append_(S, [H], R).
go :- numlist(1, 400, L), repeat, reverse_(L, _), fail.
numbers(X, _, 0) :- !, nb_setval(x, X).
numbers(X, Y, N) :- D is X * X + Y * Y, X1 is X - 0.013 * Y / D, Y1 is Y + 0.017 * X / D, M is N - 1, numbers(X1, Y1, M).
floats :- repeat, numbers(1.0, 0.5, 100000), fail.
