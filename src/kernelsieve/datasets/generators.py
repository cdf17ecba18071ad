"""Generated data, which need no network."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def make_friedman(
    n_samples: int = 2000, *, noise: float = 1.0, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Friedman's first function of 10 uniform inputs, of which 5 matter.

    y = 10 sin(pi x_1 x_2) + 20 (x_3 - 1/2)^2 + 10 x_4 + 5 x_5 + noise.

    Parameters
    ----------
    n_samples : int, default 2000
        Number of rows.
    noise : float, default 1.0
        Standard deviation of the noise.
    seed : int, default 0

    Returns
    -------
    X : ndarray of shape (n_samples, 10)
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> X, y = make_friedman(100)
    >>> X.shape, y.shape
    ((100, 10), (100,))
    """
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(n_samples, n_features=10, noise=noise, random_state=seed)
    return X, y


def make_product(
    n_samples: int = 2000, n_features: int = 15, *, noise: float = 0.3, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A regression on a few products of two or three of the inputs, which are standard normal.

    y = x_1 x_2 - x_3 x_4 + x_5 x_6 x_7 + x_1 x_8 + x_2 x_9 x_10 / 2 + noise: no input matters
    by itself, so a linear model learns nothing.

    Parameters
    ----------
    n_samples : int, default 2000
        Number of rows.
    n_features : int, default 15
        Number of columns, at least 10.
    noise : float, default 0.3
        Standard deviation of the noise.
    seed : int, default 0

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> X, y = make_product(100)
    >>> X.shape, y.shape
    ((100, 15), (100,))
    """
    if n_features < 10:
        raise ValueError(f"n_features={n_features} must be >= 10: the target uses ten inputs")
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    x = X.T
    y = x[0] * x[1] - x[2] * x[3] + x[4] * x[5] * x[6] + x[0] * x[7] + 0.5 * x[1] * x[8] * x[9]
    return X, y + noise * rng.standard_normal(n_samples)


def make_onehot(
    n_samples: int = 3000,
    n_columns: int = 8,
    n_levels: int = 12,
    *,
    noise: float = 0.3,
    seed: int = 0,
) -> tuple[sp.csr_array, NDArray[np.float64]]:
    """One-hot encoded categories whose effect is in pairs of columns.

    Each of the ``n_columns`` categorical columns has ``n_levels`` levels, of uneven frequency. The
    target adds a random effect of every pair of levels of columns (1, 2) and (3, 4) to a small
    effect of each level.

    Parameters
    ----------
    n_samples : int, default 3000
        Number of rows.
    n_columns : int, default 8
        Number of categorical columns, at least 4.
    n_levels : int, default 12
        Number of levels of each.
    noise : float, default 0.3
        Standard deviation of the noise.
    seed : int, default 0

    Returns
    -------
    X : CSR array of shape (n_samples, n_columns * n_levels), of 0 and 1
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> X, y = make_onehot(100)
    >>> X.shape, int(X.sum(axis=1).max())
    ((100, 96), 8)
    """
    if n_columns < 4:
        raise ValueError(f"n_columns={n_columns} must be >= 4: the target uses two pairs of them")
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, n_levels + 1)
    frequency /= frequency.sum()
    level = rng.choice(n_levels, size=(n_samples, n_columns), p=frequency)
    main = 0.3 * rng.standard_normal((n_columns, n_levels))
    first, second = rng.standard_normal((2, n_levels, n_levels))
    y = main[np.arange(n_columns), level].sum(axis=1)
    y += first[level[:, 0], level[:, 1]] + second[level[:, 2], level[:, 3]]
    # 32-bit indices: some of scikit-learn takes no others.
    columns = (level + n_levels * np.arange(n_columns)).astype(np.int32)
    starts = np.arange(0, columns.size + 1, n_columns, dtype=np.int32)
    X = sp.csr_array(
        (np.ones(columns.size), columns.ravel(), starts), shape=(n_samples, n_columns * n_levels)
    )
    return X, y + noise * rng.standard_normal(n_samples)
