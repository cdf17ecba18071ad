"""Oblivious sketches of a kernel's Taylor series (Ahle et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import root_seed, stream
from kernelsieve._state import INT64, array, instance, list_of
from kernelsieve._validation import check_choice, check_memory
from kernelsieve.features.power_tree import Draws, PowerTree, SeededDraws, StoredDraws
from kernelsieve.features.series import SeriesFeatures, degree_masses
from kernelsieve.products.degrees import DegreeColumns
from kernelsieve.sketches import SRHT
from kernelsieve.sketches.base import FEWEST_ROWS, power_of_two
from kernelsieve.sketches.srht import SampledSRHT

# Width of the tree against what comes out, for each degree (on average over the columns), and at
# most. The paper asks for order q / eps^2; rows that are far longer than others need it.
WIDENING = 0.5
WIDEST = 8.0
# A degree that gets few of the columns needs no more than this much above its own share, ...
SHARE_FACTOR = 2.0
FEWEST_WIDE = 2048  # ... or this, which keeps the low degrees that it is made of exact or close
SKETCH_BYTES = 2**23  # of the sketches of all degrees for a block of rows


class ObliviousFeatures(SeriesFeatures):
    """Sketched tensor powers, for every kernel with a Taylor series.

    One tree of TensorSRHTs sketches u^(x)w for all degrees w at once, and each degree is compressed
    to its share of the columns. The error grows slowly with the degree, while that of TensorSketch
    and Maclaurin features grows like 3^degree. Degrees with few monomials are exact. The random
    draws do not depend on the data (only the shares do), and E[Z Z^T] is the truncated kernel.

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
    compress : "srht" or "gaussian", default "srht"
        How the sketch of a degree is reduced to its columns. A Gaussian matrix, as in the paper,
        has a higher variance, and takes memory and time of order n_components^2.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    truncation_degree_ : int
        Degree q of the truncated Taylor series. The time is proportional to q log q.
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
    >>> from kernelsieve import ObliviousFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> features = ObliviousFeatures(64, kernel="poly", degree=6, random_state=0).fit(X)
    >>> features.truncation_degree_, features.transform(X).shape
    (6, (100, 64))
    """

    _state_fields: ClassVar = {"_draws": list_of(instance(np.ndarray))}
    _not_stored: ClassVar = dict.fromkeys(("_sizes", "_tree", "_compressions"), "in _draws")

    _sizes: dict[int, int]

    @property
    def _draws(self) -> list[NDArray[Any]]:
        """All that was drawn, in the order in which it was."""
        if not self._sizes:
            return []
        compressions = self._compressions.values()
        return self._tree.arrays() + [array for each in compressions for array in each.arrays()]

    def _restore(self, values: dict[str, Any]) -> None:
        draws = StoredDraws(values.pop("_draws"))
        super()._restore(values)
        self._sizes = {}
        if blocks := [block for block in self._blocks if not block.exact]:
            self._grow(blocks, self.n_features_in_, draws)
            self._compressions = {
                block.degree: _stored_compression(draws, self._sizes[block.degree], block.width)
                for block in blocks
            }
        draws.close()

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
        compress: str = "srht",
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
        self.compress = compress
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _importance(self, X: Any, seed: int) -> NDArray[np.float64]:
        # The squared error in m columns is (mass^2 + mean of K_w^2) / m: the first is what counts.
        return degree_masses(self.series_, X, self.n_jobs)

    def _draw(self, blocks: list[DegreeColumns], n_features: int, seed: int) -> None:
        check_choice(self.compress, "compress", ("srht", "gaussian"))
        self._sizes = {}
        if not blocks:
            return
        self._check_tree(blocks, len({block.degree for block in blocks}))
        seeded = SeededDraws(root_seed(stream(seed, "tree")))
        self._grow(blocks, n_features, seeded)
        compression = SRHT if self.compress == "srht" else GaussianMatrix
        self._compressions = {
            block.degree: compression(self._sizes[block.degree], block.width).sample(
                stream(seed, "compress", block.degree)
            )
            for block in blocks
        }

    def _grow(self, blocks: list[DegreeColumns], n_features: int, draws: Draws) -> None:
        self._tree = PowerTree.grow(n_features, self._widths(blocks), draws)
        self._sizes = self._tree.sizes

    def _check_tree(self, blocks: list[DegreeColumns], n_degrees: int) -> None:
        """Refuse a tree that does not fit in memory, together with a block of rows."""
        width = max(self._widths(blocks).values())
        what = f"a tree of {n_degrees} sketches of {width:,} coordinates"
        check_memory(8.0 * width * n_degrees * (2 + FEWEST_ROWS), what, "lower n_components")
        if self.compress == "gaussian":
            columns = sum(block.width for block in blocks)
            what = f"Gaussian matrices of {width:,} x {columns:,}"
            check_memory(8.0 * width * columns, what, "use compress='srht', or lower n_components")

    def _widths(self, blocks: list[DegreeColumns]) -> dict[int, int]:
        """How wide the sketches of each degree are.

        What a degree's sketches lose adds to what its own columns lose, so it is the number of
        these columns that they have to be wide against.
        """
        columns = sum(block.width for block in blocks)
        mean_degree = sum(block.degree * block.width for block in blocks) / columns
        widest = power_of_two(int(np.ceil(_widening(mean_degree) * self.n_components_)))
        widths = {}
        for block in blocks:
            enough = SHARE_FACTOR * _widening(block.degree) * block.width
            widths[block.degree] = min(widest, power_of_two(max(FEWEST_WIDE, int(np.ceil(enough)))))
        return widths

    def _block_rows(self, dtype: Any) -> int:
        row_bytes = max(1, sum(self._sizes.values())) * np.dtype(dtype).itemsize
        return int(np.clip(SKETCH_BYTES // row_bytes, FEWEST_ROWS, 256))

    def _fill_random(self, blocks: list[DegreeColumns], unit: Any, out: NDArray[Any]) -> None:
        powers = self._tree.powers(unit)
        for block in blocks:
            self._compressions[block.degree].fill(powers.pop(block.degree), out[:, block.columns])


def _widening(degree: float) -> float:
    return min(max(1.0, WIDENING * degree), WIDEST)


def _stored_compression(draws: StoredDraws, n_features: int, size: int) -> Any:
    """The Hadamard transform or the Gaussian matrix that was drawn."""
    if draws.next_is(np.float64):
        matrix = draws.next(array(n_features, size))
        return SampledGaussianMatrix({matrix.dtype: matrix})
    signs = draws.signs(n_features)
    highest = power_of_two(n_features) - 1
    places = draws.next(array(size, dtype=INT64, low=0, high=highest))
    return SampledSRHT(n_features, size, signs, places)


@dataclass(frozen=True)
class GaussianMatrix:
    """The distribution of Gaussian matrices with E[G G^T] = I."""

    n_features: int
    size: int

    def sample(self, rng: np.random.Generator) -> SampledGaussianMatrix:
        """Draw a matrix of this distribution."""
        matrix = rng.standard_normal((self.n_features, self.size)) / np.sqrt(self.size)
        return SampledGaussianMatrix({matrix.dtype: matrix})


@dataclass(frozen=True, eq=False)
class SampledGaussianMatrix:
    """A Gaussian matrix, in the float types requested so far."""

    matrices: dict[Any, NDArray[Any]]

    def arrays(self) -> list[NDArray[Any]]:
        """What was drawn."""
        return [self.matrices[np.dtype(np.float64)]]

    def fill(self, X: NDArray[Any], out: NDArray[Any]) -> None:
        """Write X G into ``out``."""
        if out.dtype not in self.matrices:
            self.matrices[out.dtype] = self.matrices[np.dtype(np.float64)].astype(out.dtype)
        np.matmul(X, self.matrices[out.dtype], out=out)
