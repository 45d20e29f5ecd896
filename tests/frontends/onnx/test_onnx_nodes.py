"""The models of single operators that ship with ONNX: our shapes are those of the recorded outputs."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import replace
from types import ModuleType

import pytest

from opcost.core.shapes import complete
from opcost.errors import OpcostError
from opcost.frontends.onnx.model import read_model
from opcost.frontends.onnx.walk import graph_of
from opcost.frontends.options import CountOptions

pytest.importorskip("onnx")

PLAIN = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
"""Element types that NumPy has."""
NO_ARITHMETIC = (
    "ai_onnx_ml",
    "string",
    "regex",
    "strnormalizer",
    "image_decoder",
    "tfidf",
    "optional",
    "sequence",
    "identity_sequence",
)


def verdict(model: bytes, inputs: list[object], outputs: list[object]) -> str:
    """What becomes of one model whose own statements about shapes are hidden."""
    read = read_model(model)
    read = replace(read, graph=replace(read.graph, declared={}))
    names = [declared.name for declared in read.graph.inputs]
    given = {
        name: array for name, array in zip(names, inputs, strict=False) if str(getattr(array, "dtype", "")) in PLAIN
    }
    try:
        graph = graph_of(read, CountOptions(inputs=given or None), "node")
    except OpcostError:
        return "refused"
    graph.check()
    found = "equal"
    for value, true in zip(graph.outputs, outputs, strict=False):
        mine, shape = graph.values[value].spec.shape, getattr(true, "shape", None)
        if shape is None:
            continue
        if mine is not None and (
            len(mine) != len(shape) or any(a not in (None, b) for a, b in zip(mine, shape, strict=True))
        ):
            return f"wrong: {mine} for {shape}"
        if not complete(mine):
            found = "unknown"
    return found


SLOW = ("averagepool", "lppool", "maxpool")
"""Models whose outputs ONNX works out element by element, for most of a minute; rows of test_onnx_rows.py derive pools."""


def test_shapes_are_those_of_the_recorded_outputs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx.backend.test.case.node import collect_testcases

    for name in SLOW:
        monkeypatch.setitem(sys.modules, f"{collect_testcases.__module__}.{name}", ModuleType(name))
    counts: Counter[str] = Counter()
    arithmetic: Counter[str] = Counter()
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        found = verdict(case.model.SerializeToString(), list(inputs), list(outputs))
        counts[found.partition(":")[0]] += 1
        if found.startswith("wrong"):
            wrong.append(f"{case.name} {found}")
        if not any(word in case.name for word in NO_ARITHMETIC):
            arithmetic[found] += 1
    with capsys.disabled():
        print(f"\nONNX's own models of single operators: {dict(counts)}; with arithmetic: {dict(arithmetic)}")
    assert not wrong
    assert sum(counts.values()) > 1500
    assert arithmetic["equal"] / sum(arithmetic.values()) > 0.97
