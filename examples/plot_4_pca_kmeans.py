"""
Kernel PCA and kernel k-means in pictures
=========================================

What a kernel adds to PCA and k-means, on explicit features: the cost grows with the number of
rows, not with its square.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles
from sklearn.decomposition import KernelPCA as ExactKernelPCA
from sklearn.metrics import adjusted_rand_score

from kernelsieve import KernelKMeans, KernelPCA, RowNormFeatures

# %%
# Rings: k-means cuts them in half, kernel k-means separates them.

X, ring = make_circles(3000, noise=0.06, factor=0.35, random_state=0)
features = RowNormFeatures(200, gamma=4.0, random_state=0)
clusterings = {
    "k-means": KMeans(2, n_init=10, random_state=0).fit_predict(X),
    "kernel k-means": KernelKMeans(2, features, random_state=0).fit_predict(X),
}
score = KernelPCA(2, features).fit_transform(X)

fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained")
colours = np.array(["#0072B2", "#E69F00"])
for ax, (name, labels) in zip(axes, clusterings.items(), strict=False):
    agreement = abs(adjusted_rand_score(ring, labels))
    ax.scatter(*X.T, c=colours[labels], s=4, lw=0)
    ax.set(title=f"{name}: agreement {agreement:.2f}", aspect="equal", xlabel="x0", ylabel="x1")
axes[2].scatter(*score.T, c=colours[ring], s=4, lw=0)
axes[2].set(title="kernel PCA, coloured by ring", xlabel="component 1", ylabel="component 2")
plt.show()

# %%
# The price of it: scikit-learn's exact ``KernelPCA`` works on the n x n kernel matrix, ours on n x
# s features.


def seconds(model, n_rows):
    rows, _ = make_circles(n_rows, noise=0.06, factor=0.35, random_state=1)
    times = []
    for _ in range(2):
        start = perf_counter()
        model.fit_transform(rows)
        times.append(perf_counter() - start)
    return min(times)


exact_rows = [500, 1000, 2000, 4000]
our_rows = [*exact_rows, 16_000, 64_000]
exact = [seconds(ExactKernelPCA(2, kernel="rbf", gamma=4.0), n) for n in exact_rows]
ours = [seconds(KernelPCA(2, features), n) for n in our_rows]

fig, ax = plt.subplots(figsize=(6.5, 4.0), layout="constrained")
ax.loglog(exact_rows, exact, "s-", color="#555555", label="exact, n x n kernel matrix")
ax.loglog(our_rows, ours, "o-", color="#0072B2", label="on 200 features")
ax.set(xlabel="rows n", ylabel="seconds to fit and transform", title="Kernel PCA")
ax.legend(frameon=False)
plt.show()

# %%
# The same components? Up to their sign, and to what 200 features leave out:

rows, _ = make_circles(2000, noise=0.06, factor=0.35, random_state=2)
ours_scores = KernelPCA(2, features).fit_transform(rows)
exact_scores = ExactKernelPCA(2, kernel="rbf", gamma=4.0).fit_transform(rows)
for k in range(2):
    correlation = np.corrcoef(ours_scores[:, k], exact_scores[:, k])[0, 1]
    print(f"component {k + 1}: correlation {abs(correlation):.4f}")
