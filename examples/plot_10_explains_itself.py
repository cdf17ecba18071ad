"""
A kernel that explains itself
=============================

``KernelRidgeCV()`` learns one rate for each column. The fitted model is a sum of functions of few
columns that can be drawn.
"""

# %%
# Friedman's function has ten columns, of which five matter, two of them together.

import matplotlib.pyplot as plt
import numpy as np

from kernelsieve import KernelRidgeCV, datasets, explain

data = datasets.load("friedman")
X, y = np.asarray(data.X)[:600], np.asarray(data.y)[:600]
model = KernelRidgeCV(random_state=0, time_limit=20).fit(X, y)
print(f"error on rows that chose nothing: {model.best_rmse_:.2f}, of a deviation of {y.std():.2f}")

# %%
# Which columns
# -------------
# The share of each column in the variance of the model, alone and with others. Nobody told the
# model that the last five columns are noise.

explanation = explain(model)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
explanation.plot_importance(ax=axes)
plt.show()

# %%
# Which functions
# ---------------
# The exact decomposition of the model: shares of its variance by columns and by pairs.

print(explanation)

# %%
# The functions themselves: the curve of the fourth column is a straight line of slope 10, that of
# the third a parabola, and the first two act together, as sin(pi a b).

first, second, third, fourth = explanation.names[:4]
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
explanation.plot_effect(fourth, ax=axes[0])
explanation.plot_effect(third, ax=axes[1])
explanation.plot_effect(first, second, ax=axes[2])
plt.show()

# %%
# One prediction
# --------------
# What each column adds to the prediction of a row; the contributions add up exactly.

explanation.plot_waterfall(X[:1])
plt.show()

# %%
# The kernel itself is an object with a repr, and can be used with any map.

print(model.kernel_)
