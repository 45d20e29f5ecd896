"""From a checkpoint, or from live MXNet objects, to a Graph."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.files import is_nameless
from opcost.core.graph import BITS, Graph, Note
from opcost.core.shapes import Mismatch, Shape, merge, text
from opcost.core.shapes import complete as is_complete
from opcost.core.shapes import known as extents_of
from opcost.errors import InputError, SourceError, some
from opcost.frontends.inputs import arguments, arrays_in, leaves, parse_dtype, requested_inputs
from opcost.frontends.mxnet.build import Built, build
from opcost.frontends.mxnet.infer import Naming, infer
from opcost.frontends.mxnet.ops.table import Inferred
from opcost.frontends.mxnet.params import read_params
from opcost.frontends.mxnet.roles import Roles, Saved, assign, upgraded
from opcost.frontends.mxnet.symbol import Symbol, SymbolNode, parse_symbol, read_symbol
from opcost.frontends.options import CountOptions

_FORWARD_ONLY = "count the forward pass; a symbol does not say how it is trained"


class Opened(NamedTuple):
    """A symbol with what is known of its weights, wherever both came from."""

    symbol: Symbol
    saved: Mapping[str, Saved]
    source: str
    options: CountOptions
    notes: tuple[Note, ...] = ()
    meta: Mapping[str, str] = {}


class Worked(NamedTuple):
    """A symbol with all shapes worked out and the roles of all variables."""

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
    symbol, inferred, roles, notes = work_out(opened.symbol, options, opened.saved, training=training)
    notes = (*opened.notes, *notes)
    return build(symbol, inferred, roles, opened.source, notes=notes, meta=opened.meta, training=training)


def open_file(path: Path, options: CountOptions) -> Opened:
    """A checkpoint on disk."""
    file, params, chosen = find_checkpoint(path, options.own.get("params"), options.own.get("epoch"))
    symbol = upgraded(read_symbol(file))
    saved: dict[str, Saved] = {}
    notes: list[Note] = []
    meta: dict[str, str] = {}
    if params is not None:
        # By the names that a symbol uses; `arg:` marks weights and `aux:` auxiliary states
        for array in read_params(params):
            kind, colon, rest = array.name.partition(":")
            name = rest if colon and kind in ("arg", "aux") else array.name
            if name and array.shape is not None:
                saved[name] = Saved(array.shape, array.dtype, kind == "aux" and bool(colon))
        names = {node.name for node in symbol.variables}
        if names.isdisjoint(saved) and saved:
            found = f"none of the {len(saved)} names in {params.name} is in {file.name}"
            if chosen:
                hint = "save the model with `export` or `save_checkpoint`, which keep the symbol's names"
                raise SourceError(found, hint=hint)
            notes.append(Note("parameters-ignored", f"{found}, so it was not used"))
            saved = {}
        else:
            meta["parameters"] = params.name
    source = file.name.removesuffix(".json").removesuffix("-symbol")
    return Opened(symbol, saved, source, options, tuple(notes), meta)


def work_out(
    symbol: Symbol, options: CountOptions, saved: Mapping[str, Saved], *, training: bool = False, complete: bool = True
) -> Worked:
    """Find the roles of variables, all shapes and types; without `complete`, those that can be known."""
    roles = assign(symbol, (), saved)
    # In the order of the file; labels and states come last
    likely = [symbol.nodes[index].name for index in sorted(roles.inputs, key=roles.side.__contains__)]
    variables = {node.name: node for node in symbol.variables}
    stored: dict[str, tuple[int, ...]] = {}
    if any(options.sizes):  # the shapes that the symbol itself declares for its inputs, where they are whole
        declared = {name: _declared(variables[name], symbol)[0] for name in likely}
        stored = {name: extents_of(shape) for name, shape in declared.items() if is_complete(shape)}
    requested = requested_inputs(options, likely, variables, stored)
    named: Mapping[str, Shape] = requested.shapes
    roles = assign(symbol, named, saved)
    known, types, origins = _start(symbol, named, requested.dtypes, saved)
    inferred = infer(symbol, known, types, training=training, names=origins)
    if complete:
        _check_inputs(symbol, inferred, roles)
    return Worked(symbol, inferred, roles, tuple(_notes(symbol, inferred, roles, saved)))


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
            dtype, origin = array.dtype, "in the parameter file"
            try:
                shape = merge(shape, array.shape)
            except Mismatch as exc:
                both = f"{text(shape)} in the symbol and {text(array.shape)} in the parameter file"
                raise SourceError(f"{node.name!r} is {both}", hint="the two files do not belong together") from exc
        if node.name in named:
            shape, origin = named[node.name], "as given"
        dtype = typed.get(node.name, dtype)
        if shape is not None:
            shapes[node.id] = shape
            origins[node.id] = origin
        if dtype is not None:
            types[node.id] = dtype
    return shapes, types, origins


def _declared(node: SymbolNode, symbol: Symbol) -> tuple[Shape, str | None]:
    """The shape and type that a variable carries in the file."""
    shape: Shape = None
    dtype: str | None = None
    unknown = -1 if symbol.np_shape else 0
    if not node.attrs.raw:
        return shape, dtype
    with Naming(node):
        if "__shape__" in node.attrs:
            extents = node.attrs.integers("__shape__")
            if extents or symbol.np_shape:
                shape = tuple(None if extent == unknown or extent < 0 else extent for extent in extents)
        if node.attrs.raw.get("__dtype__", "-1") not in ("-1", "None"):
            dtype = node.attrs.dtype("__dtype__")
    return shape, dtype if dtype in BITS else None


def _check_inputs(symbol: Symbol, inferred: Inferred, roles: Roles) -> None:
    """Raise if an input's shape is still not known; labels and states are named only where nothing else is missing."""
    unknown = [index for index in roles.inputs if not is_complete(inferred.shapes[index][0])]
    missing = [index for index in unknown if index not in roles.side] or unknown
    if not missing:
        return
    shapes = [(symbol.nodes[index].name, inferred.shapes[index][0]) for index in missing]
    listed = [f"{name!r}" if shape is None else f"{name!r} ({text(shape)})" for name, shape in shapes]
    name = shapes[0][0]
    raise InputError(
        f"no shape was given for the model's input{'s' if len(listed) > 1 else ''} {', '.join(listed)}",
        hint=f"give it: --input {name}:1x3x224x224, or shapes={{{name!r}: (1, 3, 224, 224)}}",
    )


