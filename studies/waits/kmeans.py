"""scikit-learn's KMeans, as a data scientist calls it."""
import sys

import numpy
from sklearn.cluster import KMeans
from together import wait_for_start

points = numpy.random.default_rng(1).normal(size=(20000, 10))
wait_for_start()
model = KMeans(n_clusters=8, n_init=3 * int(sys.argv[1]), random_state=1).fit(points)
print(f"{model.inertia_:.6f}")
