"""The compiled loops against plain ones: prefix trees in lanes, Hadamard, count sketches."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numba.core.errors import TypingError
from scipy.linalg import hadamard

from kernelsieve._native.count_sketch import (
    count_sketch_csr,
    count_sketch_dense,
    multiply_sampled,
)
from kernelsieve._native.hadamard import hadamard_inplace
from kernelsieve._native.lanes import LANES
from kernelsieve._native.products import add_squared_norms, evaluate_rows
from kernelsieve._random import coordinate_words, keyed_rows, row_hashes, splitmix64

Array = Any

# --- products along a prefix tree ----------------------------------------------------------------

N_ATOMS = 7
TYPES = {"float32": (np.float32, np.float32), "float64": (np.float64, np.float64)}
NARROWING = {**TYPES, "float64 into float32": (np.float64, np.float32)}


def random_tree(n_columns: int, rng: np.random.Generator) -> dict[str, Array]:
    """Nodes in depth-first order, the root first; about a third of them have no column."""
    depth, atom, columns = [0], [0], []
    columns.append(0 if rng.random() < 0.5 else -1)
    while max(columns) + 1 < n_columns:
        depth.append(int(rng.integers(1, depth[-1] + 2)))
        atom.append(int(rng.integers(N_ATOMS)))
        columns.append(-1 if rng.random() < 1 / 3 else max(columns) + 1)
    return {
        "depth": np.array(depth, dtype=np.int64),
        "atom": np.array(atom, dtype=np.int64),
        "columns": np.array(columns, dtype=np.int64),
        "weight": rng.uniform(0.5, 2.0, len(depth)),
        "max_depth": max(depth),
    }


def paths(tree: dict[str, Array]) -> list[list[int]]:
    """The atoms from the root down to every node."""
    found: list[list[int]] = []
    path: list[int] = []
    for depth, atom in zip(tree["depth"], tree["atom"], strict=True):
        path = path[: max(depth - 1, 0)] + ([int(atom)] if depth else [])
        found.append(path)
    return found


def naive_features(table: Array, root: Array, tree: dict[str, Array]) -> Array:
    """One loop over the path of every feature, in float64."""
    features = []
    for path, column, weight in zip(paths(tree), tree["columns"], tree["weight"], strict=True):
        if column >= 0:
            values = root.astype(np.float64) * weight
            for a in path:
                values = values * table[a]
            features.append(values)
    return np.array(features).T


def tree_case(n_rows: int, n_columns: int, dtype: Any) -> tuple[Array, Array, dict[str, Array]]:
    """Atoms and roots of both signs, away from zero, and a random tree."""
    rng = np.random.default_rng([n_rows, n_columns])
    values = rng.uniform(0.5, 1.5, (N_ATOMS + 1, n_rows)) * rng.choice([-1, 1], (N_ATOMS + 1, 1))
    values = values.astype(dtype)
    return values[1:], values[0], random_tree(n_columns, rng)


def tolerance(dtype: Any, tree: dict[str, Array]) -> float:
    """Every multiplication rounds once; two more for the weight and the output's type."""
    return (tree["max_depth"] + 3) * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("types", NARROWING)
@pytest.mark.parametrize("n_columns", range(1, 41))
def test_rows_of_products(n_columns: int, types: str) -> None:
    """1 to 40 rows: less than, exactly and more than two vectors of lanes."""
    dtype, out_dtype = NARROWING[types]
    assert 2 * LANES < 40
    for n_rows in range(1, 41):
        table, root, tree = tree_case(n_rows, n_columns, dtype)
        # What lies behind the last row and column must stay as it is.
        frame = np.full((n_rows + 1, n_columns), np.nan, dtype=out_dtype)
        evaluate_rows(table, root, *tree.values(), frame[:n_rows])
        expected = naive_features(table, root, tree)
        rtol = tolerance(out_dtype, tree)
        np.testing.assert_allclose(frame[:n_rows], expected, rtol=rtol, err_msg=f"{n_rows} rows")
        assert np.isnan(frame[n_rows]).all()


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("n_columns", range(1, 41))
def test_squared_norms_of_products(n_columns: int, types: str) -> None:
    dtype, _ = TYPES[types]
    for n_rows in range(1, 41):
        table, root, tree = tree_case(n_rows, n_columns, dtype)
        expected = naive_features(table, root, tree)
        sums = np.full(n_columns, 10.0)  # they are added to, not overwritten
        add_squared_norms(table, root, *tree.values(), sums)
        squares = [math.fsum(v * v for v in column) for column in expected.T.tolist()]
        rtol = (2 * tree["max_depth"] + 8 + n_rows / LANES) * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(sums - 10.0, squares, rtol=rtol, atol=1e-12)


