"""The same bits from any number of threads, processes and callers at once."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hardening import CLASSIFIERS, ESTIMATORS, MAPS, MODELS, answers, dense, target

import kernelsieve
from kernelsieve.features import evaluation, fourier, maclaurin, nystrom, oblivious
from kernelsieve.features.adaptive import SampledFeatures
from kernelsieve.products import product_features
from kernelsieve.sources import base as _source
from kernelsieve.sources import summaries as _summaries
from kernelsieve.testing import data as shapes

N_THREADS = 8
# Several blocks of rows for every map and model, and a ragged last one.
N_ROWS, N_COLUMNS = 2500, 3
SLOW = "paper|auto size|AdaptiveFeatures leverage"
# These are slow, and what they add to others is in their fits.
FEW_ROWS = [
    name for name in ESTIMATORS if re.search("paper|refined|auto size|Features leverage", name)
]


def data(name: str) -> Any:
    return shapes.points(300 if name in FEW_ROWS else N_ROWS, N_COLUMNS, seed=5)


def build(name: str, **options: Any) -> Any:
    """The estimator with the number of threads (of its map, too) as asked for."""
    if name in MAPS:
        return MAPS[name](**options)
    inside = {key: value for key, value in options.items() if key == "n_jobs"}
    return MODELS[name](features=MAPS["RowNormFeatures"](**inside), **options)


def fit(name: str, **options: Any) -> Any:
    X = data(name)
    return build(name, **options).fit(X, target(name, X))


@cache
def fitted(name: str) -> Any:
    return fit(name)


def bits(found: dict[str, Any]) -> dict[str, bytes]:
    return {method: dense(value).tobytes() for method, value in found.items()}


# --- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_eight_callers_at_once(name: str) -> None:
    """Each with rows of its own and of a float type of its own, on one fitted estimator."""
    estimator = fitted(name).set_params(n_jobs=2)
    parts = [data(name)[i::N_THREADS].astype([np.float64, np.float32][i % 2]) for i in range(8)]
    expected = [bits(answers(estimator, X)) for X in parts]
    fresh = pickle.loads(pickle.dumps(estimator))  # what is made on first use is not made yet
    with ThreadPoolExecutor(N_THREADS) as pool:
        found = list(pool.map(lambda X: bits(answers(fresh, X)), parts * 2))
    assert found == expected * 2


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if not re.search(SLOW, name)])
def test_eight_fits_at_once(name: str) -> None:
    X = data(name)[:150]
    y = target(name, X)

    def work(seed: int) -> dict[str, bytes]:
        known = build(name).get_params()
        seeds = {key: seed for key in known if key.endswith("random_state")}
        return bits(answers(build(name, n_jobs=2).set_params(**seeds).fit(X, y), X))

    expected = [work(seed) for seed in range(2)]
    with ThreadPoolExecutor(N_THREADS) as pool:
        found = list(pool.map(work, [0, 1] * (N_THREADS // 2)))
    assert found == expected * (N_THREADS // 2)


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_threads_does_not_change_the_bits(name: str) -> None:
    """Of fit, transform and predict; those of maps are in the battery."""
    expected = bits(answers(fitted(name).set_params(n_jobs=1), data(name)))
    for n_jobs in (2, 4):
        assert bits(answers(fitted(name).set_params(n_jobs=n_jobs), data(name))) == expected
        other = fit(name, n_jobs=n_jobs)
        assert bits(answers(other, data(name))) == expected, f"a fit with n_jobs={n_jobs}"


# --- blocks --------------------------------------------------------------------------------------

BLOCKS = [
    (evaluation, "OUTPUT_BYTES", 2**14),
    (SampledFeatures, "_rows_at_once", 384),
    (_summaries, "BLOCK_ROWS", 500),
    (_source, "BLOCK_ROWS", 500),
    (fourier, "PACKED_ROWS", 100),
    (nystrom, "WHITENED_ROWS", 100),
    (maclaurin, "SIGNED_ROWS", 700),
    (oblivious, "SKETCH_BYTES", 2**14),
    (product_features, "BLOCK_ROWS", 96),
]


@pytest.mark.parametrize("name", MAPS)
def test_blocks_of_transform_are_rounding_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same map in other blocks of rows: rtol 1e-10 in float64."""
    expected = dense(fitted(name).transform(data(name)))
    for module, constant, value in BLOCKS:
        monkeypatch.setattr(module, constant, value)
    found = dense(fitted(name).transform(data(name)))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in MODELS if "KMeans" not in name])
def test_block_rows_are_rounding_only(name: str) -> None:
    """The same model, fitted and asked in other blocks of rows.

    The sums of a fit are rounded otherwise; the ridge keeps that small. (Clusters of k-means start
    from all features at once: nothing of it depends on blocks but the last pass.)
    """
    X = data(name)
    options = {"C": 1e-3} if name == "KernelSVC" else {}
    if "refined" in name or "cg" in name:
        options["tol"] = 1e-13  # iterations stop where they are as good as a factor
    expected = answers(fit(name, **options), X)
    found = answers(fit(name, block_rows=333, **options), X)
    for method, value in expected.items():
        if name in CLASSIFIERS and method == "predict":
            assert (found[method] == value).mean() > 0.999
            continue
        scale = np.abs(value).max()
        np.testing.assert_allclose(found[method], value, rtol=1e-10, atol=1e-9 * scale)


# --- processes -----------------------------------------------------------------------------------

CHILD = """
import json, pickle, sys
sys.path.insert(0, sys.argv[1])
import test_determinism as t
print(json.dumps(t.hashes(json.loads(sys.argv[2]), sys.argv[3])))
"""


def hashes(names: dict[str, list[str]], where: str) -> dict[str, dict[str, str]]:
    """Hashes of what fresh fits say ("fit"), and of what the estimators kept in a file do."""

    def hashed(estimator: Any, name: str) -> str:
        found = bits(answers(estimator, data(name)[:700]))
        return hashlib.sha256(b"".join(found[key] for key in sorted(found))).hexdigest()

    with open(where, "rb") as file:
        kept = pickle.load(file)
    return {
        "kept": {name: hashed(kept[name], name) for name in names["kept"]},
        "fit": {name: hashed(fit(name, n_jobs=2), name) for name in names["fit"]},
    }


def in_a_process(where: Path, names: dict[str, list[str]], **variables: str) -> Any:
    tests = Path(__file__).parent
    paths = [str(Path(kernelsieve.__file__).parents[1]), str(tests)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    command = [sys.executable, "-c", CHILD, str(tests), json.dumps(names), str(where)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_fresh_processes_and_blas_threads(tmp_path: Path) -> None:
    """Answers do not depend on threads of BLAS or hash seeds; fits not on hash seeds."""
    where = tmp_path / "fitted.pickle"
    where.write_bytes(pickle.dumps({name: fitted(name) for name in ESTIMATORS}))
    names = {"kept": list(ESTIMATORS), "fit": ["AdaptiveFeatures", *MODELS]}
    expected = in_a_process(where, names, PYTHONHASHSEED="1", OPENBLAS_NUM_THREADS="1")
    assert in_a_process(where, names, PYTHONHASHSEED="2", OPENBLAS_NUM_THREADS="1") == expected
    names["fit"] = []  # a factor of LAPACK may be rounded otherwise by other threads
    for threads in ("2", "4"):
        found = in_a_process(where, names, PYTHONHASHSEED="3", OPENBLAS_NUM_THREADS=threads)
        assert found["kept"] == expected["kept"]
