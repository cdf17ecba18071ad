"""Shared set-up: rewritten assertions in the helper modules, and one hypothesis profile."""

from __future__ import annotations

import os

# Before numpy is loaded: threads of BLAS that wait for each other on small matrices cost minutes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# Without this a failing `assert` in a helper module would print no values.
pytest.register_assert_rewrite("kernelsieve.testing", "support", "oracles")

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
    from support.engine_options import set_options

    set_options(
        monkeypatch,
        proposal_rows=400,
        table_proposal_entries=2**14,
        rotation_rows=400,
        trial_rows=200,
        held_out_rows=150,
        n_anchors=(300, 300),
    )