def _notes(symbol: Symbol, inferred: Inferred, roles: Roles, saved: Mapping[str, Saved]) -> Iterable[Note]:
    own = {symbol.nodes[index].name: inferred.shapes[index][0] for index in (*roles.weights, *roles.states)}
    extra = saved.keys() - {node.name for node in symbol.variables}
    for code, names, found in (
        ("unknown-weights", [name for name, shape in own.items() if not is_complete(shape)],
         "the shapes of {} are not known, so they are not in the totals"),
        ("weights-not-in-file", [name for name in own if saved and name not in saved],
         "the parameter file does not hold {}; their shapes were worked out"),
        ("unused-arrays", [name for name in saved if name in extra],
         "the parameter file also holds {}, which the symbol does not use"),
    ):  # fmt: skip
        if names:
            yield Note(code, found.format(", ".join(some(names, 5))))


# -- the two files of a checkpoint: `PREFIX-symbol.json` and `PREFIX-0000.params`, found from either or from the prefix

SYMBOL_ENDING = "-symbol.json"
_EPOCH = re.compile(r"-(\d{4,})$")


def symbol_beside(text: str) -> Path | None:
    """The symbol of a checkpoint that is named by its prefix, if there is one."""
    path = Path(f"{text}{SYMBOL_ENDING}")
    return path if path.is_file() else None


def find_checkpoint(
    path: Path, params: str | Path | None = None, epoch: int | None = None
) -> tuple[Path, Path | None, bool]:
    """The files of a graph and of its weights, from either, and whether the user named the weights or their epoch."""
    if params is not None and epoch is not None:
        raise SourceError("both a parameter file and an epoch were given", hint="give one of them")
    nameless = is_nameless(path)
    if path.suffix != ".json" and not nameless:
        if params is not None or epoch is not None:
            raise SourceError(f"{path} is a parameter file itself", hint=f"name the symbol: PREFIX{SYMBOL_ENDING}")
        symbol = path.with_name(f"{_EPOCH.sub('', path.stem)}{SYMBOL_ENDING}")
        if not symbol.is_file():
            raise SourceError(
                f"{path} holds weights and no operators, and there is no {symbol.name} beside it",
                hint=f"count the symbol: opcost count PREFIX{SYMBOL_ENDING} --params {path}",
            )
        return symbol, path, True
    if params is not None:
        if not Path(params).exists():
            raise SourceError(f"there is no parameter file {params}", hint=_found(path))
        return path, Path(params), True
    epochs = {} if nameless else _epochs(path)
    if epoch is not None:
        if epoch not in epochs:
            raise SourceError(f"{path} has no parameters of epoch {epoch} beside it", hint=_found(path))
        return path, epochs[epoch], True
    if epochs:
        return path, epochs[max(epochs)], False
    plain = None if nameless else path.with_name(f"{_prefix(path)}.params")
    return path, plain if plain and plain.is_file() else None, False


