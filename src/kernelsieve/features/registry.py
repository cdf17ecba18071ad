"""The registry of methods: every feature map by its name, with what it supports.

``fit``, ``embed`` and ``bench`` all look here. To add a map, give it a row in ``METHODS``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelsieve.features import (
    AdaptiveFeatures,
    AutoFeatures,
    BinningFeatures,
    FeatureMap,
    FourierFeatures,
    GegenbauerFeatures,
    MaclaurinFeatures,
    NetworkFeatures,
    NystromFeatures,
    ObliviousFeatures,
    ResidualFeatures,
    RowNormFeatures,
    TensorSketchFeatures,
)


@dataclass(frozen=True)
class Method:
    """A feature map that can be asked for by name.

    Attributes
    ----------
    name : str
        What it is called on the command line.
    label : str
        What it is called in tables and plots.
    description : str
    features : type of FeatureMap
    options : mapping of str to object
        What makes it differ from the map's defaults.
    products : bool
        Whether its features are products of columns, which can be read.
    gaussian : bool
        Whether its features approximate the Gaussian kernel.
    variant : bool
        Whether it is a variant for comparisons, not offered in short lists.
    """

    name: str
    label: str
    description: str
    features: type[FeatureMap]
    options: Mapping[str, Any] = field(default_factory=dict)
    products: bool = False
    gaussian: bool = True
    variant: bool = False

    def build(self, **options: Any) -> FeatureMap:
        """Make an unfitted map.

        Parameters
        ----------
        **options
            Parameters of the map. Those that it does not have are ignored, so that callers can
            pass the same ones to every method.

        Returns
        -------
        FeatureMap

        Examples
        --------
        >>> find_method("fourier").build(n_components=10, degree=2).n_components
        10
        """
        known = self.features().get_params(deep=False)
        wanted = {name: value for name, value in options.items() if name in known}
        return self.features(**{**wanted, **self.options})


_ROWS = (
    Method("auto", "Auto", "the best of the maps on a sample of the rows", AutoFeatures),
    Method("fourier", "Fourier", "random Fourier features", FourierFeatures),
    Method(
        "nystrom",
        "Nystrom",
        "landmarks drawn by recursive ridge leverage",
        NystromFeatures,
        {"landmarks": "leverage"},
    ),
    Method("oblivious", "Oblivious", "oblivious sketch of the Taylor series", ObliviousFeatures),
    Method(
        "row-norm", "Row norm", "distinct products drawn by norm", RowNormFeatures, products=True
    ),
    Method(
        "adaptive",
        "Adaptive",
        "distinct products chosen by leverage, target and norm",
        AdaptiveFeatures,
        products=True,
    ),
    Method(
        "row-norm-paper",
        "Row norm [1]",
        "the paper's single round: sketched, independent draws",
        RowNormFeatures,
        {"sampler": "paper"},
        products=True,
        variant=True,
    ),
    Method(
        "adaptive-paper",
        "Adaptive [1]",
        "the paper's full recursion: sketched, independent draws",
        AdaptiveFeatures,
        {"sampler": "paper"},
        products=True,
        variant=True,
    ),
    Method(
        "tensor-sketch",
        "TensorSketch",
        "sketch of a polynomial kernel",
        TensorSketchFeatures,
        gaussian=False,
    ),
    Method("maclaurin", "Maclaurin", "random Maclaurin features", MaclaurinFeatures),
    Method(
        "binning",
        "Binning",
        "hashed cells of random grids, for Laplacian kernels",
        BinningFeatures,
        gaussian=False,
        variant=True,
    ),
    Method(
        "gegenbauer",
        "Gegenbauer",
        "zonal functions of random directions, for few columns",
        GegenbauerFeatures,
        variant=True,
    ),
    Method(
        "network",
        "Network",
        "random layers and gradients of a wide ReLU network",
        NetworkFeatures,
        gaussian=False,
        variant=True,
    ),
    Method(
        "residual",
        "Residual",
        "landmarks, and random features of what they leave",
        ResidualFeatures,
        variant=True,
    ),
    Method(
        "fourier-orthogonal",
        "FF orthogon.",
        "Fourier features in orthogonal blocks",
        FourierFeatures,
        {"frequencies": "orthogonal"},
        variant=True,
    ),
    Method(
        "fourier-structured",
        "FF structur.",
        "orthogonal Fourier features by fast transforms",
        FourierFeatures,
        {"frequencies": "structured"},
        variant=True,
    ),
    Method(
        "fourier-modified",
        "FF modified",
        "Fourier features drawn by a bound on leverage",
        FourierFeatures,
        {"frequencies": "modified"},
        variant=True,
    ),
    Method(
        "nystrom-uniform",
        "Nystrom un.",
        "uniform landmarks",
        NystromFeatures,
        {"landmarks": "uniform"},
    ),
)
METHODS = {method.name: method for method in _ROWS}


def find_method(name: str) -> Method:
    """Look up a method by name.

    Raises
    ------
    ValueError
        If there is none; the message suggests the closest name.

    Examples
    --------
    >>> find_method("fourier").description
    'random Fourier features'
    """
    if name not in METHODS:
        raise ValueError(unknown_method(name, METHODS))
    return METHODS[name]


def unknown_method(name: Any, known: Iterable[str]) -> str:
    """The message about a method that does not exist."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown method {name!r}: {guess}known are {', '.join(known)}"


def feature_map(name: str, readable: bool = False, **options: Any) -> FeatureMap:
    """Make the unfitted map of a method.

    Parameters
    ----------
    name : str
        One of ``METHODS``.
    readable : bool, default False
        Use products of columns only, never of principal components; "auto" becomes "adaptive".
    **options
        As in :meth:`Method.build`.

    Returns
    -------
    FeatureMap

    Examples
    --------
    >>> feature_map("auto", readable=True).rotate
    False
    """
    method = find_method("adaptive" if readable and name == "auto" else name)
    if not readable:
        return method.build(**options)
    if not method.products:
        products = [
            other.name for other in METHODS.values() if other.products and not other.variant
        ]
        raise ValueError(
            f"method={name!r} has no readable features: only products of columns can be read. Use "
            f"{' or '.join(products)}"
        )
    return method.build(**options, rotate=False)
