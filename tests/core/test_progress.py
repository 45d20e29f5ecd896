"""A sign of life on stderr, only for long work and only where somebody looks."""

from __future__ import annotations

import io
import time

import pytest

from opcost.core import progress


class Screen(io.StringIO):
    """A stderr that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, quiet: bool, seconds: float) -> str:
    screen = Screen(terminal=terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    with progress.working("counting net", quiet=quiet):
        time.sleep(seconds)
    return screen.getvalue()


def test_long_work_is_shown_on_a_terminal_and_wiped_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True, quiet=False, seconds=0.3)
    assert "counting net … 0 s" in text
    assert text.endswith("\r\x1b[K")


@pytest.mark.parametrize(("terminal", "quiet", "seconds"), [(False, False, 0.3), (True, True, 0.3), (True, False, 0.0)])
def test_nothing_is_shown_in_a_file_or_quietly_or_for_short_work(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool, seconds: float
) -> None:
    assert shown(monkeypatch, terminal=terminal, quiet=quiet, seconds=seconds) == ""


def test_the_line_goes_away_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)

    def work() -> None:
        with progress.working("counting net"):
            time.sleep(0.2)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        work()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_patience_lasts_two_seconds() -> None:
    assert progress.PATIENCE_S == 2.0
