"""Runs fits in processes of their own with limits: whatever a peer does, the comparison goes on."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from kernelsieve.bench.methods import Method, Settings
from kernelsieve.bench.problem import Problem
from kernelsieve.bench.worker import Job

WORK = "import sys; from kernelsieve.bench.worker import work; work(sys.argv[1])"
POLL_SECONDS = 0.1
START_SECONDS = 300.0  # for imports, which take seconds on an idle machine
IDLE_SHARE = 0.02  # of a processor: below it a process hangs
PROC = Path("/proc")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What one fit may take.

    Attributes
    ----------
    seconds : float
        Processor time for each of its threads, so that a busy machine does not count. A process
        that does nothing for so long is stopped, too.
    n_bytes : int
        Resident memory of the process and its children. Linux only.
    """

    seconds: float = 180.0
    n_bytes: int = 8 * 2**30


class Isolated:
    """A folder and, for each fit, a process that reads its job there and writes its outcome.

    Parameters
    ----------
    folder : Path
    limits : Limits
    n_threads : int
        What BLAS, OpenMP and numba are told in the environment.
    """

    def __init__(self, folder: Path, limits: Limits, n_threads: int) -> None:
        self.folder, self.limits, self.n_threads = folder, limits, n_threads

    def load(self, problem: Problem) -> None:
        """Make this the problem of all fits to come."""
        (self.folder / "problem").write_bytes(pickle.dumps(problem))

    def run(self, method: Method, settings: Settings) -> dict[str, Any]:
        """Fit a method; what ``worker.measure`` found, or {"failure": why}.

        A method that is not installed, raises, is killed, takes too long or too much memory is
        reported in one line.
        """
        if not method.installed:
            return {"failure": f"not installed: pip install {method.requires}"}
        for name in ("started", "outcome"):
            (self.folder / name).unlink(missing_ok=True)
        job = Job(method.build, settings, method.columns)
        (self.folder / "job").write_bytes(pickle.dumps(job))
        process = self._start()
        try:
            stopped = self._watch(process)
        finally:
            _kill(process)  # it, or what it left behind
        if stopped:
            return {"failure": stopped}
        found: dict[str, Any] | None = _read(self.folder / "outcome")
        if process.returncode == 0 and found is not None:
            return found
        return {"failure": _why(process.returncode, self.folder / "log")}

    def _start(self) -> subprocess.Popen[bytes]:
        threads = dict.fromkeys(THREAD_VARIABLES, str(self.n_threads))
        path = os.pathsep.join(filter(None, sys.path))
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", WORK, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **threads, "PYTHONPATH": path},
                start_new_session=True,  # so that its children can be ended with it
            )

    def _watch(self, process: subprocess.Popen[bytes]) -> str | None:
        """Wait for the end; the limit that was broken, if one was."""
        seconds = self.limits.seconds
        start, before = monotonic(), None
        while not _ended(process):
            if before is None:
                before = _read(self.folder / "started")
                if before is None and monotonic() - start < START_SECONDS:
                    continue
                start, before = monotonic(), before or 0.0
            wall = monotonic() - start
            used = _usage(process.pid)
            spent = wall if used is None else (used[0] - before) / self.n_threads
            if spent > seconds:
                return f"stopped after {seconds:g} s"
            if wall > seconds and spent < IDLE_SHARE * wall:
                return f"stopped: it did nothing for {seconds:g} s"
            if used is not None and used[1] > self.limits.n_bytes:
                return f"stopped at {self.limits.n_bytes / 2**30:.3g} GiB of memory"
        return None


@contextlib.contextmanager
def isolated(limits: Limits, n_threads: int) -> Iterator[Isolated]:
    """A place for fits, in a folder that only this user can read."""
    with tempfile.TemporaryDirectory(prefix="kernelsieve-") as name:
        yield Isolated(Path(name), limits, n_threads)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process ends within the time between two looks."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(POLL_SECONDS)
        return True
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):  # not on Windows
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _read(path: Path) -> Any:
    """The content of a JSON file; None where there is none."""
    with contextlib.suppress(FileNotFoundError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def _why(code: int, log: Path) -> str:
    if code < 0:  # not on Windows, which has no signals
        name = signal.Signals(-code).name
        hint = ", perhaps by the system for lack of memory" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return f"ended with code {code}: {lines[-1][:150] if lines else 'no message'}"


def _usage(group: int) -> tuple[float, int] | None:
    """Processor seconds and resident bytes of a group; None where the system does not tell."""
    if not hasattr(os, "sysconf"):  # Windows
        return None
    ticks, pages, found = 0, 0, False
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                found = True
                ticks += sum(map(int, fields[11:15]))
                pages += int(fields[21])
    if not found:
        return None
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
