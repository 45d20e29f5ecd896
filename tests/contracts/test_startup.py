"""The command line answers quickly, and loads nothing that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys

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


def cpu_seconds(*arguments: str, rounds: int = 5) -> float:
    """CPU time of one run of the interpreter, the best of several."""
    best = float("inf")
    for _ in range(rounds):
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        best = min(best, usage.ru_utime + usage.ru_stime)
    return best


def modules_of(code: str) -> set[str]:
    """Names of all modules that a piece of code leaves loaded."""
    watch = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def command(*words: str) -> str:
    return f"sys.argv = {['opcost', *words]!r}; {ENTRY}"


@pytest.mark.parametrize(("option", "allowed"), [("--version", 0.15), ("--help", 0.4)])
def test_it_answers_within_its_budget_of_cpu_time_over_a_bare_interpreter(option: str, allowed: float) -> None:
    bare = cpu_seconds("-c", "pass")
    assert cpu_seconds("-c", ENTRY, option) - bare <= allowed


def test_the_version_is_told_without_the_command_line_library_and_without_rich() -> None:
    assert modules_of(command("--version")).isdisjoint(FRAMEWORKS | {"cyclopts", "rich", "importlib.metadata"})


@pytest.mark.parametrize("words", [("--help",), ("count", "--help"), ("rules",), ("doctor",)])
def test_a_command_that_counts_nothing_loads_no_framework(words: tuple[str, ...]) -> None:
    assert modules_of(command(*words)).isdisjoint(FRAMEWORKS)


def test_help_loads_no_command() -> None:
    commands = {f"opcost.cli.{name}" for name in ("count", "show", "check", "diff", "rules", "doctor", "visualize")}
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
