"""The report for TensorBoard: a graph whose nodes carry their cost, what to colour it by, and the totals.

TensorBoard colours a graph by memory and by time. Here memory is what a node brings into being (its new outputs, or the
parameter's own bytes), and time stands for FLOPs: one microsecond for each thousand, the operators one after the other.
The tag under which TensorBoard offers the colours says so.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.collector import without_collector
from opcost.core.graph import TensorSpec
from opcost.core.harmless import printable
from opcost.core.report import STATS, Report
from opcost.core.units import format_bytes
from opcost.core.writing import write_bytes
from opcost.errors import MissingFramework, WriteError
from opcost.views.dataflow import Node, dataflow
from opcost.views.view import View

FLOPS_PER_MICROSECOND = 1000
COLOURS = f"cost (1 us = {FLOPS_PER_MICROSECOND} FLOPs)"
"""The tag that TensorBoard's graph page offers beside the graph itself."""
TOTALS = "totals"
PRODUCER = 22
"""The version of the graph format; TensorBoard asks for no newer one."""
LARGEST = 2**63 - 1
"""What TensorBoard holds as a number. A larger attribute is written as text, a larger extent or cost cut to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardOptions:
    """There is nothing to choose: TensorBoard itself asks what to show."""


class Log(NamedTuple):
    """What is written: the nodes, where they run, and a number for each quantity."""

    nodes: tuple[Node, ...]
    device: str
    totals: tuple[tuple[str, int], ...]


class TensorBoardView(View[Report, TensorBoardOptions, Log]):
    """An event file for a log folder; as text, the graph alone in the form that TensorBoard can upload (.pbtxt)."""

    def save(self, report: Report, log_dir: str | os.PathLike[str], **options: Any) -> str:
        """Write an event file into a folder, which is made where it is missing; returns the file's path."""
        chosen = self.choose(**options)
        protos = _Protos()
        with without_collector():
            events = [event.SerializeToString() for event in protos.events(self.build(report, chosen))]
        content = BytesIO()
        writer = protos.record_writer(content)
        for event in events:
            writer.write(event)
        folder = Path(log_dir)
        new = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / _file_name()
            write_bytes(file, content.getvalue())
        except BaseException as exc:
            for each in new:
                with suppress(OSError):
                    each.rmdir()
            if isinstance(exc, OSError):
                raise WriteError(f"the log cannot be written to {folder}: {exc.strerror or exc}") from exc
            raise
        return str(file)


def _build(report: Report, options: TensorBoardOptions) -> Log:
    totals = [(f"{TOTALS}/{name}", getattr(report.totals, name)) for name in STATS]
    if report.peak_bytes is not None:
        totals.append((f"{TOTALS}/peak_bytes", report.peak_bytes))
    return Log(dataflow(report), _device(printable(report.meta.get("device", ""))), tuple(totals))


def _write(log: Log, options: TensorBoardOptions) -> str:
    protos = _Protos()
    return str(protos.as_text(protos.graph(log)))


def _file_name() -> str:
    """A name of TensorBoard's own kind that nobody else has; by name, the logs of a process stand in their order."""
    seconds, rest = divmod(time.time_ns(), 10**9)
    origin = f"{socket.gethostname()}.{os.getpid()}"
    return f"events.out.tfevents.{seconds:010d}.{origin}.{rest:09d}.{os.urandom(8).hex()}"


def _device(name: str) -> str:
    """A device in TensorBoard's words; a model from a file lies nowhere yet."""
    kind, _, number = name.partition(":")
    return f"/device:{kind.upper()}:{number or 0}" if kind else "/device:NONE:0"


def _memory(node: Node) -> tuple[str, int]:
    """What a node brings into being, and in which kind of memory."""
    if node.row is not None:
        return "activations", node.row.activation_bytes * node.row.op.repeat
    held = sum(spec.nbytes for spec in node.outs if spec.known)
    match node.op:
        case "Output":
            return "outputs", 0
        case "Input":
            return "inputs", held
        case "Const":
            return "constants", held
        case _:
            return "parameters", held


def _facts(node: Node) -> Iterator[tuple[str, int | str | bool]]:
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
    if told := op.told:
        yield "params", ", ".join(f"{name}={value}" for name, value in told.items())
    if op.repeat != 1:
        yield "repeat", op.repeat
    yield "activations", node.row.activations * op.repeat
    if cost is None:
        yield "uncounted", True
        return
    cost *= op.repeat
    yield "flops", cost.flops
    yield "macs", cost.macs
    yield "bytes_read", cost.bytes_read
    yield "bytes_written", cost.bytes_written


