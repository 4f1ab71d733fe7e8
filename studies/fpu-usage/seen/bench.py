"""bench.py eigen|fft|sort|objects: NumPy's numbers, or none, for ever."""
import sys
import numpy

generator = numpy.random.default_rng(1)
matrix, ints = generator.random((150, 150)), generator.integers(0, 1 << 60, 500000)
while sys.argv[1] == "eigen":
    numpy.linalg.eigvals(matrix)
while sys.argv[1] == "fft":
    numpy.fft.fft2(matrix)
while sys.argv[1] == "sort":
    numpy.sort(ints)
while sys.argv[1] == "elementwise":
    matrix = numpy.exp(-matrix) * 2 + matrix / 3
