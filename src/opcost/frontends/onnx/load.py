"""From an ONNX file to a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opcost.core.checked import Bad
from opcost.core.graph import Graph
from opcost.core.reading import length_of, opened
from opcost.errors import InputError, SourceError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.nodes.inputs import given_inputs
from opcost.frontends.nodes.model import Declared
from opcost.frontends.onnx.model import Model, read_model
from opcost.frontends.onnx.walk import OnnxWalk
from opcost.frontends.open_sizes import Usual
from opcost.frontends.options import CountOptions, refuse_running
from opcost.frontends.protobuf import Span

OLDEST = 7
"""The first version of the operators that is read."""


_DETECTING = frozenset(("NonMaxSuppression", "RoiAlign", "MaxRoiPool", "EfficientNMS_TRT", "BatchedNMS_TRT"))
"""Operators of models that find objects."""


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    refuse_running(options, f"{path} is an ONNX model")
    try:
        with opened(path) as file:
            model = read_model(Span(file, 0, length_of(file)))
        return graph_of(model, options, path.name)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{path} is not an ONNX model that can be read: {exc}") from exc


def graph_of(model: Model, options: CountOptions, source: str, walks: type[OnnxWalk] = OnnxWalk) -> Graph:
    """The graph of a model on the inputs that were asked for; `walks` is for who wants to see more of the way."""
    version = model.opsets.get("ai.onnx", OLDEST)
    if version < OLDEST:
        raise SourceError(f"its operators are of version {version}, and versions from {OLDEST} on are read")
    inputs = [_named(declared) for declared in model.graph.inputs]
    _check_batch(inputs, options.sizes.batch)
    maker = GraphBuilder()
    usual = Usual.of(model.metadata, detector=any(node.op in _DETECTING for node in model.graph.nodes))
    given = given_inputs(inputs, options, maker, usual)
    env = {declared.name: made for declared, made in zip(inputs, given.made, strict=True)}
    walk = walks(model, maker, given.sizes, trusted=given.trusted)
    outputs = walk.graph(model.graph, env)
    meta = {"version": f"opset {version}", "mode": "eval"}
    if model.producer:
        meta["producer"] = model.producer
    return walk.finished(source, meta, model.graph.name, given.made, outputs)


def _named(declared: Declared) -> Declared:
    """The input with a name for every dimension that is left open: `x[2]` where the file has none."""
    if declared.shape is None:
        return declared
    extents = enumerate(declared.shape)
    return declared._replace(shape=tuple(f"{declared.name}[{at}]" if n is None else n for at, n in extents))


def _check_batch(inputs: Sequence[Declared], batch: int | None) -> None:
    """Refuse another batch where the file fixes it: shapes inside the file hold for that one only."""
    first = {declared.name: declared.shape[0] for declared in inputs if declared.shape}
    fixed = {name: extent for name, extent in first.items() if isinstance(extent, int)}
    if batch is not None and fixed and len(fixed) == len(first) and batch not in fixed.values():
        name, extent = next(iter(fixed.items()))
        raise InputError(
            f"dimension 0 of the input {name!r} is fixed at {extent} in the file, not {batch}",
            hint="export the model with a dynamic batch (dynamic_shapes, dynamic_axes), or count it without --batch",
        )
