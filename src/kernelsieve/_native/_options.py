"""Numba's options, chosen in one place."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import config, event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError
from numba.extending import intrinsic

# Serial and without the interpreter's lock: threads run over blocks of rows, outside. Nobody passes
# a loop to another loop as an argument: it is compiled without what that would need. A division
# that checks for zero is not made a vector operation.
common: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
}
native = numba.njit(**common)
# For compiled callers only: without the code that unpacks Python's objects.
helper = numba.njit(**common | {"no_cpython_wrapper": True})
inlined = numba.njit(**common, inline="always")
# Sums may be taken in any order, which makes vectors of them; infinities keep their meaning.
reduction = numba.njit(**common, fastmath={"reassoc", "contract", "nsz"})


class CompilationNotice(event.Listener):
    """Logs that our loops are being compiled, which takes seconds, if none of them ever were.

    It is a warning of the logger "kernelsieve", shown unless the program configures logging.
    """

    said = False

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if self.said or not _is_ours(dispatcher):
            return
        self.said = True
        folder = dispatcher.stats.cache_path  # None if there is nowhere to keep compiled code
        if folder is None or not any(Path(folder).glob("*.nbi")):
            logging.getLogger("kernelsieve").warning(
                "kernelsieve: compiling for this machine, which takes some seconds, once"
            )

    def on_end(self, event: Any) -> None: ...


def _is_ours(dispatcher: Any) -> bool:
    return dispatcher.py_func.__module__.startswith("kernelsieve.")


event.register("numba:compile", CompilationNotice())

if hasattr(os, "register_at_fork"):
    # A fork waits for a compilation in another thread, which a child could not finish.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


def vectors_for(plain: Callable[..., Any]) -> Callable[[Any], Any]:
    """A decorator for compiled vector operations that do what ``plain`` does.

    Without compilation (NUMBA_DISABLE_JIT=1) ``plain`` takes their place, so that the loops around
    them can be tested line by line.
    """
    return (lambda compiled: plain) if getattr(config, "DISABLE_JIT", 0) else intrinsic


def require_contiguous(*arrays: Any) -> None:
    """Refuse to compile for arrays whose rows do not follow each other in memory."""
    for array in arrays:
        if array.layout != "C":
            raise TypingError(f"{array} is not C-contiguous: pass np.ascontiguousarray(...)")
