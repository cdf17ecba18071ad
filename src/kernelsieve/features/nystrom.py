"""Nystrom features: whitened kernel values with a few landmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._state import FLOATS, INT64, array, optional, plain, row_matrix, switch, wrong
from kernelsieve._validation import (
    check_choice,
    check_count,
    check_points,
    check_positive,
    check_square,
)
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.directions import (
    WhitenedSums,
    best_directions,
    summary_of_targets,
    target_directions,
)
from kernelsieve.features.landmarks import (
    kmeans_centres,
    leverage_landmarks,
    rpcholesky_landmarks,
    uniform_landmarks,
)
from kernelsieve.linalg.whitening import independent_landmarks, times_upper, whitening_of
from kernelsieve.sources.base import Source

ROWS = {
    "uniform": uniform_landmarks,
    "leverage": leverage_landmarks,
    "rpcholesky": rpcholesky_landmarks,
}
WHITENED_ROWS = 512  # at least: the landmarks and the triangle are read once a block


class NystromFeatures(FeatureMap):
    """Whitened kernel values with landmark points, for any positive semi-definite kernel.

    Z Z^T = C W^+ C^T with C = k(X, landmarks) and W = k(landmarks, landmarks): the best
    approximation of K in the span of the landmarks, and K itself where they span all rows. Not
    unbiased: Z Z^T is never above K.

    Parameters
    ----------
    n_components : int, default 1000
        Number of landmarks, and of features. If it is at least the number of rows, all rows are
        landmarks, and Z Z^T = K on them. If the landmarks are given as points, it is ignored
        unless ``oversample`` is above 1.
    kernel : Kernel, str or callable, default "gaussian"
        Any kernel of ``kernelsieve.kernels``, a name ("gaussian", "laplacian", "cosine", "chi2",
        ...) or a function of two rows.
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        Degree of kernel="poly".
    coef0 : float, default 1.0
        Constant of kernel="poly".
    landmarks : str, array-like or CSR of shape (n_landmarks, d), default "uniform"
        How to choose the landmarks, or the points themselves.

        - "uniform": random rows; the fastest.
        - "leverage": rows drawn by recursive ridge leverage scores at ``alpha`` (Musco and Musco,
          2017), which finds rare clusters. The smaller alpha is, the longer it takes.
        - "rpcholesky": randomly pivoted Cholesky (Epperly et al., 2024); the lowest error in the
          trace of K, but a factor of shape (n, n_components) is kept in memory.
        - "kmeans": centres of mini-batch k-means, for dense data.
    oversample : int, default 1
        Landmarks for each feature. With 4, the features are the top ``n_components`` directions of
        four times as many landmarks, found in one pass over all rows: the best approximation of
        that rank which these landmarks have. Rows then cost four times as many kernel values.
    target_directions : bool, default False
        Let the directions of ``oversample`` include those of the ridge on all landmarks, so that
        ``KernelRidge`` with the same alpha predicts what it would with all of them. The target has
        then been seen: judge the model on other rows.
    alpha : float, default None
        Ridge that the features will be used with, for landmarks="leverage" and
        ``target_directions``. None takes that of the model, or 1.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    landmarks_ : {ndarray, CSR} of shape (n_landmarks, d)
        The landmarks in use, without those that the others span up to rounding, such as repeated
        points, or points beyond the rank of a polynomial kernel.
    landmark_indices_ : ndarray of shape (n_landmarks,) or None
        Row numbers of the landmarks in X; None for "kmeans" and for given points.
    whitening_ : ndarray of shape (n_landmarks, n_components)
        T with Z = C T. It is square and upper triangular with T T^T = (W + shift I)^-1, or such a
        triangle times the directions of ``oversample``. The shift is the rounding error of X's
        float type: without it float32 features would be noise.
    n_components_ : int
        Number of features.
    kernel_ : Kernel
        The kernel in use.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import NystromFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> Z = NystromFeatures(100, kernel="laplacian", gamma=0.2).fit_transform(X)
    >>> Z.shape, bool(np.allclose((Z**2).sum(axis=1), 1.0))  # all rows: exact
    ((100, 100), True)
    >>> NystromFeatures(20, landmarks="leverage", random_state=0).fit(X).landmarks_.shape
    (20, 5)
    """

    unbiased: ClassVar[bool] = False
    _state_parameters: ClassVar = {
        "landmarks": plain(str, list, tuple, np.ndarray, sp.csr_array, sp.csr_matrix),
        "target_directions": switch,
    }
    _state_fields: ClassVar = {
        "landmarks_": row_matrix("m", "d"),
        "landmark_indices_": optional(array("m", dtype=INT64, low=0)),
        "whitening_": array("m", "s", dtype=FLOATS),
    }

    def _complete(self) -> None:
        super()._complete()
        self.check_stored_rows(self.landmarks_, "landmarks_")
        self.n_components_ = self.whitening_.shape[1]
        if self.n_components_ > len(self.whitening_):
            wrong("whitening_", "has more columns than landmarks")

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        landmarks: Any = "uniform",
        oversample: int = 1,
        target_directions: bool = False,
        alpha: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.oversample = oversample
        self.target_directions = target_directions
        self.alpha = alpha
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_rows(self, X: Source, seed: int) -> None:
        points, indices = self._choose_landmarks(X, seed)
        exact = points.astype(np.float64)
        gram = self.kernel_.between(exact, exact, self.n_jobs)
        kept = independent_landmarks(gram)
        self.landmarks_ = points[kept]
        self.landmark_indices_ = None if indices is None else indices[kept]
        whitening = whitening_of(gram[np.ix_(kept, kept)], X.dtype)
        if self.oversample > 1 and len(kept) > self.n_components:
            whitening = whitening @ self._directions(X, whitening).astype(X.dtype)
        self.whitening_ = np.ascontiguousarray(whitening)
        self.n_components_ = self.whitening_.shape[1]

    def _directions(self, X: Source, whitening: NDArray[Any]) -> NDArray[np.float64]:
        """What the features of all landmarks are multiplied by to keep ``n_components``."""
        size, targets = int(self.n_components), None
        if self.target_directions:
            targets = summary_of_targets(X)
        sums = WhitenedSums(self.kernel_, self.landmarks_, whitening, targets)
        if self.target_directions:
            return target_directions(sums, X, size, self._ridge(), self.n_jobs)
        return best_directions(sums, X, size, self.n_jobs)

    def _ridge(self) -> float:
        if self.alpha is None:
            return 1.0
        return check_positive(self.alpha, "alpha", "it is added to the kernel's diagonal")

    def _choose_landmarks(self, X: Source, seed: int) -> tuple[Any, NDArray[np.int64] | None]:
        check_count(self.oversample, "oversample", "it is the number of landmarks for each feature")
        check_choice(self.target_directions, "target_directions", (True, False))
        alpha = self._ridge()
        if not isinstance(self.landmarks, str):
            return self._given_landmarks(X), None
        check_choice(self.landmarks, "landmarks", (*ROWS, "kmeans"))
        size = int(self.n_components) * int(self.oversample)
        # The kernel matrix of the landmarks, what is left of it at each pivot, factor and inverse.
        used = min(size, X.shape[0])
        check_square(
            used,
            4 * 8,
            f"whitening by the kernel matrix of {used:,} landmarks",
            "at most {fits} would fit: lower n_components or oversample",
        )
        if size >= X.shape[0]:
            return X[np.arange(X.shape[0])], np.arange(X.shape[0])
        uniform = self.landmarks == "uniform"  # looks at no row
        rows = X if uniform else X.in_memory(f"landmarks={self.landmarks!r}")
        if self.landmarks == "kmeans":
            return kmeans_centres(rows, size, seed), None
        choose = ROWS[self.landmarks]
        indices = choose(self.kernel_, rows, size, alpha, seed, self.n_jobs)
        return X[indices], indices

    def _given_landmarks(self, X: Source) -> Any:
        points = check_points(self.landmarks, "landmarks")
        if points.shape[1] != X.shape[1]:
            raise ValueError(
                f"landmarks have {points.shape[1]} columns, but X has {X.shape[1]}: pass points "
                "with the columns of X"
            )
        return points.astype(X.dtype, copy=False)

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        # In the finer of the two float types, that of the fit and that of X: the landmarks know.
        C = self.raw_block(X)
        if _is_square(self.whitening_):
            times_upper(C, self.whitening_, out)
        else:
            np.matmul(C, self.whitening_, out=out)

    def raw_block(self, X: Any) -> NDArray[Any]:
        return self.kernel_.between(self._spelled_out(X), self.landmarks_, n_jobs=1)

    def times(self, weights: NDArray[np.float64]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        weights = self.whitening_.astype(np.float64) @ weights
        if not isinstance(self.landmarks_, np.ndarray):
            return lambda rows: self.kernel_.between(rows, self.landmarks_, 1) @ weights
        kernel = self.kernel_.against(self.landmarks_.astype(np.float64))
        return lambda rows: kernel(rows) @ weights

    @property
    def mixing(self) -> NDArray[Any] | None:
        # With many landmarks for each feature the sums over raw blocks would cost more.
        return self.whitening_ if _is_square(self.whitening_) else None

    def as_landmarks(self) -> tuple[Any, NDArray[Any]]:
        return self.landmarks_, self.whitening_

    def _block_rows(self, dtype: Any) -> int:
        return max(WHITENED_ROWS, super()._block_rows(dtype))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not (_is(self.landmarks, "kmeans") or _is(self.kernel, "chi2"))
        tags.input_tags.positive_only = _is(self.kernel, "chi2")
        return tags


def _is_square(matrix: NDArray[Any]) -> bool:
    return matrix.shape[0] == matrix.shape[1]


def _is(value: Any, name: str) -> bool:
    """Whether a parameter, which may be an array or an object, is this name."""
    return isinstance(value, str) and value == name
