"""Passes over the features of rows, one block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import thread_count
from kernelsieve._validation import check_count, check_square
from kernelsieve.features import FeatureMap
from kernelsieve.features.blocks import FeatureBlocks
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.given import as_source

LARGEST_BLOCK = 4096

OfBlock = Callable[[Any, Block], Any]


@dataclass(frozen=True)
class FeaturePasses:
    """How the features of rows are computed, a block at a time.

    Attributes
    ----------
    features : FeatureMap
        Fitted.
    block_rows : int or None
        Rows of a block; None takes up to 4096.
    n_jobs : int or None
    verbose : int
        1 shows the progress of sums.
    """

    features: FeatureMap
    block_rows: int | None
    n_jobs: int | None
    verbose: int = 0

    def map(self, function: OfBlock, X: Any, raw: bool = False) -> list[Any]:
        """``function(Z, block)`` for the features (or raw blocks) of all rows, in order."""
        return list(as_source(X).map(*self._by_block(function, X, raw)))

    def reduce(
        self, function: OfBlock, rows: Source, description: str = "Features", raw: bool = False
    ) -> Any:
        """The sum of ``function(Z, block)`` over all blocks, with a progress bar if verbose."""
        return rows.reduce(*self._by_block(function, rows, raw), description, self.verbose)

    def kept(self, rows: Source) -> FeatureBlocks:
        """The features of all rows as a matrix that iterations multiply with."""
        size = self.rows_per_block(rows.shape[0])
        return FeatureBlocks(self.features.transform_block, rows, size, self.n_jobs)

    def mixing(self, dtype: Any) -> NDArray[Any] | None:
        """The mixing of the map, if it can be applied to the sums instead of to every row.

        Then a Nystrom ridge never whitens a row. Sums are in float64. The whitening of float32
        features is bounded by the rounding of float32, so it does not magnify that of the sums; the
        whitening of float64 features would.
        """
        return self.features.mixing if np.dtype(dtype) == np.float32 else None

    def rows_per_block(self, n_rows: int) -> int:
        """Rows in a block."""
        return rows_per_block(self.block_rows, n_rows)

    def _by_block(
        self, function: OfBlock, X: Any, raw: bool
    ) -> tuple[Callable[[Block], Any], int, int | None]:
        evaluate = self.features.raw_block if raw else self.features.transform_block
        size = self.rows_per_block(X.shape[0])
        # A single block is done sooner in this thread than handed to another.
        n_jobs = 1 if X.shape[0] <= size else self.n_jobs
        return lambda block: function(evaluate(block.X), block), size, n_jobs


def rows_per_block(block_rows: int | None, n_rows: int) -> int:
    """Rows in a block: chosen by the shape alone, so that threads do not change the bits."""
    if block_rows is None:
        return int(np.clip(n_rows // 8, 256, LARGEST_BLOCK))
    return check_count(block_rows, "block_rows", "it is the number of rows in a block")


def check_gram(size: int, n_jobs: int | None, way_out: str = "") -> None:
    """Refuse normal equations that do not fit in memory."""
    # Their sum and the blocks under way; then a copy that is centred, one that is shifted.
    copies = 3 + thread_count(n_jobs)
    what = f"the {size:,} x {size:,} matrix of products of the features"
    check_square(size, 8 * copies, what, f"at most {{fits}} would fit: {way_out}lower n_components")


def finite(values: NDArray[Any], what: str) -> NDArray[Any]:
    """The values, if all of them are finite."""
    if np.isfinite(values).all():
        return values
    raise ValueError(f"{what} overflow {values.dtype}: scale the data, or pass X in float64")


def times(Z: Any, coefficients: NDArray[np.float64]) -> NDArray[Any]:
    """Z times coefficients, in Z's float type; what overflows becomes infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return Z @ coefficients.astype(Z.dtype, copy=False)
