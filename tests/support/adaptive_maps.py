"""What tests of the adaptive maps share."""

from __future__ import annotations

from typing import Any

import numpy as np


def targets(kind: str | None) -> Any:
    """A target for the 12 rows of `lonely_points`."""
    rng = np.random.default_rng(8)
    match kind:
        case None:
            return None
        case "regression":
            return rng.normal(size=12)
        case "outputs":
            return rng.normal(size=(12, 3))
        case "classes":
            return rng.integers(3, size=12)
        case "names":
            return np.array(["red", "green", "blue"])[rng.integers(3, size=12)]
    raise AssertionError(kind)
