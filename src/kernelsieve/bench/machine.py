"""The machine that measures: its name, the versions on it, and how much memory a call takes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernelsieve import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


@cache
def environment() -> dict[str, Any]:
    """Versions and machine, as they go into the record of every dataset."""
    return {
        "kernelsieve": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@dataclass
class Memory:
    """Bytes by which the resident size rose at most; None where the system does not tell."""

    peak_bytes: int | None = None


@contextlib.contextmanager
def watch_memory(wanted: bool = True) -> Iterator[Memory]:
    """Measure the peak of the block inside, above what the process held before it.

    The system keeps the high-water mark by itself, so this takes a millisecond. Linux only.
    """
    memory = Memory()
    before = _start() if wanted else None
    yield memory
    if before is not None:
        memory.peak_bytes = max(0, _status("VmHWM") - before)


def _start() -> int | None:
    """Reset the high-water mark of this process and return its present size."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc: what is free but kept would hide what is taken
    try:
        CLEAR.write_text("5", encoding="utf-8")  # Linux: VmHWM starts again from the present size
        return _status("VmRSS")
    except OSError:
        return None


def _status(field: str) -> int:
    for line in STATUS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"{STATUS} does not tell {field}")
