"""One operator at a time: what MXNet 1.9.1 infers for it from shapes, attributes and the first input's type."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from opcost.analysis.costing import cost_graph
from opcost.core.kinds import KINDS
from opcost.frontends.mxnet.infer import infer
from opcost.frontends.mxnet.load import Opened, load_graph
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.roles import upgraded
from opcost.frontends.mxnet.symbol import Symbol, parse_symbol
from opcost.frontends.options import CountOptions
from opcost.rules import default_rules

BY_OPERATOR: dict[str, list[dict[str, Any]]] = defaultdict(list)
for found in json.loads((Path(__file__).parents[2] / "data/mxnet/operators.json").read_text()):
    BY_OPERATOR[found["op"]].append(found)

DYNAMIC = ("_contrib_boolean_mask", "_npi_boolean_mask", "_npx_nonzero")
"""Operators whose result is as large as the data say."""
NUMPY_BOOL = "bool_"


def symbol_of(case: dict[str, Any]) -> Symbol:
    inputs = case["inputs"]
    nodes = [{"op": "null", "name": f"x{place}", "inputs": []} for place in range(len(inputs))]
    entries = [[place, 0, 0] for place in range(len(inputs))]
    nodes.append({"op": case["op"], "name": "y", "attrs": case["attrs"], "inputs": entries})
    attrs = {"mxnet_version": ["int", 10901], "is_np_shape": ["int", int(case["np"])]}
    return upgraded(parse_symbol(json.dumps({"nodes": nodes, "heads": [[len(inputs), 0, 0]], "attrs": attrs})))


def known(case: dict[str, Any]) -> list[tuple[int | None, ...] | None]:
    """What MXNet knows of each tensor; it writes an unknown extent 0, or -1 with NumPy's shapes."""
    unknown = -1 if case["np"] else 0
    shapes = [None if shape is None or (shape == [] and not case["np"]) else shape for _, shape in case["outs"]]
    return [None if s is None else tuple(None if extent == unknown else extent for extent in s) for s in shapes]


def refines(ours: tuple[int | None, ...] | None, theirs: tuple[int | None, ...] | None) -> bool:
    """Whether we say all that MXNet says; where it says nothing we may know more."""
    if theirs is None:
        return True
    return (
        ours is not None and len(ours) == len(theirs) and all(t in (None, o) for o, t in zip(ours, theirs, strict=True))
    )


@pytest.mark.parametrize("name", BY_OPERATOR)
def test_shapes_are_mxnets(name: str) -> None:
    for case in BY_OPERATOR[name]:
        shapes = {place: tuple(shape) for place, shape in enumerate(case["inputs"]) if shape is not None}
        inferred = infer(symbol_of(case), shapes, {0: "float32"} if case["inputs"] else {})
        ours = [shape for outputs in inferred.shapes for shape in outputs]
        theirs = known(case)
        assert len(ours) == len(theirs), case
        assert all(map(refines, ours, theirs)), (case, ours)


@pytest.mark.parametrize("name", BY_OPERATOR)
def test_element_types_are_mxnets(name: str) -> None:
    for case in BY_OPERATOR[name]:
        inferred = infer(symbol_of(case), {}, {0: "float32"} if case["inputs"] else {})
        ours = [dtype for outputs in inferred.types for dtype in outputs]
        theirs = [None if dtype is None else dtype.removesuffix("_") for dtype in case["types"] or ()]
        assert all(their in (None, our) for our, their in zip(ours, theirs, strict=False)), (case, ours)


@pytest.mark.parametrize("name", BY_OPERATOR)
def test_a_known_operator_has_a_kind_and_a_cost(name: str) -> None:
    for case in BY_OPERATOR[name]:
        if None in known(case):
            continue
        shapes = {f"x{place}": tuple(shape) for place, shape in enumerate(case["inputs"]) if shape is not None}
        graph = load_graph(Opened(symbol_of(case), {}, "one", CountOptions(shapes=shapes)))
        graph.check()
        report = cost_graph(graph, default_rules())
        assert report.rows[0].op.kind in KINDS
        assert report.coverage.complete or name in DYNAMIC, case


def test_about_half_a_thousand_operators_are_compared() -> None:
    assert len(BY_OPERATOR) > 400
    assert BY_OPERATOR.keys() <= all_operators().keys() | {
        "Softmax",
        "_Plus",
        "_Minus",
        "_Mul",
        "_Div",
        "ElementWiseSum",
    } | {name for name in BY_OPERATOR if name.endswith(("Scalar", "_axis"))}


def test_an_operator_without_a_row_is_reported_as_unknown() -> None:
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "relu", "name": "before", "inputs": [[0, 0, 0]]},
        {"op": "_contrib_warp_drive", "name": "drive", "inputs": [[1, 0, 0]]},
        {"op": "relu", "name": "behind", "inputs": [[2, 0, 0]]},
    ]
    symbol = parse_symbol(json.dumps({"nodes": nodes, "heads": [[3, 0, 0]]}))
    report = cost_graph(load_graph(Opened(symbol, {}, "one", CountOptions(shapes={"x": (2, 3)}))), default_rules())
    assert report.coverage.counted == 1
    assert [missed.raw for missed in report.coverage.uncounted] == ["mxnet::_contrib_warp_drive", "mxnet::relu"]
