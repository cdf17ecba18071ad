"""Feature maps by the names that the command line gives them."""

from __future__ import annotations

from typing import Any

from kernelsieve._validation import check_choice
from kernelsieve.features import (
    AdaptiveFeatures,
    AutoFeatures,
    FeatureMap,
    FourierFeatures,
    MaclaurinFeatures,
    NystromFeatures,
    ObliviousFeatures,
    RowNormFeatures,
    TensorSketchFeatures,
)

METHODS: dict[str, type[FeatureMap]] = {
    "auto": AutoFeatures,
    "adaptive": AdaptiveFeatures,
    "row-norm": RowNormFeatures,
    "nystrom": NystromFeatures,
    "fourier": FourierFeatures,
    "oblivious": ObliviousFeatures,
    "tensor-sketch": TensorSketchFeatures,
    "maclaurin": MaclaurinFeatures,
}
READABLE = ("adaptive", "row-norm")


def feature_map(method: str, readable: bool, **options: Any) -> FeatureMap:
    """The map of a name with those of the options that it has; readable ones do not rotate."""
    check_choice(method, "method", tuple(METHODS))
    if readable:
        method = "adaptive" if method == "auto" else method
        if method not in READABLE:
            raise ValueError(
                f"readable features are products of columns, and method={method!r} has none: use "
                f"{' or '.join(READABLE)}"
            )
        options["rotate"] = False
    known = METHODS[method]().get_params()
    return METHODS[method](**{name: value for name, value in options.items() if name in known})
