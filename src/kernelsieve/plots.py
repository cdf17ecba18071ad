"""Pictures of a kernel matrix and of its approximation, drawn with matplotlib.

Every function draws on an Axes and returns it; showing or saving the figure is the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelsieve.diagnostics._checks import (
    check_alpha,
    check_features,
    check_kernel_matrix,
    check_spectrum,
    outer,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_kernel_values", "plot_spectrum"]

BLUE, RED, GREY = "#2a6f97", "#c1121f", "#6c757d"
ROUNDING = 1e-16  # eigenvalues below this part of the largest are noise
MAX_PAIRS = 200_000
MAX_DOTS = 5000


def plot_spectrum(K: ArrayLike, alpha: float, ax: Axes | None = None) -> Axes:
    """Eigenvalues of a kernel matrix, with the ridge and the statistical dimension.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix.
    alpha : float
        The ridge, added to K's diagonal as it is.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import numpy as np
    >>> from kernelsieve.kernels import Gaussian
    >>> from kernelsieve.plots import plot_spectrum
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> plot_spectrum(Gaussian(gamma=0.5)(X), alpha=0.1).get_ylabel()
    'eigenvalue of K'
    """
    alpha = check_alpha(alpha)
    eigenvalues = check_spectrum(K)[::-1]
    degrees = float(np.sum(eigenvalues / (eigenvalues + alpha)))
    visible = eigenvalues[eigenvalues > ROUNDING * eigenvalues[0]]
    ax = _axes(ax)
    ax.loglog(np.arange(1, visible.size + 1), visible, color=BLUE, lw=1.8, label="eigenvalues")
    ax.axhline(alpha, color=RED, lw=1.2, ls="--", label=rf"ridge $\alpha$ = {alpha:.4g}")
    ax.axvline(
        degrees,
        color=GREY,
        lw=1.2,
        ls=":",
        label=rf"statistical dimension $s_\alpha$ = {degrees:.4g}",
    )
    ax.set_xlim(left=min(0.9, 0.9 * degrees) if degrees > 0 else 0.9, right=1.1 * eigenvalues.size)
    ax.set(xlabel="index, largest first", ylabel="eigenvalue of K", title="Kernel spectrum")
    ax.legend(edgecolor="none", framealpha=0.9, loc="lower left")
    return _quiet(ax)


def plot_kernel_values(K: ArrayLike, Z: Any, ax: Axes | None = None) -> Axes:
    """Approximate kernel values against exact ones, pair by pair.

    Of many pairs of points a random part is drawn; the error in the title is that of all.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix.
    Z : {array-like, CSR} of shape (n, s)
        Features of the same points.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import numpy as np
    >>> from kernelsieve.plots import plot_kernel_values
    >>> plot_kernel_values(np.diag([4.0, 3.0]), np.array([[2.0], [0.0]])).get_title()
    'Kernel values, relative error 0.6'
    """
    K = check_kernel_matrix(K)
    Z = check_features(Z, K.shape[0])
    approximation = outer(Z, Z)
    size = np.linalg.norm(K)
    error = float(np.linalg.norm(K - approximation) / size) if size > 0 else float("inf")
    chosen = _pairs(K.shape[0])
    ax = _axes(ax)
    _draw_pairs(ax, K[chosen], approximation[chosen])
    ax.set(
        xlabel=r"exact $k(x, y)$",
        ylabel=r"approximate $\langle z(x), z(y) \rangle$",
        title=f"Kernel values, relative error {error:.2g}",
    )
    return _quiet(ax)


def _axes(ax: Axes | None) -> Axes:
    """The Axes to draw on, on a new figure if there is none."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: pip install 'kernelsieve[plot]'"
        ) from error
    return pyplot.subplots(figsize=(5.6, 4.2), layout="constrained")[1] if ax is None else ax


def _quiet(ax: Axes) -> Axes:
    """Less ink where there are no data."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _pairs(n_rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs i <= j: all of them, or as many random ones as a picture can show."""
    if n_rows * (n_rows + 1) // 2 <= MAX_PAIRS:
        return np.triu_indices(n_rows)
    first, second = np.random.default_rng(0).integers(n_rows, size=(2, MAX_PAIRS))
    return first, second


def _draw_pairs(ax: Axes, exact: NDArray[np.float64], approximate: NDArray[np.float64]) -> None:
    """Dots where they can be told apart, else how many pairs fall where."""
    from matplotlib.colors import LinearSegmentedColormap

    if exact.size <= MAX_DOTS:
        ax.plot(exact, approximate, ".", color=BLUE, ms=4, alpha=0.5, mew=0)
    else:
        blues = LinearSegmentedColormap.from_list("blues", ["#cfe3f1", BLUE, "#0b2545"])
        bins = ax.hexbin(exact, approximate, gridsize=70, bins="log", mincnt=1, cmap=blues, lw=0.1)
        ax.figure.colorbar(bins, ax=ax, label="pairs of points")
    ends = [exact.min(), exact.max()]
    ax.plot(ends, ends, color=RED, lw=1.3, ls="--", label="exact")
    ax.legend(frameon=False, loc="upper left")
