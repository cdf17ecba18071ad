"""Random Maclaurin features (Kar and Karnick, 2012)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import row_blocks
from kernelsieve._random import keyed_rows, stream
from kernelsieve._state import text, whole, wrong
from kernelsieve.features.series import SeriesFeatures, SeriesRows, degree_masses
from kernelsieve.products.degrees import DegreeColumns

CHUNK = 64  # features whose signs are held at a time
PAIR_ROWS = 256
TINY = np.finfo(np.float64).tiny
SIGNED_ROWS = 8192  # large: the signs are made anew for every block
DENSE_ENTRIES = 2**22  # of a dense block, which is copied; its products take longer than the signs


class MaclaurinFeatures(SeriesFeatures):
    """Products of random projections, for every kernel with a Taylor series.

    A feature of degree w is the product of w projections of x' on random signs. The number of
    features of each degree minimises the expected squared error of the kernel, estimated on pairs
    of rows; degrees with few monomials are exact. E[Z Z^T] is the truncated kernel; the variance
    grows like 3^w.

    Parameters
    ----------
    n_components : int, default 1000
        Number of features. If there are fewer monomials, all of them are used, and Z Z^T = K.
    kernel : Kernel or str, default "gaussian"
        A kernel with a Taylor series: Gaussian, Polynomial, Exponential, InversePolynomial or
        DotProduct, or the name of one.
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        Degree of kernel="poly".
    coef0 : float, default 1.0
        Constant of kernel="poly".
    alpha : float, default None
        Ridge that the features will be used with, which affects only the truncation of the Taylor
        series. None takes that of the model, or 1.
    eps : float, default 0.5
        The trace that the truncation cuts off is at most eps alpha / 2000.
    center : "auto", True or False, default "auto"
        Whether to subtract the column means; "auto" does so for the Gaussian on dense data.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    truncation_degree_ : int
        Degree of the truncated Taylor series.
    n_components_ : int
        Number of features.
    kernel_ : Kernel
        The kernel in use.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Notes
    -----
    The signs are never stored: those of 64 features at a time are drawn again for every block of
    8,192 rows, from their own random streams.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import MaclaurinFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> MaclaurinFeatures(n_components=64, random_state=0).fit_transform(X).shape
    (100, 64)
    """

    _state_fields: ClassVar = {"_seed": whole(0, 2**128), "_first_draws": text}

    def _complete(self) -> None:
        super()._complete()
        if self._first_draws != first_draws(self._seed):
            wrong(
                "_first_draws",
                f"are not what numpy {np.__version__} draws: use the version that wrote the file",
            )

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        alpha: float | None = None,
        eps: float = 0.5,
        center: Any = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.alpha = alpha
        self.eps = eps
        self.center = center
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _importance(self, X: Any, seed: int) -> NDArray[np.float64]:
        masses = degree_masses(self.series_, X, self.n_jobs)
        some = X[keyed_rows(X.shape[0], PAIR_ROWS, seed, "pairs")].astype(np.float64)
        errors = squared_errors(SeriesRows.of(self.series_, some), X.shape[0], masses.sum())
        # Rows that are not among the pairs, or that have no error at all, count by their mass.
        return np.maximum(np.sqrt(errors), masses / max(masses.sum(), TINY))

    def _draw(self, blocks: list[DegreeColumns], n_features: int, seed: int) -> None:
        self._seed, self._first_draws = seed, first_draws(seed)

    def _block_rows(self, dtype: Any) -> int:
        return SIGNED_ROWS

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        size = X.shape[0] if sp.issparse(X) else max(PAIR_ROWS, DENSE_ENTRIES // X.shape[1])
        for rows in row_blocks(X.shape[0], size):
            super()._fill(X[rows], out[rows])

    def _fill_random(self, blocks: list[DegreeColumns], unit: Any, out: NDArray[Any]) -> None:
        for block in blocks:
            for start in range(block.start, block.stop, CHUNK):
                target = out[:, start : min(start + CHUNK, block.stop)]
                product = self._products(unit, block.degree, start, target.shape[1])
                np.multiply(product, out.dtype.type(block.width**-0.5), out=target)

    def _products(self, unit: Any, degree: int, start: int, count: int) -> NDArray[Any]:
        """Products of ``degree`` projections each, for the columns from ``start`` on."""
        product: NDArray[Any] | None = None
        for factor in range(degree):
            rng = stream(self._seed, "signs", degree, start, factor)
            projected = unit @ sign_matrix(unit.shape[1], count, rng, unit.dtype)
            product = projected if product is None else np.multiply(product, projected, out=product)
        assert product is not None
        return product


def first_draws(seed: int) -> str:
    """Fingerprint of numpy's draws for this seed, because its generators may change."""
    return stream(seed, "signs", 1, 0, 0).bytes(16).hex()


def sign_matrix(n_features: int, count: int, rng: np.random.Generator, dtype: Any) -> NDArray[Any]:
    """Independent signs, one random bit each, of shape (n_features, count)."""
    words = np.frombuffer(rng.bytes(-(-n_features * count // 8)), dtype=np.uint8)
    signs = np.unpackbits(words, count=n_features * count).astype(dtype)
    signs *= -2.0
    signs += 1.0
    return signs.reshape(n_features, count)


def squared_errors(rows: SeriesRows, n_rows: int, unit: float) -> NDArray[np.float64]:
    """Mean squared error of k(x, y) from one feature of each degree, of shape (degree + 1,).

    It is an average over all pairs of ``n_rows`` rows, of which ``rows`` are a sample, in units of
    ``unit``^2. For unit vectors u and v, the product of their projections on a vector of signs has
    mean cos and mean square 1 + 2 cos^2 - 2 sum_i u_i^2 v_i^2.
    """
    points = rows.unit()
    squared = points * points
    cosines, common = points @ points.T, squared @ squared.T
    if sp.issparse(cosines):
        cosines, common = cosines.toarray(), common.toarray()
    means = np.square(cosines)
    squares = np.maximum(1.0 + 2.0 * means - 2.0 * common, means)
    weights = _pair_weights(len(means), n_rows)
    masses = np.square(rows.scales) / max(unit, TINY)
    return np.array(
        [
            masses[:, w] @ (weights * (squares**w - means**w)) @ masses[:, w]
            for w in range(masses.shape[1])
        ]
    )


def _pair_weights(n_some: int, n_rows: int) -> NDArray[np.float64]:
    """Weights of pairs of sampled rows: a pair of a row with itself is rare among all rows."""
    diagonal = 1.0 / (n_rows * n_some)
    others = (1.0 - 1.0 / n_rows) / max(1, n_some * (n_some - 1))
    weights = np.full((n_some, n_some), others)
    np.fill_diagonal(weights, diagonal)
    return weights
