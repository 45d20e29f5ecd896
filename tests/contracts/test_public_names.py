"""What `import opcost` promises."""

from __future__ import annotations

import inspect
import re
from importlib import metadata
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

import opcost
from opcost.cli.main import COMMANDS


def test_the_public_names_are_exactly_those_listed() -> None:
    public = {
        name for name in dir(opcost) if not name.startswith("_") and not isinstance(getattr(opcost, name), ModuleType)
    }
    # `rules` is a package, which is called as the command is.
    assert public - {"annotations"} | {"rules"} == {name for name in opcost.__all__ if not name.startswith("_")}


def test_every_command_is_a_function_of_the_same_name() -> None:
    assert set(COMMANDS) <= set(opcost.__all__)
    for name in COMMANDS:
        assert callable(getattr(opcost, name)), name


def test_every_result_has_a_named_type() -> None:
    model, data = nn.Linear(4, 4), torch.ones(2, 4)
    report = opcost.count(model, data)
    assert isinstance(report, opcost.Report)
    assert isinstance(opcost.compare(report, report), opcost.Comparison)
    assert isinstance(opcost.check(report, macs=32), opcost.Verdict)
    assert isinstance(opcost.sweep(model, data, vary="batch=1,2"), opcost.Sweep)
    assert isinstance(opcost.fit(model, data, memory="1MiB"), opcost.Fit)
    assert isinstance(opcost.fit(model, data, batch=4, memory="1MiB"), opcost.Recomputation)
    predicted = opcost.predict(report, device="h200")
    assert isinstance(predicted, opcost.Prediction)
    assert isinstance(predicted, opcost.Profile)
    assert isinstance(opcost.profile(model, data, repeat=1), opcost.Profile)


def test_the_list_of_public_names_is_sorted_and_short() -> None:
    assert list(opcost.__all__) == sorted(opcost.__all__)
    assert len(opcost.__all__) <= 46


def test_every_listed_name_is_there_and_documented() -> None:
    for name in opcost.__all__:
        value = getattr(opcost, name)
        assert name == "__version__" or value.__doc__, name


def test_the_version_is_the_same_everywhere() -> None:
    assert opcost.__version__ == metadata.version("opcost")


def test_the_reference_has_every_public_name(root: Path) -> None:
    shown = re.findall(r"^::: (\S+)$", (root / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    for name in opcost.__all__:
        if not name.startswith("_"):
            value = inspect.unwrap(getattr(opcost, name))
            home = value.__name__ if isinstance(value, ModuleType) else value.__module__
            assert f"{home}.{name}" in shown or home in shown, name
