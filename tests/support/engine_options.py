"""Other sizes for the engine inside the sampled maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernelsieve.features.adaptive import SampledFeatures


def set_options(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Give the sampled maps these engine options, on top of those that they have."""
    monkeypatch.setattr(SampledFeatures, "_options", replace(SampledFeatures._options, **changes))
