"""Plots: what is drawn, where, and what happens without matplotlib."""

from __future__ import annotations

import sys

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from kernelsieve import FourierFeatures, KernelRidgeCV  # noqa: E402
from kernelsieve.diagnostics import kernel_error, statistical_dimension  # noqa: E402
from kernelsieve.kernels import Gaussian  # noqa: E402
from kernelsieve.plots import (  # noqa: E402
    plot_kernel_values,
    plot_ridge_path,
    plot_spectrum,
)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


def problem(n, s=40, seed=0):
    """A Gaussian kernel matrix and Fourier features of it."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    angles = X @ rng.standard_normal((3, s // 2))
    return Gaussian(gamma=0.5)(X), np.hstack([np.cos(angles), np.sin(angles)]) * np.sqrt(2 / s)


def line(ax, label):
    return next(one for one in ax.get_lines() if label in one.get_label())


def test_spectrum_shows_the_eigenvalues_and_both_lines():
    K, _ = problem(60)
    ax = plot_spectrum(K, alpha=0.1)
    drawn = line(ax, "eigenvalues").get_ydata()
    np.testing.assert_allclose(drawn, np.linalg.eigvalsh(K)[::-1][: drawn.size], rtol=1e-6)
    assert set(line(ax, "ridge").get_ydata()) == {0.1}
    np.testing.assert_allclose(
        line(ax, "statistical dimension").get_xdata(), statistical_dimension(K, 0.1)
    )
    assert f"{statistical_dimension(K, 0.1):.4g}" in ax.get_legend().get_texts()[-1].get_text()


def test_spectrum_leaves_out_eigenvalues_that_are_rounding():
    x = np.arange(1.0, 30.0)[:, None]
    ax = plot_spectrum(x @ x.T, alpha=1.0)
    assert line(ax, "eigenvalues").get_ydata().min() > 0
    assert ax.get_yscale() == "log"


def test_few_pairs_are_dots_on_their_values():
    K, Z = problem(20)
    ax = plot_kernel_values(K, Z)
    upper = np.triu_indices(20)
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), K[upper])
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), (Z @ Z.T)[upper])
    assert f"{kernel_error(K, Z).frobenius:.2g}" in ax.get_title()


@pytest.mark.parametrize("n", [150, 700])
def test_many_pairs_are_binned_and_counted_once(n):
    K, Z = problem(n)
    ax = plot_kernel_values(K, Z)
    assert ax.collections[0].get_array().sum() == min(n * (n + 1) // 2, 200_000)


@pytest.mark.parametrize(
    "plot",
    [
        lambda ax: plot_spectrum(np.eye(3), 1.0, ax=ax),
        lambda ax: plot_kernel_values(np.eye(3), np.eye(3), ax=ax),
    ],
)
def test_draws_on_the_axes_it_is_given_and_shows_nothing(plot, monkeypatch):
    monkeypatch.setattr(pyplot, "show", lambda *_: pytest.fail("plt.show was called"))
    _, ax = pyplot.subplots()
    assert plot(ax) is ax
    assert len(pyplot.get_fignums()) == 1
    ax.figure.canvas.draw()


def test_says_how_to_install_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'kernelsieve\[plot\]'"):
        plot_spectrum(np.eye(3), 1.0)


def test_wrong_input_is_told_before_anything_is_drawn():
    with pytest.raises(ValueError, match="alpha=0 must be finite and > 0"):
        plot_spectrum(np.eye(3), 0)
    with pytest.raises(ValueError, match="must be square"):
        plot_kernel_values(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="Z has 2 rows for 3 data points"):
        plot_kernel_values(np.eye(3), np.ones((2, 2)))
    assert not pyplot.get_fignums()


def test_a_path_of_several_gammas_has_a_legend():
    X = np.random.default_rng(0).standard_normal((60, 3))
    features = FourierFeatures(20, random_state=0)
    model = KernelRidgeCV(features, alphas=[0.1, 1.0], gammas=(0.1, 1.0), cv=3).fit(X, X[:, 0])
    texts = [text.get_text() for text in plot_ridge_path(model).get_legend().get_texts()]
    assert texts == ["gamma = 0.1", "gamma = 1"]
    model = KernelRidgeCV(features, alphas=[0.1, 1.0]).fit(X, X[:, 0])
    assert plot_ridge_path(model).get_legend() is None
