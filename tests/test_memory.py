"""Memory limits: refused before the allocation, with what would fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import kernelsieve as ks
from kernelsieve import _validation, kernels
from kernelsieve._validation import available, check_matrix, check_memory, check_square

GIB = 2**30


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 1 GiB left."""
    monkeypatch.setattr(_validation, "available", lambda: GIB)


def points(n: int = 50, d: int = 5) -> Any:
    return np.random.default_rng(0).standard_normal((n, d))


def many_rows(n: int, d: int = 3, dtype: Any = np.float64) -> Any:
    """n equal rows in the memory of one."""
    return np.broadcast_to(np.ones((1, d), dtype=dtype), (n, d))


# --- how much there is ---------------------------------------------------------------------------


def test_this_machine_says_what_is_free() -> None:
    found = available()
    if hasattr(os, "sysconf"):
        assert found is not None
        assert 0 < found <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty /proc and /sys/fs/cgroup."""
    monkeypatch.setattr(_validation, "PROC", tmp_path / "proc")
    monkeypatch.setattr(_validation, "CGROUP", tmp_path / "cgroup")
    return tmp_path


def test_the_smallest_limit_counts(system: Path) -> None:
    write(system / "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert available() == 8000 * 1024
    write(system / "proc/self/cgroup", "1:cpu:/x\n0::/user/job\n")
    write(system / "cgroup/user/job/memory.max", "max\n")  # no limit of its own
    write(system / "cgroup/user/job/memory.current", "100\n")
    assert available() == 8000 * 1024
    write(system / "cgroup/user/memory.max", "5000000\n")
    write(system / "cgroup/user/memory.current", "2000000\n")
    assert available() == 3_000_000
    write(system / "cgroup/user/memory.stat", "anon 7\ninactive_file 500000\n")
    assert available() == 3_500_000  # cached files make room
    write(system / "cgroup/memory/memory.limit_in_bytes", "1000")  # the older kind of groups
    write(system / "cgroup/memory/memory.usage_in_bytes", "4000")
    assert available() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded on Linux")
def test_a_limit_of_the_address_space_counts() -> None:
    code = (
        "import resource\n"
        "import kernelsieve as ks\n"
        "from kernelsieve._validation import available\n"
        "kernel = ks.kernels.Gaussian(1.0)\n"
        "import numpy as np\n"
        "X = np.zeros((20_000, 2))\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**30,) * 2)\n"
        "assert 2**29 < available() <= 2**30, available()\n"
        "try:\n"
        "    kernel(X)\n"
        "except MemoryError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "needs 3.0 GiB, but" in done.stdout


def test_systems_without_limits_of_processes(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    write(system / "proc/meminfo", "MemAvailable: 8000 kB\n")
    assert available() == 8000 * 1024


def test_without_files_the_machine_s_memory_counts(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 1000, raising=False)
    assert available() == 10**6
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert available() is None
    check_memory(1e30, "anything", "is allowed where nothing is known")


def test_the_message(small: None) -> None:
    with pytest.raises(MemoryError) as error:
        check_matrix(2**20, 1024, np.float64, "this", "at most {fits} columns would fit")
    assert str(error.value) == (
        "this needs 8.0 GiB, but 1.0 GiB are available: at most 128 columns would fit"
    )
    with pytest.raises(MemoryError, match="at most 8,192 would fit"):
        check_square(2**15, 16, "this", "at most {fits} would fit")
    check_matrix(2**17, 1024, np.float64, "this", "")  # just so


# --- where the large matrices are ----------------------------------------------------------------


def test_transform(small: None) -> None:
    features = ks.FourierFeatures(20_000, random_state=0).fit(points(d=3))
    words = (
        r"transform of 10,000,000 rows to 20,000 features in float64 needs 1,490.1 GiB, but "
        r"1.0 GiB are available: at most 13 features would fit; lower n_components, pass float32"
    )
    with pytest.raises(MemoryError, match=words):
        features._transform(many_rows(10**7))
    with pytest.raises(MemoryError, match=r"in float32 needs 745.1 GiB.*at most 26 features"):
        features._transform(many_rows(10**7, dtype=np.float32))


def test_sparse_rows_to_dense_features(small: None) -> None:
    features = ks.RowNormFeatures(30, rotate=True, random_state=0).fit(points())
    with pytest.raises(MemoryError, match=r"transform of 100,000,000 rows"):
        features._transform(sp.csr_array((10**8, 5)))


@pytest.mark.parametrize(
    "kernel",
    [kernels.Gaussian(), kernels.Polynomial(), kernels.Laplacian(), kernels.Pairwise("cosine")],
)
def test_exact_kernels(small: None, kernel: Any) -> None:
    X = many_rows(10**6)
    words = r"the 1,000,000 x 1,000,000 kernel matrix in float64 needs 7,450.6 GiB.*at most 11,585"
    with pytest.raises(MemoryError, match=words):
        kernel.between(X, X)
    with pytest.raises(MemoryError, match=r"the 1,000,000 x 5,000 kernel matrix.*at most 134 col"):
        kernel.between(X, many_rows(5000))


def test_sparse_distances(small: None) -> None:
    X = sp.csr_array((10**6, 3))
    with pytest.raises(MemoryError, match="the 1,000,000 x 1,000,000 kernel matrix"):
        kernels.Gaussian().between(X, X)


def test_landmarks(small: None) -> None:
    X = many_rows(10**6)
    for landmarks in ("uniform", "leverage", "rpcholesky", "kmeans"):
        words = r"kernel matrix of 1,000,000 landmarks needs 29,802.3 GiB.*at most 5,792 would fit"
        with pytest.raises(MemoryError, match=words):
            ks.NystromFeatures(10**6, landmarks=landmarks).fit(X)
    words = r"Cholesky factor of 1,000,000 rows and 2,000 landmarks.*at most 134 landmarks"
    with pytest.raises(MemoryError, match=words):
        ks.NystromFeatures(2000, landmarks="rpcholesky").fit(X)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (ks.FourierFeatures(10**9), r"500,000,000 frequencies of 5 columns.*at most 26,843,545"),
        (ks.FourierFeatures(10**9, frequencies="structured"), "500,000,000 frequencies"),
        (ks.TensorSketchFeatures(10**9), r"a block of 16 rows of 1,000,000,000 features"),
        (ks.ObliviousFeatures(10**9, kernel="poly", degree=200), "lower n_components"),
        (ks.ObliviousFeatures(10**6, gamma=3.0), "a tree of|a list of all"),
        (ks.ObliviousFeatures(2 * 10**5, gamma=3.0, compress="gaussian"), "lower n_components"),
        (ks.MaclaurinFeatures(10**9, gamma=1.0), r"transform of 40 rows to [\d,]+ features"),
        (ks.RowNormFeatures(10**9, gamma=1.0, basis="monomial"), r"a list of all [\d,]+ products"),
        (ks.AdaptiveFeatures(10**8, gamma=1.0, basis="monomial"), r"a list of all [\d,]+ products"),
    ],
)
def test_absurd_numbers_of_features(small: None, features: Any, words: str) -> None:
    X = points() if "frequencies" in words else points(40, 12)
    with pytest.raises(MemoryError, match=words):
        features.fit(X).transform(X)


def test_as_many_features_as_there_are(small: None) -> None:
    """A large n_components is no matter where few features exist."""
    X = points()
    for kind in (ks.RowNormFeatures, ks.AdaptiveFeatures, ks.ObliviousFeatures):
        features = kind(10**9, kernel="poly", degree=2, random_state=0).fit(X)
        assert features.n_components_ == 21  # 1, 5 columns and 15 products of two
    sparse = sp.csr_array(X * (X > 1))
    assert ks.RowNormFeatures(10**9, kernel="poly", degree=2).fit(sparse).n_components_ <= 21
    assert ks.NystromFeatures(10**9).fit(X).n_components_ == 50


class Wide(ks.FourierFeatures):
    """Claims many features without making them."""

    def _fit_rows(self, X: Any, seed: int) -> None:
        super()._fit_rows(X, seed)
        self.n_components_ = 10**6


@pytest.mark.parametrize(
    ("model", "way_out"),
    [
        (ks.KernelPCA(2, Wide(4)), "lower n_components"),
        (ks.KernelCCA(2, Wide(4)), "lower n_components"),
        (ks.KernelRidgeCV(Wide(4)), r"use KernelRidge\(solver='cg'\), or lower n_components"),
    ],
)
def test_gram_matrices_of_features(small: None, model: Any, way_out: str) -> None:
    words = rf"0 x [12],000,000 matrix of products .* at most [\d,]+ would fit: {way_out}"
    with pytest.raises(MemoryError, match=words):
        model.fit(points(), points()[:, 0])


def test_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_validation, "UNCHECKED", 2**20)
    monkeypatch.setattr(_validation, "available", lambda: 2**23)
    model = ks.KernelRidge(ks.FourierFeatures(4, random_state=0), refine=True)
    X, y = points(600), points(600)[:, 0]
    model.fit(X, y)
    monkeypatch.setattr(_validation, "available", lambda: 2**21)
    words = r"the 600 x 600 kernel matrix in float64 .*use fewer rows, or a feature map"
    with pytest.raises(MemoryError, match=words):
        model.fit(X, y)
