"""From rows to points: centre, rotate, scale (the walk's second step)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import row_blocks
from kernelsieve._series import Series
from kernelsieve._validation import squared_norms

MOMENT_ROWS = 8192  # fixed, so that sums do not depend on how the data came in


@dataclass(frozen=True)
class Frame:
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

    @classmethod
    def of_series(cls, series: Series, X: Any) -> Frame:
        """The frame that a kernel's series asks for, unrotated."""
        frame = cls(series.scale, series.center)
        return replace(frame, spread=frame.scale * _root_mean_squares(X, frame.center))

    @classmethod
    def of_gaussian(cls, gamma: float, X: NDArray[Any], center: Any) -> Frame:
        """The frame of the Gaussian on dense data, for the bases that need no Taylor series."""
        mean = None if center is False else X.mean(axis=0, dtype=np.float64)
        scale = float(np.sqrt(2.0 * gamma))
        return cls(scale, mean, spread=scale * _root_mean_squares(X, mean))

    def rotated(self, X: NDArray[Any]) -> Frame:
        """The same frame, turned to the principal directions of X."""
        directions, root_mean_squares = principal_directions(X, self.center)
        return replace(self, rotation=directions, spread=self.scale * root_mean_squares)

    @property
    def n_coordinates(self) -> int:
        """How many coordinates a point has."""
        assert self.spread is not None
        return len(self.spread)

    def squared_radius(self, X: Any) -> NDArray[np.float64]:
        """|x'|^2 of every row: rotations do not change it."""
        return self.scale**2 * squared_norms(X if self.center is None else self._centred(X))

    def points(self, X: Any) -> Any:
        """x' of the rows of X, in X's float type; sparse rows stay sparse."""
        points = X if sp.issparse(X) else self._centred(X)
        if self.rotation is not None:
            points = points @ self.rotation.astype(X.dtype)
        return points * X.dtype.type(self.scale)

    def columns(self, X: NDArray[Any], coordinates: NDArray[np.int64]) -> NDArray[Any]:
        """Some coordinates of x' for a block of dense rows, one line for each coordinate."""
        scale = X.dtype.type(self.scale)
        if self.rotation is not None:
            return (self.rotation[:, coordinates].T * self.scale).astype(X.dtype) @ self._centred(X).T
        lines = np.ascontiguousarray(X.T[coordinates])
        if self.center is not None:
            lines -= self.center[coordinates, None].astype(X.dtype)
        lines *= scale
        return lines

    def _centred(self, X: NDArray[Any]) -> NDArray[Any]:
        return X if self.center is None else X - self.center.astype(X.dtype)


def _root_mean_squares(X: Any, center: NDArray[np.float64] | None) -> NDArray[np.float64]:
    sums = np.zeros(X.shape[1])
    for rows in row_blocks(X.shape[0], MOMENT_ROWS):
        block = X[rows]
        if sp.issparse(block):
            squares = np.square(block.data, dtype=np.float64)
            sums += np.bincount(block.indices, weights=squares, minlength=X.shape[1])
        else:
            wide = block.astype(np.float64) if center is None else block - center
            sums += np.einsum("ij,ij->j", wide, wide)
    return np.sqrt(sums / X.shape[0])


def principal_directions(
    X: NDArray[Any], center: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvectors of the second moments, largest first, and root mean squares along them."""
    moments = np.zeros((X.shape[1], X.shape[1]))
    for rows in row_blocks(X.shape[0], MOMENT_ROWS):
        block = X[rows].astype(np.float64)
        if center is not None:
            block -= center
        moments += block.T @ block
    values, vectors = np.linalg.eigh(moments / X.shape[0])
    directions = vectors[:, ::-1]
    # The largest component of each direction is positive: the same directions everywhere.
    largest = np.abs(directions).argmax(axis=0)
    signs = np.sign(directions[largest, np.arange(directions.shape[1])])
    return directions * signs, np.sqrt(np.clip(values[::-1], 0.0, None))
