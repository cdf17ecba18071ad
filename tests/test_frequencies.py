"""Frequencies of the kernels: their distributions, orthogonality, compiled against plain code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.linalg import hadamard
from scipy.optimize import brentq

from kernelsieve._native.lanes import LANES
from kernelsieve.features.frequencies import (
    SMALLEST_BLOCK,
    StructuredFrequencies,
    modified_frequencies,
    orthogonal_frequencies,
    structured_frequencies,
)
from kernelsieve.kernels import Gaussian, Laplacian, Matern
from kernelsieve.kernels.families import HIGHEST_FREQUENCY

Array = Any

# A Kolmogorov-Smirnov test of a true statement falls below this once in ten thousand seeds.
SMALLEST_P = 1e-4
RADIAL = [Gaussian(0.3), Matern(2.0, 1.5), Matern(0.5, 0.5), Matern(1.0, 0.8)]


def explicit(W: StructuredFrequencies) -> Array:
    """The matrix that structured frequencies stand for."""
    return W.angles(np.eye(W.n_features))[:, : W.count]


def drawn(kind: str, kernel: Any, d: int, count: int, seed: int = 0) -> Array:
    """Frequencies of shape (d, count)."""
    rng = np.random.default_rng(seed)
    if kind == "structured":
        return explicit(structured_frequencies(kernel, d, count, rng))
    draw = {"plain": type(kernel).frequencies, "orthogonal": orthogonal_frequencies}[kind]
    return draw(kernel, d, count, rng)


def coordinate_law(kernel: Any) -> Any:
    """The distribution of w . v for a unit vector v (for the Laplacian, a coordinate vector)."""
    if isinstance(kernel, Gaussian):
        return stats.norm(scale=np.sqrt(2.0 * kernel.gamma))
    if isinstance(kernel, Matern):
        return stats.t(2.0 * kernel.nu, scale=1.0 / kernel.length_scale)
    return stats.cauchy(scale=kernel.gamma)


# --- distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [*RADIAL, Laplacian(0.7)], ids=str)
def test_plain_coordinates(kernel: Any) -> None:
    W = drawn("plain", kernel, 3, 20_000)
    for line in W:
        assert stats.kstest(line, coordinate_law(kernel).cdf).pvalue > SMALLEST_P


def test_laplacian_coordinates_are_independent_and_materns_are_not() -> None:
    """Matern's share their chi-square variable; both have the same coordinates at nu = 1/2."""
    laplacian = np.abs(drawn("plain", Laplacian(1.0), 2, 20_000))
    matern = np.abs(drawn("plain", Matern(1.0, 0.5), 2, 20_000))
    assert abs(stats.spearmanr(*laplacian).statistic) < 5 / np.sqrt(20_000)
    assert stats.spearmanr(*matern).statistic > 0.1


DIRECTIONS = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [5, -3, 1, 0.5, 0.1]])


@pytest.mark.parametrize("kind", ["orthogonal", "structured"])
@pytest.mark.parametrize("kernel", [Gaussian(0.5), Matern(1.0, 1.5)], ids=str)
def test_every_frequency_of_a_block_has_the_right_distribution(kernel: Any, kind: str) -> None:
    """One frequency from each of 2,000 blocks: exact for every place in it and every direction.

    Products of Hadamard matrices and signs alone, which are structured too, fail this.
    """
    size, d = LANES, DIRECTIONS.shape[1]
    one_each = [drawn(kind, kernel, d, size, seed)[:, seed % size] for seed in range(2_000)]
    for v in DIRECTIONS:
        values = one_each @ v / np.linalg.norm(v)
        assert stats.kstest(values, coordinate_law(kernel).cdf).pvalue > SMALLEST_P


def test_that_test_can_fail() -> None:
    """Three rounds of signs and Hadamard (Yu et al., 2016): not uniform on the sphere."""
    rng = np.random.default_rng(0)
    H = hadamard(LANES) / np.sqrt(LANES)
    values = []
    for seed in range(2_000):
        w = np.eye(LANES)[seed % LANES]
        for _ in range(3):
            w = (H @ w) * rng.choice([-1.0, 1.0], size=LANES)
        values.append(w[0] * np.sqrt(rng.chisquare(LANES)))
    assert stats.kstest(values, "norm").pvalue < SMALLEST_P


@pytest.mark.parametrize("kind", ["plain", "orthogonal", "structured"])
def test_lengths(kind: str) -> None:
    """|w|^2 / (2 gamma) is chi-square with d degrees of freedom, in blocks or not."""
    d, gamma, count = 8, 0.3, 20_000
    W = drawn(kind, Gaussian(gamma), d, count)
    assert W.shape == (d, count)
    # Lengths of one block depend on each other where d is less than its width: one from each.
    squared = (W**2).sum(axis=0)[::SMALLEST_BLOCK] / (2 * gamma)
    assert stats.kstest(squared, stats.chi2(d).cdf).pvalue > SMALLEST_P


