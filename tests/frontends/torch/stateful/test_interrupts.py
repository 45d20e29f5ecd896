"""Ctrl-C at any point of opcost's own code: it reaches the caller, and nothing stays changed or locked.

The interrupt is a real signal, raised while a line of opcost is traced. With the tests, some lines of the code are tried,
each where it runs for the last time, which is where most of the cleaning up is; with OPCOST_FUZZ, every line each time it runs.
"""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from stateful import process
from stateful.doors import DOORS, through
from stateful.registry import made, seed
from stateful.snapshot import Snapshot, differences, set_aside, without_data

import opcost

SOURCES = str(Path(opcost.__file__).parent)
EVERY_TIME = bool(os.environ.get("OPCOST_FUZZ"))
STEP = 131
PATIENCE = 10
"""Seconds after which another thread that counts is taken to wait for a lock that nobody gives back."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces"),
]


class Tracer:
    """Counts the lines of opcost that run, and raises a signal at one of them."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.lines = 0
        self.places: dict[tuple[str, int], int] = {}
        """Every line that ran, and at which count it ran last."""
        self.place = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCES):
            return None
        if event == "line":
            self.lines += 1
            self.places[frame.f_code.co_filename, frame.f_lineno] = self.lines
            if self.lines == self.at:
                self.place = f"{Path(frame.f_code.co_filename).relative_to(SOURCES)}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self

    def __enter__(self) -> Any:
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with process.kept():
        yield
    signal.signal(signal.SIGINT, before)
    gc.unfreeze()


def traced(door: str, name: str) -> Tracer:
    """The lines of opcost that one use of a door runs when everything is warm."""
    for _ in range(2):
        with made("mixtures", name) as twin, process.kept():
            through(door, twin.model, twin.case.inputs())
    with made("mixtures", name) as twin, process.kept(), Tracer() as tracer:
        through(door, twin.model, twin.case.inputs())
    assert tracer.lines > 500
    return tracer


def points(tracer: Tracer) -> Sequence[int]:
    """The counts of lines at which an interrupt is tried."""
    return range(1, tracer.lines + 1) if EVERY_TIME else sorted(tracer.places.values())[::STEP]


@pytest.mark.parametrize("door", ["count", "backward", "real", "profile"])
@pytest.mark.parametrize("name", ["LittleInside", "Little"])
def test_ctrl_c_at_any_line_leaves_everything_as_it_was(door: str, name: str) -> None:
    left: dict[str, str] = {}
    tried = points(traced(door, name))
    for at in tried:
        found, place = contextvars.copy_context().run(_interrupted, door, name, at)
        if found:
            left[f"{at} ({place})"] = found
    if left:
        listed = "\n".join(f"{at}: {found}" for at, found in list(left.items())[:40])
        pytest.fail(f"{len(left)} of {len(tried)} points leave something:\n{listed}")


def _interrupted(door: str, name: str, at: int) -> tuple[str, str]:
    """What is wrong after an interrupt at this line, in words, and where the line stands."""
    set_aside()
    with process.kept(), made("mixtures", name) as subject:
        given = subject.case.inputs()
        seed()
        before = Snapshot(subject)
        raised = False
        try:
            with Tracer(at) as tracer:
                DOORS[door](subject.model, given)
        except KeyboardInterrupt:
            raised = True
        if not tracer.place:
            return "", ""
        if not raised:
            return "the interrupt was swallowed", tracer.place
        if changed := differences(before, Snapshot(subject)):
            return "; ".join(changed[:3]), tracer.place
        del before
        if without_data():
            return "tensors without data are alive", tracer.place
        return _counts_again(subject.model, given, tracer.place), tracer.place


def _counts_again(model: Any, given: Any, place: str) -> str:
    """Whether the next counts work; other threads count, because a lock that is still held would stop this one for ever."""
    found: list[Any] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(through("count", model, given)), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        if thread.is_alive():
            pytest.exit(f"after an interrupt at {place} no thread can count any more: a lock is still held", 1)
    return "" if len(found) == 2 and found[0] == found[1] else "the next counts fail or differ"


@pytest.mark.parametrize("door", ["count", "profile"])
def test_a_handler_of_the_users_own_is_called_once_and_stays(door: str) -> None:
    name = "LittleInside"
    calls: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        calls.append(number)

    signal.signal(signal.SIGINT, handler)
    tried = sorted(traced(door, name).places.values())
    for at in tried[:: len(tried) // 12]:
        calls.clear()
        with made("mixtures", name) as subject, process.kept():
            with Tracer(at) as tracer:
                DOORS[door](subject.model, subject.case.inputs())
            assert len(calls) == bool(tracer.place), f"called {len(calls)} times for one signal at {tracer.place}"
            assert signal.getsignal(signal.SIGINT) is handler
