"""Random Fourier features (Rahimi and Recht, 2008): plain, orthogonal, structured and modified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.fourier import write_pairs, write_waves
from kernelsieve._parallel import row_blocks
from kernelsieve._random import stream
from kernelsieve._state import FLOATS, array, array_or, instance, wrong
from kernelsieve._validation import check_choice, check_matrix, check_positive
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.frequencies import (
    StructuredFrequencies,
    modified_frequencies,
    orthogonal_frequencies,
    structured_frequencies,
)
from kernelsieve.kernels import Product
from kernelsieve.sources.base import Block, Source

FREQUENCIES = ("plain", "orthogonal", "structured", "modified")
PACKED_ROWS = 512  # at least, in a product with dense frequencies: each packs them anew
STRUCTURED_ENTRIES = 12  # numbers that stand for one structured frequency
PANEL = 1024  # frequencies at a time
ANGLES = 2**19  # at a time: they stay in the cache until their cosines are written


class FourierFeatures(FeatureMap):
    """Cosines and sines of random projections, for kernels of x - y.

    Parameters
    ----------
    n_components : int, default 1000
        Number of features.
    kernel : Kernel or str, default "gaussian"
        "gaussian", "laplacian", "matern", a Kernel of one of these families, or a Product.
    gamma : "scale", "auto" or float, default "scale"
        exp(-gamma ‖x - y‖^2), exp(-gamma ‖x - y‖_1), or Matern's kernel (nu = 3/2) with the length
        1 / sqrt(2 gamma); "scale" is 1 / (d var(X)).
    alpha : float, default None
        Ridge that the features will be used with, for frequencies="modified". None takes that of
        the model, or 1.
    variant : "cos+sin" or "phase", default "cos+sin"
        A cosine and a sine for every frequency, or one cosine with a random phase. "cos+sin" takes
        half the time, has the lower variance, and gives ‖z(x)‖ = 1 unless "modified".
    frequencies : "plain", "orthogonal", "structured" or "modified", default "plain"
        How to draw the frequencies. All four are exactly unbiased.

        - "plain": independent draws.
        - "orthogonal": blocks of orthogonal frequencies (Yu et al., 2016); lower error at the same
          cost.
        - "structured": orthogonal frequencies as products of random rotations and a Hadamard
          transform; O(log d) operations per frequency instead of d, and no d x s matrix. For many
          columns.
        - "modified": high frequencies are drawn more often and weighted less (after Avron et al.,
          2017). For few columns and a small alpha, where the spectral error falls by orders of
          magnitude, although the error of single kernel values does not; in many dimensions they
          become plain frequencies.

        Laplacian and Product allow "plain" only: the others need a kernel of ‖x - y‖.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    frequencies_ : ndarray of shape (d, n_frequencies) or StructuredFrequencies
        The frequencies, in the float type of the rows of ``fit``.
    weights_ : ndarray of shape (n_frequencies,)
        Weight of each frequency: 1, unless they are modified.
    phases_ : ndarray of shape (n_phases,)
        Phases of the features that are a cosine without a sine.
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
    >>> from kernelsieve import FourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> FourierFeatures(n_components=64, random_state=0).fit_transform(X).shape
    (100, 64)
    >>> structured = FourierFeatures(64, kernel="matern", frequencies="structured", random_state=0)
    >>> bool(np.allclose((structured.fit_transform(X) ** 2).sum(axis=1), 1.0))
    True
    """

    unbiased: ClassVar[bool] = True
    _state_fields: ClassVar = {
        "weights_": array("count"),
        "phases_": array(None),
        "frequencies_": array_or(
            array("d", "count", dtype=FLOATS),
            instance(StructuredFrequencies, d="n_features", count="count"),
        ),
    }

    def _complete(self) -> None:
        super()._complete()
        count, singles = len(self.weights_), len(self.phases_)
        if not 0 <= singles <= count or count == 0:
            wrong("phases_", f"are {singles} for {count} frequencies")
        self.n_components_ = 2 * count - singles  # each has a cosine, and a sine or a phase

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        alpha: float | None = None,
        variant: str = "cos+sin",
        frequencies: str = "plain",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.alpha = alpha
        self.variant = variant
        self.frequencies = frequencies
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_rows(self, X: Source, seed: int) -> None:
        check_choice(self.variant, "variant", ("cos+sin", "phase"))
        check_choice(self.frequencies, "frequencies", FREQUENCIES)
        self.n_components_ = int(self.n_components)
        # An odd number of features leaves one frequency without its sine: it gets a phase.
        pairs = self.n_components_ // 2 if self.variant == "cos+sin" else 0
        singles = self.n_components_ - 2 * pairs
        self._check_frequencies(X.shape[1], pairs + singles)
        frequencies, self.weights_ = self._draw(X, pairs + singles, stream(seed, "frequencies"))
        if isinstance(frequencies, np.ndarray):  # Cauchy variables may exceed float32
            frequencies.clip(*_range(X.dtype), out=frequencies)
        self.frequencies_ = frequencies.astype(X.dtype, copy=False)
        self.phases_ = stream(seed, "phases").uniform(0.0, 2.0 * np.pi, size=singles)

    def _draw(
        self, X: Source, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64] | StructuredFrequencies, NDArray[np.float64]]:
        """Frequencies and their weights."""
        kernel, d = self.kernel_, X.shape[1]
        if not kernel.has_frequencies:
            raise ValueError(
                f"kernel={kernel!r} has no Fourier features: use Gaussian, Laplacian, Matern or "
                "Product"
            )
        if self.frequencies == "plain":
            if isinstance(kernel, Product):
                _check_categories(kernel, X)
            return kernel.frequencies(d, count, rng), np.ones(count)
        if not kernel.radial:
            raise ValueError(
                f"frequencies={self.frequencies!r} needs a kernel of |x - y|, which {kernel!r} is "
                "not: use 'plain', or Matern with nu=0.5"
            )
        if self.frequencies == "orthogonal":
            return orthogonal_frequencies(kernel, d, count, rng), np.ones(count)
        if self.frequencies == "structured":
            return structured_frequencies(kernel, d, count, rng), np.ones(count)
        alpha = 1.0 if self.alpha is None else self.alpha
        check_positive(alpha, "alpha", "it is added to the kernel's diagonal")
        return modified_frequencies(kernel, _sides(X), X.shape[0], alpha, count, rng)

    def _check_frequencies(self, n_features: int, count: int) -> None:
        """Refuse tables of frequencies that do not fit in memory, before they are drawn."""
        structured = self.frequencies == "structured"
        width = STRUCTURED_ENTRIES if structured else n_features
        check_matrix(
            width,
            count,
            np.float64,
            f"a table of {count:,} frequencies of {n_features:,} columns",
            "at most {fits} would fit: lower n_components"
            + ("" if structured else ", or use frequencies='structured'"),
        )

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        frequencies = self.frequencies_.astype(X.dtype, copy=False)
        # Each pair stands for 2 / s of the kernel, each single cosine (mean square 1/2) for 1 / s.
        weights = (self.weights_ * np.sqrt(2.0 / self.n_components_)).astype(X.dtype)
        phases = self.phases_.astype(X.dtype)
        pairs = len(weights) - len(phases)
        if isinstance(self.kernel_, Product):
            X = self.kernel_.points(X).astype(X.dtype)
        for rows in row_blocks(X.shape[0], _rows_at_once(X, frequencies)):
            for start, stop, angles in _angles(X[rows], frequencies):
                middle = min(max(start, pairs), stop)
                bad = write_pairs(angles, weights[start:middle], out[rows], start, pairs + start)
                if bad < 0:
                    bad = write_waves(
                        angles,
                        middle - start,
                        phases[middle - pairs : stop - pairs],
                        weights[middle:stop],
                        out[rows],
                        pairs + middle,
                    )
                if bad >= 0:
                    # A list: scipy 1.12 has no single rows of sparse arrays.
                    _raise_too_far(X[rows][[bad]])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False  # a wave has no value at NaN
        return tags

    def _block_rows(self, dtype: Any) -> int:
        rows = super()._block_rows(dtype)
        return max(rows, PACKED_ROWS) if isinstance(self.frequencies_, np.ndarray) else rows


def _check_categories(kernel: Product, X: Source) -> None:
    """Refuse codes that are not integers: frequencies of categories tell integers apart only."""
    families = kernel.families_for(X.shape[1])
    columns = [c for c in kernel.active(X.shape[1]) if families[c] == "categorical"]
    if not columns:
        return

    def broken(block: Block) -> NDArray[np.int64]:
        codes = block.X[:, columns]
        return (codes != np.round(codes)).sum(axis=0).astype(np.int64)

    counts = X.reduce(broken)
    if counts.any():
        raise ValueError(
            f"column {columns[int(np.argmax(counts))]} is categorical and holds numbers that are "
            "not integers: Fourier features need integer codes, or use NystromFeatures"
        )


def _range(dtype: Any) -> tuple[float, float]:
    limits = np.finfo(dtype)
    return float(limits.min), float(limits.max)


@dataclass
class _Box:
    """The box that holds some rows."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of_block(cls, block: Block) -> _Box:
        extremes = [block.X.min(axis=0), block.X.max(axis=0)]
        low, high = (e.toarray().ravel() if sp.issparse(e) else e for e in extremes)
        return cls(low.astype(np.float64), high.astype(np.float64))

    def __iadd__(self, other: _Box) -> _Box:
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)
        return self


