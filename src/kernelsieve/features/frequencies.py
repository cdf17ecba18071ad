"""Random frequencies whose mean of cos(w . (x - y)) is a kernel (Bochner's theorem).

The Gaussian's are normal; Matern's are normal over the root of a chi-square variable, which is a
multivariate t; the Laplacian's are independent Cauchy variables. The first two depend on |w| only,
so their directions may be drawn in orthogonal blocks: every direction by itself stays uniform on
the sphere, and so the mean stays the kernel.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, gammaincc, gammainccinv

from kernelsieve._native.fourier import structured_angles
from kernelsieve._native.lanes import LANES
from kernelsieve._state import FLOATS, Persistent, array, whole, wrong
from kernelsieve.kernels import Gaussian, Kernel, Matern
from kernelsieve.kernels.families import HIGHEST_FREQUENCY
from kernelsieve.sketches.base import power_of_two

# Directions in a block. In fewer dimensions they are the first coordinates of as many orthogonal
# ones: still uniform, and still with sum w w^T closer to its mean than independent ones.
SMALLEST_BLOCK = 64

FINE_STRIDES = LANES.bit_length() - 1  # rotations inside a vector: 1, 2, 4, ...


# --- orthogonal blocks ---------------------------------------------------------------------------


def orthogonal_frequencies(
    kernel: Kernel, n_features: int, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Blocks of orthogonal frequencies (Yu et al., 2016), of shape (n_features, count)."""
    width = _block_size(n_features, count)
    directions = np.empty((n_features, count))
    for start in range(0, count, width):
        size = min(width, count - start)
        basis, triangle = np.linalg.qr(rng.standard_normal((width, size)))
        # Signs as QR leaves them are not Haar distributed.
        signed = basis[:n_features] * np.sign(np.diag(triangle))
        directions[:, start : start + size] = signed
    lengths = np.sqrt(rng.chisquare(width, size=count))
    return directions * (lengths * kernel.frequency_scales(count, rng))


def _block_size(n_features: int, count: int) -> int:
    return max(n_features, min(count, SMALLEST_BLOCK))


