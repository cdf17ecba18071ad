"""Peers for the full kernel out of rlaopt, in float32 on torch: PCG and ASkotch.

rlaopt 0.1.0 has conjugate gradients and Nystrom preconditioners, but no kernels, and no longer the
ASkotch of its authors' paper (Rathore, Frangella, Yang, Derezinski and Udell 2025). So products
with the Gaussian kernel are tiles in torch here, and ASkotch is written after that paper on
rlaopt's Nystrom preconditioner: blocks of n / 100 rows, sketches of rank 100, momentum.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

TILE = 512, 2048  # entries of K at a time: 4 MiB of float32
PCG_RANK, BLOCK_RANK = 100, 100  # of the sketches
BLOCKS = 100  # a block has n / 100 rows
POWER_STEPS = 10  # for the largest eigenvalue that a sketch leaves
TOL = 1e-4  # relative residual at which float32 has done what it can

Path = list[tuple[float, Any]]  # seconds, and the coefficients by then


class Tiles:
    """Products with the Gaussian kernel's matrix, a tile at a time."""

    def __init__(self, torch: Any, X: Any, gamma: float) -> None:
        self.torch = torch
        self.X = torch.as_tensor(np.sqrt(2.0 * gamma) * X, dtype=torch.float32)
        self.halves = 0.5 * (self.X**2).sum(dim=1)

    def square(self, rows: Any) -> Any:
        """K of these rows."""
        return self._tile(self.X[rows], self.halves[rows], self.X[rows], self.halves[rows])

    def times(self, V: Any, rows: Any = None) -> Any:
        """K V, or the product of these rows of K with V."""
        left, halves = (self.X, self.halves) if rows is None else (self.X[rows], self.halves[rows])
        product = self.torch.zeros(len(left), V.shape[1])
        for top in range(0, len(left), TILE[0]):
            own = slice(top, top + TILE[0])
            for start in range(0, len(V), TILE[1]):
                there = slice(start, start + TILE[1])
                tile = self._tile(left[own], halves[own], self.X[there], self.halves[there])
                product[own] += tile @ V[there]
        return product

    def _tile(self, left: Any, left_halves: Any, right: Any, right_halves: Any) -> Any:
        """exp(x y - |x|^2 / 2 - |y|^2 / 2), in place."""
        tile = self.torch.addmm(-right_halves, left, right.T)
        return tile.sub_(left_halves[:, None]).clamp_(max=0.0).exp_()


def operator(torch: Any, tiles: Tiles) -> Any:
    """The kernel matrix as rlaopt takes it."""
    from linops import LinearOperator

    class KernelOperator(LinearOperator):  # type: ignore[misc]
        supports_operator_matrix = True

        def __init__(self) -> None:
            super().__init__()
            n = len(tiles.X)
            self._shape, self.device, self._adjoint = (n, n), torch.device("cpu"), self

        def _matmul_impl(self, v: Any) -> Any:
            return tiles.times(v) if v.ndim == 2 else tiles.times(v[:, None])[:, 0]

    return KernelOperator()


def sketch_options(rank: int, alpha: float) -> Any:
    """A Nystrom preconditioner of one rank: its estimate of the error would cost more products."""
    from rlaopt.linalg.preconditioners import NystromConfig

    return NystromConfig(
        rank_init=rank, base_damping=alpha, num_power_iters=1, error_tolerance=1e30
    )


def pcg(X: Any, y: Any, gamma: float, alpha: float, limit: float, threads: int) -> Path:
    """The coefficients after every iteration of rlaopt's PCG, until the time is over."""
    import torch
    from rlaopt.linalg import LinSys
    from rlaopt.solvers import PCG, PCGConfig

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    began = time.perf_counter()
    right = torch.as_tensor(y, dtype=torch.float32)[:, None]
    with torch.no_grad():
        system = LinSys(operator(torch, Tiles(torch, X, gamma)), right, float(alpha))
        rank = min(PCG_RANK, len(X) // 4)
        config = PCGConfig(preconditioner_config=sketch_options(rank, alpha))
        solver = PCG(system, config)
        values = torch.zeros_like(right)
        state = solver.init_state(values)
        found: Path = []
        unsolved = True
        while (spent := time.perf_counter() - began) < limit and unsolved:
            found.append((spent, values[:, 0].numpy().astype(np.float64)))
            values, state = solver.step(values, state)
            unsolved = bool((state.res_norm > TOL * system.rhs_norm).all())
        found.append((spent, values[:, 0].numpy().astype(np.float64)))
    return found


def askotch(X: Any, y: Any, gamma: float, alpha: float, limit: float, threads: int) -> Path:
    """The coefficients after every twentieth of a sweep of ASkotch, until the time is over."""
    import torch
    from rlaopt.linalg.preconditioners import get_preconditioner
    from rlaopt.linalg.spectral_estimators import randomized_powering

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    began = time.perf_counter()
    tiles, n = Tiles(torch, X, gamma), len(X)
    right = torch.as_tensor(y, dtype=torch.float32)[:, None]
    size = max(2, n // BLOCKS)
    options = sketch_options(min(BLOCK_RANK, size // 2), alpha)
    # The paper's defaults mu = alpha and nu = n / b, with mu nu <= 1 as its theorem asks.
    nu = n / size
    mu = min(alpha, 1.0 / nu)
    beta, stride = 1.0 - (mu / nu) ** 0.5, 1.0 / (mu * nu) ** 0.5
    mix = 1.0 / (1.0 + stride * nu)
    values, ahead, look = (torch.zeros_like(right) for _ in range(3))
    found: Path = []
    steps = 0
    with torch.no_grad():
        while (spent := time.perf_counter() - began) < limit:
            if steps % max(1, BLOCKS // 20) == 0:
                found.append((spent, values[:, 0].numpy().astype(np.float64)))
            block = torch.randperm(n)[:size]
            square = tiles.square(block)
            sketch = get_preconditioner(options, square, torch.float32)
            largest = randomized_powering(
                lambda v, sketch=sketch, square=square: sketch.inv @ (square @ v + alpha * v),
                shape=square.shape,
                max_iters=POWER_STEPS,
                device=square.device,
            )
            gradient = tiles.times(look, block) + alpha * look[block] - right[block]
            change = (sketch.inv @ gradient) / max(1.0, largest)
            values = look.clone()
            values[block] -= change
            ahead = beta * ahead + (1.0 - beta) * look
            ahead[block] -= stride * change
            look = mix * ahead + (1.0 - mix) * values
            steps += 1
    return found
