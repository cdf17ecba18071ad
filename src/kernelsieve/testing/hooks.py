"""What the tests of a map ask of it: how it is built, and what differs between maps."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest import SkipTest

from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import Pipeline

from kernelsieve.testing.data import Array


class Hooks:
    """Implement `build`, and set the attributes that differ."""

    #: E[Z Z^T] = K at any n_components. If False, implement `build_exact`.
    unbiased: ClassVar[bool] = True
    #: Sparse input gives sparse output.
    sparse_output: ClassVar[bool] = False
    #: scikit-learn checks that cannot hold, with the reason: {"check_name": "why"}.
    expected_failed_checks: ClassVar[dict[str, str]] = {}
    #: gamma of the tests that compare with the kernel.
    gamma: ClassVar[float] = 0.5
    #: Parameters of the maps in the unbiasedness test, e.g. more components for more power.
    unbiased_parameters: ClassVar[dict[str, Any]] = {}
    #: The unbiasedness test refuses to run longer than this, rather than to run without power.
    maximum_seeds: ClassVar[int] = 4000
    #: Relative bias that is none: what truncating a series may cost.
    negligible_bias: ClassVar[float] = 1e-5
    #: Error of Z Z^T allowed to `build_exact`, relative to the largest kernel value.
    exact_tolerance: ClassVar[float] = 1e-6
    #: Largest difference of float32 and float64 features, relative to the largest feature.
    float32_tolerance: ClassVar[float] = 1e-4

    # --- hooks -----------------------------------------------------------------------------------

    def build(self, **overrides: Any) -> Any:
        """A small map (n_components <= 64) with a fixed random_state; `overrides` win."""
        raise NotImplementedError

    def build_exact(self, X: Array) -> Any:
        """A map that, fitted to X, reproduces K on X (for maps with unbiased = False)."""
        raise NotImplementedError(
            "a map with unbiased = False must show when it is exact: implement build_exact(X)"
        )

    def gram(self, X: Array) -> Array:
        """The kernel matrix that Z Z^T estimates at `self.gamma`."""
        return rbf_kernel(X, gamma=self.gamma)

    def model(self, features: Any) -> Any:
        """A regressor in which ``features__gamma`` is the gamma of the map."""
        from kernelsieve import KernelRidge
        from kernelsieve.features import FeatureMap

        if isinstance(features, FeatureMap):
            return KernelRidge(features=features, alpha=1e-3)
        return Pipeline([("features", features), ("ridge", Ridge(1e-3))])

    # --- helpers ---------------------------------------------------------------------------------

    def build_with(self, **wanted: Any) -> Any:
        """`build` with those of the wanted parameters that the map has."""
        known = self.build().get_params()
        return self.build(**{name: value for name, value in wanted.items() if name in known})

    def require(self, *names: str) -> None:
        missing = set(names) - set(self.build().get_params())
        if missing:
            raise SkipTest(f"the map has no parameter {', '.join(sorted(missing))}")
