"""Lists of names for people end with how many more there are; JSON holds them whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.core.graph import Note
from opcost.core.report import Coverage, Report, Uncounted
from opcost.errors import UnknownName, shortened, some

MANY = 3000
FOR_PEOPLE = ("table", "text", "arch", "md", "latex")


class Holder(nn.Module):
    """A linear layer, and parameters that no operator reads."""

    def __init__(self, keep: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        keep(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def scalars() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(1)) for _ in range(MANY)]


def keep_named(module: nn.Module) -> None:
    for index, scalar in enumerate(scalars()):
        module.register_parameter(f"p{index}", scalar)


def keep_list(module: nn.Module) -> None:
    module.kept = nn.ParameterList(scalars())


def keep_dict(module: nn.Module) -> None:
    module.kept = nn.ParameterDict({f"p{index}x": scalar for index, scalar in enumerate(scalars())})


def keep_shared(module: nn.Module) -> None:
    for index in range(MANY):
        module.register_parameter(f"p{index}", module.layer.weight)


@pytest.mark.parametrize("keep", [keep_named, keep_list, keep_dict, keep_shared])
def test_many_parameters_are_counted_and_not_all_named(keep: Callable[[nn.Module], None]) -> None:
    report = opcost.count(Holder(keep), shapes=(1, 4))
    assert [view for view in FOR_PEOPLE if len(report.render(view)) >= 4000] == []
    names = {name for parameter in report.parameters for name in parameter.names}
    assert len(names) == MANY + 2
    written = report.render("json")
    assert all(f'"{name}"' in written for name in names)


def test_a_shortened_list_says_how_many_names_are_missing() -> None:
    text = opcost.count(Holder(keep_named), shapes=(1, 4)).render("text")
    assert "p0, p1, p2, p3, p4, p5, p6, and 2,993 more" in " ".join(text.split()).replace("\u00a0", " ")


@pytest.fixture
def report() -> Report:
    return opcost.count(nn.Linear(4, 4), shapes=(1, 4))


def with_notes(report: Report) -> Report:
    return replace(report, notes=tuple(Note("odd", f"note number {index}") for index in range(MANY)))


def with_a_long_note(report: Report) -> Report:
    return replace(report, notes=(Note("odd", "note number 0 " + "x" * 100_000),))


def with_uncounted(report: Report) -> Report:
    missed = tuple(Uncounted(f"odd::op{index}", 1, ("",)) for index in range(MANY))
    return replace(report, coverage=Coverage(0, missed))


@pytest.mark.parametrize("view", FOR_PEOPLE)
@pytest.mark.parametrize("change", [with_notes, with_a_long_note, with_uncounted])
def test_many_remarks_are_counted_and_not_all_printed(
    report: Report, change: Callable[[Report], Report], view: str
) -> None:
    changed = change(report)
    assert len(changed.render(view)) < 4000
    whole = json.loads(changed.render("json"))
    assert len(json.dumps(whole)) > 20_000


@pytest.mark.parametrize("view", FOR_PEOPLE)
def test_many_outputs_of_different_shapes_are_not_all_printed(view: str) -> None:
    class Many(nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x.new_zeros(index + 1) for index in range(500)]

    report = opcost.count(Many(), shapes=(1, 4))
    assert len(report.render(view)) < 3000
    assert len(report.outputs) == 500


def test_uncounted_operators_are_cut_on_stderr_too(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    from opcost.cli.output import Output

    Output({"format": "json"}, "report").show(with_uncounted(report))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 8
    assert said[-1].endswith("and 2,993 more")


def test_an_unknown_name_is_reported_without_all_known_ones() -> None:
    few: Any = ["x" * 10_000 + str(index) for index in range(24)]
    assert len(UnknownName("thing", "y" * 100_000, few).message) < 7000
    message = UnknownName("thing", "?", [f"name{n:06}" for n in range(100_000)]).message
    assert message.endswith(f"known: {', '.join(f'name{n:06}' for n in range(20))} and 99,980 more")


def test_a_text_is_cut_in_the_middle_and_says_how_much_is_missing() -> None:
    assert shortened("short") == "short"
    assert shortened("a" * 500 + "z" * 500, 30) == "a" * 20 + "… (970 characters more) …" + "z" * 10


def test_a_list_is_cut_at_its_end_and_says_how_much_is_missing() -> None:
    assert some(["a", "b"], 2) == ["a", "b"]
    assert some(list("abcde"), 3, kind="letters") == ["a", "b", "and 3 more letters"]
