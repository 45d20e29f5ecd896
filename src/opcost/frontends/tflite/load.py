"""From a TensorFlow Lite file to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opcost.core.checked import Bad
from opcost.core.graph import Graph
from opcost.errors import SourceError, UnknownName
from opcost.frontends.building import GraphBuilder
from opcost.frontends.nodes.inputs import given_inputs
from opcost.frontends.nodes.model import Declared
from opcost.frontends.options import CountOptions, refuse_running
from opcost.frontends.pages import pages_of
from opcost.frontends.tflite.model import Model, Signature, read_model
from opcost.frontends.tflite.walk import LiteWalk
from opcost.wording import some


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    refuse_running(options, f"{path} is a TensorFlow Lite model")
    try:
        with pages_of(path) as pages:
            model = read_model(pages)
        return graph_of(model, options, path.name)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{path} is not a TensorFlow Lite model that can be read: {exc}") from exc


def graph_of(model: Model, options: CountOptions, source: str) -> Graph:
    """The graph of one signature of a model on the inputs that were asked for."""
    maker = GraphBuilder()
    signature = _signature(model, str(options.own.get("signature", "")), maker)
    lite = model.graphs[signature.graph]
    names = {tensor: name for name, tensor in signature.inputs.items()}
    inputs = []
    for declared in lite.graph.inputs:
        name = names.get(declared.name) or _short(declared.name)
        shape = tuple(f"{name}[{axis}]" if n is None else n for axis, n in enumerate(declared.shape or ()))
        inputs.append(Declared(name, declared.dtype, None if declared.shape is None else shape))
    aliases = {declared.name: each.name for declared, each in zip(lite.graph.inputs, inputs, strict=True)}
    given = given_inputs(inputs, _renamed(options, aliases), maker)
    walk = LiteWalk(model, maker, trusted=given.trusted)
    outputs = walk.run(signature.graph, given.made)
    meta = {"version": f"schema {model.version}", "mode": "eval"}
    if model.description:
        meta["producer"] = model.description
    return walk.finished(source, meta, signature.name, given.made, outputs)


def _signature(model: Model, asked: str, maker: GraphBuilder) -> Signature:
    """The one that is asked for, or the first; a model without any has its first graph."""
    found = {signature.name: signature for signature in model.signatures}
    if asked and asked not in found:
        raise UnknownName("signature", asked, found)
    if len(found) > 1 and not asked:
        text = f"the model has the signatures {', '.join(some([*found]))}, of which the first is counted"
        maker.note("signatures", f"{text}; choose another by --signature NAME")
    chosen = found[asked] if asked else model.signatures[0] if model.signatures else None
    return chosen or Signature("", 0, {})


def _short(name: str) -> str:
    """A name without what TensorFlow puts around it: `serving_default_x:0` is x."""
    return name.removeprefix("serving_default_").partition(":")[0] or name


def _renamed(options: CountOptions, names: Mapping[str, str]) -> CountOptions:
    """Inputs may also be called as their tensors are."""

    def renamed(told: Any) -> Any:
        return (
            {names.get(str(key), str(key)): value for key, value in told.items()} if isinstance(told, Mapping) else told
        )

    return replace(
        options,
        inputs=renamed(options.inputs),
        kwargs=renamed(options.kwargs),
        shapes=renamed(options.shapes),
        dtypes=renamed(options.dtypes),
    )
