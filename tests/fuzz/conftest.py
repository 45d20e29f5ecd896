"""The table of what became of the changed files, printed behind the tests."""

from __future__ import annotations

from typing import Any

import pytest

_FUZZED: list[dict[str, Any]] = []
_COLUMNS = ("cases", "read", "refused", "code run", "exit 70", "hang", "over memory", "seconds")


@pytest.fixture
def fuzzed() -> list[dict[str, Any]]:
    """What became of the cases of each format."""
    return _FUZZED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each format."""
    if _FUZZED:
        terminalreporter.section("changed files")
        terminalreporter.write_line(f"{'format':<18}" + "".join(f"{name:>12}" for name in _COLUMNS))
    for found in _FUZZED:
        numbers = "".join(f"{found.get(name, 0):>12,}" for name in _COLUMNS)
        terminalreporter.write_line(f"{found['name']:<18}{numbers}")