def _sides(X: Source) -> NDArray[np.float64]:
    """The sides of the box that holds the rows of X."""
    box = X.reduce(_Box.of_block)
    return box.high - box.low


def _rows_at_once(X: Any, frequencies: Any) -> int:
    if isinstance(frequencies, StructuredFrequencies):
        width = frequencies.lengths.size
    else:
        width = frequencies.shape[1] if sp.issparse(X) else min(frequencies.shape[1], PANEL)
    return max(1, ANGLES // width)


def _angles(X: Any, frequencies: Any) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Yield (start, stop, X times these frequencies) for consecutive ranges of frequencies."""
    count = frequencies.shape[1]
    if isinstance(frequencies, StructuredFrequencies):
        yield 0, count, frequencies.angles(X)
    elif sp.issparse(X):
        yield 0, count, X @ frequencies
    else:
        space = np.empty(X.shape[0] * min(count, PANEL), dtype=X.dtype)
        for panel in row_blocks(count, PANEL):
            size = panel.stop - panel.start
            angles = space[: X.shape[0] * size].reshape(X.shape[0], size)
            with np.errstate(over="ignore", invalid="ignore"):  # an overflow is told with its row
                np.matmul(X, frequencies[:, panel], out=angles)
            yield panel.start, panel.stop, angles


def _raise_too_far(row: Any) -> None:
    largest = float(abs(row).max())
    raise ValueError(
        f"a row of X has an entry of size {largest:.1e}: times the frequencies it exceeds what "
        f"{row.dtype} can hold; scale X"
    )
