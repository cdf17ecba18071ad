"""Damaged model files by the thousand: each must be refused, or give a model that does no harm.

    python tests/fuzz_model_files.py --cases 100000

Good files of every estimator are changed: bits and bytes, lengths, the header's JSON, the types and
shapes of arrays, their content. Half of them get a right checksum again, so that what is behind it
is reached. A file that loads is used on dense and sparse rows. Allowed are a result, ModelFileError
from the file, and ValueError from its use (TypeError where it says that it takes no sparse rows).

It runs in a process of its own with bounds on memory and time and an audit hook, so that a crash,
a hang, a huge allocation and any attempt to run or import something are failures like others; the
files that made them are kept.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import hashlib
import json
import os
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: workers are forked

import numpy as np
import scipy.sparse as sp

from kernelsieve import persistence
from kernelsieve._state import is_fitted
from kernelsieve.persistence import _container
from support import small_models

MEMORY = 2**30  # bytes beyond what the process has before
SECONDS = 10.0  # of processor time for one case
WALL = 600  # seconds without any case done: something waits for ever
RECORD = struct.Struct("<qBB")  # the case, its outcome, and whether its checksum was right
OUTCOMES = ("refused", "used", "refused at use", "failed")
REFUSED, USED, REFUSED_AT_USE, FAILED = range(len(OUTCOMES))
FORBIDDEN = (
    "exec",
    "compile",
    "import",
    "marshal.",
    "pickle.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "subprocess.",
    "socket.",
    "ctypes.",
    "shutil.",
)


# --- good files, taken apart ---------------------------------------------------------------------


class Parts(NamedTuple):
    """A good file: its header and the bytes of its arrays."""

    name: str
    data: bytes
    header: Any
    arrays: list[bytes]


def take_apart(name: str, data: bytes) -> Parts:
    """The parts of a file, without the checks of the library."""
    size = _container.PREFIX.unpack(data[: _container.PREFIX.size])[2]
    start = _container.PREFIX.size + size
    header = json.loads(data[_container.PREFIX.size : start])
    arrays = []
    for each in header["arrays"]:
        start += -start % _container.ALIGNMENT
        length = int(np.prod(each["shape"], dtype=int)) * np.dtype(each["dtype"]).itemsize
        arrays.append(data[start : start + length])
        start += length
    return Parts(name, data, header, arrays)


def put_together(header: bytes, arrays: list[bytes]) -> bytes:
    """A file whose lengths and checksum are right, whatever is in it."""
    body = bytearray(header)
    start = _container.PREFIX.size
    for array in arrays:
        body += b"\0" * (-(start + len(body)) % _container.ALIGNMENT) + array
    body += b"\0" * (-(start + len(body)) % _container.ALIGNMENT)
    length = start + len(body) + _container.CHECKSUM
    prefix = _container.PREFIX.pack(_container.MAGIC, _container.FORMAT, len(header), length)
    return with_checksum(prefix + bytes(body) + b"\0" * _container.CHECKSUM)


def with_checksum(data: bytes) -> bytes:
    """The same with the right checksum at its end."""
    content = data[: -_container.CHECKSUM]
    return content + hashlib.sha256(content).digest()


def good_files(names: list[str], folder: Path) -> list[Parts]:
    """The files of some small models."""
    path = folder / "good.ks"
    files = []
    for name in names:
        notes = [[1, 2.5, None, (2.5, "a"), {"a": 1, "b": [i]}, "x"][i % 6] for i in range(40)]
        about = {"target": "y", "notes": notes}
        persistence.save(small_models.build(name), path, about, variance=True)
        files.append(take_apart(name, path.read_bytes()))
    return files


# --- what is done to them ------------------------------------------------------------------------

Rng = np.random.Generator


def pick(rng: Rng, things: Any) -> Any:
    """One of some things."""
    return things[int(rng.integers(len(things)))]


def change_bytes(rng: Rng, data: bytes) -> bytes:
    """Bits, bytes and pieces of the file as a whole."""
    changed = bytearray(data)
    size = len(changed)
    what = int(rng.integers(7))
    # Most of what matters is at the beginning, so that it is hit as often as the rest.
    place = int(rng.integers(size if rng.random() < 0.5 else min(size, 4096)))
    length = int(min(size - place, 2 ** rng.integers(0, 12)))
    if what == 0:
        for _ in range(int(rng.integers(1, 9))):
            changed[int(rng.integers(size))] ^= 1 << int(rng.integers(8))
    elif what == 1:
        changed[place] = int(rng.integers(256))
    elif what == 2:
        del changed[place:]
    elif what == 3:
        changed[place:place] = rng.bytes(length)
    elif what == 4:
        del changed[place : place + length]
    elif what == 5:
        changed[place : place + length] = b"\0" * length
    else:
        form, value = pick(rng, [("<I", 8), ("<I", 12), ("<Q", 16)])
        limit = 2**32 if form == "<I" else 2**64
        near = struct.unpack_from(form, changed, value)[0] + int(rng.integers(-70, 70))
        struct.pack_into(form, changed, value, pick(rng, [0, 1, near, limit - 1]) % limit)
    return bytes(changed)


NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 7, 63, 64, 255, 1000, 2**20, 2**24, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64,
    10**18, 10**30, -(2**63), -3, 0.0, -0.0, 0.5, 1.0, -1.5, 1e-300, 1e-160, 1e16, 1e150, 1e300,
    1e308, 5e-324,
]  # fmt: skip
OTHERS: list[Any] = [
    None, True, False, "", "x", "auto", "nan", "gaussian", [], {}, [[]], [0], {"float": "nan"},
    {"float": "inf"}, {"float": "-inf"}, {"array": 0}, {"array": -1}, {"array": 10**9},
    {"tuple": []}, {"table": {}}, {"pairs": [[1, 1], [2, 3]]}, {"names": ["a"]},
    {"names": ["a"], "width": 2**40}, {"csr": {}}, {"object": "KernelRidge", "fields": {}},
    {"object": "os.system", "fields": {"command": "true"}}, {"object": "eval", "fields": {}},
    {"numbers": {"array": 0}}, {"texts": [{"array": 0}, {"array": 1}]}, {"numbers": [1.0]},
    {"tuples": [{"array": 0}, []]}, {"lists": [[2**40], []]}, {"arrays": [{"array": 0}] * 2},
    {"dicts": [{"array": 0}, [], []]}, {"mixed": [{"array": 0}, [[], [1]]]},
    {"objects": "Gaussian", "fields": {}}, {"objects": "Gaussian", "fields": {"gamma": [1.0] * 40}},
    {"__reduce__": ["os.system", "true"]}, "\ud7ff\x00", "a" * 5000,
]  # fmt: skip


def places_in(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a tree of JSON."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys: Any = node.keys() if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], dict | list):
                waiting.append(node[key])
    return found


def change_header(rng: Rng, header: Any, others: list[Parts]) -> None:
    """One change of structure in a header, in place."""
    container, key = pick(rng, places_in(header))
    value = container[key]
    what = int(rng.integers(10))
    if what <= 1 and isinstance(value, int | float) and not isinstance(value, bool):
        container[key] = pick(rng, [*NUMBERS, value + 1, value - 1, -value, value * 2, value / 2])
    elif what == 2:
        container[key] = copy.deepcopy(pick(rng, NUMBERS))
    elif what == 3:
        container[key] = copy.deepcopy(pick(rng, OTHERS))
    elif what == 4:
        del container[key]
    elif what == 5 and isinstance(container, dict):
        container[str(pick(rng, ["x", "object", "fields", "array", "n_components"]))] = value
    elif what == 5:
        container.insert(int(rng.integers(len(container) + 1)), copy.deepcopy(value))
    elif what == 6:  # something that stands elsewhere, in this file or in another
        source = header if rng.random() < 0.5 else pick(rng, others).header
        elsewhere, other_key = pick(rng, places_in(source))
        container[key] = copy.deepcopy(elsewhere[other_key])
    elif what == 7 and isinstance(value, str):
        names = [parts.header["model"]["object"] for parts in others]
        container[key] = pick(rng, [*names, "Gaussian", "Polynomial", "mercer", "cg", value[:-1]])
    elif what == 8:
        nested: Any = value
        for _ in range(int(2 ** rng.integers(1, 8))):  # deeper: see `written`
            nested = [nested] if rng.random() < 0.7 else {"tuple": [nested]}
        container[key] = nested
    else:
        change_layout(rng, header)


def change_layout(rng: Rng, header: Any) -> None:
    """The type, the shape or the order of an array."""
    arrays = header.get("arrays")
    if not (isinstance(arrays, list) and arrays):
        return
    layout = pick(rng, arrays)
    if not (isinstance(layout, dict) and isinstance(layout.get("shape"), list)):
        return
    shape = layout["shape"]
    what = int(rng.integers(6))
    if what == 0:
        layout["dtype"] = pick(rng, [*_container.DTYPES, "|O", "<c16", "<U4", ">f8", "<M8[s]", 8])
    elif what == 1:
        layout["order"] = pick(rng, ["C", "F", "A", None])
    elif what == 2:
        layout["shape"] = shape[::-1]
    elif what == 3:
        layout["shape"] = pick(rng, [[*shape, 1], [1, *shape], shape[1:], [*shape, 0], [-1], []])
    elif what == 4 and shape and all(isinstance(length, int) for length in shape):
        layout["shape"] = [int(np.prod(shape, dtype=object))]  # the same bytes
    elif shape:
        shape[int(rng.integers(len(shape)))] = pick(rng, NUMBERS)


def change_array(rng: Rng, layout: Any, data: bytes) -> bytes:
    """Some entries of an array."""
    array = np.frombuffer(data, dtype=layout["dtype"]).copy()
    if array.size == 0:
        return data
    some = rng.integers(array.size, size=int(rng.integers(1, 4)))
    if array.dtype.kind == "f":
        values = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, -0.0, 1e30, -1.0]
        with np.errstate(over="ignore"):
            array[some] = np.asarray(pick(rng, [*values, -array[some[0]]])).astype(array.dtype)
    elif array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        near = int(array[some[0]])
        values = [-1, 0, 1, near + 1, near - 1, array.size, int(array.max()) + 1, -near - 1]
        value = int(pick(rng, [*values, info.min, info.max, info.max // 2, 10**6]))
        array[some] = max(info.min, min(info.max, value))
    else:
        array = array.view(np.uint8)
        array[some] = rng.integers(256, size=len(some))
    if rng.random() < 0.1:
        rng.shuffle(array)
    return array.tobytes()


def mutate(rng: Rng, files: list[Parts]) -> bytes:
    """A damaged file; half of them have the right checksum."""
    parts = pick(rng, files)
    right = rng.random() < 0.5
    kind = rng.random()
    if kind < 0.25:
        data = change_bytes(rng, parts.data)
        return with_checksum(data) if right and len(data) >= _container.CHECKSUM else data
    header, arrays = copy.deepcopy(parts.header), list(parts.arrays)
    for _ in range(int(pick(rng, [1, 1, 1, 2, 3]))):
        if kind < 0.65 or not arrays:
            change_header(rng, header, files)
        else:
            which = int(rng.integers(len(arrays)))
            arrays[which] = change_array(rng, parts.header["arrays"][which], arrays[which])
    text = written(rng, header)
    data = put_together(text, arrays)
    return data if right else data[: -_container.CHECKSUM] + parts.data[-_container.CHECKSUM :]


def written(rng: Rng, header: Any) -> bytes:
    """The header as JSON, now and then as something that is not quite JSON."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    what = int(rng.integers(40))
    if what == 0:
        text = text.replace("0.", pick(rng, ["1e999", "NaN.", "Infinity", "0" * 5000 + "."]), 1)
    elif what == 1:
        text = text.replace("{", '{"fields":1,"fields":2,', 1)
    elif what == 2:
        depth = int(10 ** rng.integers(2, 6))
        text = text.replace("null", "[" * depth + "]" * depth, 1)
    elif what == 3:
        text = text.replace("null", "9" * int(10 ** rng.integers(1, 5)), 1)
    return text.encode("utf-8", "surrogatepass")


