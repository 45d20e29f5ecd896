"""The command line answers quickly, and loads nothing that it does not need: modules are counted, not seconds."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

FRAMEWORKS = {
    "torch",
    "numpy",
    "onnx",
    "tensorboard",
    "megengine",
    "mxnet",
    "jax",
    "tensorflow",
    "timm",
    "transformers",
}
ENTRY = "from opcost.cli.main import main; main()"


@cache
def modules_of(code: str) -> frozenset[str]:
    """Names of all modules that a piece of code leaves loaded."""
    watch = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, check=True)
    return frozenset(done.stderr.split())


def command(*words: str) -> str:
    alone = "import opcost.installed as installed; installed.LIBRARIES = (); "  # doctor imports them in a process of its own
    return f"{alone * (words == ('doctor',))}sys.argv = {['opcost', *words]!r}; {ENTRY}"


@pytest.mark.parametrize(("option", "allowed"), [("--version", 80), ("--help", 250)])
def test_it_answers_with_few_modules_more_than_a_bare_interpreter(option: str, allowed: int) -> None:
    """Start-up is importing: 0.5 to 1 ms for each module, so this is a budget of 0.1 and of 0.3 seconds."""
    assert len(modules_of(command(option)) - modules_of("pass")) <= allowed


def test_the_version_is_printed_without_the_command_line_library_and_without_rich() -> None:
    assert modules_of(command("--version")).isdisjoint(FRAMEWORKS | {"cyclopts", "rich", "importlib.metadata"})


@pytest.mark.parametrize("words", [("--help",), ("count", "--help"), ("scan", "--help"), ("rules",), ("doctor",)])
def test_a_command_that_counts_nothing_loads_no_framework(words: tuple[str, ...]) -> None:
    assert modules_of(command(*words)).isdisjoint(FRAMEWORKS)


def test_help_loads_no_command() -> None:
    commands = {f"opcost.cli.{name}" for name in ("models", "comparing", "analyze", "profile", "view", "about")}
    assert modules_of(command("--help")).isdisjoint(commands)


@pytest.mark.parametrize("words", [("rules",), ("doctor",)])
def test_plain_text_is_printed_without_the_table_code_of_rich(words: tuple[str, ...]) -> None:
    assert "rich.table" not in modules_of(command(*words))


def test_importing_the_package_loads_no_framework_and_nothing_that_prints() -> None:
    assert modules_of("import opcost").isdisjoint(FRAMEWORKS | {"rich", "cyclopts"})


def test_front_ends_and_views_are_found_without_their_frameworks() -> None:
    groups = "(plugin.FRONTENDS, plugin.VIEWS)"
    load_all = f"[entry.load() for group in {groups} for entry in plugin.find(group).values()]"
    assert modules_of(f"from opcost.core import plugin; {load_all}").isdisjoint(FRAMEWORKS)
