"""Pictures of a kernel matrix and of its approximation, drawn with matplotlib.

The functions draw on an Axes (or a Figure) and return it; the caller shows or saves the figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelsieve.diagnostics.checks import (
    check_alpha,
    check_features,
    check_kernel_matrix,
    check_spectrum,
)
from kernelsieve.linalg.operators import outer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kernelsieve.models import KernelRidgeCV

__all__ = [
    "plot_kernel_values",
    "plot_ridge_path",
    "plot_spectrum",
    "plot_table_model",
]

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
    ax = axes_for(ax)
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
    return quiet(ax)


def plot_kernel_values(K: ArrayLike, Z: Any, ax: Axes | None = None) -> Axes:
    """Approximate kernel values against exact ones, pair by pair.

    At most 200,000 random pairs are drawn; the error in the title is that of all pairs.

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
    ax = axes_for(ax)
    _draw_pairs(ax, K[chosen], approximation[chosen])
    ax.set(
        xlabel=r"exact $k(x, y)$",
        ylabel=r"approximate $\langle z(x), z(y) \rangle$",
        title=f"Kernel values, relative error {error:.2g}",
    )
    return quiet(ax)


def axes_for(ax: Axes | None) -> Axes:
    """The Axes to draw on, on a new figure if there is none."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: pip install 'kernelsieve[plot]'"
        ) from error
    return pyplot.subplots(figsize=(5.6, 4.2), layout="constrained")[1] if ax is None else ax


def quiet(ax: Axes) -> Axes:
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


def plot_ridge_path(model: KernelRidgeCV, ax: Axes | None = None) -> Axes:
    """Cross-validated error of a KernelRidgeCV against alpha, with a line for every gamma.

    Parameters
    ----------
    model : KernelRidgeCV
        Fitted.
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
    >>> from kernelsieve import KernelRidgeCV, RowNormFeatures
    >>> from kernelsieve.plots import plot_ridge_path
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = KernelRidgeCV(RowNormFeatures(20, random_state=0)).fit(X, X[:, 0] ** 2)
    >>> plot_ridge_path(model).get_xlabel()
    'alpha'
    """
    ax = axes_for(ax)
    results = model.cv_results_
    gammas = list(dict.fromkeys(results["gamma"].tolist()))
    for k, gamma in enumerate(gammas):
        here = results["gamma"] == gamma if gamma is not None else slice(None)
        best = gamma == model.gamma_
        shade = 0.25 + 0.6 * k / max(1, len(gammas) - 1)
        ax.plot(
            results["alpha"][here],
            results["rmse"][here],
            color=BLUE if best else str(shade),
            linewidth=2 if best else 1,
            marker="o",
            markersize=3,
            label="" if gamma is None else f"gamma = {gamma:.3g}",
        )
    ax.plot([model.alpha_], [model.best_rmse_], "o", color=RED, markersize=8)
    ax.set_xscale("log")
    ax.set_xlabel("alpha")
    ax.set_ylabel("cross-validated RMSE")
    ax.set_title(f"best: alpha = {model.alpha_:.3g}, RMSE = {model.best_rmse_:.4g}", fontsize=10)
    if len(gammas) > 1:
        ax.legend(frameon=False, fontsize=8)
    return ax


def plot_table_model(facts: dict[str, Any], top: int = 10) -> Figure:
    """Importances of columns and monomials, and the mass of every degree, of a TableModel.

    Parameters
    ----------
    facts : dict
        ``TableModel.facts_``.
    top : int, default 10
        How many columns and monomials to show.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import numpy as np
    >>> from kernelsieve import TableModel
    >>> from kernelsieve.plots import plot_table_model
    >>> a, b = np.random.default_rng(0).normal(size=(2, 100))
    >>> model = TableModel("y", readable=True).fit({"a": a, "b": b, "y": a * b})
    >>> [ax.get_title(loc="left") for ax in plot_table_model(model.facts_).axes]
    ['Columns', 'Monomials', 'Degrees']
    """
    from matplotlib.figure import Figure

    columns, found, masses = facts["columns"][:top][::-1], facts["monomials"], facts["degree mass"]
    rows = max(len(columns), min(top, len(found["names"])), 4)
    widths = [3, *([4] if found["names"] else []), *([2] if masses else [])]
    size = (10.0 / 9.0 * max(sum(widths), 5), 1.6 + 0.28 * rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
    rest = iter(axes)
    _draw_columns(next(rest), columns, facts["task"])
    if found["names"]:
        _draw_monomials(next(rest), found, top)
    if masses:
        _draw_degrees(next(rest), masses)
    score, value = next(iter(facts["scores"].items()))
    figure.suptitle(
        f"{facts['task']} of {shortened(facts['target'])}: {score} {value:.3g} on unseen rows",
        fontsize=11,
    )
    for ax in axes:
        quiet(ax)
        ax.tick_params(labelsize=8)
    return figure


def _draw_columns(ax: Any, columns: list[tuple[str, float]], task: str) -> None:
    ax.barh([shortened(name) for name, _ in columns], [v for _, v in columns], color=BLUE)
    ax.set_title("Columns", loc="left")
    what = "log loss" if task == "classification" else "RMSE / deviation"
    ax.set_xlabel(f"increase when shuffled ({what})")


def _draw_monomials(ax: Any, found: dict[str, Any], top: int) -> None:
    names = [shortened(name) for name in found["names"][:top]][::-1]
    colors = [BLUE if sign > 0 else RED for sign in found["coefficients"][:top][::-1]]
    ax.barh(range(len(names)), found["importances"][:top][::-1], color=colors)
    ax.set_yticks(range(len(names)), names)
    ax.set_title("Monomials", loc="left")
    ax.set_xlabel("importance (blue: raises, red: lowers)")


def _draw_degrees(ax: Any, masses: list[float]) -> None:
    shown = [degree for degree, mass in enumerate(masses) if mass >= 0.001]
    ax.bar(shown, [100 * masses[degree] for degree in shown], color=BLUE)
    ax.set_xticks(shown[:: max(1, len(shown) // 6)])
    ax.set_title("Degrees", loc="left")
    ax.set_xlabel("degree")
    ax.set_ylabel("% of the kernel")


def shortened(name: str, width: int = 28) -> str:
    # A dollar sign would start mathematics, and there are no glyphs for control characters.
    name = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    text = name if len(name) <= width else name[: width - 1] + "…"
    return text.replace("$", r"\$")
