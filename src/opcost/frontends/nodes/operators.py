"""Operators that several formats have, with Core ML's names for them and for their arguments; rows of tables refer to these.

A row may say by constants what a format does otherwise: `last=1` (channels come last), `out_dtype=int64` (the element type of
a result that the file does not declare).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Extent, Mismatch, Unknown, known  # fmt: skip
from opcost.frontends.nodes import results
from opcost.frontends.nodes.meaning import Content, Handler, NodeCall, OperatorMeaning, OperatorRow, OperatorTable, Out
from opcost.frontends.nodes.results import common, fitting, like, numel, one

_HANDLERS: dict[str, Handler] = {}  # The handlers by the names that rows use


def _shared(handler: Handler) -> Handler:
    _HANDLERS[handler.__name__[1:]] = handler
    return handler


def add_rows(table: OperatorTable, rows: str, domains: Sequence[str] = ("",)) -> None:
    """Enter operators in a table from lines `NAME NAME ...: handler word word ...`; see `OperatorRow.parsed`."""
    for line in rows.strip().splitlines():
        names, _, words = line.partition(":")
        handler, *rest = words.split()
        row = OperatorRow.parsed(_HANDLERS[handler], rest)
        table.update({(domain, name): row for domain in domains for name in names.split()})


def add_functions(
    table: OperatorTable, functions: Mapping[str, str], computed: Mapping[str, str] | None = None, inputs: Sequence[str] = (),
    domains: Sequence[str] = ("",),
) -> None:  # fmt: skip
    """Enter functions of each element by our names for them; they take all their inputs, or those that are named.

    `computed` is how small contents are computed, where it is not the operator's own name.
    """
    for name, fn in functions.items():
        constants = {"fn": fn, "computed": (computed or {}).get(name, name.lower()), "inputs": inputs}
        row = OperatorRow(_function, {}, constants, {})
        table.update({(domain, name): row for domain in domains})


def _function(call: NodeCall) -> OperatorMeaning:
    fn, names = call.attrs["fn"], call.attrs["inputs"]
    ins = [call[name] for name in names] if names else call.given
    dtype = "bool" if fn in _TRUTHS else ins[1].dtype if fn == "where" else ""
    if call.walk.typed:
        dtype = call.out_dtype if len(ins) > 1 else ""
    return results.pointwise(fn, ins, call.attrs["computed"], dtype)


_TRUTHS = ("logical", "compare", "nan_check")  # Functions whose results are true or false


# Operators of one expression each
_HANDLERS["copy"] = lambda call: results.copied(call["x"], call["x"].shape)
# Elements moved into the shape that the file declares
_HANDLERS["copy_declared"] = lambda call: results.copied(call["x"], None)
_HANDLERS["view"] = lambda call: results.viewed(call["x"], call["x"].shape)
_HANDLERS["concat"] = lambda call: results.joined(call.several("values"), call.whole("axis"))
_HANDLERS["tile"] = lambda call: results.copied(call["x"], shapes.tiled(call["x"].dims, call.integers("reps") or ()))
_HANDLERS["depth_to_space"] = lambda call: _blocks(call, shapes.times, shapes.divided)
_HANDLERS["space_to_depth"] = lambda call: _blocks(call, shapes.divided, shapes.times)
# Some elements of x replaced
_HANDLERS["update"] = lambda call: like(call["x"], "scatter", NO_ATTRS, [call["x"], call["indices"], call["updates"]])
_HANDLERS["fill_like"] = lambda call: results.created(call["ref_tensor"].shape, call.out_dtype)


@_shared
def _same(call: NodeCall) -> OperatorMeaning:
    """An operator of the constants `kind` and `fn` whose result is like x; it reads x, and the inputs that are `rest`."""
    attrs = {"fn": call.text("fn")} if "fn" in call.attrs else NO_ATTRS
    return like(call["x"], call.text("kind"), attrs, call.given if "rest" in call.places else [call["x"]])


# -- the same memory -----------------------------------------------------------------------------------------------------


@_shared
def _reshape(call: NodeCall) -> OperatorMeaning:
    x, target = call["x"], call.extents("shape")
    if target is None or (not target and call.at("shape") is None):
        raise Unknown
    return results.viewed(x, shapes.reshaped(x.dims, target, zero_copies=call.flag("zero_copies")))


@_shared
def _flatten2d(call: NodeCall) -> OperatorMeaning:
    x, axis = call["x"], call.whole("axis", 1)
    return results.viewed(x, shapes.flattened(x.dims, axis + len(x.dims) if axis < 0 else axis))


@_shared
def _squeeze(call: NodeCall) -> OperatorMeaning:
    x, axes = call["x"], call.integers("axes")
    if axes is None or (not axes and call.at("axes") is None):
        if None in x.dims:
            raise Unknown
        axes = tuple(axis for axis, extent in enumerate(x.dims) if extent == 1)
    return results.viewed(x, shapes.squeezed(x.dims, axes))


@_shared
def _expand_dims(call: NodeCall) -> OperatorMeaning:
    x, axes = call["x"], call.integers("axes") or ()
    shape = x.dims
    for axis in sorted(shapes.axis_of(at, len(x.dims) + len(axes)) for at in axes):
        shape = shapes.inserted(shape, axis)
    return results.viewed(x, shape)


# -- copies --------------------------------------------------------------------------------------------------------------


@_shared
def _transpose(call: NodeCall) -> OperatorMeaning:
    x, order = call["x"], call.integers("perm")
    rank = len(x.dims)
    return results.turned(x, shapes.axes_of(order, rank) if order else tuple(reversed(range(rank))))


@_shared
def _stack(call: NodeCall) -> OperatorMeaning:
    values = call.several("values")
    shape = shapes.stack([each.dims for each in values], call.whole("axis"))
    items = None if values[0].dims else [each.first for each in values]
    return OperatorMeaning("copy", NO_ATTRS, [Out(shape, values[0].dtype, fitting(shape, items))], values)


@_shared
def _split(call: NodeCall) -> OperatorMeaning:
    """Pieces of given lengths, of which one may be -1, or of equal lengths; `uneven`: the last one may be shorter."""
    x, outputs = call["x"], len(call.node.outputs)
    axis = shapes.axis_of(call.whole("axis"), len(x.dims))
    extent = x.dims[axis]
    given = call.integers("split_sizes")
    count = call.whole("num_splits", outputs)
    if given is not None:
        rest = None if extent is None else extent - sum(length for length in given if length >= 0)
        lengths: Sequence[Extent] = [rest if length == -1 else length for length in given]
    elif call.flag("uneven"):
        size = 0 if extent is None else -(-extent // count)
        lengths = [None if extent is None else min(size, extent - place * size) for place in range(outputs)]
    elif not 0 < count <= outputs:
        raise Mismatch(f"it is split into {count}, and has {outputs} results")
    else:
        lengths = [shapes.divided(extent, count)] * count
    return results.divided_into(x, axis, lengths)


@_shared
def _pad(call: NodeCall) -> OperatorMeaning:
    """Two widths for each of the last axes."""
    x, pads = call["x"], call.integers("pad") or ()
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return results.copied(x, shapes.padded(x.dims, [(0, 0)] * (len(x.dims) - len(pairs)) + pairs))


@_shared
def _broadcast_to(call: NodeCall) -> OperatorMeaning:
    return results.stretched(call["x"], shapes.broadcast([call["x"].dims, call.extents("shape") or ()]))


def _blocks(call: NodeCall, of_space: Callable[..., Extent], of_channels: Callable[..., Extent]) -> OperatorMeaning:
    """Blocks of an image's pixels become channels, or the other way round."""
    x, size = call["x"], call.whole("block_size")
    last = call.flag("last")
    *front, channels = x.dims[:1] + x.dims[-1:] if last else x.dims[:-2]
    space = [of_space(extent, size) for extent in (x.dims[1:-1] if last else x.dims[-2:])]
    deep = of_channels(channels, size * size)
    return results.copied(x, (*front, *space, deep) if last else (*front, deep, *space))


