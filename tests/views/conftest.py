from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from opcost.analysis.costing import cost_graph
from opcost.core.graph import Attrs, Graph, Module, Note, Op, Phase, TensorSpec, Value
from opcost.core.report import Report
from opcost.rules.registry import Rules

BATCH, WIDTH, CLASSES = 4, 96, 10
BLOCKS, HIDDEN = 3, 4 * WIDTH
IMAGE, PATCH = 32, 8
TOKENS = (IMAGE // PATCH) ** 2


class PictureExtension(SingleFileSnapshotExtension):
    """A picture is a text file that a reviewer can read."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(PictureExtension)


def tiny_rules() -> Rules:
    """Just enough rules for the graphs below, so that a picture does not change with a rule."""
    rules = Rules()
    rules.add("conv", lambda op: op.cost(macs=op.outs[0].numel * op.ins[1].numel // op.ins[1].dims[0]))
    rules.add("matmul", lambda op: op.cost(macs=op.outs[0].numel * op.attrs["depth"]))  # type: ignore[operator]
    rules.add("elementwise", lambda op: op.cost(flops=op.outs[0].numel))
    rules.add("view", lambda op: op.cost(bytes_read=0, bytes_written=0))
    return rules


class Model:
    """A graph put together by hand, module by module and operator by operator."""

    def __init__(self, type_: str) -> None:
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.modules: dict[str, dict[str, Any]] = {}
        self.inputs: list[int] = []
        self._shared: dict[tuple[Any, ...], Any] = {}
        self.module("", type_)

    def module(self, path: str, type_: str, **about: Any) -> str:
        self.modules[path] = {
            "type": type_,
            "parameters": [],
            "buffers": [],
            "calls": 0,
            "inputs": (),
            "outputs": (),
        } | about
        return path

    def spec(self, shape: tuple[int | None, ...], dtype: str = "float32") -> TensorSpec:
        return self._shared.setdefault(("spec", shape, dtype), TensorSpec(shape, dtype))  # type: ignore[no-any-return]

    def value(self, name: str, shape: tuple[int | None, ...], role: Any, **more: Any) -> int:
        number = len(self.values)
        self.values.append(Value(number, name, self.spec(shape, more.pop("dtype", "float32")), role, number, **more))
        return number

    def input(self, name: str, *shape: int) -> int:
        self.inputs.append(self.value(name, shape, "input"))
        return self.inputs[-1]

    def param(self, path: str, name: str, *shape: int, trainable: bool = True) -> int:
        number = self.value(f"{path}.{name}", shape, "param", trainable=trainable)
        self.modules[path]["parameters"].append((name, number))
        return number

    def buffer(self, path: str, name: str, *shape: int) -> int:
        number = self.value(f"{path}.{name}", shape, "buffer")
        self.modules[path]["buffers"].append((name, number))
        return number

    def holds(self, path: str, name: str, value: int) -> None:
        """The parameter is in this module too."""
        self.modules[path]["parameters"].append((name, value))

    def op(
        self,
        path: str,
        kind: str,
        raw: str,
        inputs: tuple[int, ...],
        shape: tuple[int | None, ...],
        attrs: Attrs | None = None,
        repeat: int = 1,
        phase: Phase = "forward",
    ) -> int:
        made = self.value("", shape, "activation")
        mapping = self._shared.setdefault(("attrs", repr(attrs)), attrs or {})
        self.ops.append(Op(len(self.ops), kind, raw, inputs, (made,), mapping, path, repeat, phase))
        return made

    def called(self, path: str, received: int, made: int) -> int:
        """The module was called with this and gave that."""
        module = self.modules[path]
        module["calls"] += 1
        if module["calls"] == 1:
            module["inputs"] = (self.values[received].spec,)
            module["outputs"] = (self.values[made].spec,)
        return made

    def linear(
        self, path: str, x: int, out: int, *, weight: int | None = None, bias: bool = True, calls: bool = True
    ) -> int:
        *batch, depth = self.values[x].spec.dims
        if weight is None:
            weight = self.param(path, "weight", out, depth)
        reads = (x, weight, self.param(path, "bias", out)) if bias else (x, weight)
        made = self.op(path, "matmul", "aten::addmm", reads, (*batch, out), {"depth": depth})
        return self.called(path, x, made) if calls else made

    def relu(self, path: str, x: int) -> int:
        return self.called(
            path, x, self.op(path, "elementwise", "aten::relu", (x,), self.values[x].spec.dims, {"fn": "relu"})
        )

    def report(self, *outputs: int, notes: tuple[Note, ...] = (), **meta: str) -> Report:
        graph = Graph(
            source=self.modules[""]["type"],
            framework="torch",
            values=tuple(self.values),
            ops=tuple(self.ops),
            modules=tuple(
                Module(path=path, **about | {name: tuple(about[name]) for name in ("parameters", "buffers")})
                for path, about in self.modules.items()
            ),
            inputs=tuple(self.inputs),
            outputs=outputs,
            notes=notes,
            meta={"version": "2.13.0", "device": "cpu", "mode": "eval"} | meta,
        )
        graph.check()
        return cost_graph(graph, tiny_rules())


def plain_model(blocks: int = BLOCKS) -> Report:
    """Nothing special: a convolution, equal blocks of two linear layers, and a head."""
    model = Model("PatchMixer")
    x = model.input("images", BATCH, 3, IMAGE, IMAGE)
    model.module("patch_embed", "Conv2d", extra=f"3, {WIDTH}, kernel_size=({PATCH}, {PATCH})")
    weight = model.param("patch_embed", "weight", WIDTH, 3, PATCH, PATCH)
    side = IMAGE // PATCH
    y = model.op("patch_embed", "conv", "aten::convolution", (x, weight), (BATCH, WIDTH, side, side))
    y = model.called("patch_embed", x, y)
    y = model.op("", "view", "aten::view", (y,), (BATCH, TOKENS, WIDTH))
    model.module("blocks", "Sequential")
    start = y
    for number in range(blocks):
        path = model.module(f"blocks.{number}", "Block")
        first = y
        y = model.linear(model.module(f"{path}.fc1", "Linear", extra=f"{WIDTH}, {HIDDEN}"), y, HIDDEN)
        y = model.relu(model.module(f"{path}.act", "ReLU"), y)
        y = model.linear(model.module(f"{path}.fc2", "Linear", extra=f"{HIDDEN}, {WIDTH}"), y, WIDTH)
        y = model.called(
            path, first, model.op(path, "elementwise", "aten::add", (first, y), (BATCH, TOKENS, WIDTH), {"fn": "add"})
        )
    model.called("blocks", start, y)
    y = model.linear(model.module("head", "Linear", extra=f"{WIDTH}, {CLASSES}"), y, CLASSES)
    model.called("", x, y)
    return model.report(y)


def odd_model() -> Report:
    """Everything that must be marked: shared, tied, frozen and unused parts, an unknown operator, a backward pass."""
    model = Model("OddNet")
    x = model.input("x", BATCH, WIDTH)
    model.module("fc", "Linear")
    y = model.linear("fc", x, WIDTH)
    bias = model.modules["fc"]["parameters"][1][1]
    weight = model.modules["fc"]["parameters"][0][1]
    y = model.called(
        "fc", y, model.op("fc", "matmul", "aten::addmm", (y, weight, bias), (BATCH, WIDTH), {"depth": WIDTH})
    )
    model.module("again", "Linear", same_as="fc")
    model.holds("again", "weight", weight)
    model.holds("again", "bias", bias)
    model.module("embed", "Embedding")
    table = model.param("embed", "weight", CLASSES, WIDTH)
    model.called("embed", y, y)
    model.module("lm_head", "Linear")
    model.holds("lm_head", "weight", table)
    model.module("twister", "Twist")
    y = model.called("twister", y, model.op("twister", "unknown", "mylib::twist", (y,), (BATCH, WIDTH)))
    y = model.op("", "unknown", "mylib::where", (y,), (None, WIDTH))
    y = model.op("", "elementwise", "aten::mul", (y,), (BATCH, WIDTH), {"fn": "mul"}, repeat=5)
    y = model.linear("lm_head", y, CLASSES, weight=table, bias=False)
    model.module("frozen", "Linear")
    frozen = model.param("frozen", "weight", CLASSES, CLASSES, trainable=False)
    model.buffer("frozen", "scale", CLASSES)
    y = model.called(
        "frozen", y, model.op("frozen", "matmul", "aten::mm", (y, frozen), (BATCH, CLASSES), {"depth": CLASSES})
    )
    model.module("spare", "ModuleList")
    for number in range(4):
        path = model.module(f"spare.{number}", "Linear")
        model.param(path, "weight", WIDTH, WIDTH)
        model.param(path, "bias", WIDTH)
    model.called("", x, y)
    model.op("lm_head", "matmul", "aten::mm", (y, table), (BATCH, WIDTH), {"depth": CLASSES}, phase="backward")
    return model.report(y, notes=(Note("routing", "routing is assumed to be balanced", "twister"),), mode="train")


def deep_model(depth: int = 12) -> Report:
    """Long names, one inside the other, and a shape that needs much room."""
    model = Model("DeepNetworkWithAVeryLongClassName")
    x = model.input("x", 1, 2, 3, 4, 5, 6, 7, 8)
    path = ""
    for level in range(depth):
        path = f"{path}.level_{level}_with_a_long_name" if path else "level_0_with_a_long_name"
        model.module(path, f"ContainerOfLevelNumber{level}")
    y = model.linear(path, x, 8)
    model.called("", x, y)
    return model.report(y)


def big_model(modules: int, ops: int) -> Report:
    """`modules` in blocks of ten, and `ops` operators."""
    model = Model("Big")
    y = model.input("x", BATCH, WIDTH)
    leaves = []
    for block in range(modules // 10):
        parent = model.module(f"block{block}", "Block")
        for place in range(9):
            path = model.module(f"{parent}.fc{place}", f"Linear{place}")
            leaves.append((path, model.param(path, "weight", WIDTH, WIDTH)))
    for number in range(ops):
        path, weight = leaves[number % len(leaves)]
        y = model.op(path, "matmul", f"aten::mm{number % 40}", (y, weight), (BATCH, WIDTH), {"depth": WIDTH})
    return model.report(y)


@pytest.fixture(scope="session")
def plain() -> Report:
    return plain_model()


@pytest.fixture(scope="session")
def long() -> Report:
    """The plain one with more blocks than a reader wants to see."""
    return plain_model(40)


@pytest.fixture(scope="session")
def odd() -> Report:
    return odd_model()


@pytest.fixture(scope="session")
def deep() -> Report:
    return deep_model()


@pytest.fixture(scope="session")
def big() -> Callable[[int, int], Report]:
    return big_model
