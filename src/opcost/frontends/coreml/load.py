"""From a Core ML model to a graph."""

from __future__ import annotations

from pathlib import Path

from opcost.core.checked import Bad
from opcost.core.graph import Graph
from opcost.core.reading import length_of, opened
from opcost.errors import SourceError, UnknownName
from opcost.frontends.building import GraphBuilder
from opcost.frontends.coreml import MANIFEST
from opcost.frontends.coreml.model import Model, read_model
from opcost.frontends.coreml.package import model_of
from opcost.frontends.coreml.walk import CoremlWalk
from opcost.frontends.nodes.inputs import given_inputs
from opcost.frontends.nodes.model import Declared
from opcost.frontends.options import CountOptions, refuse_running
from opcost.frontends.protobuf import Span


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    refuse_running(options, f"{path} is a Core ML model")
    name = next((part for part in reversed(path.parts) if part.endswith(".mlpackage")), path.name)
    try:
        with opened(model_of(path) if path.name == MANIFEST else path) as file:
            model = read_model(Span(file, 0, length_of(file)))
        return graph_of(model, options, name)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{path} is not a Core ML model that can be read: {exc}") from exc


def graph_of(model: Model, options: CountOptions, source: str) -> Graph:
    """The graph of one function of a model on the inputs that were asked for."""
    function = str(options.own.get("function", "") or model.main)
    if function not in model.graphs:
        raise UnknownName("function", function, model.graphs)
    graph = model.graphs[function]
    maker = GraphBuilder()
    inputs = [_input(declared, model) for declared in graph.inputs]
    given = given_inputs(inputs, options, maker)
    walk = CoremlWalk(maker, trusted=given.trusted)
    env = {declared.name: made for declared, made in zip(inputs, given.made, strict=True)}
    outputs = walk.graph(graph, env)
    meta = {"version": f"specification {model.version}", "mode": "eval"}
    return walk.finished(source, meta, function, given.made, outputs)


def _input(declared: Declared, model: Model) -> Declared:
    """An input of a function, whose open sizes are those that the model's description says."""
    described = model.inputs.get(declared.name)
    shape = declared.shape
    if described is not None and described.shape is not None and (shape is None or len(shape) == len(described.shape)):
        return declared._replace(shape=described.shape)
    if shape is not None:
        shape = tuple(f"{declared.name}[{axis}]" if n is None else n for axis, n in enumerate(shape))
    return declared._replace(shape=shape)