def test_a_wild_row_is_its_own_affair() -> None:
    """NaN and infinity in a row of a vector of lanes do not reach its neighbours."""
    table, root, tree = tree_case(LANES + 5, 20, np.float64)
    expected = naive_features(table, root, tree)
    table = table.copy()
    table[:, 3], table[:, LANES + 1] = np.nan, np.inf
    out = np.empty(expected.shape)
    evaluate_rows(table, root, *tree.values(), out)
    calm = np.delete(np.arange(LANES + 5), [3, LANES + 1])
    np.testing.assert_allclose(out[calm], expected[calm], rtol=1e-14)


def test_an_array_that_begins_anywhere() -> None:
    """Vectors are loaded and stored at addresses that are no multiple of their width."""
    table, root, tree = tree_case(40, 37, np.float64)
    expected = naive_features(table, root, tree)
    for offset in range(4):
        memory = np.empty(40 * 37 + offset)
        out = memory[offset:].reshape(40, 37)
        evaluate_rows(table, root, *tree.values(), out)
        np.testing.assert_allclose(out, expected, rtol=1e-14)


def test_splitmix64_gives_the_published_numbers() -> None:
    """The first outputs of the reference generator from state 0."""
    rows = np.arange(3, dtype=np.uint64)
    found, words = splitmix64(rows, np.uint64(0)).tolist(), coordinate_words(3).tolist()
    hashes, others = row_hashes(rows, 0, "rows"), row_hashes(rows, 1, "rows")
    smallest = keyed_rows(3, 1, 0, "rows").tolist()
    assert found == words == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert len(set(hashes.tolist()) | set(others.tolist())) == 6
    assert smallest == [int(np.argmin(hashes))]


def test_columns_in_memory_are_refused() -> None:
    """A vector is written to consecutive entries: in Fortran order they are not those of a row."""
    table, root, tree = tree_case(40, 37, np.float64)
    out = np.empty((40, 37), order="F")
    if numba.config.DISABLE_JIT:
        evaluate_rows(table, root, *tree.values(), out)
        np.testing.assert_allclose(out, naive_features(table, root, tree), rtol=1e-14)
        return
    with pytest.raises(TypingError, match="C-contiguous"):
        evaluate_rows(table, root, *tree.values(), out)
    block = np.ones((16, 16), order="F")[:, ::-1]
    refused = (TypeError, TypingError, NotImplementedError)  # which one depends on numba's version
    with pytest.raises(refused, match=r"contiguous|reshape"):
        hadamard_inplace(block)


# --- Hadamard ------------------------------------------------------------------------------------

WIDTHS = [2**k for k in range(14)]
HALF = 1024


def times_hadamard(rows: Array) -> Array:
    """rows @ H with scipy's matrix, a few columns at a time."""
    signs = hadamard(rows.shape[1], dtype=np.int8)
    parts = [
        rows.astype(np.float64) @ signs[:, start : start + HALF].astype(np.float64)
        for start in range(0, rows.shape[1], HALF)
    ]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", WIDTHS)
