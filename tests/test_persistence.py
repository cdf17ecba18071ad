"""Model files: what comes back, what is refused, and that nothing else can happen."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import small_models
from sklearn.base import clone

import kernelsieve
from kernelsieve import persistence
from kernelsieve.persistence import ModelFileError


def said(estimator: Any) -> list[Any]:
    """The bits of everything that an estimator says about dense rows, and sparse ones."""
    inputs = [small_models.rows(9, 33), small_models.rows(9, 33).astype(np.float32)]
    if small_models.takes_sparse(estimator):
        inputs.append(small_models.sparse_rows(9, 33))
    found = []
    for X in inputs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows without the names of the columns
            answers = small_models.answers(estimator, X)
        found.append({name: small_models.as_bits(value) for name, value in answers.items()})
    return found


@pytest.mark.parametrize("name", small_models.ALL)
def test_a_round_trip_is_exact(name: str, tmp_path: Path) -> None:
    estimator = small_models.build(name)
    path = tmp_path / "model.ks"
    kernelsieve.save(estimator, path, about={"name": name})
    found = persistence.read(path)
    assert type(found.estimator) is type(estimator)
    assert found.about == {"name": name}
    assert said(found.estimator) == said(estimator)
    assert repr(found.estimator) == repr(estimator)
