"""Steps, shares and the time left, by a clock of our own; what is shown of them, and where."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from kernelsieve._progress import Lines, Progress, State


class Clock:
    """A time that passes when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_steps_add_up_and_the_rest_takes_as_long_as_its_share() -> None:
    clock, states = Clock(), list[State]()
    progress = Progress(states.append, clock)
    with progress.step("read", share=0.2):
        clock.now += 1.0
    assert states == [State("read", 0.0, math.inf), State("read", 0.2, pytest.approx(4.0))]
    with progress.step("fit", share=0.8):
        with progress.step("likelihood", share=0.5):
            clock.now += 3.0
            progress.advance(0.5)
            assert states[-1] == State("likelihood", pytest.approx(0.4), pytest.approx(6.0))
        assert states[-1].share == pytest.approx(0.6)
        progress.advance(0.75)
        assert states[-1] == State("fit", pytest.approx(0.8), pytest.approx(1.0))
    assert states[-1] == State("fit", pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))


def test_a_step_that_fails_does_not_count_as_done() -> None:
    states: list[State] = []
    progress = Progress(states.append, Clock())
    with pytest.raises(KeyError), progress.step("fit", share=0.8):
        raise KeyError
    assert states[-1].share == 0.0


def test_a_line_is_written_every_ten_seconds() -> None:
    clock, lines = Clock(), list[str]()
    shown = Lines(lines.append, clock)
    for second in range(35):
        clock.now = 100.0 + second
        shown.tick()  # before there is anything to say
        if second == 4:
            shown.show(State("fit", 0.25, 30.0))
    assert lines == ["fit: 25% done, about 30 s left"] * 3


SHOW = """
import sys, time
from kernelsieve._progress import shown
with shown(quiet=len(sys.argv) > 1, seconds=0.5) as progress:
    progress.at("waiting", 0.5)
    time.sleep(2.0)
"""


def test_without_a_terminal_a_silent_step_still_gives_lines() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    assert lines
    assert set(lines) == {lines[0]}
    assert lines[0].startswith("waiting: 50% done, about ")
    quiet = subprocess.run(
        [sys.executable, "-c", SHOW, "quiet"], capture_output=True, text=True, timeout=60
    )
    assert (quiet.stdout, quiet.stderr) == ("", "")
