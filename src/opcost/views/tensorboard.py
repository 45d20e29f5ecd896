"""A report for TensorBoard: a graph whose nodes carry their cost, what to colour it by, and the report as text.

TensorBoard colours a graph by memory and by time. Here memory is what a node brings into being (its new outputs, or the
parameter's own bytes), and time is FLOPs: one microsecond for each thousand, the operators one after the other. The tag
under which TensorBoard offers the colours says so.

A node's name is its scope and a last word, with slashes between: `layer1/0/conv1/convolution`. Scopes come from the
module path alone; nothing else in a framework's name can open one.
"""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from opcost.core.escaping import printable
from opcost.core.files import write_bytes
from opcost.core.graph import TensorSpec
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.report import Parameter, Report, Row
from opcost.core.units import format_bytes
from opcost.errors import MissingFramework, WriteError
from opcost.views.view import Build, View, ViewOptions

FLOPS_PER_MICROSECOND = 1000
COLOURS = f"cost (1 us = {FLOPS_PER_MICROSECOND} FLOPs)"  # the tag on TensorBoard's graph page
TEXT = "report"
"""The tag on the page of texts. Scalars would have pages before the graph, and TensorBoard opens the first that has any."""
PRODUCER = 22  # the version of the graph format; TensorBoard needs no newer one
LARGEST = 2**63 - 1
"""What TensorBoard holds as a number. A larger attribute is written as text, a larger extent or cost cut to this."""


# -- the graph ----------------------------------------------------------------------------------------------------------


_NOT_IN_A_NAME = re.compile(r"[^\w.\-]+")
_MANIFOLD = ("elementwise", "reduce", "pool")  # kinds of which some frameworks have one operator for many functions


class DataflowNode(NamedTuple):
    """An operator, input, parameter, constant or output; `row` or `parameter` is set where it is one."""

    name: str
    op: str
    inputs: tuple[str, ...]
    """The nodes that it reads, by name; with a colon and its number where it is not the first output."""
    outs: tuple[TensorSpec, ...]
    row: Row | None = None
    parameter: Parameter | None = None


class Dataflow:
    """The nodes of a report: each after those that it reads."""

    def __init__(self, report: Report) -> None:
        # A device in TensorBoard's words; a model from a file has none
        kind, _, number = printable(report.meta.get("device", "")).partition(":")
        self.device = f"/device:{kind.upper()}:{number or 0}" if kind else "/device:NONE:0"
        self.nodes: list[DataflowNode] = []
        self._made: dict[int, str] = {}  # which output of which node a tensor is, as a node that reads it says
        paths = {module.path for module in report.modules}
        # A node with the name of a scope would be drawn inside it, so no node gets one.
        self._taken = {_scope(module.path) for module in report.modules}
        self._numbers: dict[str, int] = {}  # the last number that was added to a name to make it unique
        readers: dict[int, str] = {}
        for row in report.rows:
            for value in row.op.inputs:
                readers.setdefault(value, row.op.module)
        for (name, spec), value in zip(report.inputs, report.input_values, strict=False):
            self._add(name or "input", "Input", (), (spec,), gives=(value,))
        for parameter in report.parameters:  # in the scope of its module, or where it is first read
            path, _, name = parameter.name.rpartition(".")
            if path not in paths:
                path = next((readers[v] for v in parameter.values if v in readers), "")
                name = parameter.name
            op = "Buffer" if parameter.buffer else "Parameter"
            self._add(name, op, (), (parameter.spec,), scope=_scope(path), parameter=parameter)
            self._made |= dict.fromkeys(parameter.values, self.nodes[-1].name)
        for row in report.rows:
            self._operator(row)
        for value, spec in zip(report.output_values, report.outputs, strict=False):
            self._add("output", "Output", self._read((value,), (spec,), ""), (spec,))

    def _add(
        self, name: str, op: str, inputs: tuple[str, ...], outs: tuple[TensorSpec, ...], *, scope: str = "",
        gives: tuple[int, ...] = (), **about: Any,
    ) -> None:  # fmt: skip
        # Its own name, or `2.name` in the same scope: TensorBoard draws name1, name2, ... as one row of nodes
        before, word = f"{scope}/" if scope else "", _word(name)
        full, number = f"{before}{word}", self._numbers.get(f"{before}{word}", 1)
        while full in self._taken:
            number += 1
            full = f"{before}{number}.{word}"
        self._numbers[f"{before}{word}"] = number
        self._taken.add(full)
        for place, value in enumerate(gives):
            self._made[value] = f"{full}:{place}" if place else full
        self.nodes.append(DataflowNode(full, op, inputs, outs, **about))

    def _operator(self, row: Row) -> None:
        op = row.op
        scope = _scope(op.module)
        if op.phase != "forward":
            scope = f"{op.phase}/{scope}".rstrip("/")
        if op.kind == "view" and op.attrs.get("shapes"):  # kept in a box of its own, beside what is computed
            scope = f"{scope}/shapes".lstrip("/")
        inputs = self._read(op.inputs, row.ins, scope)
        # The framework's word for an operator, and what it does where the word leaves that open: `Elemwise.RELU`
        word, mode = op.raw.rpartition("::")[2], op.all_attrs.get("mode")
        name = f"{word}.{mode}" if op.kind in _MANIFOLD and isinstance(mode, str) else word
        self._add(name, op.raw, inputs, row.outs, scope=scope, gives=op.outputs, row=row)

    def _read(self, values: tuple[int, ...], specs: tuple[TensorSpec, ...], scope: str) -> tuple[str, ...]:
        """Where tensors come from; one without a maker is a constant beside its first reader."""
        for value, spec in zip(values, specs, strict=False):
            if value not in self._made:
                self._add("constant", "Const", (), (spec,), scope=scope, gives=(value,))
        return tuple(self._made[value] for value in values if value in self._made)


