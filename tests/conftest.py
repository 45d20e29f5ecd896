"""What all tests share: torchvision that can be imported, and the command line called in this process."""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from sampling import FULL

ROOT = Path(__file__).resolve().parent.parent


# How long an example takes depends on what else the machine does; whether a law holds does not.
settings.register_profile(
    "opcost", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100 if FULL else 25
)
settings.load_profile("opcost")


class _RepairTorchvision(MetaPathFinder):
    """Runs opcost's own repair before torchvision is first imported, by whichever tool under comparison that may be."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            from opcost.frontends.zoo import declare_torchvision_operators

            declare_torchvision_operators()


sys.meta_path.insert(0, _RepairTorchvision())


@pytest.fixture(autouse=True, scope="module")
def heap_set_aside() -> None:
    """Hide what frameworks and earlier tests left on the heap from the garbage collector.

    With a million objects of torch and transformers alive, a full collection takes a quarter of a second: every count that
    fails makes one, and so does, every now and then, whatever makes many objects.
    """
    gc.collect()
    gc.freeze()


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def root() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture
def opcost_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call the command line with these words, as `opcost` would, without a new process."""
    from opcost.cli.main import run

    def call(*words: str | Path) -> Outcome:
        arguments: Sequence[str] = [str(word) for word in words]
        capsys.readouterr()
        code = run(arguments)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def module_as_program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a module as `python -m` does, without a new process, which would first load torch for two seconds or more."""

    def call(name: str, *words: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        capsys.readouterr()
        code: Any = 0
        try:
            runpy.run_path(str(import_module(name).__file__), run_name="__main__")
        except SystemExit as ended:
            code = ended.code or 0
        return Outcome(code, *capsys.readouterr())

    return call
