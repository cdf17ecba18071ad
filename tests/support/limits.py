"""A bound on the seconds that a test may take."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """A search that never ends is a failure, not a wait (where the system has an alarm)."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def too_late(*_: Any) -> None:
        raise TimeoutError(f"not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
