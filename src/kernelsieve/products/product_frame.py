"""Points of a product kernel: each column has a warp and a rate of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import MOST_COLUMNS, Persistent, instance, whole, wrong
from kernelsieve.kernels import Product


@dataclass(frozen=True)
class ProductFrame(Persistent):
    """Coordinates u_i = r_i w_i(x_i) of the columns of rows, in float64.

    Offers what evaluation and draws ask of a ``Frame``.

    Attributes
    ----------
    kernel : Product
    n_coordinates : int
        The number of columns.
    """

    kernel: Product
    n_coordinates: int

    scale: ClassVar[float] = 1.0
    center: ClassVar[None] = None
    rotation: ClassVar[None] = None

    _state_fields: ClassVar = {
        "kernel": instance(Product),
        "n_coordinates": whole(1, MOST_COLUMNS),
    }

    def _complete(self) -> None:
        if self.kernel.n_columns not in (None, self.n_coordinates):
            wrong("kernel", f"has {self.kernel.n_columns} columns, not {self.n_coordinates}")

    @property
    def n_features(self) -> int:
        """The number of columns of the rows."""
        return self.n_coordinates

    def points(self, X: Any) -> Any:
        """The coordinates of the rows of X, of shape (n, d); sparse rows stay sparse."""
        return self.kernel.points(X)

    def centred(self, X: NDArray[Any]) -> NDArray[Any]:
        """The rows as they are: only differences matter."""
        return X

    def projector(self, coordinates: NDArray[np.int64], dtype: Any) -> None:
        """No matrix: coordinates are columns."""

    def columns(
        self, centred: NDArray[Any], coordinates: NDArray[np.int64], projector: Any
    ) -> NDArray[np.float64]:
        """Some coordinates for a block of rows, one line for each coordinate."""
        return np.ascontiguousarray(self.kernel.columns(centred, coordinates).T)
