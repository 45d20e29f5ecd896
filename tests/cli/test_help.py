"""`--help` of every command shows examples that the command line understands, and the names that can be given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from opcost.cli.main import COMMANDS, app, examples, further_help
from opcost.core.devices import DEVICES
from opcost.core.kinds import KINDS
from opcost.core.limits import QUANTITIES
from opcost.core.profile import Answer
from opcost.views.profile import answer_columns
from opcost.views.report import EVERY_BY, columns_of

Command = Callable[..., Any]
LINES = [re.split(r"\s{3,}", line)[0] for lines in examples().values() for line in lines]


def names(command: str) -> set[str]:
    return set(re.findall(r"[a-z_0-9]+", "\n".join(further_help(command))))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_shows_examples(opcost_command: Command, command: str) -> None:
    done = opcost_command(*([command] if command else []), "--help")
    assert done.code == 0
    assert "\nExamples:\n  opcost " in done.out
    assert all(line.startswith(f"opcost {command}".rstrip()) for line in examples()[command])


@pytest.mark.parametrize("line", LINES)
def test_an_example_can_be_parsed(line: str) -> None:
    words = shlex.split(line)[1:]
    command, bound, ignored = app().parse_args(words, exit_on_error=False, print_error=False)
    assert command.__name__ == words[0] or words[0].startswith("--")
    assert bound is not None
    assert not ignored


def test_columns_kinds_and_quantities_are_listed() -> None:
    every = {name for by in EVERY_BY for name in columns_of(by, 0)}
    assert every <= names("count")
    assert set(answer_columns(Answer(meta={}, side="device", keys=(), lines=()))) | set(KINDS) <= names("analyze")
    for command in ("check", "compare"):
        assert set(QUANTITIES) <= names(command)
    assert {"name", "shape", "params", "size", "bits"} <= names("scan")
    assert set(KINDS) - {"unknown"} <= names("rules")


def test_devices_are_listed_where_one_is_expected(opcost_command: Command) -> None:
    """A command whose `--device` takes the name of a device that need not be here lists those names."""
    for command in COMMANDS:
        options = opcost_command(command, "--help").out.partition("Examples:")[0]
        asks = re.search(r"--device NAME", options) is not None and command not in ("profile", "calibrate")
        assert (set(DEVICES) <= set(re.findall(r"[a-z0-9-]+", "\n".join(further_help(command))))) is asks, command
