"""The golden cases: shapes, types, parameters and multiply-adds are those that MXNet's own inference gives."""

from __future__ import annotations

import re
import shutil
from math import prod
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.compat.mxnet import count_flops
from opcost.frontends.mxnet.load import work_out

OUTPUT = re.compile(r"_output\d*$")
"""What MXNet puts behind a node's name for its outputs."""

BEHIND_PYTHON = {"adv/custom_op": {"cust", "fc1"}}
"""Nodes that are Python code, or come after some: MXNet had the code, a file does not hold it."""


@pytest.fixture(params=["with", "without"])
def symbol(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A case's symbol with its parameter file beside it, and alone."""
    return lambda case: case.symbol if request.param == "with" else Path(shutil.copy(case.symbol, tmp_path))


def test_every_tensor_has_mxnets_shape_and_type(case: Any, symbol: Any) -> None:
    opened = case.open(symbol(case))
    worked = work_out(opened.symbol, opened.options, opened.saved)
    unknown = BEHIND_PYTHON.get(case.name, set())
    for node, expected in zip(worked.symbol.nodes, case.expected["nodes"], strict=True):
        assert node.name == expected["name"]
        if node.name in unknown or (unknown and node.name.startswith("fc1")):
            continue
        found = zip(worked.inferred.shapes[node.id], worked.inferred.types[node.id], strict=True)
        assert list(found) == [(tuple(output["shape"]), output["dtype"]) for output in expected["outputs"]], node


def test_every_operator_is_the_one_that_mxnet_loads(case: Any) -> None:
    nodes = case.open().symbol.nodes
    assert [node.op for node in nodes] == [expected["op"] for expected in case.expected["nodes"]]


def test_every_node_has_its_multiply_adds_and_bias_additions(case: Any, symbol: Any) -> None:
    unknown = BEHIND_PYTHON.get(case.name, set())
    found = count_flops(symbol(case), case.shapes)
    assert [(node.name, node.macs, node.bias_adds) for node in found.nodes if node.name not in unknown] == [
        (expected["name"], expected["macs"], expected["bias_adds"])
        for expected in case.expected["nodes"]
        if expected["op"] != "null" and expected["name"] not in unknown
    ]


def test_the_report_has_mxnets_totals(case: Any, symbol: Any) -> None:
    if case.name in BEHIND_PYTHON:
        pytest.skip("its totals need the Python code")
    report = opcost.count(str(symbol(case)), shapes=case.shapes)
    expected = case.expected["totals"]
    assert report.totals.params == expected["params_arg"]
    assert report.totals.buffers == expected["params_aux"]
    assert report.totals.trainable_params == expected["params_trainable"]
    assert report.totals.macs == expected["macs"]
    assert report.coverage.complete


def test_frozen_weights_are_those_that_mxnet_does_not_train(case: Any) -> None:
    if case.name in BEHIND_PYTHON:
        pytest.skip("its parameters are all trained")
    opened = case.open()
    roles = work_out(opened.symbol, opened.options, opened.saved).roles
    frozen = {opened.symbol.nodes[index].name for index in roles.weights if index in roles.frozen}
    assert frozen == set(case.expected["totals"]["frozen_args"])


def test_each_version_of_mxnet_is_understood_as_it_understands_itself(version: Any, symbol: Any) -> None:
    opened = version.open(symbol(version))
    worked = work_out(opened.symbol, opened.options, opened.saved)
    found = [(node.name, shape) for node in worked.symbol.nodes for shape in worked.inferred.shapes[node.id]]
    assert found == [(OUTPUT.sub("", name), tuple(shape)) for name, shape in version.expected["internals"]]


def test_each_versions_weights_and_states_are_distinguished(version: Any, symbol: Any) -> None:
    report = opcost.count(str(symbol(version)), shapes=version.shapes)
    inputs = {*version.shapes, *(version.expected.get("label_inputs") or ())}
    weights = [shape for name, shape in version.expected["arg_shapes"] if name not in inputs]
    assert report.totals.params == sum(map(prod, weights))
    assert report.totals.buffers == sum(prod(shape) for _, shape in version.expected["aux_shapes"])