# -- by index ------------------------------------------------------------------------------------------------------------


@_shared
def _gather(call: NodeCall) -> OperatorMeaning:
    x, indices, batch = call["x"], call["indices"], call.whole("batch_dims")
    axis = shapes.axis_of(call.whole("axis"), len(x.dims))
    if not batch:
        return results.picked(x, indices, axis)
    return one("gather", NO_ATTRS, (*x.dims[:axis], *indices.dims[batch:], *x.dims[axis + 1 :]), x.dtype, [x, indices])


@_shared
def _gather_along_axis(call: NodeCall) -> OperatorMeaning:
    return like(call["indices"], "gather", NO_ATTRS, [call["x"], call["indices"]], call["x"].dtype)


@_shared
def _gather_nd(call: NodeCall) -> OperatorMeaning:
    x, indices = call["x"], call["indices"]
    depth = known(indices.dims[-1:])[0] + call.whole("batch_dims")
    return one("gather", NO_ATTRS, (*indices.dims[:-1], *x.dims[depth:]), x.dtype, [x, indices])


# -- from nothing --------------------------------------------------------------------------------------------------------


@_shared
def _one_hot(call: NodeCall) -> OperatorMeaning:
    indices, size = call["indices"], call.at("one_hot_vector_size")
    depth: Any = size.first if size is not None else call.attrs.get("one_hot_vector_size")
    axis = shapes.axis_of(call.whole("axis", -1), len(indices.dims) + 1)
    dtype = call.out_dtype if call.walk.typed else call["values"].dtype
    return results.created(shapes.inserted(indices.dims, axis, None if depth is None else int(depth)), dtype)


