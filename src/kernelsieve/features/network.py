"""Random features of wide networks: one layer with a derived activation, or sketched gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._native.count_sketch import multiply_sampled
from kernelsieve._random import stream
from kernelsieve._state import MOST_COLUMNS, flag, instance, list_of, whole
from kernelsieve._validation import check_choice, check_matrix
from kernelsieve.features.activation import ActivationLayer, unit_scale, units
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.gegenbauer import unit_directions
from kernelsieve.features.power_tree import StoredDraws, spread_pairs
from kernelsieve.kernels import ArcCosine, Kernel, NeuralTangent, resolve_kernel
from kernelsieve.sketches.base import power_of_two
from kernelsieve.sketches.srht import mixed, random_signs
from kernelsieve.sources.base import Source

FEWEST_UNITS = 256  # of an inner layer


class NetworkFeatures(FeatureMap):
    """Random units whose kernel is that of a wide ReLU network, of any depth.

    The kernel of a network is also that of one layer with another activation, which is derived from
    the kernel's series. Low degrees are left out of the activation, and listed as products of
    columns: they are exact. E[Z Z^T] = K for arc-cosine kernels, and for the neural tangent kernel
    up to the end of its series (at most half a per cent of k(x, x)). Nothing is learned from
    the data.

    Parameters
    ----------
    n_components : int, default 1000
        Number of features.
    kernel : ArcCosine, NeuralTangent or str, default "ntk"
        The kernel, or "arccos0", "arccos1", "arccos2", "ntk" (one hidden layer).
    layers : "one" or "sketched", default "one"
        "one" is the layer with the derived activation. "sketched" follows a random network forward
        (Zandieh et al., 2021), for comparison: beside each layer the tensor product of the gradient
        so far with a layer of random steps is sketched by a TensorSRHT. Its error at equal size is
        about three times as large, and for more than one hidden layer it has a bias that falls
        like one over ``n_components``.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    n_components_ : int
        Number of features; fewer than asked for where a few products are the whole kernel.
    kernel_ : Kernel
        The kernel in use.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import NetworkFeatures
    >>> from kernelsieve.kernels import NeuralTangent
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> NetworkFeatures(64, kernel=NeuralTangent(depth=2), random_state=0).fit_transform(X).shape
    (100, 64)
    """

    unbiased: ClassVar[bool] = False  # the default kernel is cut

    _state_fields: ClassVar = {
        "kernel_": instance(ArcCosine, NeuralTangent),
        "_size": whole(1, MOST_COLUMNS),
        "_one_layer": flag,
        "_draws": list_of(instance(np.ndarray)),
    }
    _not_stored: ClassVar = {"network_": "in _draws"}

    network_: Any

    @property
    def _draws(self) -> list[NDArray[Any]]:
        """All that was drawn, in the order in which it was."""
        return self.network_.arrays()

    def _restore(self, values: dict[str, Any]) -> None:
        draws = StoredDraws(values.pop("_draws"))
        super()._restore(values)
        self._build(lambda layer: draws)
        draws.close()

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "ntk",
        layers: str = "one",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.layers = layers
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _resolve_kernel(self, X: Source) -> Kernel:
        kernel = resolve_kernel(self.kernel, X)
        if not isinstance(kernel, ArcCosine | NeuralTangent):
            raise ValueError(
                f"kernel={kernel!r} is not that of a network: use ArcCosine, NeuralTangent or one "
                "of their names, or another map"
            )
        return kernel

    def _fit_rows(self, rows: Source, seed: int) -> None:
        check_choice(self.layers, "layers", ("one", "sketched"))
        self._size, self._one_layer = int(self.n_components), self.layers == "one"
        self._build(lambda layer: SeededLayer(stream(seed, "layer", layer)))

    @property
    def unbiased_(self) -> bool:
        """Whether E[Z Z^T] = K: for arc-cosine kernels, and a sketched network of one layer."""
        check_is_fitted(self)
        if isinstance(self.kernel_, NeuralTangent):
            return not self._one_layer and self.kernel_.depth == 1
        return True

    def _build(self, draws: LayerDraws) -> None:
        kernel, d = self.kernel_, self.n_features_in_
        if self._one_layer:
            self.network_ = ActivationLayer.draw(kernel, d, self._size, draws(0).directions)
        elif isinstance(kernel, ArcCosine):
            self.network_ = Layer(draws(0).directions(d, self._size), kernel.order)
        else:
            assert isinstance(kernel, NeuralTangent)
            self.network_ = Tangents.draw(kernel, d, self._size, draws)
        self.n_components_ = self.network_.size

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        self.network_.fill(X, out)


@dataclass(frozen=True)
class SeededLayer:
    """The random parts of a layer, in the order in which they are asked for."""

    rng: np.random.Generator

    def directions(self, d: int, size: int, length: float = 1.0) -> NDArray[np.float64]:
        """Vectors of one length, orthogonal in blocks."""
        return unit_directions(d, size, self.rng) * length

    def normals(self, d: int, size: int) -> NDArray[np.float64]:
        """Normal vectors."""
        return self.rng.standard_normal((d, size))

    def signs(self, count: int) -> NDArray[np.int8]:
        """Independent signs."""
        return random_signs(count, self.rng)

    def pairs(
        self, n_left: int, n_right: int, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """At most ``size`` pairs of coordinates."""
        return spread_pairs(n_left, n_right, size, self.rng)


LayerDraws = Callable[[int], SeededLayer | StoredDraws]


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of random units: 2 E[s(<w, x>) s(<w, y>)] over normal w is the arc-cosine kernel.

    Directions and lengths of a normal vector are independent, and only the mean of the lengths'
    power matters: the directions are orthogonal in blocks, and the power is its mean.
    """

    directions: NDArray[np.float64]
    order: int

    @property
    def size(self) -> int:
        """The number of features."""
        return self.directions.shape[1]

    def arrays(self) -> list[NDArray[Any]]:
        """What was drawn."""
        return [self.directions]

    def fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the features of rows into ``out``."""
        out[...] = units(X @ self.directions.astype(X.dtype), self.order)
        out *= X.dtype.type(np.sqrt(unit_scale(self.order, len(self.directions)) / self.size))


@dataclass(frozen=True, eq=False)
class TangentStep:
    """From the activations and the gradient features of a layer to those of the next.

    Attributes
    ----------
    weights : ndarray of shape (width of the activations, n_units)
    n_active : int
        Units whose activations are kept; all of them are used as steps.
    left_signs, right_signs, left_places, right_places : ndarray
        The TensorSRHT of the gradient features and the steps.
    """

    weights: NDArray[np.float64]
    n_active: int
    left_signs: NDArray[np.int8]
    right_signs: NDArray[np.int8]
    left_places: NDArray[np.int64]
    right_places: NDArray[np.int64]

    @property
    def size(self) -> int:
        """The number of gradient features that come out."""
        return self.n_active + len(self.left_places)

    def arrays(self) -> list[NDArray[Any]]:
        """What was drawn."""
        signs, places = (self.left_signs, self.right_signs), (self.left_places, self.right_places)
        return [self.weights, *signs, *places]

    def __call__(
        self, active: NDArray[Any], gradient: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        dtype, n_units = active.dtype, self.weights.shape[1]
        a = active @ self.weights.astype(dtype)
        kept = units(a[:, : self.n_active], 1) * dtype.type(np.sqrt(2.0 / self.n_active))
        steps = units(a, 0) * dtype.type(np.sqrt(2.0 / n_units))
        sketched = np.empty((len(a), len(self.left_places)), dtype=dtype)
        multiply_sampled(
            mixed(gradient, self.left_signs),
            mixed(steps, self.right_signs),
            self.left_places,
            self.right_places,
            dtype.type(len(self.left_places) ** -0.5),
            sketched,
        )
        return kept, np.hstack([kept, sketched])


@dataclass(frozen=True, eq=False)
class Tangents:
    """The tangent features of a random network, layer by layer."""

    steps: tuple[TangentStep, ...]

    @classmethod
    def draw(cls, kernel: NeuralTangent, d: int, size: int, draws: LayerDraws) -> Tangents:
        """A network for rows of d columns, with ``size`` features in the end."""
        inner = power_of_two(max(FEWEST_UNITS, size))
        check_matrix(
            inner,
            max(d, inner) * kernel.depth,
            np.float64,
            f"the weights of {kernel.depth} layers of {inner:,} units",
            "lower n_components",
        )
        steps: list[TangentStep] = []
        width, gradient = d, d
        for layer in range(kernel.depth):
            drawn = draws(layer)
            last = layer == kernel.depth - 1
            # Of k(x, x) = depth + 1 the last activations are 1, and their columns as many.
            n_active = max(1, round(size / (kernel.depth + 1))) if last else inner
            n_sketched = max(1, size - n_active) if last else inner
            if layer == 0:  # the mean of the squared length of a normal vector is d
                weights = drawn.directions(d, inner, np.sqrt(d))
            else:
                weights = drawn.normals(width, inner)
            left, right = power_of_two(gradient), power_of_two(inner)
            signs = drawn.signs(gradient), drawn.signs(inner)
            places = drawn.pairs(left, right, n_sketched)
            steps.append(TangentStep(weights, n_active, *signs, *places))
            width, gradient = n_active, steps[-1].size
        return cls(tuple(steps))

    @property
    def size(self) -> int:
        """The number of features."""
        return self.steps[-1].size

    def arrays(self) -> list[NDArray[Any]]:
        """What was drawn."""
        return [array for step in self.steps for array in step.arrays()]

    def fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the features of rows into ``out``."""
        active = gradient = X.toarray() if not isinstance(X, np.ndarray) else X
        for step in self.steps:
            active, gradient = step(active, gradient)
        out[...] = gradient
