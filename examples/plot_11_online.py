"""
One row at a time, as river does
================================

`river <https://riverml.xyz>`_ learns from streams: ``learn_one``, ``predict_one``. A few lines make
such a model of ``KernelRidge.partial_fit``, which can forget, and ``drift`` says when the inputs
have moved.
"""

# %%
# The adapter
# -----------
# It collects rows, and learns from them when there are enough: solving for the coefficients costs
# more than one row is worth. Rows are dicts, as in river.

import matplotlib.pyplot as plt
import numpy as np

from kernelsieve import KernelRidge, RowNormFeatures, drift


class OnlineRidge:
    """A regression for streams of rows, with the methods of river's regressors."""

    def __init__(self, columns, features, batch=50, forget=0.0):
        self.columns, self.batch, self.forget = columns, batch, forget
        self.model, self.waiting, self.predict = KernelRidge(features, alpha=0.1), [], None

    def predict_one(self, x):
        """Predict one row; 0 before the first batch."""
        if self.predict is None:
            return 0.0
        return self.predict([x[name] for name in self.columns])

    def learn_one(self, x, y):
        """Learn from one row, sooner or later."""
        self.waiting.append(([x[name] for name in self.columns], y))
        if len(self.waiting) == self.batch:
            X, targets = (np.array(part) for part in zip(*self.waiting, strict=True))
            self.model.partial_fit(X, targets, forget=self.forget)
            self.predict, self.waiting = self.model.predictor(), []


# %%
# A stream that changes
# ---------------------
# After 2,000 rows the function turns around. The features are chosen on some rows at the start; who
# keeps everything stays wrong for long.

rng = np.random.default_rng(0)
X = rng.normal(size=(4000, 2))
y = np.sin(2 * X[:, 0]) * X[:, 1] * np.where(np.arange(4000) < 2000, 1.0, -1.0)
features = RowNormFeatures(40, random_state=0).fit(X[:200])

errors = {}
for forget in (0.0, 0.2):
    online = OnlineRidge(["a", "b"], features, forget=forget)
    found = []
    for (a, b), value in zip(X.tolist(), y, strict=True):
        row = {"a": a, "b": b}
        found.append(abs(online.predict_one(row) - value))
        online.learn_one(row, value)
    errors[forget] = np.convolve(found, np.ones(200) / 200, mode="valid")

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for forget, curve in errors.items():
    axes.plot(np.arange(len(curve)) + 200, curve, label=f"forget={forget}")
axes.set(xlabel="row", ylabel="mean error of the last 200 rows")
axes.legend()
plt.show()

# %%
# Inputs that move
# ----------------
# The errors above come from the target. If the inputs leave the range of the training rows, the
# model says so before any target is known.

print(drift(online.model, rng.normal(size=(500, 2))))
print(drift(online.model, rng.normal(size=(500, 2)) + np.array([4.0, 0.0])))
