"""Ctrl-C at any line of opcost's own code: it reaches the caller, and nothing stays changed or locked.

The interrupt is a real signal, raised while a line of opcost is traced. With the tests some lines are tried, each where it
runs for the last time, which is where most of the cleaning up is; with OPCOST_FUZZ, every line, the first and the last time.
"""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import torch
from stateful import process
from stateful.entry_points import ENTRY_POINTS, call
from stateful.registry import made
from stateful.snapshot import Snapshot, differences, set_aside, without_data

import opcost
from opcost.frontends.torch.ledger.tensors import StorageLife, StorageLives

SOURCES = str(Path(opcost.__file__).parent)
FUZZ = bool(os.environ.get("OPCOST_FUZZ"))
EVERY = 191
PATIENCE = 60
"""Seconds after which another thread that counts is taken to wait for a lock that is never released."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces"),
]


class Line(NamedTuple):
    """A line of opcost, the n-th time it runs."""

    file: str
    number: int
    time: int

    def __str__(self) -> str:
        return f"{Path(self.file).relative_to(SOURCES)}:{self.number}, time {self.time}"


class Tracer:
    """Counts how often lines of opcost run; given one, raises a signal there, and looks only at functions in its file."""

    def __init__(self, at: Line | None = None, number: int = signal.SIGINT) -> None:
        self.at = at
        self.number = number
        self.times: Counter[tuple[str, int]] = Counter()
        self.raised = False

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        return self.line if (file.startswith(SOURCES) if self.at is None else file == self.at.file) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not self.raised:
            place = (frame.f_code.co_filename, frame.f_lineno)
            self.times[place] += 1
            if self.at is not None and place == self.at[:2] and self.times[place] == self.at.time:
                self.raised = True
                signal.raise_signal(self.number)
        return self.line

    def __enter__(self) -> Any:
        sys.settrace(self.enter)
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


def lines(entry: str, name: str, *, every: int) -> list[Line]:
    """Every Nth line that one call of an entry point runs when everything is warm, the last time that it runs."""
    for _ in range(2):
        with made("mixtures", name) as twin, process.kept():
            call(entry, twin.model, twin.case.inputs())
    with made("mixtures", name) as twin, process.kept(), Tracer() as tracer:
        call(entry, twin.model, twin.case.inputs())
    assert len(tracer.times) > 300
    last = [Line(*place, times) for place, times in sorted(tracer.times.items())]
    return (
        [*last, *(line._replace(time=1) for line in last if line.time > 1)]
        if FUZZ
        else last[len(entry) % every :: every]
    )


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        *((entry, "LittleInside") for entry in ("backward", "real")),
        *((entry, "Little") for entry in ("count", "profile")),
    ],
)
def test_ctrl_c_at_any_line_leaves_everything_as_it_was(entry: str, name: str) -> None:
    left: dict[Line, str] = {}
    tried = lines(entry, name, every=EVERY)
    for line in tried:
        if found := contextvars.copy_context().run(_interrupted, entry, name, line):
            left[line] = found
    if left:
        listed = "\n".join(f"{line}: {found}" for line, found in list(left.items())[:40])
        pytest.fail(f"{len(left)} of {len(tried)} lines leave something:\n{listed}")


class TooLateError(Exception):
    """What the handler of an alarm raises, as those of decorators that limit time do."""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="the system has no alarms")
def test_what_the_handler_of_an_alarm_raises_reaches_the_caller_as_it_is() -> None:
    def late(number: int, frame: FrameType | None) -> None:
        raise TooLateError

    before = signal.signal(signal.SIGALRM, late)
    try:
        for line in [*lines("count", "Little", every=15 * EVERY), *dying("count")]:
            found = contextvars.copy_context().run(
                _interrupted, "count", "Little", line, number=signal.SIGALRM, raised=TooLateError
            )
            assert not found, f"{line}: {found}"
            assert signal.getsignal(signal.SIGALRM) is late
    finally:
        signal.signal(signal.SIGALRM, before)


def dying(entry: str) -> list[Line]:
    """The lines that run when a tensor dies, where Python discards what is raised, each in the middle of a call."""
    dies = set()
    for code in (StorageLife.__del__.__code__, StorageLives._freed.__code__):
        dies |= {(code.co_filename, number) for _, _, number in code.co_lines()}
    found = [line for line in lines(entry, "Little", every=1) if (line.file, line.number) in dies and line.time > 1]
    return [line._replace(time=line.time // 2) for line in found]


@pytest.mark.parametrize("entry", ["count", "real"])
def test_ctrl_c_while_a_tensor_dies_is_not_lost(entry: str) -> None:
    tried = dying(entry)
    assert len(tried) >= (2 if entry == "real" else 1)
    for line in tried:
        found = contextvars.copy_context().run(_interrupted, entry, "Little", line)
        assert not found, f"{line}: {found}"


@pytest.mark.parametrize("operators_follow", [True, False])
def test_ctrl_c_that_a_model_catches_stops_the_count_all_the_same(operators_follow: bool) -> None:
    ran: list[str] = []

    class Catches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            try:
                signal.raise_signal(signal.SIGINT)
                ran.append("after the signal")
            except BaseException:  # noqa: BLE001 - what is tested
                y = y + 1
                self.cleaned = True
            return y + 1 if operators_follow else y

    model = Catches()
    with pytest.raises(KeyboardInterrupt):
        opcost.count(model, torch.ones(2))
    assert not ran
    assert not hasattr(model, "cleaned")


def _interrupted(
    entry: str, name: str, line: Line, *, number: int = signal.SIGINT, raised: type[BaseException] = KeyboardInterrupt
) -> str:
    """What is wrong after an interrupt at this line, in words."""
    set_aside()
    with process.kept(), made("mixtures", name) as subject:
        given = subject.case.inputs()
        before = Snapshot(subject)
        reached = False
        tracer = Tracer(line, number)
        try:
            with tracer:
                ENTRY_POINTS[entry](subject.model, given)
        except raised:
            reached = True
        if not tracer.raised:
            return ""
        if not reached:
            return "the interrupt was swallowed"
        if changed := differences(before, Snapshot(subject)):
            return "; ".join(changed[:3])
        del before
        if without_data():
            return "tensors without data are alive"
        return _counts_again(subject.model, given, line)


def _counts_again(model: Any, given: Any, line: Line) -> str:
    """Whether the next counts work; other threads count, because a lock that is still taken would stop this one for ever."""
    found: list[Any] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(call("count", model, given)), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        if thread.is_alive():
            pytest.exit(f"after an interrupt at {line} no thread can count any more: a lock was not released", 1)
    return "" if len(found) == 2 and found[0] == found[1] else "the next counts fail or differ"


@pytest.mark.parametrize("entry", ["count", "profile"])
def test_a_handler_of_the_users_own_is_called_once_and_stays(entry: str) -> None:
    calls: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        calls.append(number)

    signal.signal(signal.SIGINT, handler)
    for line in lines(entry, "LittleInside", every=10 * EVERY):
        calls.clear()
        with made("mixtures", "LittleInside") as subject, process.kept():
            tracer = Tracer(line)
            with tracer:
                ENTRY_POINTS[entry](subject.model, subject.case.inputs())
            assert len(calls) == tracer.raised, f"called {len(calls)} times for one signal at {line}"
            assert signal.getsignal(signal.SIGINT) is handler
