"""Against the real MXNet: nets drawn at random are exported and counted, and compared with what MXNet itself makes of them.

Runs in a virtual environment of its own (`make test-frameworks`); where MXNet is not installed nothing is collected.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import random
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

mx = pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)

import opcost
from opcost.compat.mxnet import count_flops, print_summary
from opcost.errors import InputError
from opcost.frontends.mxnet.load import open_file, work_out
from opcost.frontends.mxnet.params import read_params
from opcost.frontends.options import CountOptions

nn, rnn = mx.gluon.nn, mx.gluon.rnn
SEEDS = range(8)


def conv_block(rng: random.Random, channels: int) -> Any:
    """A few layers that keep the image at least as large as it is."""
    kernel, dilation = rng.choice((1, 3, (1, 3), (3, 1), 5)), rng.choice((1, 1, 2))
    groups = rng.choice((1, 1, 2))
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
    pad = tuple(dilation * (size - 1) // 2 for size in sizes)
    block = nn.HybridSequential()
    block.add(
        nn.Conv2D(channels, sizes, padding=pad, dilation=dilation, groups=groups, use_bias=rng.random() < 0.5),
        rng.choice((nn.BatchNorm, lambda: nn.BatchNorm(scale=False), nn.InstanceNorm, lambda: nn.GroupNorm(2)))(),
        rng.choice((lambda: nn.Activation("relu"), lambda: nn.LeakyReLU(0.1), nn.PReLU, nn.SELU, nn.Swish, nn.GELU))(),
    )
    return block


class Residual(nn.HybridBlock):
    """Two branches, one of them squeezed and excited."""

    def __init__(self, rng: random.Random, channels: int) -> None:
        super().__init__()
        with self.name_scope():
            self.body = conv_block(rng, channels)
            self.shortcut = nn.Conv2D(channels, 1, use_bias=False)
            self.squeeze = nn.Dense(4, activation="relu")
            self.excite = nn.Dense(channels, activation="sigmoid")
            self.join = rng.choice(("add", "concat"))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        body = self.body(x)
        weight = self.excite(self.squeeze(F.contrib.AdaptiveAvgPooling2D(body, output_size=1)))
        body = F.broadcast_mul(body, weight.expand_dims(2).expand_dims(2))
        return self.shortcut(x) + body if self.join == "add" else F.concat(self.shortcut(x), body, dim=1)


class Sequence(nn.HybridBlock):
    """The image as a sequence: a recurrent layer and attention over its own outputs."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        with self.name_scope():
            layer = rng.choice((rnn.LSTM, rnn.GRU, rnn.RNN))
            self.layer = layer(6, num_layers=rng.choice((1, 2)), bidirectional=rng.random() < 0.5, layout="NTC")
            self.norm = nn.LayerNorm()
            self.query, self.value = nn.Dense(8, flatten=False), nn.Dense(8, flatten=False, use_bias=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = self.norm(self.layer(x.reshape((0, 0, -1)).transpose((0, 2, 1))))
        query, value = self.query(y), self.value(y)
        scores = F.softmax(F.batch_dot(query, query, transpose_b=True) / 8**0.5)
        return F.batch_dot(scores, value)


def draw_net(seed: int) -> Any:
    rng = random.Random(seed)
    net = nn.HybridSequential()
    with net.name_scope():
        for _ in range(rng.randint(1, 3)):
            net.add(rng.choice((conv_block, Residual))(rng, rng.choice((4, 6, 8))))
            if rng.random() < 0.6:
                net.add(nn.MaxPool2D(rng.choice((2, 3)), 2, ceil_mode=rng.random() < 0.5))
        if rng.random() < 0.5:
            net.add(nn.Conv2DTranspose(4, 4, 2, 1))
        if rng.random() < 0.6:
            net.add(Sequence(rng))
        net.add(nn.Dropout(0.3), nn.Dense(7, flatten=True))
    net.initialize()
    return net


def shape_of(seed: int) -> tuple[int, ...]:
    rng = random.Random(seed + 1000)
    return (rng.randint(1, 3), rng.choice((3, 4)) * 2, rng.randint(16, 30), rng.randint(16, 30))


@pytest.fixture(params=SEEDS)
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, tuple[int, ...], Path]:
    """A net, the shape of its input, and the prefix of its checkpoint."""
    net, shape = draw_net(request.param), shape_of(request.param)
    net.hybridize()
    net(mx.nd.ones(shape))
    net.export(str(tmp_path / "net"))
    return net, shape, tmp_path / "net"


