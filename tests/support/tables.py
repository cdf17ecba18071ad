"""Small tables with numbers, texts and dates, and the files that hold them."""

from __future__ import annotations

import gzip
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

N_ROWS = 240


def flats(n: int = N_ROWS, seed: int = 0) -> dict[str, Any]:
    """Mixed columns; the rent is a product of two of them."""
    rng = np.random.default_rng(seed)
    size, town = rng.uniform(20, 150, n), rng.choice(["Bonn", "Kiel", "Ulm"], n)
    built = [(datetime(1950, 1, 1) + timedelta(days=int(d))).date().isoformat()
             for d in rng.integers(0, 20_000, n)]  # fmt: skip
    price = np.array([{"Bonn": 12.0, "Kiel": 8.0, "Ulm": 10.0}[t] for t in town])
    return {"size": size, "town": town, "built": built, "rent": size * price}


def written(path: Path, columns: dict[str, Any]) -> Path:
    """A file with these columns, in the format that its name says."""
    frame = pd.DataFrame(columns)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif path.suffix in (".arrow", ".feather"):
        feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), path)
    else:
        text = frame.to_csv(index=False, sep="\t" if ".tsv" in path.name else ",")
        content = text.encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
