"""From rows to points: centre, rotate, scale; or a warp and a rate for each column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._state import (
    MOST_COLUMNS,
    Persistent,
    array,
    instance,
    optional,
    scaling,
    whole,
    wrong,
)
from kernelsieve.kernels import Product
from kernelsieve.kernels.base import Series
from kernelsieve.sources.base import as_source
from kernelsieve.sources.summaries import column_means, moments, second_moments, squared_norms

# Directions that those rows do not show may show elsewhere: they keep this share of the mean.
SPREAD_FLOOR = 1e-3


@dataclass(frozen=True)
class Frame(Persistent):
    """The coordinates in which features are products: x' = scale (x - center) rotation.

    Attributes
    ----------
    scale : float
    center : ndarray of shape (d,) or None
    rotation : ndarray of shape (d, n_coordinates) or None
        Orthonormal columns (principal directions); None leaves the columns as they are.
    spread : ndarray of shape (n_coordinates,) or None
        Root mean squares of the coordinates of x' over all rows.
    """

    scale: float
    center: NDArray[np.float64] | None
    rotation: NDArray[np.float64] | None = None
    spread: NDArray[np.float64] | None = None

    _state_fields: ClassVar = {
        "scale": scaling,
        "center": optional(array("d")),
        "rotation": optional(array("d", "n_coordinates")),
        "spread": array("n_coordinates"),
    }

    def _complete(self) -> None:
        if self.center is not None and len(self.center) != self.n_features:
            wrong("center", f"has {len(self.center)} columns instead of {self.n_features}")

    @classmethod
    def of_series(cls, series: Series) -> Frame:
        """The frame that a kernel's series asks for."""
        return cls(series.scale, series.center)

    @classmethod
    def of_gaussian(cls, gamma: float, X: Any, center: Any) -> Frame:
        """The frame of the Gaussian on dense data, for the bases that need no Taylor series."""
        mean = None if center is False else column_means(as_source(X))
        return cls(float(np.sqrt(2.0 * gamma)), mean)

    def along_columns(self, X: Any) -> Frame:
        """The same frame with the columns of X (a source, or rows) as its coordinates."""
        return replace(self, spread=self.scale * np.sqrt(moments(X).mean_squares(self.center)))

    def rotated(self, X: Any, rows: NDArray[np.int64] | None = None) -> Frame:
        """The same frame, turned to the principal directions of X.

        ``rows`` are the numbers of the rows that show them (rising); None looks at all.
        """
        rows = np.arange(X.shape[0]) if rows is None else rows
        whole = len(rows) == X.shape[0]
        directions, values = principal_directions(as_source(X)[rows], self.center)
        floor = 1e-14 * values.max(initial=0.0) if whole else SPREAD_FLOOR * values.mean()
        values = np.where(values > floor, values, 0.0 if whole else floor)
        return replace(self, rotation=directions, spread=self.scale * np.sqrt(values))

    def rescaled(self, factor: float) -> Frame:
        """The same frame with all coordinates multiplied by ``factor``."""
        spread = None if self.spread is None else self.spread * factor
        return replace(self, scale=self.scale * factor, spread=spread)

    @property
    def n_features(self) -> int:
        """The number of columns of the rows."""
        return self.n_coordinates if self.rotation is None else len(self.rotation)

    @property
    def n_coordinates(self) -> int:
        """How many coordinates a point has."""
        assert self.spread is not None
        return len(self.spread)

    def squared_radius(self, X: Any) -> NDArray[np.float64]:
        """|x'|^2 of every row: rotations do not change it."""
        return self.scale**2 * squared_norms(X, self.center)

    def centred(self, X: NDArray[Any]) -> NDArray[Any]:
        """Dense rows minus the centre, in their own float type."""
        return X if self.center is None else X - self.center.astype(X.dtype)

    def points(self, X: Any) -> Any:
        """x' of the rows of X, in X's float type; sparse rows stay sparse."""
        points = X if sp.issparse(X) else self.centred(X)
        if self.rotation is not None:
            points = points @ self.rotation.astype(X.dtype)
        return points * X.dtype.type(self.scale)

    def projector(self, coordinates: NDArray[np.int64], dtype: Any) -> NDArray[Any] | None:
        """What turns centred rows into some coordinates of x'; None where they are columns."""
        if self.rotation is None:
            return None
        return (self.rotation[:, coordinates].T * self.scale).astype(dtype)

    def columns(
        self, centred: NDArray[Any], coordinates: NDArray[np.int64], projector: NDArray[Any] | None
    ) -> NDArray[Any]:
        """Some coordinates of x' for a block of centred rows, one line for each coordinate."""
        if projector is not None:
            return projector @ centred.T
        lines = np.ascontiguousarray(centred.T[coordinates])
        lines *= centred.dtype.type(self.scale)
        return lines


def principal_directions(
    X: NDArray[Any], center: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvectors of the second moments, largest first, and the mean squares along them."""
    values, vectors = np.linalg.eigh(second_moments(X, center))
    directions = vectors[:, ::-1]
    # The largest component of each direction is positive: the same directions everywhere.
    largest = np.abs(directions).argmax(axis=0)
    signs = np.sign(directions[largest, np.arange(directions.shape[1])])
    return directions * signs, np.clip(values[::-1], 0.0, None)


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