def test_hadamard_of_integers_is_exact(width: int, dtype: Any) -> None:
    """Integers up to 8 stay below 2^24 in sums of 8,192: every bit must be right."""
    block = np.random.default_rng(width).integers(-8, 9, size=(3, width)).astype(dtype)
    expected = times_hadamard(block)
    hadamard_inplace(block)
    np.testing.assert_array_equal(block, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", WIDTHS)
def test_hadamard_twice_is_the_width(width: int, dtype: Any) -> None:
    """log2(width) roundings of entries no larger than the norm, each way."""
    block = np.random.default_rng(width).standard_normal((5, width)).astype(dtype)
    before = block.astype(np.float64)
    hadamard_inplace(block)
    np.testing.assert_allclose(
        np.linalg.norm(block, axis=1), np.sqrt(width) * np.linalg.norm(before, axis=1), rtol=1e-5
    )
    hadamard_inplace(block)
    error = np.abs(block / width - before).max()
    assert error <= 4 * (1 + np.log2(width)) * np.finfo(dtype).eps * np.abs(before).max()


def test_hadamard_wherever_a_block_begins() -> None:
    for offset, width in itertools.product(range(4), (8, 16, 512)):
        memory = np.arange(2 * width + offset, dtype=np.float32)
        block = memory[offset:].reshape(2, width)
        expected = times_hadamard(block)
        hadamard_inplace(block)
        np.testing.assert_array_equal(block, expected)
        np.testing.assert_array_equal(memory[:offset], np.arange(offset))


def test_hadamard_of_no_rows() -> None:
    block = np.empty((0, 64))
    hadamard_inplace(block)
    assert block.shape == (0, 64)


# --- count sketches ------------------------------------------------------------------------------


def random_codes(n_features: int, size: int, sparsity: int, rng: Any) -> tuple[Array, Array]:
    """Codes, and the matrix with as many +-1 in each column as it has copies."""
    buckets = rng.integers(size, size=(n_features, sparsity))
    signs = rng.choice([-1, 1], size=buckets.shape)
    matrix = np.zeros((size, n_features))
    for i, b in itertools.product(range(n_features), range(sparsity)):
        matrix[buckets[i, b], i] += signs[i, b]
    return np.where(signs < 0, ~buckets, buckets).astype(np.int32), matrix


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparsity", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 2, 13])
def test_count_sketches_are_a_matrix(size: int, sparsity: int, dtype: Any) -> None:
    rng = np.random.default_rng([size, sparsity])
    codes, matrix = random_codes(31, size, sparsity, rng)
    X = rng.standard_normal((6, 30)) * (rng.random((6, 30)) < 0.3)
    X[2] = 0.0
    X = X.astype(dtype)
    rows = sp.csr_array(X)
    dense, sparse, wide = (np.ones((6, size), dtype=dtype) for _ in range(3))
    last, matrix = codes[-1], matrix[:, :-1]  # the code of the constant
    scale, constant = dtype(0.5), dtype(3.0)
    count_sketch_dense(X, codes, scale, constant, dense)
    count_sketch_csr(rows.data, rows.indices, rows.indptr, codes, scale, constant, sparse)
    indices, indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    count_sketch_csr(rows.data, indices, indptr, codes, scale, constant, wide)
    expected = 0.5 * X @ matrix.T
    for code in last:
        expected[:, max(code, ~code)] += 3.0 if code >= 0 else -3.0
    atol = 100 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(dense, expected, rtol=0, atol=atol)
    np.testing.assert_array_equal(sparse, dense)  # zeros add nothing, in the same order
    np.testing.assert_array_equal(wide, dense)


@pytest.mark.parametrize(("n_left", "n_right"), [(4, 4), (1, 4), (4, 1), (1, 1)])
def test_products_of_sampled_entries(n_left: int, n_right: int) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((n_left, 8)), rng.standard_normal((n_right, 16))
    left_places, right_places = rng.integers(8, size=11), rng.integers(16, size=11)
    out = np.empty((max(n_left, n_right), 11))
    multiply_sampled(left, right, left_places, right_places, 0.25, out)
    np.testing.assert_allclose(
        out, 0.25 * left[:, left_places] * right[:, right_places], rtol=1e-15
    )


NOTICE = "kernelsieve: compiling for this machine, which takes some seconds, once\n"
SMALL_FIT = """
import numpy as np
from kernelsieve import FourierFeatures
FourierFeatures(8, random_state=0).fit_transform(np.ones((4, 2)))
"""


@pytest.mark.slow
def test_a_notice_when_a_machine_compiles_for_the_first_time_and_only_then(tmp_path: Path) -> None:
    def run(code: str, cache: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / cache)},
            capture_output=True,
            text=True,
            check=True,
        ).stderr

    quiet = "import logging; logging.getLogger('kernelsieve').setLevel('ERROR')"
    assert run(quiet + SMALL_FIT, "quiet") == ""
    assert run(SMALL_FIT, "said") == NOTICE
    assert run(SMALL_FIT, "said") == ""  # compiled by the first process
    other_type = SMALL_FIT.replace("np.ones((4, 2))", "np.ones((4, 2), dtype='float32')")
    assert run(other_type, "said") == ""
