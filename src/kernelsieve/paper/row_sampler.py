"""RowSampler: Algorithm 3 for any weighted Taylor series; Algorithm 2 is its one-degree case."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_count, check_points, check_positive
from kernelsieve.kernels.series import Series
from kernelsieve.linalg.inverse_root import inverse_root_vectors
from kernelsieve.paper.parameters import SamplerParameters
from kernelsieve.paper.partition import Partition, shortened
from kernelsieve.paper.paths import PathSampler
from kernelsieve.products.multisets import Multisets
from kernelsieve.sketches import PolySketch
from kernelsieve.sources.summaries import squared_norms

LARGEST_LIST = 10**6  # index tuples that ``distribution`` is willing to list


@dataclass(frozen=True)
class RowSample:
    """Drawn index tuples, with the probability that one draw gives each of them.

    Attributes
    ----------
    degrees : ndarray of shape (size,)
    paths : ndarray of shape (size, q)
        The tuples, filled up with -1 beyond their degree.
    probabilities : ndarray of shape (size,)
        beta / s of the paper.
    """

    degrees: NDArray[np.int64]
    paths: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.degrees)

    def tuples(self) -> list[tuple[int, ...]]:
        """The drawn index tuples."""
        return [
            tuple(path[:w])
            for path, w in zip(self.paths.tolist(), self.degrees.tolist(), strict=True)
        ]

    def features(self) -> tuple[Multisets, NDArray[np.float64]]:
        """The rows of S as distinct multisets, and the weights of their features.

        All arrangements of a multiset are one column of Z, and so are repeated draws: the squares
        1 / (s p) add up. phi of a multiset is sqrt(multiplicity) times that of a tuple.
        """
        if len(self) == 0:
            return Multisets.from_tuples([]), np.empty(0)
        sorted_paths = np.sort(self.paths, axis=1)
        distinct, inverse = np.unique(sorted_paths, axis=0, return_inverse=True)
        squares = np.bincount(inverse.reshape(-1), weights=1.0 / (len(self) * self.probabilities))
        multisets = Multisets.from_tuples(
            [[i for i in path if i >= 0] for path in distinct.tolist()]
        )
        return multisets, np.sqrt(squares / multiplicities(multisets))


def multiplicities(multisets: Multisets) -> NDArray[np.float64]:
    """Number of tuples with the same coordinates as each multiset: w! / prod k_i!."""
    log_factorials = np.bincount(
        multisets.owners, weights=gammaln(multisets.orders + 1.0), minlength=len(multisets)
    )
    return np.exp(gammaln(multisets.degrees() + 1.0) - log_factorials)


class RowSampler:
    """Samples index tuples of the lifting by the row norms of Phi (B^T B + lambda I)^(-1/2).

    Parameters
    ----------
    points : {ndarray, CSR} of shape (n, d)
        The points x' that the series, or a frame, makes of the rows.
    series : Series
        The kernel's Taylor series.
    Z : ndarray of shape (n, m) or None
        B^T; None for B = 0, which is the paper's "row norm".
    lambda_ : float
        The ridge.
    parameters : SamplerParameters
        Sizes of the random matrices.
    random_state : int, RandomState, Generator or None, default None
        Seed of the random matrices.
    root : callable, default ``inverse_root_vectors``
        The function that makes M; ``explicit_inverse_root_vectors`` is the alternative.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    paths : PathSampler
        Draws the tuples; holds the column distribution p_j and the degree distributions y_a.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Gaussian
    >>> from kernelsieve.paper.parameters import SamplerParameters
    >>> from kernelsieve.paper.row_sampler import RowSampler
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> series = Gaussian(gamma=0.1).series(X, tol=1e-3)
    >>> parameters = SamplerParameters.practical(n_features=3, degree=series.degree)
    >>> sampler = RowSampler(series.points(X), series, None, 1.0, parameters, random_state=0)
    >>> len(sampler.draw(10, random_state=1))
    10
    """

    def __init__(
        self,
        points: Any,
        series: Series,
        Z: NDArray[Any] | None,
        lambda_: float,
        parameters: SamplerParameters,
        random_state: Any = None,
        *,
        root: Any = inverse_root_vectors,
        n_jobs: int | None = None,
    ) -> None:
        check_positive(lambda_, "lambda_", "it is added to the diagonal of B^T B")
        points = check_points(points, "points")
        seed, (n, self.n_features) = root_seed(random_state), points.shape
        self.degree = series.degree
        M = root(Z, n, lambda_, parameters.n_vectors, stream(seed, "H"))  # lines 1 and 2
        self.paths = path_sampler(points, series, M, parameters, seed, n_jobs)  # lines 3 to 13

    def draw(self, size: int, random_state: Any = None) -> RowSample:
        """Draw index tuples independently (lines 7 and 12 to 35).

        Parameters
        ----------
        size : int
            Number of draws.
        random_state : int, RandomState, Generator or None, default None
            Seed of the draws.

        Returns
        -------
        RowSample
            With ``size`` tuples; with none if Phi is zero.
        """
        check_count(size, "size", "it is the number of draws")
        rng = stream(root_seed(random_state), "paths")
        draws = self.paths.draw_with_beta(0 if self.paths.is_empty else size, rng)
        return RowSample(draws.degrees, draws.paths, draws.probabilities)

    def distribution(self) -> RowSample:
        """List every index tuple with its probability.

        Returns
        -------
        RowSample

        Raises
        ------
        ValueError
            If there are more than 1,000,000 tuples.
        """
        count = sum(self.n_features**w for w in range(self.degree + 1))
        if count > LARGEST_LIST:
            raise ValueError(
                f"{count:,} index tuples are too many to list (at most {LARGEST_LIST:,}): "
                "ask for the probabilities of draws instead"
            )
        listed = [
            (w, *path, *([-1] * (self.degree - w)))
            for w in range(self.degree + 1)
            for path in product(range(self.n_features), repeat=w)
        ]
        table = np.array(listed, dtype=np.int64)
        degrees, paths = table[:, 0], table[:, 1:]
        return RowSample(degrees, paths, self.paths.path_probabilities(degrees, paths))


def path_sampler(
    points: Any,
    series: Series,
    M: NDArray[np.float64],
    parameters: SamplerParameters,
    seed: int,
    n_jobs: int | None,
    lowest: int = 0,
) -> PathSampler:
    """The sketches P_j, the partition and the column distribution (lines 3 to 13).

    The factor c(x) of line 2 and the 1/sqrt(w!) of line 5 are in the lengths of the degrees.
    Degrees below ``lowest`` are never drawn.
    """
    units = unit_vectors(points)
    log_lengths = series.log_degree_scales(squared_norms(points))
    log_lengths[:, :lowest] = -np.inf
    P = sketched_powers(units, series.degree, parameters, stream(seed, "sketch"), n_jobs)
    partition = Partition(
        units, parameters.n_buckets, parameters.bucket_rows, stream(seed, "partition")
    )
    lengths = relative_lengths(log_lengths).astype(units.dtype)
    return PathSampler(lengths, M, P, partition, n_jobs)


def unit_vectors(points: Any) -> Any:
    """The points divided by their lengths; zero ones stay zero."""
    norms = np.sqrt(squared_norms(points))
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    if not sp.issparse(points):
        return np.multiply(points, inverse[:, None], out=np.empty_like(points), casting="same_kind")
    factors = np.repeat(inverse, np.diff(points.indptr))
    data = np.multiply(points.data, factors, out=np.empty_like(points.data), casting="same_kind")
    return sp.csr_array((data, points.indices, points.indptr), shape=points.shape)


def relative_lengths(log_lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lengths divided by the largest one: powers overflow, and only ratios matter."""
    largest = log_lengths.max(initial=-np.inf)
    return np.exp(log_lengths - (largest if np.isfinite(largest) else 0.0))


def sketched_powers(
    units: Any,
    degree: int,
    parameters: SamplerParameters,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> NDArray[Any]:
    """All P_j of the unit vectors, of shape (degree + 1, n, m' or n) (lines 3 and 4)."""
    if degree == 0:
        return np.ones((1, units.shape[0], 1), dtype=units.dtype)
    distribution = PolySketch(
        units.shape[1], parameters.sketch_size, degree, width=parameters.tree_width
    )
    P = distribution.sample(rng).apply_all(units, n_jobs=n_jobs)
    # Only norms of combinations of the points' sketches matter: n coordinates are enough.
    return P if P.shape[2] <= P.shape[1] else np.stack([shortened(P_j.T).T for P_j in P])
