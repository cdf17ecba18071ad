"""Arrays of .npz files, without pickles."""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelsieve._validation import check_sparse


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the arrays of a .npz file, or the sparse matrix in it as "matrix"; never pickles.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict of str to ndarray, or to a CSR array

    Raises
    ------
    ValueError
        If it is not a .npz file of plain arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "format" in arrays:
                return {"matrix": sp.csr_array(check_sparse(sp.load_npz(path), "the matrix"))}
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise ValueError(f"{path} is not a .npz file of plain arrays: {error}") from error
