"""Exact Gaussian processes with one rate for each column, by GPyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

FAMILIES = {"Gaussian": "RBFKernel", "Matern 5/2": "MaternKernel"}
FIRST_ROWS, FIRST_STEPS = 1000, 120  # on which the search begins


def exact_mean(family: str, X: Any, y: Any, X_test: Any, seed: int, steps: int) -> Any:
    """The mean of the process at test rows, by gradients of the marginal likelihood.

    The search begins on 1,000 rows; the last steps, and the prediction, are on all.
    """
    import gpytorch
    import torch

    floats = {"dtype": torch.float64}
    scaler, size = StandardScaler().fit(X), y.std()
    rows, new = (torch.as_tensor(scaler.transform(part), **floats) for part in (X, X_test))
    target = torch.as_tensor((y - y.mean()) / size, **floats)
    some = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))[:FIRST_ROWS]
    first = exact_process(gpytorch, FAMILIES[family], rows[some], target[some])
    maximise(gpytorch, torch, first, target[some], FIRST_STEPS, 0.1)
    process = exact_process(gpytorch, FAMILIES[family], rows, target)
    process.load_state_dict(first.state_dict())
    maximise(gpytorch, torch, process, target, steps, 0.03)
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        return process.eval()(new).mean.numpy() * size + y.mean()


def exact_process(gpytorch: Any, base: str, rows: Any, target: Any) -> Any:
    """A process with one length for each column, wide at first."""
    d = rows.shape[1]
    kernel = getattr(gpytorch.kernels, base)

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(rows, target, gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel(ard_num_dims=d))
            self.covar_module.base_kernel.lengthscale = np.sqrt(d)
            self.likelihood.noise = 0.1

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    return Process().double()


def maximise(gpytorch: Any, torch: Any, process: Any, target: Any, steps: int, rate: float) -> None:
    """Steps of Adam on the exact marginal likelihood."""
    process.train()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(process.likelihood, process)
    optimiser = torch.optim.Adam(process.parameters(), lr=rate)
    with gpytorch.settings.fast_computations(False, False, False):
        for _ in range(steps):
            optimiser.zero_grad()
            loss = -likelihood(process(*process.train_inputs), target)
            loss.backward()
            optimiser.step()