@pytest.mark.parametrize("kind", ["plain", "orthogonal", "structured"])
def test_rough_matern_frequencies_are_finite(kind: str) -> None:
    W = drawn(kind, Matern(1.0, 0.01), 3, 500)
    assert np.isfinite(W).all()
    assert np.abs(W).max() > 1e-3 * HIGHEST_FREQUENCY


# --- orthogonality -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "d", "count"),
    [
        ("orthogonal", 6, 6),
        ("orthogonal", 70, 150),
        ("orthogonal", 64, 100),
        ("structured", 16, 16),
        ("structured", 64, 150),
        ("structured", 256, 300),
    ],
)
def test_blocks_are_orthogonal(kind: str, d: int, count: int) -> None:
    W = drawn(kind, Gaussian(0.5), d, count)
    unit = W / np.linalg.norm(W, axis=0)
    for start in range(0, count, d):
        block = unit[:, start : start + d]
        np.testing.assert_allclose(block.T @ block, np.eye(block.shape[1]), atol=1e-12)
    if count > d:
        assert np.abs(unit[:, :d].T @ unit[:, d : 2 * d]).max() > 0.1, "the blocks are copies"


@pytest.mark.parametrize("kind", ["orthogonal", "structured"])
@pytest.mark.parametrize("d", [1, 3])
def test_blocks_help_in_few_dimensions_too(kind: str, d: int) -> None:
    """The mean square of a coordinate over a block varies less than by chance.

    It is sum_j L_j u_j^2 / N with sum_j u_j^2 = 1 and lengths L_j ~ chi^2_N, so of the variance
    2 / N only 2 / N E[sum_j u_j^4] = 6 / (N (N + 2)) is left.
    """
    N = SMALLEST_BLOCK
    means = [(drawn(kind, Gaussian(0.5), d, N, seed)[0] ** 2).mean() for seed in range(300)]
    variance = 6 / (N * (N + 2))
    assert np.mean(means) == pytest.approx(1.0, abs=5 * np.sqrt(variance / 300))
    # Of 300 nearly normal values the variance is known to 8 %.
    assert np.var(means) == pytest.approx(variance, rel=0.5)


# --- the compiled transform ----------------------------------------------------------------------


def naive_angles(W: StructuredFrequencies, X: Array) -> Array:
    """Lengths times rotations times Hadamard times signs, as matrices."""
    blocks = []
    for b in range(len(W.lengths)):
        H = hadamard(W.width).astype(float)[:, : W.n_features]
        blocks.append(W.lengths[b][:, None] * (rotation(W, b) @ (H * W.signs[b])))
    return X @ np.concatenate(blocks).T


def rotation(W: StructuredFrequencies, b: int) -> Array:
    """The tree of rotations of a block: level by level, a matrix of turns of pairs."""
    R = np.eye(W.width)
    fine = W.fine[b].reshape(W.width // LANES, -1, 2, LANES)
    half, done = 1, 0
    while half < W.width:
        level = np.zeros((W.width, W.width))
        for i in range(W.width):
            first = i - (i & half)
            if half < LANES:
                c, s = fine[first // LANES, half.bit_length() - 1, :, first % LANES] * [1, -1]
            else:
                c, s = W.coarse[b, done + i // (2 * half)]
            level[i, i] = c
            level[i, i ^ half] = -s if i == first else s
        R = level @ R
        if half >= LANES:
            done += W.width // (2 * half)
        half *= 2
    return R


@pytest.mark.parametrize(("d", "count"), [(1, 5), (5, 40), (20, 200), (64, 64), (100, 300)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_structured_angles(container: Any, dtype: Any, d: int, count: int) -> None:
    rng = np.random.default_rng(0)
    W = structured_frequencies(Matern(1.0, 2.5), d, count, rng)
    X = rng.standard_normal((7, d)).astype(dtype)
    expected = naive_angles(W, X.astype(np.float64))
    angles = W.astype(dtype).angles(container(X))
    assert angles.dtype == dtype
    scale = np.abs(expected).max()
    np.testing.assert_allclose(angles, expected, rtol=0, atol=20 * np.finfo(dtype).eps * scale)
    assert not angles[:, count:].any()


def test_rotations_are_rotations() -> None:
    W = structured_frequencies(Gaussian(0.5), 50, 100, np.random.default_rng(0))
    for b in range(2):
        R = rotation(W, b)
        np.testing.assert_allclose(R @ R.T, np.eye(64), atol=1e-12)


def test_structured_frequencies_take_little_memory() -> None:
    """About 11 numbers a frequency instead of d."""
    W = structured_frequencies(Gaussian(0.5), 1000, 4096, np.random.default_rng(0))
    tables = (W.signs, W.fine, W.coarse, W.lengths)
    assert sum(table.size for table in tables) <= 11 * 4096


# --- the modified density ------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-6, 1e-2, 1e6])
@pytest.mark.parametrize("d", [1, 2, 3, 8])
@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.3, 1.5)], ids=str)
def test_modified_frequencies_are_unbiased(kernel: Any, d: int, alpha: float) -> None:
    """The weighted mean of cos(w . delta) is the kernel: 5 standard errors on 100,000 draws."""
    count = 100_000
    rng = np.random.default_rng(1)
    W, weights = modified_frequencies(kernel, np.full(d, 2.0), 1000, alpha, count, rng)
    assert W.shape == (d, count)
    for length in (0.0, 0.3, 1.0, 2.5):
        delta = length * np.eye(d)[0]
        values = weights**2 * np.cos(delta @ W)
        expected = kernel(np.stack([delta, 0 * delta]))[0, 1]
        error = values.std() / np.sqrt(count)
        assert abs(values.mean() - expected) <= 5 * error + 1e-12, f"at distance {length}"


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.3, 1.5)], ids=str)
def test_modified_density_is_flat_and_then_the_tail(kernel: Any, d: int) -> None:
    rng = np.random.default_rng(0)
    W, weights = modified_frequencies(kernel, np.ones(d), 1000, 1e-3, 20_000, rng)
    radii = np.linalg.norm(W, axis=0)
    total = weights.min() ** 2
    inside = weights**2 > total * (1 + 1e-9)
    edge = radii[inside].max()
    assert (radii[~inside] >= edge * (1 - 1e-9)).all(), "the tail begins where the ball ends"
    assert stats.kstest((radii[inside] / edge) ** d, "uniform").pvalue > SMALLEST_P
    # Weights are the ratio of the kernel's density at w to that at the edge of the ball.
    if isinstance(kernel, Gaussian):
        drop = (edge**2 - radii**2) / (4 * kernel.gamma)
    else:
        inner, outer = (1 + (kernel.length_scale * r) ** 2 / 3.0 for r in (radii, edge))
        drop = (kernel.nu + d / 2) * np.log(outer / inner)
    relative = weights[inside] ** 2 / total / np.exp(drop[inside])
    np.testing.assert_allclose(relative, relative[0], rtol=1e-9)
    assert relative[0] == pytest.approx(1.0, rel=0.05)  # the largest radius is not the edge