def _scope(path: str) -> str:
    return "/".join(map(_word, path.split("."))) if path else ""


def _word(text: str) -> str:
    return _NOT_IN_A_NAME.sub("_", text) or "_"


# -- the log ------------------------------------------------------------------------------------------------------------


class TensorBoardView(View):
    """An event file for a log folder; as text, the graph alone in the form that TensorBoard can upload (.pbtxt)."""

    def save(self, report: Report, log_dir: str | os.PathLike[str], **options: Any) -> str:
        """Write an event file into a folder, which is made where it is missing; returns the file's path."""
        report, protos = self.data(report, **options), _protos()
        content = BytesIO()
        writer = protos.RecordWriter(content)
        now = time.time()
        with garbage_collector_paused():
            for event in [protos.Event(wall_time=now, **each).SerializeToString() for each in _events(report, protos)]:
                writer.write(event)
        folder = Path(log_dir)
        new = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A unique name of TensorBoard's own kind; the logs of a process sort in their order
            seconds, rest = divmod(time.time_ns(), 10**9)
            origin = f"{socket.gethostname()}.{os.getpid()}"
            file = folder / f"events.out.tfevents.{seconds:010d}.{origin}.{rest:09d}.{os.urandom(8).hex()}"
            write_bytes(file, content.getvalue())
        except BaseException as exc:
            for each in new:
                with suppress(OSError):
                    each.rmdir()
            if isinstance(exc, OSError):
                raise WriteError(f"the log cannot be written to {folder}: {exc.strerror or exc}") from exc
            raise
        return str(file)


def _write(report: Report, options: ViewOptions) -> str:
    protos = _protos()
    return str(protos.as_text(_graph(Dataflow(report), protos)))


def _facts(node: DataflowNode) -> Iterator[tuple[str, int | str]]:
    """What the panel of a node says, besides its shapes."""
    if node.outs:
        yield "dtype", ", ".join(dict.fromkeys(spec.dtype for spec in node.outs))
        if all(spec.known for spec in node.outs):
            yield "size", format_bytes(sum(spec.nbytes for spec in node.outs))
    if node.parameter is not None:
        parameter = node.parameter
        yield "names", ", ".join(parameter.names)
        if parameter.spec.known:
            yield "params", parameter.spec.numel
        yield "trainable", parameter.trainable
        yield "used", parameter.used
    if node.row is None:
        return
    op, cost = node.row.op, node.row.cost
    yield "kind", op.kind
    if attrs := op.all_attrs:
        yield "params", ", ".join(f"{name}={value}" for name, value in attrs.items())
    if op.repeat != 1:
        yield "repeat", op.repeat
    yield "activations", node.row.activations * op.repeat
    if cost is None:
        yield "uncounted", True
        return
    for name in ("flops", "macs", "bytes_read", "bytes_written"):
        yield name, getattr(cost, name) * op.repeat


