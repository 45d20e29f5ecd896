"""The dumps that MegEngine 1.13.0 made, and what its own tool says about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest

from opcost.analysis.costing import cost_graph
from opcost.core.graph import Attr, nbytes
from opcost.frontends.flatbuffer import Buffer, FlatTable, Pages
from opcost.frontends.megengine.load import build_graph
from opcost.frontends.megengine.model import DumpedTensor, FileOperator, Model, Variable
from opcost.frontends.megengine.operators.table import MegEngineCall
from opcost.frontends.megengine.schema import _TABLES, DType, ParamFields, read_param
from opcost.frontends.nodes.meaning import Content, Operand
from opcost.frontends.options import CountOptions
from opcost.rules import default_rules

DATA = Path(__file__).parents[2] / "data" / "megengine"
DUMPS = sorted((DATA / "mge").glob("*.mge"))
VISUALIZED = sorted((DATA / "network_visualize").glob("*.json"))


@pytest.fixture
def dump() -> Callable[[str], Path]:
    """A dump by its name."""
    return lambda name: DATA / "mge" / f"{name}.mge"


@pytest.fixture
def visualized() -> Callable[[str], dict[str, Any]]:
    """What MegEngine's network_visualize says about a dump."""
    return lambda name: json.loads((DATA / "network_visualize" / f"{name}.json").read_text())


@pytest.fixture(params=DUMPS, ids=[path.stem for path in DUMPS])
def any_dump(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(params=VISUALIZED, ids=[path.stem for path in VISUALIZED])
def any_visualized(request: pytest.FixtureRequest) -> str:
    return request.param.stem


@pytest.fixture
def apply() -> Callable[..., Any]:
    """The report's row of one operator on inputs of these shapes; numbers as an input are a constant of the file."""
    return _apply


def _apply(
    kind: str,
    *inputs: tuple[int, ...] | list[int],
    outputs: int = 1,
    read: int | None = None,
    table: str = "Empty",
    dtype: str = "float32",
    result: str | None = None,
    **fields: Attr,
) -> Any:
    operators: list[FileOperator] = []
    numbers: dict[int, Content] = {}
    for place, given in enumerate(inputs):
        constant = isinstance(given, list)
        shape = (len(given),) if constant else tuple(given)
        stored = DType("int32" if constant else dtype)
        tensor = DumpedTensor(f"x{place}", shape, stored, 64, nbytes(prod(shape), stored.name) if constant else 0)
        source = "ImmutableTensor" if constant else "Host2DeviceCopy"
        operators.append(FileOperator(place, source, "", ParamFields(), (), (place,), (tensor,)))
        if constant:
            numbers[place] = Content((len(given),), tuple(given))
    count = len(inputs)
    made = tuple(range(count, count + outputs))
    param = ParamFields({**_defaults(table), **fields})
    declared = DType(result) if result else None
    operators.append(FileOperator(count, kind, "tested", param, tuple(range(count)), made, (), declared))
    model = Model(
        path="made.mge",
        format="FBS v2",
        version="1.13.0",
        operators=tuple(operators),
        variables=tuple(Variable() for _ in range(count + outputs)),
        outputs=made[:read],
        numbers=numbers,
    )
    graph = build_graph(model, CountOptions())
    graph.check()
    (row,) = cost_graph(graph, default_rules()).rows
    return row


@pytest.fixture
def node() -> Callable[..., MegEngineCall]:
    """One operator on inputs of these shapes, as `2x?x4`, or `*` of an unknown rank; numbers are a constant of the file.

    Their element types are all different, the first one is qint8.
    """
    return _node


def _node(kind: str, inputs: Sequence[str | list[int]], outputs: int, fields: Mapping[str, Any]) -> MegEngineCall:
    table = fields.get("table", "Empty")
    param = ParamFields({**_defaults(table), **{name: value for name, value in fields.items() if name != "table"}})
    dtypes = ["qint8", "float16", "float64", "int64", "uint8", "bool", "int8", "bfloat16"]
    ins = []
    for place, (given, dtype) in enumerate(zip(inputs, dtypes, strict=False)):
        shape = (len(given),) if isinstance(given, list) else extents(given)
        ins.append(
            Operand(place, shape, dtype, Content((len(given),), tuple(given)) if isinstance(given, list) else None)
        )
    return MegEngineCall.of(kind, param, ins, outputs)


def extents(text: str) -> tuple[int | None, ...] | None:
    """`2x?x4` as a shape; `-` has no axes."""
    if text == "*":
        return None
    return tuple(None if extent == "?" else int(extent) for extent in text.split("x") if extent != "-")


def _defaults(table: str) -> dict[str, Attr]:
    """The fields of a parameter table as they are where the file stores none of them."""
    tag = next((tag for tag, (name, _) in _TABLES.items() if name == table), None)
    if tag is None:
        return {}
    empty = Buffer(Pages(b"\x04\0\x04\0\x04\0\0\0" + bytes(8), 16, "empty"), 0, 16, "empty")
    return dict(read_param(tag, FlatTable(empty, 4)))
