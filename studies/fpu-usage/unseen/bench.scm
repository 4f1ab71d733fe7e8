; bench.scm float|words, for Guile: numbers or words for ever.
(define (float x y n)
  (if (= n 0) x
      (let ((d (+ (* x x) (* y y))))
        (float (- x (/ (* 0.013 y) d)) (+ y (/ (* 0.017 x) d)) (- n 1)))))
(define (words)
  (let ((seen (make-hash-table)))
    (do ((i 0 (+ i 1))) ((= i 20000) seen)
      (let ((w (string-append "w" (number->string (modulo i 977)))))
        (hash-set! seen w (+ 1 (hash-ref seen w 0)))))))
(let loop ()
  (if (string=? (cadr (command-line)) "float") (float 1.0 0.5 100000) (words))
  (loop))
