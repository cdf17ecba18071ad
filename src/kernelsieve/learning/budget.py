"""The time that a choice may take, and what it was spent on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Of a time limit: what is kept for the fit that follows a choice, at least and at most; and the
# seconds that an exact solve takes for the cube of its rows, on a slow core.
LEAST_KEPT, MOST_KEPT = 0.4, 0.8
EXACT_WORK, EXACT_ROWS = 2e-11, 6000


class Budget:
    """A limit in seconds, and a clock for each step.

    Parameters
    ----------
    time_limit : float, optional
        Seconds from now on; None sets no limit.

    Examples
    --------
    >>> budget = Budget()
    >>> with budget.step("likelihood"):
    ...     pass
    >>> list(budget.seconds), budget.late()
    (['likelihood'], False)
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self.began = time.monotonic()
        self.deadline = math.inf if time_limit is None else self.began + time_limit
        self.seconds: dict[str, float] = {}

    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.deadline

    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()

    def after(self, share: float) -> float:
        """When a share of the time from now to the deadline will be over."""
        now = time.monotonic()
        return now + share * (self.deadline - now)

    def share(self, share: float) -> Budget:
        """A budget of a part of the time that is left; its steps are counted here."""
        part = Budget(None if math.isinf(self.deadline) else max(share * self.left(), 0.0))
        part.seconds = self.seconds
        return part

    def for_choice(self, n_rows: int) -> Budget:
        """The part of it that a choice may take, so that there is time for the fit."""
        if math.isinf(self.deadline):
            return self
        kept = max(LEAST_KEPT * self.left(), EXACT_WORK * min(n_rows, EXACT_ROWS) ** 3)
        return self.share(1.0 - min(kept / max(self.left(), 1e-9), MOST_KEPT))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time of a step; steps do not lie in each other."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