def test_radius_of_the_ball() -> None:
    """For the Gaussian in one dimension it is sqrt(4 gamma log(n widths / (alpha (L + width))))."""
    gamma, length, n, alpha = 0.5, 3.0, 1000, 1e-3
    rng = np.random.default_rng(0)
    W, weights = modified_frequencies(Gaussian(gamma), np.array([length]), n, alpha, 20_000, rng)
    inside = weights > weights.min() * (1 + 1e-9)
    width = np.sqrt(np.pi / gamma)  # the integral of the kernel
    radius = np.sqrt(4 * gamma * np.log(n / alpha / (1 + length / width)))
    assert np.abs(W[0, inside]).max() <= radius
    assert np.abs(W[0, inside]).max() == pytest.approx(radius, rel=1e-3)


def test_the_ball_shrinks_when_there_are_too_few_frequencies() -> None:
    """As many as the bound on the statistical dimension; without room for any, plain ones."""
    kernel, sides = Gaussian(0.5), np.full(2, 5.0)

    def largest_weight(count: int) -> float:
        rng = np.random.default_rng(0)
        return float(modified_frequencies(kernel, sides, 1000, 1e-6, count, rng)[1].max())

    weights = [largest_weight(count) for count in (5, 20, 100, 10_000, 20_000)]
    assert weights[0] == 1.0
    assert weights[0] < weights[1] < weights[2] < weights[3]
    assert weights[3] == pytest.approx(weights[4], rel=0.2), "a large count has no effect"


def test_a_large_alpha_leaves_the_density_alone() -> None:
    W, weights = modified_frequencies(
        Gaussian(0.5), np.ones(2), 100, 100.0, 5000, np.random.default_rng(0)
    )
    np.testing.assert_allclose(weights, 1.0)
    assert stats.kstest(W[0], "norm").pvalue > SMALLEST_P


def test_the_ball_of_few_frequencies() -> None:
    """Its edge e solves integral of min(p, p_e) n / alpha_e = count, p_e = alpha_e V / (2 pi n)."""
    gamma, length, count = 0.5, 4.0, 12
    rng = np.random.default_rng(0)
    W, weights = modified_frequencies(Gaussian(gamma), np.array([length]), 1000, 1e-9, count, rng)
    n_widths = 1 + length / np.sqrt(np.pi / gamma)

    def mass(edge: float) -> float:
        radius = np.sqrt(2 * edge)
        return 2 * radius * stats.norm.pdf(radius) + 2 * stats.norm.sf(radius)

    edge = brentq(lambda e: n_widths * np.exp(e) * mass(e) - count, 1e-9, 30.0)
    drop = W[0] ** 2 / (4 * gamma)
    expected = mass(edge) * np.exp(np.maximum(edge - drop, 0.0))
    np.testing.assert_allclose(weights**2, expected, rtol=1e-6)
