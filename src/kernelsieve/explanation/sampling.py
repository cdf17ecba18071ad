"""What a model does beyond its exact parts, estimated on rows that are drawn for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DRAWN_ENTRIES = 2**27  # rows times products times columns that are evaluated ...
DRAWN_ROWS = (512, 4096)  # ... with so many rows


def n_drawn(n_products: int, n_columns: int) -> int:
    """How many rows to draw for sums of so many products."""
    return int(np.clip(DRAWN_ENTRIES // max(1, n_products * n_columns), *DRAWN_ROWS))


@dataclass(frozen=True)
class Rest:
    """Sums of parts at drawn rows. Parts that are known are subtracted: the rest is estimated.

    Attributes
    ----------
    with_column : ndarray of shape (d, n_drawn, n_outputs)
        The sum of all parts that a column takes part in.
    orders : ndarray of shape (3, n_drawn, n_outputs)
        The sums of all parts of two columns, of three, and of more.
    """

    with_column: Array
    orders: Array

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.orders.shape[1]

    def subtract(self, places: Sequence[int], values: Array) -> None:
        """Take a known part out of all sums that hold it."""
        for place in places:
            self.with_column[place] -= values
        if len(places) > 1:
            self.orders[len(places) - 2] -= values

    def column_squares(self) -> Array:
        """What is left for each column and row: shape (d, n_drawn)."""
        return np.square(self.with_column).sum(axis=-1)

    def order_squares(self) -> Array:
        """What is left for each order and row: shape (3, n_drawn)."""
        return np.square(self.orders).sum(axis=-1)

    def share_errors(self, squares: Array, shares: Array, total: float) -> Array:
        """Standard errors of shares whose numerators hold means of squares at rows.

        The total is estimated on the same rows: an error in both cancels in part.

        Parameters
        ----------
        squares : ndarray of shape (k, n_drawn)
        shares : ndarray of shape (k,)
        total : float

        Returns
        -------
        ndarray of shape (k,)
        """
        both = squares - np.multiply.outer(shares, self.order_squares().sum(axis=0))
        return both.std(axis=-1, ddof=1) / (np.sqrt(self.n_rows) * (total or 1.0))
