"""A sign of life on stderr, only for long work and only where somebody looks."""

from __future__ import annotations

import io
import re
import threading

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
    assert re.search(r"counting net … \d+ s", screen.getvalue())
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
