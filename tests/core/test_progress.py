"""A sign of life on stderr, only for long work and only on a terminal."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path

import pytest

from opcost.core import progress


class Screen(io.StringIO):
    """A stderr that says whether it is a terminal, and when something is written."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def looked_at(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> Screen:
    """The screen in the place of stderr; not a fixture, because pytest puts its own there before the test."""
    screen = Screen(terminal=terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    return screen


def test_long_work_is_shown_on_a_terminal_and_wiped_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = looked_at(monkeypatch)
    with progress.working("counting net"):
        assert screen.written.wait(60)
    assert re.search(r"counting net \.\.\. \d+ s", screen.getvalue())
    assert screen.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, True)])
def test_nothing_is_shown_in_a_file_or_quietly(monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool) -> None:
    screen = looked_at(monkeypatch, terminal=terminal)
    with progress.working("counting net", quiet=quiet):
        assert not screen.written.wait(0.2)
    assert screen.getvalue() == ""


def test_nothing_is_shown_for_work_shorter_than_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = looked_at(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE_S", 60)
    with progress.working("counting net"):
        pass
    assert screen.getvalue() == ""


def test_the_line_goes_away_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = looked_at(monkeypatch)

    def work() -> None:
        with progress.working("counting net"):
            assert screen.written.wait(60)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        work()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_patience_lasts_two_seconds() -> None:
    assert progress.PATIENCE_S == 2.0


def lines_at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
    """What the line says `seconds` after the beginning of everything."""
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds)
    return str(progress._lines[0])


def test_the_share_and_an_estimate_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    done = 0
    with progress.working("reading", share=lambda: (done, 8), quiet=True):
        assert lines_at(monkeypatch, 3) == "reading ... 3 s"
        done = 2
        assert lines_at(monkeypatch, 10) == "reading: 25%, about 30 s left"
        assert lines_at(monkeypatch, 100) == "reading: 25%, about 5 min left"
        done = 9
        assert lines_at(monkeypatch, 10) == "reading: 100%, about 0 s left"


def test_work_inside_work_adds_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    with progress.working("four models", share=lambda: (1, 4), quiet=True), progress.working("counting net"):
        assert lines_at(monkeypatch, 10) == "counting net: 25%, about 30 s left"
        with progress.sharing(lambda: (1, 2)):
            assert lines_at(monkeypatch, 15) == "counting net: 38%, about 25 s left"  # (1 + 1/2) of 4
        with progress.sharing(lambda: None):
            assert lines_at(monkeypatch, 10) == "counting net: 25%, about 30 s left"
    with progress.sharing(lambda: (1, 2)):  # without a line that shows it, nothing happens
        pass
    assert progress._lines == []


def test_an_unknown_share_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = (tmp_path / "x").open("wb")
    file.close()
    with progress.working("reading", share=lambda: (file.tell(), 3), quiet=True):
        assert re.fullmatch(r"reading \.\.\. \d+ s", str(progress._lines[0]))


def test_an_interrupt_says_what_it_stopped() -> None:
    stopped = pytest.raises(KeyboardInterrupt, match="timing net was stopped after 0 s")
    with stopped, progress.working("profiling", quiet=True), progress.working("timing net"):
        raise KeyboardInterrupt


def test_an_interrupt_that_was_swallowed_is_raised_again() -> None:
    try:
        with pytest.raises(KeyboardInterrupt), progress.working("counting net", quiet=True):
            assert progress.stopped() == "counting net was stopped after 0 s"
        with pytest.raises(KeyboardInterrupt), progress.working("the next", quiet=True):
            raise AssertionError("it must not begin")
    finally:
        progress.stopping.clear()
    assert progress.stopped() is None
    progress.stopping.clear()