# --- use -----------------------------------------------------------------------------------------


class Watch:
    """An audit hook that notes whatever a file made happen that it must not."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {arguments!r:.200}")


def use(path: Path, watch: Watch) -> int:
    """Load a file and use what it holds: the outcome. Any other exception is a failure."""
    watch.seen.clear()
    watch.on = True
    try:
        estimator = persistence.load(path)
    except persistence.ModelFileError:
        return REFUSED
    finally:
        watch.on = False
        if watch.seen:
            raise AssertionError(f"loading did {watch.seen}")
    outcome = USED
    if not is_fitted(estimator):
        repr(estimator)
        return USED
    width = getattr(estimator, "n_features_in_", small_models.N_COLUMNS)
    if width > 10**6:  # nobody has such rows
        return USED
    dense = np.linspace(-1.0, 1.0, 3 * width).reshape(3, width)
    sparse = sp.csr_array(dense * (np.arange(dense.size).reshape(dense.shape) % 2))
    for X in (dense, dense.astype(np.float32), sparse):
        try:
            small_models.answers(estimator, X)
        except ValueError:
            outcome = REFUSED_AT_USE
        except TypeError as error:
            if "sparse" not in str(error).lower():
                raise
            outcome = REFUSED_AT_USE
    repr(estimator)
    return outcome


def worker(files: list[Parts], seed: int, start: int, stop: int, folder: Path, report: int) -> None:
    """Go through some cases, and tell the outcome of each; die of what must not happen."""
    faulthandler.enable()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    bound_memory()
    watch, path = Watch(), folder / "case.ks"
    for case in range(start, stop):
        data = mutate(np.random.default_rng([seed, case]), files)
        path.write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcome = use(path, watch)
        except BaseException:
            print(f"--- case {case}", file=sys.stderr)
            traceback.print_exc(limit=-6)
            outcome = FAILED
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        os.write(report, RECORD.pack(case, outcome, with_checksum(data) == data))


def bound_memory() -> None:
    """Let this process have little more address space than it has; on Linux only."""
    import resource  # not everywhere

    statistics = Path("/proc/self/statm")
    if statistics.exists():
        limit = int(statistics.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def peak_memory() -> int:
    """Megabytes that the largest worker had, on Linux."""
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


# --- the parent ----------------------------------------------------------------------------------


def run(
    files: list[Parts], cases: int, seed: int, keep: Path, say: Callable[[str], None]
) -> Counter[str]:
    """All cases, in one worker after another; the counts of the outcomes."""
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = 0
        while done < cases:
            before, done = done, _run_worker(files, seed, done, cases, Path(folder), counts, keep)
            if done // 10_000 > before // 10_000 or done == cases:
                say(f"{done:,} cases, {time.monotonic() - began:.0f} s: {dict(counts)}")
    return counts


BATCH = 10_000


def _run_worker(
    files: list[Parts],
    seed: int,
    start: int,
    stop: int,
    folder: Path,
    counts: Counter[str],
    keep: Path,
) -> int:
    """One worker until its end, however it comes: the number of the next case."""
    stop = min(stop, start + BATCH)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        code = 1
        try:
            worker(files, seed, start, stop, folder, theirs)
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    following = start
    with os.fdopen(ours, "rb") as reports:
        while record := _next_record(reports, child):
            case, outcome, right = RECORD.unpack(record)
            counts[OUTCOMES[outcome]] += 1
            counts["with a right checksum"] += right
            following = case + 1
            if outcome == FAILED:
                _keep(files, seed, case, keep)
    _, status = os.waitpid(child, 0)
    if following < stop:  # it died of this case
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        counts["hung" if number in (signal.SIGPROF, signal.SIGKILL) else "crashed"] += 1
        _keep(files, seed, following, keep)
        following += 1
    return following


def _next_record(reports: Any, child: int) -> bytes:
    """The next report; a worker that waits for ever is killed."""

    def on_alarm(*_: Any) -> None:
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(WALL)
    record = reports.read(RECORD.size)
    signal.alarm(0)
    return record


def _keep(files: list[Parts], seed: int, case: int, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    data = mutate(np.random.default_rng([seed, case]), files)
    (keep / f"seed{seed}-case{case}.ks").write_bytes(data)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--case", type=int, help="only this one, without a process of its own")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as folder:
        files = good_files(list(small_models.ALL), Path(folder))
        watch = Watch()
        path = Path(folder) / "case.ks"
        for parts in files:  # whatever is compiled or imported at first use is so before the bounds
            path.write_bytes(parts.data)
            use(path, watch)
        if options.case is not None:
            path.write_bytes(mutate(np.random.default_rng([options.seed, options.case]), files))
            print(OUTCOMES[use(path, watch)])
            return 0
    print(f"{len(files)} good files, {sum(len(parts.data) for parts in files):,} bytes", flush=True)
    counts = run(files, options.cases, options.seed, options.keep, lambda x: print(x, flush=True))
    bad = sum(counts[name] for name in ("failed", "crashed", "hung"))
    print(f"no worker took more than {peak_memory():,} MB, models and compiled code included")
    print(
        f"{options.cases:,} mutated model files: {bad} bad" + (f", see {options.keep}" * bool(bad))
    )
    return 1 if bad else 0
