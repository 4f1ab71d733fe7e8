"""numpy's OpenBLAS: products of small matrices."""
import sys

import numpy
from together import wait_for_start

a = numpy.random.default_rng(1).normal(size=(200, 200))
b = a
wait_for_start()
for _ in range(400 * int(sys.argv[1])):
    b = a @ b
    b /= numpy.abs(b).max()
print(f"{b[3, 5]:.6e}")
