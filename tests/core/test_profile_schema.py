from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling import FULL

from opcost.core.graph import Cost, Note, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow, Spread
from opcost.core.profile_schema import dumps, from_dict, load, loads, to_dict
from opcost.errors import SourceError

PROFILE = Profile(
    meta={"source": "here", "device": "a GPU — №1"},
    rows=(
        ProfileRow(
            id=0, name="fc", type="aten::addmm", kind="matmul", module="a.b", phase="backward", device="gpu:0", stream="7",
            provider="cpu_op", rank=3, step=2, host_start_ns=-5, host_ns=10, host_self_ns=4, device_ns=6, device_total_ns=8,
            kernels=(Kernel("gemm", "gpu:0", "7", 100, 4), Kernel("gemm", "gpu:0", "7", 110, 2, launched_ns=-3)),
            ins=(TensorSpec((2, None)), TensorSpec(None, "int8")), outs=(TensorSpec((2, 4)),),
            attrs={"depth": 3, "bias": True, "then": ("relu",), "scale": float("inf")}, cost=Cost(1, 2, 3, 4), count=5,
        ),
        ProfileRow(id=1, name="", type="x", attrs={"depth": 3.0}, count=2, spread=Spread((4, 5), (6, 7))),
        ProfileRow(id=2, name="", type="x", attrs={"depth": 3}),
    ),
    unattributed=(Kernel("lost", "gpu:1", "9", 7, 1),
                  Kernel("replayed", "gpu:1", "9", 8, 3, why="graph", count=2, rank=1, spread=(1, 2))),
    wall_ns=200,
    timed_ns=(10, 12),
    notes=(Note("a", "b", "c"),),
    extra={"run_ns": [1, 2]},
)  # fmt: skip


def test_reading_back_what_was_written_is_the_identity() -> None:
    again = loads(dumps(PROFILE))
    assert again == PROFILE
    assert [type(row.attrs.get("depth")) for row in again.rows] == [int, float, int]


def test_a_file_reads_back_and_names_itself_in_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(dumps(PROFILE), encoding="utf-8")
    assert load(path) == PROFILE
    path.write_text(dumps(PROFILE)[:-30], encoding="utf-8")
    with pytest.raises(SourceError, match=r"p\.json"):
        load(path)
    with pytest.raises(SourceError, match="cannot be read"):
        load(tmp_path)


def test_another_version_is_refused() -> None:
    with pytest.raises(SourceError, match=r"opcost\.profile/9"):
        from_dict(to_dict(PROFILE) | {"schema": "opcost.profile/9"})
    with pytest.raises(SourceError, match="schema"):
        from_dict([])


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(item, (*path, key))


WRITTEN = json.dumps(to_dict(PROFILE))
PLACES = [path for path in _places(json.loads(WRITTEN)) if path and path[0] != "extra"]


@settings(max_examples=300 if FULL else 100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    place=st.sampled_from(PLACES),
    value=st.sampled_from([None, True, -1, 2**200, 1.5, "x", "\ud800", [], [[]], {}, {"a": 1}, [0, 1, 2, 3]]),
)
def test_a_hostile_file_is_read_or_is_one_error(place: Any, value: Any) -> None:
    data = json.loads(WRITTEN)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    try:
        dumps(from_dict(data))
    except SourceError as exc:
        assert exc.message  # noqa: PT017


@pytest.mark.parametrize("field", sorted(set(json.loads(WRITTEN)) - {"schema"}))
def test_a_missing_field_is_named(field: str) -> None:
    data = json.loads(WRITTEN)
    del data[field]
    with pytest.raises(SourceError, match=f"required field `{field}`"):
        from_dict(data)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": NaN}', "[" * 100_000, "\ud800"])
def test_text_that_is_no_profile_is_one_error(text: str) -> None:
    with pytest.raises(SourceError):
        loads(text)
