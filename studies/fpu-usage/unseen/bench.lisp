;; For CLISP: numbers or lists for ever.
(defun floats () (let ((x 1d0) (y 0.5d0)) (dotimes (i 100000 x) (let ((d (+ (* x x) (* y y)))) (decf x (/ (* 0.013d0 y) d)) (incf y (/ (* 0.017d0 x) d))))))
(defun lists () (let ((all nil)) (dotimes (i 20000) (push (mod (* i 7919) 997) all)) (length (sort all #'<))))
(compile 'floats)
(compile 'lists)
(loop (if (equal (car ext:*args*) "floats") (floats) (lists)))
