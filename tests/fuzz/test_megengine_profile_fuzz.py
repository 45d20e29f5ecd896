"""Damaged recordings of MegEngine: an answer or one clear error, never another exception."""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from opcost.analysis.query import query
from opcost.compat.megengine.profile_analyze import Wish, analyze
from opcost.core.profile import Profile
from opcost.errors import OpcostError
from opcost.traces.megengine_graph import read_graph_profile
from opcost.traces.megengine_timeline import read_timeline

DATA = Path(__file__).resolve().parent.parent / "data" / "megengine" / "profile"
GRAPH: dict[str, Any] = json.loads(gzip.decompress((DATA / "mlp.v2.json.gz").read_bytes()))
EVENTS: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / "timeline.json.gz").read_bytes()))["traceEvents"][
    :300
]

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, -(2**70), 1e300, -0.5, "", "x", "{1,2}", [], {}, [[]], [["x"]], [None], [-1], {"a": 1}, [[2**70]],
)  # fmt: skip


def damaged(data: Any, chooser: random.Random) -> Any:
    """The same data with one value after the other replaced or removed."""
    data = copy.deepcopy(data)
    for _ in range(chooser.randint(1, 4)):
        place = data
        while place:
            key = chooser.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], (dict, list)) and chooser.random() < 0.9:
                place = place[key]
                continue
            if chooser.random() < 0.3:
                del place[key]
            else:
                place[key] = copy.deepcopy(chooser.choice(ODD))
            break
    return data


def answered(profile: Profile) -> bool:
    return bool(str(query(profile, aggregate_by="type"))) and bool(analyze(profile, Wish(top=0)))


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_graph_profile_is_answered_or_refused(seed: int) -> None:
    chooser = random.Random(seed)
    fine = 0
    for _ in range(40):
        try:
            fine += answered(read_graph_profile(damaged(GRAPH, chooser), "damaged.json"))
        except OpcostError:
            continue
    assert fine, "some damage does not matter"


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_timeline_is_answered_or_refused(seed: int) -> None:
    chooser = random.Random(seed)
    fine = 0
    for _ in range(20):
        events = [event for event in damaged(EVENTS, chooser) if isinstance(event, dict)]
        try:
            fine += answered(read_timeline(events, "damaged.json"))
        except OpcostError:
            continue
    assert fine, "some damage does not matter"