def _prefix(path: Path) -> str:
    return path.name.removesuffix(SYMBOL_ENDING).removesuffix(".json")


def _epochs(path: Path) -> dict[int, Path]:
    """The parameter files beside a symbol, by their epochs."""
    prefix = _prefix(path)
    found: dict[int, Path] = {}
    for candidate in path.parent.iterdir():
        stem = candidate.stem
        match = _EPOCH.search(stem)
        if candidate.suffix == ".params" and match and stem[: match.start()] == prefix and candidate.is_file():
            found[int(match[1])] = candidate
    return found


def _found(path: Path) -> str:
    epochs = sorted(_epochs(path))
    if not epochs:
        return f"no {_prefix(path)}-0000.params is beside it; --params names one elsewhere"
    return f"epochs beside it: {', '.join(map(str, epochs))}"


# -- live objects, through the same path as files: the symbol's text and the shapes of the parameters -------------------


def open_object(source: Any, options: CountOptions) -> Opened:
    """A `Symbol`, or a gluon block that can be traced with symbols."""
    import mxnet

    if options.own:
        raise InputError(
            f"an object of type {type(source).__name__} has its weights, so {' and '.join(options.own)} cannot be given",
            hint="leave it out, or count the checkpoint",
        )
    if isinstance(source, mxnet.symbol.Symbol):
        return _open(source, options, {}, source.name or "symbol")
    # What the variables are called: as their shapes are, else `data`, or `data0` and so on, as by `export`
    ordered, named = arrays_in(options)
    trees, by_name = arguments(options.shapes, None, ())
    count = len(ordered) + len(trees)
    called = ["data"] if count + len(named) + len(by_name) < 2 else [f"data{place}" for place in range(count)]
    names = [*named, *by_name] if not count and (named or by_name) else [*called, *named, *by_name]
    requested = requested_inputs(options, names)
    options = replace(options, inputs=None, kwargs={}, shapes=requested.shapes, dtypes=requested.dtypes)
    saved = dict(_parameters(source.collect_params().values()))
    return _open(_trace(source, names), options, saved, type(source).__name__)


def _open(symbol: Any, options: CountOptions, saved: dict[str, Saved], label: str) -> Opened:
    text = symbol.tojson(remove_amp_cast=False)
    return Opened(upgraded(parse_symbol(text, label)), saved, label, options)


def _trace(block: Any, names: list[str]) -> Any:
    """Call a block with variables in place of arrays."""
    import mxnet

    if not isinstance(block, mxnet.gluon.HybridBlock):
        raise InputError(
            f"{type(block).__name__} is a gluon Block, which runs Python code that cannot be turned into a symbol",
            hint="derive it from HybridBlock",
        )
    try:
        answer = block(*(mxnet.symbol.var(name) for name in names))
    except Exception as exc:
        raise InputError(
            f"{type(block).__name__} cannot be called with {len(names)} symbols: {type(exc).__name__}: {exc}",
            hint="give as many shapes as the block has inputs",
        ) from exc
    heads = list(leaves(answer))
    return heads[0] if len(heads) == 1 else mxnet.symbol.Group(heads)


def _parameters(parameters: Iterable[Any]) -> Iterable[tuple[str, Saved]]:
    """The parameters whose shapes are known; the others are worked out. Auxiliary states follow from their place in the graph."""
    for parameter in parameters:
        shape = parameter.shape
        if shape is not None and all(extent > 0 for extent in shape):
            trainable = parameter.grad_req != "null"
            yield parameter.name, Saved(tuple(shape), parse_dtype(parameter.dtype), state=False, trainable=trainable)
