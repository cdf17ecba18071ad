"""
A dot-product kernel of one's own
=================================

Any k(x, y) = Σ a_w ⟨x, y⟩^w with non-negative coefficients is a kernel, and ``DotProduct`` takes
the list of its coefficients. Sampling, sketching, ridge regression and the diagnostics then work
on it as on the Gaussian.

Here: the kernel of an infinitely wide layer of ReLU units. For rows of length 1 and t = ⟨x, y⟩ it
is

    k(t) = (sqrt(1 - t²) + t (π - arccos t)) / π,

whose Taylor coefficients are non-negative.
"""

from math import factorial, pi

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from kernelsieve import AdaptiveFeatures, KernelRidgeClassifier
from kernelsieve.kernels import DotProduct
from kernelsieve.plots import plot_kernel_values


def relu_kernel(t):
    return (np.sqrt(1 - t**2) + t * (pi - np.arccos(t))) / pi


# %%
# k(t) = 1/π + t/2 + the integral of arcsin, twice over: even powers only.

degree = 20
coefficients = np.zeros(degree + 1)
coefficients[:2] = 1 / pi, 1 / 2
for j in range(degree // 2):
    arcsine = factorial(2 * j) / (4**j * factorial(j) ** 2 * (2 * j + 1))  # of t^(2j + 1)
    coefficients[2 * j + 2] = arcsine / (2 * j + 2) / pi
kernel = DotProduct(tuple(coefficients))

# %%
# Handwritten digits, as rows of length 1:

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(normalize(X), y, random_state=0)
features = AdaptiveFeatures(1500, kernel=kernel, random_state=0)
model = KernelRidgeClassifier(features, alpha=0.1).fit(X_train, y_train)
print(f"test accuracy {model.score(X_test, y_test):.3f}")

Z = model.features_.transform(X_test)
fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
t = np.linspace(-1, 1, 401)
for terms, colour in ((3, "#E69F00"), (7, "#009E73"), (degree + 1, "#0072B2")):
    series = np.polynomial.polynomial.polyval(t, coefficients[:terms])
    left.semilogy(t, relu_kernel(t) - series, color=colour, label=f"degree {terms - 1}")
left.set(
    xlabel="t = ⟨x, y⟩",
    ylabel="k(t) minus the series",
    title="What the truncated series leaves out",
    ylim=(1e-8, 0.1),
)
left.legend(frameon=False, loc="upper center")
plot_kernel_values(kernel(X_test), Z, ax=right)
right.set_title("Pairs of test images: features against kernel")
plt.show()
