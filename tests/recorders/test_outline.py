"""Shapes and modules learnt in one run, laid over others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opcost
from opcost.recorders.torch.events import MODULE, STEP, HostEvent, Nesting, describe, outline_of

PATHS = ("", "a", "a.b")


def host(name: str, start: int, end: int, shapes: tuple[object, ...] = ()) -> HostEvent:
    return HostEvent(start, end, name, 1, 1, 0, -1, False, 0, name.startswith("cuda"), shapes, ("float",) * len(shapes))


def step(number: int, *events: HostEvent, start: int = 0) -> list[HostEvent]:
    """Events of a step that begins at `start` and lasts 1000."""
    moved = [e._replace(start_ns=e.start_ns + start, end_ns=e.end_ns + start) for e in events]
    return [host(f"{STEP}{number}", start, start + 1000), *moved]


def nested(*events: HostEvent) -> Nesting:
    return Nesting(events, [], PATHS)


DESCRIBED = (
    host(f"{MODULE}0", 10, 900),
    host("aten::mul", 20, 30, ((2, 3),)),
    host(f"{MODULE}1", 40, 500),
    host("aten::linear", 50, 200, ((2, 3), (4, 3))),
    host("aten::addmm", 60, 190, ((4,), (2, 3), (3, 4))),
    host(f"{MODULE}2", 300, 400),
    host("aten::relu", 310, 390, ((2, 4),)),
    host(f"{MODULE}2", 410, 420),  # a call in which nothing runs
    host("aten::add", 600, 700, ((2, 4), (2, 4))),
)
BARE = (
    host("aten::mul", 5, 10),
    host("aten::linear", 10, 40),
    host("cudaLaunchKernel", 12, 13),
    host("aten::addmm", 15, 30),
    host("aten::relu", 40, 45),
    host("aten::add", 50, 60),
)


def test_modules_and_shapes_reach_the_bare_events_of_every_step() -> None:
    outline = outline_of(nested(*step(0, *DESCRIBED)))
    assert outline is not None
    found = nested(*step(0, *BARE), *step(1, *BARE, start=2000))
    assert describe(found, outline)
    nodes = [node for root in found.roots for node in root.walk() if not node.event.runtime]
    expected = [
        ("aten::mul", ""),
        ("aten::linear", "a"),
        ("aten::addmm", "a"),
        ("aten::relu", "a.b"),
        ("aten::add", ""),
    ]
    for number in range(2):
        here = [node for node in nodes if node.place.step == number]
        assert [(node.event.name, node.place.module) for node in here] == expected
        assert [node.event.shapes for node in here] == [e.shapes for e in DESCRIBED if e.name.startswith("aten")]
    assert [node.event.start_ns for node in nodes[:2]] == [5, 10]


@pytest.mark.parametrize(
    "other",
    [
        (*BARE, host("aten::add", 70, 80)),
        (*BARE[:-1], host("aten::sub", 50, 60)),
        (*BARE[:3], host("aten::addmm", 40, 42), *BARE[4:]),  # beside the other, not inside it
    ],
    ids=["one more", "another", "nested otherwise"],
)
def test_a_step_that_does_something_else_is_not_described(other: tuple[HostEvent, ...]) -> None:
    outline = outline_of(nested(*step(0, *DESCRIBED)))
    assert outline is not None
    assert not describe(nested(*step(0, *BARE), *step(1, *other, start=2000)), outline)


def test_steps_whose_shapes_differ_have_no_common_outline() -> None:
    grown = [e._replace(shapes=((3, 4),)) if e.name == "aten::relu" else e for e in DESCRIBED]
    assert outline_of(nested(*step(0, *DESCRIBED), *step(1, *DESCRIBED, start=2000))) is not None
    assert outline_of(nested(*step(0, *DESCRIBED), *step(1, *grown, start=2000))) is None


class Growing(nn.Module):
    """Holds on to what it saw, so every run does more than the last."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.fc(x))
        for tensor in self.seen:
            x = x + tensor
        return x


def test_a_model_whose_runs_differ_is_recorded_with_annotations_and_keeps_its_names() -> None:
    model = Growing()
    profile = opcost.profile(model, torch.ones(2, 3), repeat=2, warmup=0)
    assert profile.meta["annotated"] == "True"
    assert [row.module for row in profile.rows if row.type == "aten::linear"] == ["fc", "fc"]
    sums = [sum(row.type == "aten::add" for row in profile.rows if row.step == number) for number in range(2)]
    assert sums[1] == sums[0] + 1
    assert model.seen == []


def test_a_model_whose_runs_are_alike_runs_bare() -> None:
    profile = opcost.profile(nn.Sequential(nn.Linear(3, 3), nn.Dropout()).train(), torch.ones(2, 3), repeat=2)
    assert profile.meta["annotated"] == "False"
    assert [(row.module, row.type) for row in profile.rows if row.step == 1] == [
        ("0", "aten::linear"),
        ("1", "aten::dropout"),
    ]
    assert [spec.dims for spec in profile.rows[0].ins] == [(2, 3), (3, 3), (3,)]
