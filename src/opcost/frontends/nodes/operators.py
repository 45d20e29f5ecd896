"""Operators that several formats have, with Core ML's names for them and for their arguments; rows of tables refer to these.

A row may say by constants what a format does otherwise: `last=1` (channels come last), `out_dtype=int64` (the element type of
a result that the file does not declare), `inputs=x,y` (the inputs that are read, where it is not all).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from types import ModuleType
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS
from opcost.core.parsing import packaged_table
from opcost.core.shapes import Extent, Mismatch, Unknown, known
from opcost.frontends.nodes import results, windows
from opcost.frontends.nodes.meaning import (
    Content,
    Handler,
    NodeCall,
    Operand,
    OperatorMeaning,
    OperatorRow,
    OperatorTable,
    Out,
)
from opcost.frontends.nodes.results import common, element_type, fitting, like, numel, one, with_bias
from opcost.frontends.nodes.windows import then
from opcost.frontends.rows import RowFunctions


def operator_table(package: str, *modules: ModuleType) -> OperatorTable:
    """The operators of a format: rows `NAME NAME=fn ...: handler word ...` of its `operators.json`, by their domains.

    Handlers are functions of this module, of `windows` and of those that are given; `OperatorRow.parsed` describes the words.
    A name with `=` has the constant `fn`; one of a `function` has it anyway, and is that function unless it says otherwise.
    """
    handlers = RowFunctions()
    table: OperatorTable = {}
    for module in (sys.modules[__name__], windows, *modules):
        handlers.enter(module)
        handlers.update(getattr(module, "EXPRESSIONS", {}))
    for domains, rows in packaged_table(package, "operators.json").items():
        for line in rows:
            names, _, words = line.partition(":")
            handler, *rest = words.split()
            row = OperatorRow.parsed(handlers[handler], rest)
            for word in names.split():
                name, _, fn = word.partition("=")
                constants = {**row.constants, "fn": fn} if fn else row.constants
                if handler.endswith("function"):
                    constants = {"fn": name.lower(), "computed": name.lower().replace("_", ""), **constants}
                entry = row._replace(constants=constants)
                table.update({("" if domain == "own" else domain, name): entry for domain in domains.split()})
    return table


# -- functions of each element -------------------------------------------------------------------------------------------

_TRUTHS = ("logical", "compare", "nan_check")  # Functions whose results are true or false


def read_by(call: NodeCall) -> list[Operand]:
    """The inputs that the row names, or all."""
    names = call.attrs.get("inputs")
    return [call[name] for name in names.split(",")] if names else call.given


def function(call: NodeCall) -> OperatorMeaning:
    """A function `fn` of each element of all inputs; `computed` is the one of small contents."""
    fn, ins = call.attrs["fn"], read_by(call)
    dtype = "bool" if fn in _TRUTHS else ins[1].dtype if fn == "where" else ""
    if call.walk.typed:
        dtype = call.out_dtype if len(ins) > 1 else ""
    return results.pointwise(fn, ins, call.attrs["computed"], dtype)


def _same(call: NodeCall) -> OperatorMeaning:
    """An operator of the constants `kind` and `fn` whose result is like the first input that it reads."""
    reads = read_by(call)
    attrs = {"fn": call.text("fn")} if "fn" in call.attrs else NO_ATTRS
    return like(reads[0], call.text("kind"), attrs, reads, element_type(call, reads[0]))


_GELUS = {
    **dict.fromkeys(("EXACT", "none", "0", "False"), "gelu"),
    **dict.fromkeys(("TANH_APPROXIMATION", "tanh", "1", "True"), "gelu_tanh"),
}
"""The functions by what formats call their approximation; by another one, a sigmoid takes the place of the error function."""


def _gelu(call: NodeCall) -> OperatorMeaning:
    """Of a tensor, or of the sum of several."""
    x = call.elementwise("add", *call.given) if len(call.given) > 1 else call.given[0]
    return like(x, "elementwise", {"fn": _GELUS.get(call.text("mode", "EXACT"), "quick_gelu")}, [x])


EXPRESSIONS: dict[str, Handler] = {
    "copy": lambda call: results.copied(call["x"], call["x"].shape),
    "copy_declared": lambda call: results.copied(call["x"], None),  # into the shape that the file declares
    "concat": lambda call: results.joined(call.several("values"), call.whole("axis")),
    "tile": lambda call: results.copied(call["x"], shapes.tiled(call["x"].dims, call.integers("reps") or ())),
    "depth_to_space": lambda call: _blocks(call, shapes.times, shapes.divided),
    "space_to_depth": lambda call: _blocks(call, shapes.divided, shapes.times),
    "fill_like": lambda call: results.created(call["ref_tensor"].shape, call.out_dtype),
    "cast": lambda call: results.converted(call["x"], call.out_dtype),
}
"""Handlers of one expression each, by their names."""


# -- the same memory -----------------------------------------------------------------------------------------------------


def _reshape(call: NodeCall) -> OperatorMeaning:
    x, target = call["x"], call.extents("shape")
    if target is None or (not target and call.at("shape") is None):
        raise Unknown
    return results.viewed(x, shapes.reshaped(x.dims, target, zero_copies=call.flag("zero_copies")))


def _flatten2d(call: NodeCall) -> OperatorMeaning:
    x, axis = call["x"], call.whole("axis", 1)
    return results.viewed(x, shapes.flattened(x.dims, axis + len(x.dims) if axis < 0 else axis))


def _squeeze(call: NodeCall) -> OperatorMeaning:
    x, axes = call["x"], call.integers("axes")
    if axes is None or (not axes and call.at("axes") is None):
        if None in x.dims:
            raise Unknown
        axes = tuple(axis for axis, extent in enumerate(x.dims) if extent == 1)
    return results.viewed(x, shapes.squeezed(x.dims, axes))


def _expand_dims(call: NodeCall) -> OperatorMeaning:
    x, axes = call["x"], call.integers("axes") or ()
    shape = x.dims
    for axis in sorted(shapes.axis_of(at, len(x.dims) + len(axes)) for at in axes):
        shape = shapes.inserted(shape, axis)
    return results.viewed(x, shape)


# -- copies --------------------------------------------------------------------------------------------------------------


def _transpose(call: NodeCall) -> OperatorMeaning:
    x, order = call["x"], call.integers("perm")
    rank = len(x.dims)
    return results.turned(x, shapes.axes_of(order, rank) if order else tuple(reversed(range(rank))))


def _stack(call: NodeCall) -> OperatorMeaning:
    values = call.several("values")
    shape = shapes.stack([each.dims for each in values], call.whole("axis"))
    items = None if values[0].dims else [each.first for each in values]
    return OperatorMeaning("copy", NO_ATTRS, [Out(shape, values[0].dtype, fitting(shape, items))], values)


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


def _pad(call: NodeCall) -> OperatorMeaning:
    """Two widths for each of the last axes."""
    x, pads = call["x"], call.integers("pad") or ()
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return results.copied(x, shapes.padded(x.dims, [(0, 0)] * (len(x.dims) - len(pairs)) + pairs))


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


def _gather(call: NodeCall) -> OperatorMeaning:
    x, indices, batch = call["x"], call["indices"], call.whole("batch_dims")
    axis = shapes.axis_of(call.whole("axis"), len(x.dims))
    if not batch:
        return results.picked(x, indices, axis)
    return one("gather", NO_ATTRS, (*x.dims[:axis], *indices.dims[batch:], *x.dims[axis + 1 :]), x.dtype, [x, indices])


def _gather_along_axis(call: NodeCall) -> OperatorMeaning:
    return like(call["indices"], "gather", NO_ATTRS, [call["x"], call["indices"]], call["x"].dtype)


def _gather_nd(call: NodeCall) -> OperatorMeaning:
    x, indices = call["x"], call["indices"]
    depth = known(indices.dims[-1:])[0] + call.whole("batch_dims")
    return one("gather", NO_ATTRS, (*indices.dims[:-1], *x.dims[depth:]), x.dtype, [x, indices])


_SCATTERED = {"add": "add", "sub": "add", "mul": "mul", "div": "mul", "max": "max", "min": "min"}


def _scatter(call: NodeCall) -> OperatorMeaning:
    """Elements are put in their places, or combined with what is there."""
    fn = _SCATTERED.get(call.text("mode"))
    reads = [call["data"], call["indices"], call["updates"]]
    return like(call["data"], "scatter", {"fn": fn} if fn else NO_ATTRS, reads)


# -- from nothing --------------------------------------------------------------------------------------------------------


def _one_hot(call: NodeCall) -> OperatorMeaning:
    indices, size = call["indices"], call.at("one_hot_vector_size")
    depth: Any = size.first if size is not None else call.attrs.get("one_hot_vector_size")
    axis = shapes.axis_of(call.whole("axis", -1), len(indices.dims) + 1)
    dtype = call.out_dtype if call.walk.typed else call["values"].dtype
    return results.created(shapes.inserted(indices.dims, axis, None if depth is None else int(depth)), dtype)


def _shape(call: NodeCall) -> OperatorMeaning:
    dims = call["x"].dims
    return results.shape_of(dims[slice(call.whole("start"), call.whole("end", len(dims)))], call.text("out_dtype"))


def _fill(call: NodeCall) -> OperatorMeaning:
    value, wanted = call.at("value"), call.numbers("shape") or ()
    if any(extent is not None and extent < 0 for extent in wanted):
        raise Mismatch(f"its shape would be {wanted}")
    return results.filled_with(value.first if value is not None else call.attrs.get("value", 0), wanted, call.out_dtype)


def _range_1d(call: NodeCall) -> OperatorMeaning:
    start = call["start"]
    step = call.at("step") or replace(start, content=Content((), (1,)))
    return results.counted([start, call["end"], step], call.out_dtype if call.walk.typed else start.dtype)


def _random(call: NodeCall) -> OperatorMeaning:
    """Random numbers of a given shape."""
    try:
        wanted = call.integers("shape")
    except Unknown:
        wanted = None
    return one("random", NO_ATTRS, wanted, call.out_dtype, [])


# -- reductions ----------------------------------------------------------------------------------------------------------

_FOLDED: dict[str, Any] = {"sum": sum, "max": max, "min": min, "prod": prod, "any": any, "all": all}


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


def _reduce_arg(call: NodeCall) -> OperatorMeaning:
    """The place of the greatest or smallest element."""
    out = shapes.reduced(call["x"].dims, (call.whole("axis"),), keepdims=call.flag("keep_dims"))
    return one("reduce", {"fn": call.text("fn")}, out, call.text("out_dtype"), [call["x"]])


def _topk(call: NodeCall) -> OperatorMeaning:
    x, count = call["x"], call.integers("k")
    axis = shapes.axis_of(call.whole("axis", -1), len(x.dims))
    out = shapes.replaced(x.dims, axis, count[0] if count else None)
    attrs = {"length": known((x.dims[axis],))[0], **({"selected": count[0]} if count else {})}
    return OperatorMeaning("sort", attrs, [Out(out, x.dtype), Out(out, call.text("out_dtype"))], [x])


def matmul(call: NodeCall) -> OperatorMeaning:
    """The product of two matrices, or of batches of them, with other inputs between and behind; no `beta`: without the bias.

    `quantized`: the first is converted to bytes before; `settings`: what it has beside its operands is not read.
    """
    a, b, bias = call["x"], call["y"], call.at("bias") if call.attrs.get("beta", 1) else None
    turned = call.flag("transpose_x"), call.flag("transpose_y")
    shape = shapes.matmul(a.dims, b.dims, transpose_a=turned[0], transpose_b=turned[1])
    others = [bias] if "settings" in call.attrs else [each for each in call.ins if each is not a and each is not b]
    dtype, depth = element_type(call, a), a.dims[-2 if turned[0] and len(a.dims) > 1 else -1]
    if "quantized" in call.attrs:
        a = call.one("quantize", NO_ATTRS, [a], dtype="uint8")
    if depth is None:
        return one("unknown", NO_ATTRS, shape, dtype, [a, b, *others])
    return one("matmul", with_bias(bias, depth=depth, **then(call)), shape, dtype, [a, b, *others])


def _attention(call: NodeCall) -> OperatorMeaning:
    q, k, v = call["query"], call["key"], call["value"]
    return one("attention", NO_ATTRS, (*q.dims[:-1], v.dims[-1]), q.dtype, [q, k, v, call.at("mask")])


def _einsum(call: NodeCall) -> OperatorMeaning:
    values = call.several("values")
    dims_of_all = [each.dims for each in values]
    equation = shapes.explicit(call.text("equation"), [len(dims) for dims in dims_of_all])
    return one("einsum", {"equation": equation}, shapes.einsum(equation, dims_of_all), values[0].dtype, values)


def _added(call: NodeCall) -> OperatorMeaning:
    """The sum of several tensors."""
    values = call.several("values")
    return one("elementwise", results.added(values), common(values), values[0].dtype, values)


def suppressed(call: NodeCall, outs: Sequence[Out]) -> OperatorMeaning:
    """Boxes are sorted by their scores; the number of overlaps that are compared depends on data and is left out."""
    boxes = call["boxes"]
    return OperatorMeaning("sort", {"length": max(known((boxes.dims[-2],))[0], 1)}, outs, [call["scores"], boxes])