def _protos() -> SimpleNamespace:
    """TensorBoard's own messages, which take nested dictionaries; imported when something is written."""
    try:
        from google.protobuf.text_format import MessageToString
        from tensorboard.compat.proto.attr_value_pb2 import AttrValue
        from tensorboard.compat.proto.config_pb2 import RunMetadata
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.graph_pb2 import GraphDef
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as exc:
        hint = "pip install 'opcost[tensorboard]'"
        raise MissingFramework(f"writing for TensorBoard needs the package tensorboard ({exc})", hint=hint) from exc
    messages = {"AttrValue": AttrValue, "RunMetadata": RunMetadata, "Event": Event, "GraphDef": GraphDef}
    return SimpleNamespace(as_text=MessageToString, RecordWriter=RecordWriter, **messages)


def _events(report: Report, protos: SimpleNamespace) -> Iterator[dict[str, Any]]:
    """The events of a log file, in the order in which TensorBoard wants them."""
    flow = Dataflow(report)
    # Memory and FLOPs of every node, as memory used and time taken
    stats = []
    start = 1  # a start at zero is left out on the way to the browser, and missing there
    for node in flow.nodes:
        cost = None if node.row is None else node.row.cost
        flops = 0 if cost is None or node.row is None else cost.flops * node.row.op.repeat
        micros = min(-(-flops // FLOPS_PER_MICROSECOND), LARGEST - start)
        # What the node brings into being, and in which kind of memory
        allocator = {"Input": "inputs", "Const": "constants", "Output": "outputs"}.get(node.op, "parameters")
        used = 0 if node.op == "Output" else sum(spec.nbytes for spec in node.outs if spec.known)
        if node.row is not None:
            allocator, used = "activations", node.row.activation_bytes * node.row.op.repeat
        outputs = [{"slot": n, "tensor_description": {"shape": _dims(spec)}} for n, spec in enumerate(node.outs)]
        memory = [{"allocator_name": allocator, "total_bytes": min(used, LARGEST)}]
        times = {"all_start_micros": start, "all_end_rel_micros": micros, "op_end_rel_micros": micros}
        stats.append({"node_name": node.name, **times, "memory": memory, "output": outputs})
        start += micros
    metadata = protos.RunMetadata(step_stats={"dev_stats": [{"device": flow.device, "node_stats": stats}]})
    yield {"file_version": "brain.Event:2"}
    yield {"graph_def": _graph(flow, protos).SerializeToString()}
    yield {"tagged_run_metadata": {"tag": COLOURS, "run_metadata": metadata.SerializeToString()}}
    tensor = {"dtype": "DT_STRING", "string_val": [report.render("md").encode()]}
    kind = {"plugin_data": {"plugin_name": "text"}, "data_class": "DATA_CLASS_TENSOR"}
    yield {"step": 0, "summary": {"value": [{"tag": TEXT, "tensor": tensor, "metadata": kind}]}}


def _graph(flow: Dataflow, protos: SimpleNamespace) -> Any:
    def attribute(fact: int | str) -> Any:
        if isinstance(fact, bool):
            return protos.AttrValue(b=fact)
        if isinstance(fact, int) and fact <= LARGEST:
            return protos.AttrValue(i=fact)
        return protos.AttrValue(s=printable(str(fact)).encode())

    def attributes(node: DataflowNode) -> dict[str, Any]:
        shapes = protos.AttrValue(list={"shape": [_dims(spec) for spec in node.outs]})
        return {"_output_shapes": shapes} | {name: attribute(fact) for name, fact in _facts(node)}

    nodes = []
    for node in flow.nodes:
        named = {"name": node.name, "op": printable(node.op), "device": flow.device}
        nodes.append({**named, "input": node.inputs, "attr": attributes(node)})
    return protos.GraphDef(node=nodes, versions={"producer": PRODUCER})


def _dims(spec: TensorSpec) -> dict[str, Any]:
    if spec.shape is None:
        return {"unknown_rank": True}
    return {"dim": [{"size": -1 if extent is None else min(extent, LARGEST)} for extent in spec.shape]}


TENSORBOARD = TensorBoardView(name="tensorboard", builds={"report": Build("", lambda report, _: report)}, write=_write)
