"""
Exact kernel ridge regression, with features as a preconditioner
================================================================

Features approximate. Where the exact solution of (K + αI) a = y is wanted, they still help:
conjugate gradients that are preconditioned with Z Zᵀ + αI need few iterations, and each is one
product with K, block by block, without ever storing it. ``refine=True`` does that.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.kernel_ridge import KernelRidge as ExactKernelRidge
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from kernelsieve import KernelRidge, RowNormFeatures, datasets
from kernelsieve.kernels import Gaussian

data = datasets.load("friedman")
X_train, X_test, y_train, y_test = train_test_split(scale(data.X), data.y, random_state=0)
y_train = y_train - y_train.mean()
gamma, alpha = 0.02, 0.01
truth = ExactKernelRidge(kernel="rbf", gamma=gamma, alpha=alpha).fit(X_train, y_train)
target = truth.predict(X_test)

# %%
# Without a preconditioner, counting the products with K:

K = Gaussian(gamma)(X_train)
count = [0]


def product(vector):
    count[0] += 1
    return K @ vector


operator = LinearOperator(K.shape, lambda v: product(v) + alpha * v)
cg(operator, y_train, rtol=1e-6, maxiter=5000)
plain_iterations = count[0]

# %%
# With s features, approximate and refined:

sizes = [100, 200, 400, 800]
iterations, refined_error, feature_error = [], [], []
for s in sizes:
    features = RowNormFeatures(s, gamma=gamma, random_state=0)
    quick = KernelRidge(features, alpha=alpha, fit_intercept=False).fit(X_train, y_train)
    exact = KernelRidge(features, alpha=alpha, fit_intercept=False, refine=True, max_iter=5000)
    exact.fit(X_train, y_train)
    iterations.append(exact.n_iter_)
    spread = np.std(target)
    feature_error.append(np.sqrt(np.mean((quick.predict(X_test) - target) ** 2)) / spread)
    refined_error.append(np.sqrt(np.mean((exact.predict(X_test) - target) ** 2)) / spread)

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0), layout="constrained")
left.plot(sizes, iterations, "o-", color="#0072B2", label="with s features as preconditioner")
left.axhline(plain_iterations, color="#555555", ls="--", label="without a preconditioner")
left.set(ylabel="iterations (products with K)", title="To a relative residual of 1e-6")
right.plot(sizes, feature_error, "s-", color="#E69F00", label="features alone")
right.plot(sizes, refined_error, "o-", color="#0072B2", label="refine=True")
right.set(ylabel="difference / spread of predictions", title="Away from scikit-learn's KernelRidge")
for ax in (left, right):
    ax.set(xscale="log", yscale="log", xlabel="features s", xticks=sizes, xticklabels=sizes)
    ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    ax.legend(frameon=False, fontsize=9)
plt.show()

print(f"{plain_iterations} iterations without features, {iterations[-1]} with {sizes[-1]}")