@dataclass(frozen=True)
class StructuredFrequencies(Persistent):
    """Orthogonal blocks that are never written down: lengths times R H D, for each block.

    D are random signs, H is the Hadamard matrix and R a tree of random rotations, in which the two
    halves of every node are turned into each other by one angle with cos^2 ~ Beta(m/2, m/2) for
    halves of m entries. So is a uniform point of the sphere made of two of half the dimension:
    every row of R is uniform, and of R H D too, which makes the features exactly unbiased. H D
    spreads out the dependence between the rows of R. It takes O(log d) operations per frequency.

    Attributes
    ----------
    n_features, count : int
    signs : ndarray of shape (n_blocks, n_features)
    fine : ndarray of shape (n_blocks, 8 width)
        The rotations of 16 neighbours, as compiled code wants them.
    coarse : ndarray of shape (n_blocks, width / 16 - 1, 2)
        Cosine and sine of every larger node.
    lengths : ndarray of shape (n_blocks, width)
        |w| / sqrt(width).
    """

    n_features: int
    count: int
    signs: NDArray[Any]
    fine: NDArray[Any]
    coarse: NDArray[Any]
    lengths: NDArray[Any]

    _state_fields: ClassVar = {
        "n_features": whole(1, size="d"),
        "count": whole(1),
        "signs": array("n_blocks", "d", dtype=FLOATS, order="C"),
        "fine": array("n_blocks", None, dtype=FLOATS, order="C"),
        "coarse": array("n_blocks", None, 2, dtype=FLOATS, order="C"),
        "lengths": array("n_blocks", None, dtype=FLOATS, order="C"),
    }

    def _complete(self) -> None:
        n_blocks, width = self.lengths.shape
        tables = (self.signs, self.fine, self.coarse, self.lengths)
        if not (
            width == power_of_two(width)
            and width >= max(LANES, self.n_features)
            and (n_blocks - 1) * width < self.count <= n_blocks * width
            and self.fine.shape[1] == 2 * (LANES.bit_length() - 1) * width
            and self.coarse.shape[1] == width // LANES - 1
            and len({table.dtype for table in tables}) == 1
        ):
            wrong("tables", f"of {n_blocks} blocks of {width} do not make {self.count} frequencies")

    @property
    def width(self) -> int:
        """Length of a row padded with zeros, which is the number of frequencies in a block."""
        return int(self.lengths.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix that they represent."""
        return self.n_features, self.count

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        """Convert to another float type."""
        tables = ("signs", "fine", "coarse", "lengths")
        return replace(self, **{t: getattr(self, t).astype(dtype, copy=copy) for t in tables})

    def angles(self, X: Any) -> NDArray[Any]:
        """w . x for all rows and frequencies; X is dense or CSR and of the float type of this.

        The blocks are complete: columns beyond ``count`` are zero.
        """
        rows = X.toarray() if sp.issparse(X) else X
        out = np.empty((rows.shape[0], *self.lengths.shape), dtype=rows.dtype)
        structured_angles(rows, self.signs, self.fine, self.coarse, self.lengths, out)
        return out.reshape(rows.shape[0], self.lengths.size)


def structured_frequencies(
    kernel: Kernel, n_features: int, count: int, rng: np.random.Generator
) -> StructuredFrequencies:
    """Draw signs, rotations and lengths.

    Examples
    --------
    >>> from kernelsieve.kernels import Gaussian
    >>> W = structured_frequencies(Gaussian(0.5), 20, 50, np.random.default_rng(0))
    >>> W.shape, W.angles(np.eye(20)).shape
    ((20, 50), (20, 64))
    """
    width = max(LANES, power_of_two(_block_size(n_features, count)))
    n_blocks = -(-count // width)
    fine = np.empty((n_blocks, width // LANES, FINE_STRIDES, 2, LANES))
    coarse = np.empty((n_blocks, width // LANES - 1, 2))
    for b in range(n_blocks):
        _draw_tree(fine[b], coarse[b], rng)
    lengths = np.zeros(n_blocks * width)  # of frequencies that nobody asked for: zero
    lengths[:count] = np.sqrt(rng.chisquare(width, size=count) / width)
    lengths[:count] *= kernel.frequency_scales(count, rng)
    return StructuredFrequencies(
        n_features,
        count,
        rng.choice([-1.0, 1.0], size=(n_blocks, n_features)),
        fine.reshape(n_blocks, -1),
        coarse,
        lengths.reshape(n_blocks, width),
    )


def _draw_tree(
    fine: NDArray[np.float64], coarse: NDArray[np.float64], rng: np.random.Generator
) -> None:
    """Draw the rotations of one block, level by level."""
    width = fine.shape[0] * LANES
    for level in range(FINE_STRIDES):
        half = 2**level
        own, other = np.repeat(_random_turns(width // (2 * half), half, rng), 2 * half, axis=0).T
        first_half = np.arange(width) & half == 0
        fine[:, level, 0] = own.reshape(-1, LANES)
        fine[:, level, 1] = np.where(first_half, -other, other).reshape(-1, LANES)
    half, done = LANES, 0
    while half < width:
        nodes = width // (2 * half)
        coarse[done : done + nodes] = _random_turns(nodes, half, rng)
        half, done = 2 * half, done + nodes


def _random_turns(count: int, half: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Cosines and sines of random angles, of shape (count, 2)."""
    squared = rng.beta(half / 2.0, half / 2.0, size=count)
    signs = rng.choice([-1.0, 1.0], size=(count, 2))
    return signs * np.sqrt(np.stack([squared, 1.0 - squared], axis=1))


# --- the modified density ------------------------------------------------------------------------


def modified_frequencies(
    kernel: Kernel,
    sides: NDArray[np.float64],
    n_rows: int,
    alpha: float,
    count: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw frequencies by a bound on their ridge leverage (after Avron et al., 2017).

    The kernel's own density p rarely draws the high frequencies whose part of K is small, but still
    above alpha. On n rows that fill a box of volume V evenly, the leverage of w is close to
    p(w) / (alpha / n + (2 pi)^d p(w) / V): flat where p is large, p itself far out. The density
    here is min(p(w), p(w_0)), with w_0 where both terms are equal: flat on a ball of radius
    ~ sqrt(log(n / alpha)) for the Gaussian, and then the tail of p. Its integral over alpha / n
    bounds the statistical dimension; where that exceeds ``count`` the ball is made smaller, down to
    nothing (p itself), since too few frequencies would miss the low ones. The weights
    sqrt(p / density) keep E[Z Z^T] = K.

    Parameters
    ----------
    sides : ndarray of shape (n_features,)
        Of the box that holds the rows. Each counts as longer by the kernel's own width.

    Returns
    -------
    frequencies : ndarray of shape (n_features, count)
    weights : ndarray of shape (count,)

    Examples
    --------
    >>> from kernelsieve.kernels import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> W, weights = modified_frequencies(Gaussian(0.5), np.ones(1), 1000, 1e-3, 2000, rng)
    >>> float(np.abs(W).max().round(1)), float((weights**2).mean().round(1))
    (5.9, 1.0)
    """
    density = _radial_density(kernel, len(sides))
    edge = _ball_edge(density, sides, math.log(n_rows) - math.log(alpha), count)
    ball, tail = density.ball(edge), density.tail(edge)
    inside = rng.random(count) * (ball + tail) < ball
    uniform = 1.0 - rng.random(count)  # never 0
    radii = np.where(
        inside,
        density.radius(edge) * uniform ** (1.0 / len(sides)),
        density.radius_of_tail(uniform * tail),
    )
    excess = np.where(inside, edge - density.drop(radii), 0.0)
    normal = rng.standard_normal((len(sides), count))
    directions = normal / np.linalg.norm(normal, axis=0)
    return directions * radii, np.sqrt((ball + tail) * np.exp(excess))


def _ball_edge(
    density: _RadialDensity, sides: NDArray[np.float64], log_ratio: float, count: int
) -> float:
    """log p(0) - log p(w_0), where the density stops being flat."""
    width = 2.0 * math.pi * math.exp(density.log_peak / len(sides))  # (integral of k)^(1/d)
    log_volume = float(np.log1p(sides / width).sum())

    def excess(edge: float) -> float:
        """The logarithm of the bound on the statistical dimension over the count."""
        return edge + log_volume + math.log((density.ball(edge) + density.tail(edge)) / count)

    edge = max(0.0, log_ratio - log_volume)
    if edge == 0.0 or excess(0.0) >= 0.0:
        return 0.0
    return edge if excess(edge) <= 0.0 else float(brentq(excess, 0.0, edge))


class _RadialDensity(ABC):
    """The density p(w) of a kernel's frequencies as a function of |w|.

    A radius is often named by its drop, log p(0) - log p(w).
    """

    n_features: int

    @property
    @abstractmethod
    def log_peak(self) -> float: ...

    @abstractmethod
    def drop(self, radius: NDArray[np.float64]) -> NDArray[np.float64]: ...

    @abstractmethod
    def radius(self, drop: float) -> float: ...

    @abstractmethod
    def tail(self, drop: float) -> float:
        """The probability of larger drops."""

    @abstractmethod
    def radius_of_tail(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Radii that are exceeded with these probabilities."""

    def ball(self, drop: float) -> float:
        """Mass of a ball that has the density of its surface everywhere."""
        radius = self.radius(drop)
        if radius == 0.0:
            return 0.0
        half = 0.5 * self.n_features
        log_volume = half * math.log(math.pi) - math.lgamma(half + 1.0)
        return math.exp(log_volume + self.n_features * math.log(radius) + self.log_peak - drop)


@dataclass(frozen=True)
class _GaussianDensity(_RadialDensity):
    """A normal distribution."""

    n_features: int
    gamma: float

    @property
    def log_peak(self) -> float:
        return -0.5 * self.n_features * math.log(4.0 * math.pi * self.gamma)

    def drop(self, radius: NDArray[np.float64]) -> NDArray[np.float64]:
        return radius**2 / (4.0 * self.gamma)

    def radius(self, drop: float) -> float:
        return math.sqrt(4.0 * self.gamma * drop)

    def tail(self, drop: float) -> float:
        return float(gammaincc(0.5 * self.n_features, drop))

    def radius_of_tail(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sqrt(4.0 * self.gamma * gammainccinv(0.5 * self.n_features, probability))


@dataclass(frozen=True)
class _MaternDensity(_RadialDensity):
    """A multivariate t distribution with 2 nu degrees of freedom."""

    n_features: int
    length_scale: float
    nu: float

    @property
    def _power(self) -> float:
        return self.nu + 0.5 * self.n_features

    @property
    def log_peak(self) -> float:
        log_scale = math.log(2.0 * math.pi * self.nu) - 2.0 * math.log(self.length_scale)
        log_ratio = math.lgamma(self._power) - math.lgamma(self.nu)
        return log_ratio - 0.5 * self.n_features * log_scale

    def drop(self, radius: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._power * np.log1p((self.length_scale * radius) ** 2 / (2.0 * self.nu))

    def radius(self, drop: float) -> float:
        return math.sqrt(2.0 * self.nu * math.expm1(drop / self._power)) / self.length_scale

    def tail(self, drop: float) -> float:
        # t = 1 / (1 + (l radius)^2 / (2 nu)) has a beta distribution.
        return float(betainc(self.nu, 0.5 * self.n_features, math.exp(-drop / self._power)))

    def radius_of_tail(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        t = betaincinv(self.nu, 0.5 * self.n_features, probability)
        with np.errstate(divide="ignore"):
            radius = np.sqrt(2.0 * self.nu * (1.0 - t) / t)
        return np.minimum(radius, HIGHEST_FREQUENCY) / self.length_scale


def _radial_density(kernel: Kernel, n_features: int) -> _RadialDensity:
    if isinstance(kernel, Gaussian):
        return _GaussianDensity(n_features, kernel.gamma)
    assert isinstance(kernel, Matern)
    return _MaternDensity(n_features, kernel.length_scale, kernel.nu)