def internals(symbol: Any, **shapes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shape of every visible tensor of a symbol, in MXNet's order, as MXNet works it out."""
    _, outputs, _ = symbol.get_internals().infer_shape(**shapes)
    return [tuple(shape) for shape in outputs]


def by_hand(symbol: Any, **shapes: tuple[int, ...]) -> int:
    """The multiply-adds of a symbol from MXNet's own shapes and the definition of each operator."""
    inside = symbol.get_internals()
    _, outputs, _ = inside.infer_shape(**shapes)
    shape = dict(zip(inside.list_outputs(), map(tuple, outputs), strict=True))
    nodes = json.loads(symbol.tojson())["nodes"]

    def tensor(entry: list[int]) -> tuple[int, ...]:
        node = nodes[entry[0]]
        name = node["name"]
        if node["op"] == "null":
            return shape[name]
        return shape.get(f"{name}_output") or shape[f"{name}_output{entry[1]}"]

    total = 0
    for place, node in enumerate(nodes):
        inputs = [tensor(entry) for entry in node["inputs"]]
        attrs = node.get("attrs", {})
        if node["op"] == "Convolution":
            total += prod(tensor([place, 0])) * prod(inputs[1]) // inputs[1][0]
        elif node["op"] == "Deconvolution":
            total += prod(inputs[0]) * prod(inputs[1]) // inputs[1][0]
        elif node["op"] == "FullyConnected":
            total += prod(tensor([place, 0])) * inputs[1][1]
        elif node["op"] == "batch_dot":
            total += prod(tensor([place, 0])) * inputs[0][2]
        elif node["op"] == "RNN":
            steps, batch, _ = inputs[0]
            gates = {"lstm": 4, "gru": 3}.get(attrs["mode"], 1)
            directions = 2 if attrs["bidirectional"] == "True" else 1
            biases = 2 * gates * int(attrs["state_size"]) * directions * int(attrs["num_layers"])
            total += steps * batch * (prod(inputs[1]) - biases)
    return total


def test_every_shape_of_an_exported_net_is_the_one_that_mxnet_works_out(exported: Any) -> None:
    _, shape, prefix = exported
    opened = open_file(Path(f"{prefix}-symbol.json"), CountOptions(shapes={"data": shape}))
    worked = work_out(opened.symbol, opened.options, opened.saved)
    found = [tensor for outputs in worked.inferred.shapes for tensor in outputs]
    assert found == internals(mx.sym.load(f"{prefix}-symbol.json"), data=shape)


def test_without_the_parameter_file_every_shape_is_the_same(exported: Any) -> None:
    _, shape, prefix = exported
    Path(f"{prefix}-0000.params").unlink()
    opened = open_file(Path(f"{prefix}-symbol.json"), CountOptions(shapes={"data": shape}))
    worked = work_out(opened.symbol, opened.options, opened.saved)
    assert not opened.saved
    found = [tensor for outputs in worked.inferred.shapes for tensor in outputs]
    assert found == internals(mx.sym.load(f"{prefix}-symbol.json"), data=shape)


def test_the_multiply_adds_are_those_derived_by_hand_from_mxnets_shapes(exported: Any) -> None:
    _, shape, prefix = exported
    report = opcost.count(str(prefix), shapes={"data": shape})
    assert report.coverage.complete
    assert report.totals.macs == by_hand(mx.sym.load(f"{prefix}-symbol.json"), data=shape)


def test_the_parameters_are_gluons(exported: Any) -> None:
    net, shape, prefix = exported
    report = opcost.count(str(prefix), shapes={"data": shape})
    sizes = {name: prod(parameter.shape) for name, parameter in net.collect_params().items()}
    symbol = mx.sym.load(f"{prefix}-symbol.json")
    assert report.totals.params == sum(sizes[name] for name in symbol.list_arguments() if name in sizes)
    assert report.totals.buffers == sum(sizes[name] for name in symbol.list_auxiliary_states())


def test_a_live_block_and_a_live_symbol_are_counted_as_their_files(exported: Any) -> None:
    net, shape, prefix = exported
    from_file = opcost.count(str(prefix), shapes={"data": shape})
    trainable = sum(prod(p.shape) for p in net.collect_params().values() if p.grad_req != "null")
    for live in (
        opcost.count(net, mx.nd.ones(shape)),
        opcost.count(net, shapes=shape),
        opcost.count(mx.sym.load(f"{prefix}-symbol.json"), shapes={"data": shape}),
    ):
        assert live.totals.macs == from_file.totals.macs
        assert live.totals.flops == from_file.totals.flops
        assert live.totals.params == from_file.totals.params
        assert live.totals.buffers == from_file.totals.buffers
    assert opcost.count(net, shapes=shape).totals.trainable_params == trainable


def test_another_batch_size_multiplies_the_cost(exported: Any) -> None:
    _, shape, prefix = exported
    once = opcost.count(str(prefix), shapes={"data": (1, *shape[1:])})
    five = opcost.count(str(prefix), shapes={"data": (5, *shape[1:])})
    assert five.totals.macs == 5 * once.totals.macs
    assert five.totals.params == once.totals.params


def test_a_fused_symbol_has_the_multiply_adds_of_the_plain_one(exported: Any) -> None:
    _, shape, prefix = exported
    plain = mx.sym.load(f"{prefix}-symbol.json")
    fused = plain.get_backend_symbol("MKLDNN")
    if fused.tojson() == plain.tojson():
        pytest.skip("this build of MXNet fuses nothing")
    assert opcost.count(fused, shapes={"data": shape}).totals.macs == by_hand(plain, data=shape)


SCALED = {"scores": 4}
"""Operators that divide by the square root of the number of features, and that number."""

LINEAR: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]] = {
    "convolution": (
        lambda x, w: mx.sym.Convolution(
            x, w, kernel=(3, 2), stride=(2, 1), dilate=(1, 2), num_filter=6, num_group=2, no_bias=True
        ),
        {"x": (2, 4, 9, 8)},
    ),
    "transposed": (
        lambda x, w: mx.sym.Deconvolution(x, w, kernel=(3, 4), stride=(2, 3), num_filter=6, num_group=2),
        {"x": (2, 4, 5, 6)},
    ),
    "dense": (lambda x, w: mx.sym.FullyConnected(x, w, num_hidden=5, no_bias=True), {"x": (2, 3, 4)}),
    "dot": (lambda x, w: mx.sym.dot(x, w, transpose_a=True), {"x": (6, 4), "w": (6, 5)}),
    "batch_dot": (lambda x, w: mx.sym.batch_dot(x, w, transpose_b=True), {"x": (3, 4, 6), "w": (3, 5, 6)}),
    "gemm2": (mx.sym.linalg.gemm2, {"x": (3, 4, 6), "w": (3, 6, 5)}),
    "scores": (lambda x, w: mx.sym.contrib.interleaved_matmul_encdec_qk(x, w, heads=2), {"x": (5, 2, 8), "w": (3, 2, 16)}),
    "values": (
        lambda x, w: mx.sym.contrib.interleaved_matmul_selfatt_valatt(x, w, heads=2), {"x": (5, 2, 24), "w": (4, 5, 5)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_on_ones_a_linear_operator_adds_up_to_its_multiply_adds(name: str) -> None:
    make, shapes = LINEAR[name]
    symbol = make(mx.sym.var("x"), mx.sym.var("w"))
    arguments, _, _ = symbol.infer_shape(**shapes)
    ones = {argument: mx.nd.ones(shape) for argument, shape in zip(symbol.list_arguments(), arguments, strict=True)}
    (answer,) = symbol.bind(mx.cpu(), ones).forward()
    assert opcost.count(symbol, shapes=shapes).totals.macs == answer.sum().asscalar() * SCALED.get(name, 1) ** 0.5


def test_a_loop_costs_as_often_as_it_runs() -> None:
    steps, batch, features, hidden = 7, 2, 3, 4
    weight = mx.sym.var("weight", shape=(hidden, hidden))

    def step(data: Any, state: Any) -> Any:
        new = mx.sym.FullyConnected(data, num_hidden=hidden, name="in") + mx.sym.dot(state, weight)
        return new, new

    outputs, _ = mx.sym.contrib.foreach(step, mx.sym.var("data"), mx.sym.var("init"))
    report = opcost.count(outputs, shapes={"data": (steps, batch, features), "init": (batch, hidden)})
    assert report.totals.macs == steps * batch * hidden * (features + hidden)
    assert report.totals.params == hidden * (features + 1) + hidden * hidden
    assert report.outputs[0].dims == (steps, batch, hidden)


def test_arrays_that_mxnet_saves_are_listed(tmp_path: Path) -> None:
    arrays = {
        "arg:half": mx.nd.ones((2, 3), dtype="float16"),
        "aux:long": mx.nd.ones((4,), dtype="int64"),
        "arg:rows": mx.nd.ones((6, 4)).tostype("row_sparse"),
        "arg:cells": mx.nd.ones((5, 5)).tostype("csr"),
    }
    mx.nd.save(str(tmp_path / "some.params"), arrays)
    found = {array.name: array for array in read_params(tmp_path / "some.params")}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].shape == array.shape
        assert found[name].dtype == array.dtype.__name__
        assert found[name].storage == array.stype


@pytest.mark.parametrize("name", ["resnet18_v1", "mobilenet0.25", "squeezenet1.1"])
def test_the_summary_is_mxnets_where_mxnets_is_right(name: str) -> None:
    net = mx.gluon.model_zoo.vision.get_model(name, classes=10)
    symbol = net(mx.sym.var("data"))
    shapes = {"data": (1, 3, 224, 224)}
    theirs, ours = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(theirs):
        mx.viz.print_summary(symbol, shape=shapes)
    with contextlib.redirect_stdout(ours):
        print_summary(symbol, shape=shapes)
    states = [line for line in ours.getvalue().splitlines() if line.startswith("Auxiliary states: ")]
    assert [line for line in ours.getvalue().splitlines() if line not in states] == theirs.getvalue().splitlines()
    assert count_flops(symbol, [("data", (1, 3, 224, 224))]).macs == by_hand(symbol, **shapes)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mlp", (4, 20)), ("resnet", (2, 3, 16, 16)), ("depthwise", (2, 3, 17, 17)), ("transformer", (2, 9, 16))],
)
def test_the_stored_symbols_of_the_parity_test_are_what_mxnet_makes(name: str, shape: tuple[int, ...]) -> None:
    here = Path(__file__).parent
    spec = importlib.util.spec_from_file_location("mxnet_nets", here / "mxnet_nets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    live = opcost.count(module.nets()[name], shapes=shape)
    stored = opcost.count(str(here.parent / "data/mxnet/parity" / name), shapes=shape)
    assert live.totals == stored.totals


def test_a_block_that_is_no_hybrid_block_is_refused() -> None:
    class Plain(mx.gluon.Block):
        def forward(self, x: Any) -> Any:
            return x

    with pytest.raises(InputError, match="derive it from HybridBlock"):
        opcost.count(Plain(), shapes=(1, 2))
