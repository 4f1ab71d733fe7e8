"""LightGBM's training."""
import sys

import lightgbm
import numpy
from together import wait_for_start

random = numpy.random.default_rng(1)
points = random.normal(size=(10000, 20))
classes = points[:, 0] * points[:, 1] + random.normal(size=10000) > 0
data = lightgbm.Dataset(points, classes, params={"verbose": -1}).construct()
wait_for_start()
settings = {"objective": "binary", "verbose": -1, "deterministic": True, "force_row_wise": True}
model = lightgbm.train(settings, data, num_boost_round=20 * int(sys.argv[1]))
print(f"{model.predict(points[:100]).mean():.6f}")
