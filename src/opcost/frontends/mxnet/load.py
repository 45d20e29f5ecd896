"""From a checkpoint, or a symbol's text and its weights, to a Graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from opcost.core.dtype import BITS
from opcost.core.graph import Graph, Note
from opcost.core.shapes import Mismatch, Shape, complete, merge, text
from opcost.core.shapes import known as extents_of
from opcost.errors import InputError, SourceError
from opcost.frontends.inputs import requested_inputs
from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.build import Built, build
from opcost.frontends.mxnet.checkpoint import find_checkpoint
from opcost.frontends.mxnet.dialect import upgraded
from opcost.frontends.mxnet.infer import infer
from opcost.frontends.mxnet.ops.table import Inferred
from opcost.frontends.mxnet.params import Array, read_params
from opcost.frontends.mxnet.roles import Roles, assign
from opcost.frontends.mxnet.symbol import Node, Symbol, read_symbol
from opcost.frontends.options import CountOptions

_FORWARD_ONLY = "count the forward pass; a symbol does not say how it is trained"


class Saved(NamedTuple):
    """A weight as a parameter file, or a live model, has it."""

    shape: tuple[int, ...]
    dtype: str
    state: bool
    """It is an auxiliary state."""
    trainable: bool = True


class Opened(NamedTuple):
    """A symbol with what is known of its weights, wherever both came from."""

    symbol: Symbol
    saved: Mapping[str, Saved]
    source: str
    options: CountOptions
    notes: tuple[Note, ...] = ()
    meta: Mapping[str, str] = {}


class Worked(NamedTuple):
    """A symbol with all shapes worked out and all variables told apart."""

    symbol: Symbol
    inferred: Inferred
    roles: Roles
    notes: tuple[Note, ...]


def load_graph(opened: Opened) -> Graph:
    """The graph of an opened model."""
    return build_opened(opened).graph


def build_opened(opened: Opened) -> Built:
    """The graph of an opened model, with the node that each operator comes from."""
    options = opened.options
    if options.backward or options.optimizer is not None:
        raise InputError("the backward pass of an MXNet symbol cannot be counted", hint=_FORWARD_ONLY)
    training = options.mode == "train"
    worked = work_out(opened.symbol, options, opened.saved, training=training)
    notes = (*opened.notes, *worked.notes)
    return build(
        worked.symbol,
        worked.inferred,
        worked.roles,
        source=opened.source,
        notes=notes,
        meta=opened.meta,
        training=training,
    )


def open_file(path: Path, options: CountOptions) -> Opened:
    """A checkpoint on disk."""
    checkpoint = find_checkpoint(path, options.own.get("params"), options.own.get("epoch"))
    symbol = upgraded(read_symbol(checkpoint.symbol))
    saved: dict[str, Saved] = {}
    notes: list[Note] = []
    meta: dict[str, str] = {}
    if checkpoint.params is not None:
        saved = named_arrays(read_params(checkpoint.params))
        names = {node.name for node in symbol.variables}
        if names.isdisjoint(saved) and saved:
            told = f"none of the {len(saved)} names in {checkpoint.params.name} stands in {checkpoint.symbol.name}"
            if checkpoint.chosen:
                raise SourceError(
                    told, hint="save the model with `export` or `save_checkpoint`, which keep the symbol's names"
                )
            notes.append(Note("parameters-ignored", f"{told}, so it was not used"))
            saved = {}
        else:
            meta["parameters"] = checkpoint.params.name
    source = checkpoint.symbol.name.removesuffix(".json").removesuffix("-symbol")
    return Opened(symbol, saved, source, options, tuple(notes), meta)


def named_arrays(arrays: Iterable[Array]) -> dict[str, Saved]:
    """The arrays of a file by the names that a symbol uses; `arg:` and `aux:` tell weights from auxiliary states."""
    found: dict[str, Saved] = {}
    for array in arrays:
        kind, colon, rest = array.name.partition(":")
        name = rest if colon and kind in ("arg", "aux") else array.name
        if name and array.shape is not None:
            found[name] = Saved(array.shape, array.dtype, kind == "aux" and bool(colon))
    return found


def work_out(
    symbol: Symbol,
    options: CountOptions,
    saved: Mapping[str, Saved],
    *,
    training: bool = False,
    complete: bool = True,
) -> Worked:
    """Tell inputs from weights and work out all shapes and types; without `complete`, those that can be known."""
    likely = _likely_inputs(symbol, saved)
    variables = {node.name: node for node in symbol.variables}
    stored = _stored((variables[name] for name in likely), symbol) if any(options.sizes) else {}
    asked = requested_inputs(options, likely, variables, stored)
    named: Mapping[str, Shape] = asked.shapes
    roles = _roles(symbol, named, saved)
    known, types, origins = _start(symbol, named, asked.dtypes, saved)
    inferred = infer(symbol, known, types, training=training, names=origins)
    if complete:
        _check_inputs(symbol, inferred, roles)
    return Worked(symbol, inferred, roles, tuple(_notes(symbol, inferred, roles, saved)))


def _stored(inputs: Iterable[Node], symbol: Symbol) -> dict[str, tuple[int, ...]]:
    """The shapes that the symbol itself declares for its inputs, where they are whole."""
    declared = {node.name: _declared(node, symbol)[0] for node in inputs}
    return {name: extents_of(shape) for name, shape in declared.items() if complete(shape)}


def _roles(symbol: Symbol, named: Collection[str], saved: Mapping[str, Saved]) -> Roles:
    states = {name for name, array in saved.items() if array.state}
    roles = assign(symbol, named, saved, states)
    untrained = {node.id for node in symbol.variables if node.name in saved and not saved[node.name].trainable}
    return Roles(roles.inputs, roles.weights, roles.states, roles.frozen | untrained, roles.side)


def _start(
    symbol: Symbol, named: Mapping[str, Shape], typed: Mapping[str, str], saved: Mapping[str, Saved]
) -> tuple[dict[int, Shape], dict[int, str | None], dict[int, str]]:
    """What is known of the variables before anything is worked out, and who says so."""
    shapes: dict[int, Shape] = {}
    types: dict[int, str | None] = {}
    origins: dict[int, str] = {}
    for node in symbol.variables:
        shape, dtype = _declared(node, symbol)
        origin = "by the symbol" if shape is not None else ""
        array = saved.get(node.name)
        if array is not None:
            shape, origin = _both(node, shape, array.shape, "the parameter file"), "in the parameter file"
            dtype = array.dtype
        if node.name in named:
            shape, origin = named[node.name], "as given"
        dtype = typed.get(node.name, dtype)
        if shape is not None:
            shapes[node.id] = shape
            origins[node.id] = origin
        if dtype is not None:
            types[node.id] = dtype
    return shapes, types, origins


def _both(node: Node, declared: Shape, seen: Shape, where: str) -> Shape:
    try:
        return merge(declared, seen)
    except Mismatch as exc:
        raise SourceError(
            f"{node.name!r} is {text(declared)} in the symbol and {text(seen)} in {where}",
            hint="the two files do not belong together",
        ) from exc


def _declared(node: Node, symbol: Symbol) -> tuple[Shape, str | None]:
    """The shape and type that a variable carries in the file."""
    shape: Shape = None
    dtype: str | None = None
    unknown = -1 if symbol.np_shape else 0
    try:
        if "__shape__" in node.attrs:
            extents = node.attrs.integers("__shape__")
            if extents or symbol.np_shape:
                shape = tuple(None if extent == unknown or extent < 0 else extent for extent in extents)
        if node.attrs.raw.get("__dtype__", "-1") not in ("-1", "None"):
            dtype = node.attrs.dtype("__dtype__")
    except AttributeFault as exc:
        raise SourceError(f"{node}: {exc.message}") from exc
    return shape, dtype if dtype in BITS else None


def _likely_inputs(symbol: Symbol, saved: Mapping[str, Saved]) -> list[str]:
    """The inputs in the order of the file; labels and states come last."""
    roles = _roles(symbol, (), saved)
    inputs = [*(i for i in roles.inputs if i not in roles.side), *(i for i in roles.inputs if i in roles.side)]
    return [symbol.nodes[index].name for index in inputs]


def _check_inputs(symbol: Symbol, inferred: Inferred, roles: Roles) -> None:
    """Raise if an input's shape is still not known; labels and states are asked for only where nothing else is missing."""
    unknown = [index for index in roles.inputs if not complete(inferred.shapes[index][0])]
    missing = [index for index in unknown if index not in roles.side] or unknown
    if not missing:
        return
    told = []
    for index in missing:
        shape = inferred.shapes[index][0]
        told.append(f"{symbol.nodes[index].name!r}{f' ({text(shape)})' if shape is not None else ''}")
    name = symbol.nodes[missing[0]].name
    raise InputError(
        f"no shape was given for the model's input{'s' if len(told) > 1 else ''} {', '.join(told)}",
        hint=f"give it: --input {name}:1x3x224x224, or shapes={{{name!r}: (1, 3, 224, 224)}}",
    )


def _notes(symbol: Symbol, inferred: Inferred, roles: Roles, saved: Mapping[str, Saved]) -> Iterable[Note]:
    unknown = [symbol.nodes[i].name for i in (*roles.weights, *roles.states) if not complete(inferred.shapes[i][0])]
    if unknown:
        yield Note("unknown-weights", f"the shapes of {_some(unknown)} are not known, so they are not in the totals")
    if not saved:
        return
    names = {node.name for node in symbol.variables}
    absent = [symbol.nodes[i].name for i in (*roles.weights, *roles.states) if symbol.nodes[i].name not in saved]
    if absent:
        yield Note(
            "weights-not-in-file", f"the parameter file does not hold {_some(absent)}; their shapes were worked out"
        )
    extra = [name for name in saved if name not in names]
    if extra:
        yield Note("unused-arrays", f"the parameter file also holds {_some(extra)}, which the symbol does not use")


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:4])
    return listed if len(names) <= 4 else f"{listed} and {len(names) - 4} more"
