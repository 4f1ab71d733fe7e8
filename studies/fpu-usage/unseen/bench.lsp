; For newLISP: numbers for ever.
(while true (set 'x 1.0 'y 0.5) (dotimes (i 10000) (set 'd (add (mul x x) (mul y y))) (set 'x (sub x (div (mul 0.013 y) d))) (set 'y (add y (div (mul 0.017 x) d)))))