class _Protos:
    """TensorBoard's own message classes, imported when something is written."""

    def __init__(self) -> None:
        try:
            from google.protobuf import text_format
            from tensorboard.compat.proto import (
                attr_value_pb2,
                config_pb2,
                event_pb2,
                graph_pb2,
                node_def_pb2,
                step_stats_pb2,
                summary_pb2,
                tensor_description_pb2,
                tensor_pb2,
                tensor_shape_pb2,
                types_pb2,
                versions_pb2,
            )
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as exc:
            raise MissingFramework(
                f"writing for TensorBoard needs the package tensorboard ({exc})",
                hint="pip install 'opcost[tensorboard]'",
            ) from exc
        self.as_text = text_format.MessageToString
        self.record_writer = RecordWriter
        self._attr, self._shape = attr_value_pb2, tensor_shape_pb2
        self._graph, self._node, self._versions = graph_pb2, node_def_pb2, versions_pb2
        self._stats, self._config, self._described = step_stats_pb2, config_pb2, tensor_description_pb2
        self._event, self._summary = event_pb2, summary_pb2
        self._tensor, self._types = tensor_pb2, types_pb2

    def events(self, log: Log) -> Iterator[Any]:
        """All that a log file holds, in the order in which TensorBoard wants it."""
        now = time.time()
        make = self._event.Event
        yield make(wall_time=now, file_version="brain.Event:2")
        yield make(wall_time=now, graph_def=self.graph(log).SerializeToString())
        metadata = self._event.TaggedRunMetadata(tag=COLOURS, run_metadata=self.run_metadata(log).SerializeToString())
        yield make(wall_time=now, tagged_run_metadata=metadata)
        for tag, total in log.totals:
            yield make(wall_time=now, step=0, summary=self._scalar(tag, total))

    def graph(self, log: Log) -> Any:
        nodes = [
            self._node.NodeDef(
                name=node.name,
                op=printable(node.op),
                input=[f"{edge.node}:{edge.output}" if edge.output else edge.node for edge in node.inputs],
                device=log.device,
                attr=self._attrs(node),
            )
            for node in log.nodes
        ]
        return self._graph.GraphDef(node=nodes, versions=self._versions.VersionDef(producer=PRODUCER))

    def _attrs(self, node: Node) -> dict[str, Any]:
        value = self._attr.AttrValue
        attrs = {"_output_shapes": value(list=value.ListValue(shape=[self._dims(spec) for spec in node.outs]))}
        for name, fact in _facts(node):
            if isinstance(fact, bool):
                attrs[name] = value(b=fact)
            elif isinstance(fact, int) and fact <= LARGEST:
                attrs[name] = value(i=fact)
            else:
                attrs[name] = value(s=printable(str(fact)).encode())
        return attrs

    def _dims(self, spec: TensorSpec) -> Any:
        proto = self._shape.TensorShapeProto
        if spec.shape is None:
            return proto(unknown_rank=True)
        return proto(dim=[proto.Dim(size=-1 if extent is None else min(extent, LARGEST)) for extent in spec.shape])

    def run_metadata(self, log: Log) -> Any:
        """Memory and FLOPs of every node, as memory used and time taken."""
        stats = []
        start = 1  # a start at zero is left out on the way to the browser, and missing there
        for node in log.nodes:
            cost = node.row.cost if node.row is not None else None
            flops = cost.flops * node.row.op.repeat if cost is not None and node.row is not None else 0
            micros = min(-(-flops // FLOPS_PER_MICROSECOND), LARGEST - start)
            allocator, used = _memory(node)
            stats.append(
                self._stats.NodeExecStats(
                    node_name=node.name,
                    all_start_micros=start,
                    all_end_rel_micros=micros,
                    op_end_rel_micros=micros,
                    memory=[self._stats.AllocatorMemoryUsed(allocator_name=allocator, total_bytes=min(used, LARGEST))],
                    output=[
                        self._stats.NodeOutput(
                            slot=slot, tensor_description=self._described.TensorDescription(shape=self._dims(spec))
                        )
                        for slot, spec in enumerate(node.outs)
                    ],
                )
            )
            start += micros
        device = self._stats.DeviceStepStats(device=log.device, node_stats=stats)
        return self._config.RunMetadata(step_stats=self._stats.StepStats(dev_stats=[device]))

    def _scalar(self, tag: str, number: int) -> Any:
        """One number; in double precision, which holds every count up to 2⁵³ exactly."""
        metadata = self._summary.SummaryMetadata(
            plugin_data=self._summary.SummaryMetadata.PluginData(plugin_name="scalars"),
            data_class=self._summary.DATA_CLASS_SCALAR,
        )
        tensor = self._tensor.TensorProto(dtype=self._types.DT_DOUBLE, double_val=[number])
        value = self._summary.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
        return self._summary.Summary(value=[value])


REPORT = TensorBoardView(name="tensorboard", options=TensorBoardOptions, build=_build, write=_write)
