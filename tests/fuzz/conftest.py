"""The table of what became of the changed files, printed behind the tests."""

from __future__ import annotations

import pytest

_COLUMNS = ("cases", "read", "refused", "code run", "exit 70", "hang", "over memory", "seconds")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each format, from the properties of the tests: the reports bring them from every worker."""
    reports = terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", [])
    fuzzed = [found for report in reports for name, found in report.user_properties if name == "fuzzed"]
    if fuzzed:
        terminalreporter.section("changed files")
        terminalreporter.write_line(f"{'format':<18}" + "".join(f"{name:>12}" for name in _COLUMNS))
    for found in fuzzed:
        numbers = "".join(f"{found.get(name, 0):>12,}" for name in _COLUMNS)
        terminalreporter.write_line(f"{found['name']:<18}{numbers}")
