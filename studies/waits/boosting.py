"""scikit-learn's gradient boosting on histograms."""
import sys

import numpy
from sklearn.ensemble import HistGradientBoostingClassifier
from together import wait_for_start

random = numpy.random.default_rng(1)
points = random.normal(size=(10000, 20))
classes = points[:, 0] * points[:, 1] + random.normal(size=10000) > 0
wait_for_start()
model = HistGradientBoostingClassifier(max_iter=10 * int(sys.argv[1]), random_state=1).fit(points, classes)
print(f"{model.score(points, classes):.6f}")
