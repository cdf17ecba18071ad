"""
Features that look at the target
================================

A kernel has far more features than you can keep. Which of them to keep depends on the question:
features that explain the *rows* need not be those that explain the *target*. ``AdaptiveFeatures``
scores a pool of candidates by both; ``target_share`` says how much the target decides.

The target here is a sum of five products of two or three of fifteen columns, and noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from kernelsieve import AdaptiveFeatures, FourierFeatures, KernelRidge, RowNormFeatures, datasets

data = datasets.load("product")
X_train, X_test, y_train, y_test = train_test_split(data.X, data.y, random_state=0)
gamma, alpha, sizes = 0.004, 1e-4, [50, 100, 200, 400]


def rmse(features):
    model = KernelRidge(features, alpha=alpha).fit(X_train, y_train)
    return np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))


def curve(make):
    return np.array(
        [[rmse(make(s, gamma=gamma, random_state=seed)) for s in sizes] for seed in range(2)]
    )


curves = {
    "Fourier": curve(FourierFeatures),
    "row norm": curve(RowNormFeatures),
    "adaptive, target_share=0": curve(lambda s, **o: AdaptiveFeatures(s, target_share=0, **o)),
    "adaptive, target_share=1/3 (default)": curve(AdaptiveFeatures),
}

# %%
# The error of the exact kernel ridge regression is the limit of those that do not look at y.
# Choosing by y goes *below* it here: features that were left out cannot overfit.

exact = KernelRidge(RowNormFeatures(500, gamma=gamma, random_state=0), alpha=alpha, refine=True)
exact_rmse = np.sqrt(np.mean((exact.fit(X_train, y_train).predict(X_test) - y_test) ** 2))

fig, ax = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
looks = zip("os^v", ("#0072B2", "#009E73", "#E69F00", "#D55E00"), strict=True)
for (name, values), (marker, colour) in zip(curves.items(), looks, strict=True):
    ax.plot(sizes, values.mean(axis=0), marker=marker, color=colour, label=name)
    ax.fill_between(sizes, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)
ax.axhline(exact_rmse, color="#555555", ls="--", lw=1.2, label="exact kernel ridge")
ax.axhline(0.3, color="#555555", ls=":", lw=1.2, label="noise: nothing can do better")
ax.set(
    xscale="log",
    xlabel="features s",
    ylabel="RMSE on the test rows",
    title="A target made of products of columns",
    xticks=sizes,
    xticklabels=sizes,
    ylim=(0, None),
)
ax.minorticks_off()
ax.legend(frameon=False, fontsize=9, loc="upper right")
plt.show()

# %%
# Looking at y does not make cross-validation unfair by itself, but the map has to be fitted inside
# every fold, as ``KernelRidgeCV`` and scikit-learn's ``cross_val_score`` of the whole model do.