@_shared
def _shape(call: NodeCall) -> OperatorMeaning:
    dims = call["x"].dims
    return results.shape_of(dims[slice(call.whole("start"), call.whole("end", len(dims)))], call.text("out_dtype"))


@_shared
def _fill(call: NodeCall) -> OperatorMeaning:
    value, wanted = call.at("value"), call.numbers("shape") or ()
    if any(extent is not None and extent < 0 for extent in wanted):
        raise Mismatch(f"its shape would be {wanted}")
    return results.filled_with(value.first if value is not None else call.attrs.get("value", 0), wanted, call.out_dtype)


@_shared
def _range_1d(call: NodeCall) -> OperatorMeaning:
    start = call["start"]
    step = call.at("step") or replace(start, content=Content((), (1,)))
    return results.counted([start, call["end"], step], call.out_dtype if call.walk.typed else start.dtype)


@_shared
def _random(call: NodeCall) -> OperatorMeaning:
    """Random numbers of a given shape."""
    try:
        wanted = call.integers("shape")
    except Unknown:
        wanted = None
    return one("random", NO_ATTRS, wanted, call.out_dtype, [])


# -- reductions ----------------------------------------------------------------------------------------------------------

_FOLDED: dict[str, Any] = {"sum": sum, "max": max, "min": min, "prod": prod, "any": any, "all": all}


@_shared
def _reduce(call: NodeCall) -> OperatorMeaning:
    """A reduction by `fn`; `folded`: small contents are computed by it. Without axes over all, `none`: over none."""
    x, axes, fn = call["x"], call.integers("axes"), call.text("fn")
    if not axes and call.flag("noop_with_empty_axes"):
        return results.viewed(x, x.shape)
    over = axes if call.flag("none") else axes or None
    out = shapes.reduced(x.dims, over, keepdims=call.flag("keep_dims"))
    items = None
    if x.content is not None and fn in _FOLDED and call.flag("folded") and numel(out) == 1:
        items = [_FOLDED[fn](x.numbers)] if x.numbers and None not in x.numbers else None
    dtype = call.text("out_dtype", x.dtype)
    return OperatorMeaning("reduce", {"fn": fn}, [Out(out, dtype, fitting(out, items))], [x])


@_shared
def _reduce_arg(call: NodeCall) -> OperatorMeaning:
    """The place of the greatest or smallest element."""
    out = shapes.reduced(call["x"].dims, (call.whole("axis"),), keepdims=call.flag("keep_dims"))
    return one("reduce", {"fn": call.text("fn")}, out, call.text("out_dtype"), [call["x"]])


@_shared
def _topk(call: NodeCall) -> OperatorMeaning:
    x, count = call["x"], call.integers("k")
    axis = shapes.axis_of(call.whole("axis", -1), len(x.dims))
    out = shapes.replaced(x.dims, axis, count[0] if count else None)
    attrs = {"length": known((x.dims[axis],))[0], **({"selected": count[0]} if count else {})}
    return OperatorMeaning("sort", attrs, [Out(out, x.dtype), Out(out, call.text("out_dtype"))], [x])


@_shared
def _matmul(call: NodeCall) -> OperatorMeaning:
    a, b, bias = call["x"], call["y"], call.at("bias")
    transposed = call.flag("transpose_x"), call.flag("transpose_y")
    return results.product(a, b, bias, [a, b, bias], transposed=transposed)


@_shared
def _einsum(call: NodeCall) -> OperatorMeaning:
    values = call.several("values")
    dims_of_all = [each.dims for each in values]
    equation = shapes.explicit(call.text("equation"), [len(dims) for dims in dims_of_all])
    return one("einsum", {"equation": equation}, shapes.einsum(equation, dims_of_all), values[0].dtype, values)


@_shared
def _added(call: NodeCall) -> OperatorMeaning:
    """The sum of several tensors."""
    values = call.several("values")
    return one("elementwise", results.added(values), common(values), values[0].dtype, values)
