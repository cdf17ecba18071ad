"""
One-hot data: sparse in, sparse out
===================================

Categories that matter in *pairs* (this device with that browser, this shop on that weekday) are
invisible to a linear model on one-hot columns. Their products are features of a polynomial kernel,
and a product of 0/1 columns is again sparse: the rows that have both. So the features of a sparse
matrix are a sparse matrix, and nothing is ever filled.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidgeClassifier,
    RowNormFeatures,
    datasets,
)

X, score = datasets.make_onehot(4000, n_columns=8, n_levels=12, seed=1)
y = np.where(score > np.median(score), "above", "below")
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
print(f"{X.shape[0]} x {X.shape[1]} matrix, {100 * X.nnz / np.prod(X.shape):.1f} % nonzeros")

# %%
# A polynomial of degree 2 has 4,753 features here. How many are needed?

polynomial = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}
sizes = [125, 250, 500, 1000]


def accuracy(features):
    model = KernelRidgeClassifier(features, alpha=3.0).fit(X_train, y_train)
    return model.score(X_test, y_test)


maps = {
    "adaptive: products, chosen with y": lambda s, seed: AdaptiveFeatures(
        s, **polynomial, random_state=seed
    ),
    "row norm: products": lambda s, seed: RowNormFeatures(s, **polynomial, random_state=seed),
    "Fourier (dense)": lambda s, seed: FourierFeatures(s, gamma=0.1, random_state=seed),
}
accuracies = {name: [accuracy(make(s, seed=0)) for s in sizes] for name, make in maps.items()}
linear = LogisticRegression().fit(X_train, y_train).score(X_test, y_test)

# %%
# The features themselves: ``transform`` of a CSR array is a CSR array.

features = RowNormFeatures(1000, **polynomial, random_state=0)
Z = features.fit_transform(X)
names = features.get_feature_names_out()
print(type(Z).__name__, Z.shape, f"{100 * Z.nnz / np.prod(Z.shape):.1f} % nonzeros")
megabytes = (Z.data.nbytes + Z.indices.nbytes + Z.indptr.nbytes) / 1e6
print(f"{megabytes:.1f} MB; dense it would be {8 * np.prod(Z.shape) / 1e6:.0f} MB")
print("some names:", ", ".join(names[[1, 50, 500, 999]]))

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
left.spy(Z[:250, :500], markersize=1.0, color="#0072B2", aspect="auto")
left.set(
    xlabel="features: columns, and products of two",
    ylabel="rows",
    title="Nonzeros of the first 500 features",
)
left.xaxis.set_ticks_position("bottom")
for (name, values), colour in zip(
    accuracies.items(), ("#D55E00", "#009E73", "#0072B2"), strict=True
):
    right.plot(sizes, values, "o-", color=colour, label=name)
right.axhline(linear, color="#555555", ls="--", label="logistic regression on the columns")
right.set(
    xscale="log",
    xlabel="features s",
    ylabel="accuracy on the test rows",
    title="Pairs of categories",
    xticks=sizes,
    xticklabels=sizes,
)
right.minorticks_off()
right.legend(frameon=False, fontsize=9)
plt.show()
