%% escript-like: erl -noshell -run bench floats|lists
-module(bench).
-export([floats/0, lists/0]).
floats() -> step(1.0, 0.5, 100000), floats().
step(X, _, 0) -> X;
step(X, Y, N) -> D = X * X + Y * Y, step(X - 0.013 * Y / D, Y + 0.017 * X / D, N - 1).
lists() -> lists:sort([I * 7919 rem 997 || I <- lists:seq(1, 20000)]), lists().
