"""Shared set-up: rewritten assertions in the helper modules, and one hypothesis profile."""

from __future__ import annotations

import os

# Before numpy is loaded: threads of BLAS that wait for each other on small matrices cost minutes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# Without this a failing `assert` in a helper module would print no values.
pytest.register_assert_rewrite("kernelsieve.testing.battery", "support", "oracles")

# No deadline: the first call of a compiled kernel takes seconds. Derandomised: a red run stays red.
settings.register_profile(
    "kernelsieve",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kernelsieve")


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small subsamples, so that a few thousand rows are many."""
    from kernelsieve.engine import space
    from kernelsieve.features import adaptive, sampled
    from kernelsieve.products import frame

    monkeypatch.setattr(space, "PROPOSAL_ROWS", 400)
    monkeypatch.setattr(space, "PROPOSAL_ENTRIES", 2**14)
    monkeypatch.setattr(frame, "ROTATION_ROWS", 400)
    monkeypatch.setattr(sampled, "ROTATION_ROWS", 400)
    monkeypatch.setattr(sampled, "TRIAL_ROWS", 200)
    monkeypatch.setattr(sampled, "HELD_OUT_ROWS", 150)
    monkeypatch.setattr(adaptive, "HELD_OUT_ROWS", 150)
    monkeypatch.setattr(adaptive, "N_ANCHORS", (300, 300))
