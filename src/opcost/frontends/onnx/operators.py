"""What ONNX's operators mean: rows for plain ones, and handlers of those that compute, move or make elements one by one.

`reductions`, `products` and `runtime` (what ONNX Runtime makes of several operators) enter theirs in the same table.
"""

from __future__ import annotations

import math
from math import prod
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Mismatch, Unknown, known  # fmt: skip
from opcost.frontends.nodes import results
from opcost.frontends.nodes.meaning import NodeCall, Number, Operand, OperatorMeaning, OperatorTable, Out, StoredValue
from opcost.frontends.nodes.operators import add_functions, add_rows
from opcost.frontends.nodes.results import common, fitting, like, numel, one
from opcost.frontends.onnx.model import DTYPES

MICROSOFT = "com.microsoft"
NCHWC = "com.microsoft.nchwc"
PREVIEW, TRAINING = "ai.onnx.preview", "ai.onnx.preview.training"

TABLE = OperatorTable()
handles = TABLE.handles

add_rows(TABLE, """
Flatten: flatten2d x
Squeeze: squeeze x axes
Unsqueeze: expand_dims x axes
Transpose: transpose x
Concat: concat *values
Split: split x split_sizes split_sizes<split num_splits<num_outputs uneven=1
Expand: broadcast_to x shape
Tile: tile x reps reps<repeats
DepthToSpace: depth_to_space x block_size<blocksize
SpaceToDepth: space_to_depth x block_size<blocksize
ReverseSequence Trilu: copy x
Gather: gather x indices
GatherElements: gather_along_axis x indices
GatherND: gather_nd x indices
Shape: shape x out_dtype=int64
Range: range_1d start end step
OneHot: one_hot indices one_hot_vector_size values
ReduceSum: reduce x axes fn=sum folded=1 keep_dims=1 keep_dims<keepdims
ReduceMean: reduce x axes fn=mean keep_dims=1 keep_dims<keepdims
ReduceMax: reduce x axes fn=max folded=1 keep_dims=1 keep_dims<keepdims
ReduceMin: reduce x axes fn=min folded=1 keep_dims=1 keep_dims<keepdims
ReduceProd: reduce x axes fn=prod folded=1 keep_dims=1 keep_dims<keepdims
ReduceL1 ReduceL2 ReduceSumSquare: reduce x axes fn=norm keep_dims=1 keep_dims<keepdims
ReduceLogSum: reduce x axes fn=sum keep_dims=1 keep_dims<keepdims
ReduceLogSumExp: reduce x axes fn=logsumexp keep_dims=1 keep_dims<keepdims
ArgMax: reduce_arg x fn=argmax out_dtype=int64 keep_dims=1 keep_dims<keepdims
ArgMin: reduce_arg x fn=argmin out_dtype=int64 keep_dims=1 keep_dims<keepdims
CumSum: same x kind=reduce fn=cumsum
CumProd: same x kind=reduce fn=cumprod
Softmax Hardmax: same x kind=softmax fn=softmax
LogSoftmax: same x kind=softmax fn=log_softmax
RotaryEmbedding: same x *rest kind=elementwise fn=mul_mul_add
TopK: topk x k out_dtype=int64
MatMul: matmul x y
Einsum: einsum *values
""")  # fmt: skip
add_rows(TABLE, """
ExpandDims: expand_dims x axes
Trilu: copy x
GatherND: gather_nd x indices
Range: range_1d start end step
RotaryEmbedding MRotaryEmbedding: same x *rest kind=elementwise fn=mul_mul_add
GatedAdd: same x *rest kind=elementwise fn=fma
ScaledSiLU: same x *rest kind=elementwise fn=quick_gelu
QOrderedGelu: same x *rest kind=elementwise fn=gelu
QLinearSoftmax: same x *rest kind=softmax fn=softmax
""", domains=(MICROSOFT,))  # fmt: skip

add_rows(TABLE, """
ReduceSumInteger: reduce x axes fn=sum out_dtype=int32 keep_dims=1 keep_dims<keepdims
QLinearReduceMean: reduce x fn=mean keep_dims=1 keep_dims<keepdims
""", domains=("", MICROSOFT))  # fmt: skip

add_functions(
    TABLE,
{
    **{name: name.lower() for name in (
        "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Celu Cos Cosh Div Elu Erf Exp Floor Log Mish Mul Neg Pow PRelu Reciprocal "
        "Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh HardSigmoid HardSwish"
    ).split()},
    **dict.fromkeys("Not And Or Xor".split(), "logical"),
    **dict.fromkeys("Equal Greater Less GreaterOrEqual LessOrEqual".split(), "compare"),
    **dict.fromkeys("BitwiseNot BitwiseAnd BitwiseOr BitwiseXor".split(), "bitwise"),
    "LeakyRelu": "leaky_relu", "ThresholdedRelu": "threshold", "Swish": "silu", "ScaledTanh": "tanh",
    "ParametricSoftplus": "softplus", "IsNaN": "nan_check", "IsInf": "nan_check", "Mod": "remainder", "BitShift": "shift",
    "Where": "where",
})  # fmt: skip
add_functions(TABLE, {"QuickGelu": "quick_gelu", "BiasAdd": "add"}, domains=(MICROSOFT,))


# -- functions of each element -------------------------------------------------------------------------------------------


@handles("Clip")
def _clip(call: NodeCall) -> OperatorMeaning:
    """Exporters use it so that paddings that are computed are never negative."""
    x, ends = call[0], [call.attrs.get(name) for name in ("min", "max")]
    for place, given in ((0, call.at(1)), (1, call.at(2))):
        if given is not None:
            ends[place] = math.nan if given.first is None else given.first
    lowest, highest = (far if end is None else end for end, far in zip(ends, (-math.inf, math.inf), strict=True))
    items: list[Number] | None = None
    if x.content is not None and not math.isnan(lowest) and not math.isnan(highest):
        items = [None if item is None else min(max(item, lowest), highest) for item in x.content.items]
    return OperatorMeaning("elementwise", {"fn": "clamp"}, [Out(x.shape, x.dtype, fitting(x.shape, items))], [x])


@handles("Gelu", domains=("", MICROSOFT))
@handles("FastGelu", domains=(MICROSOFT,))
def _gelu(call: NodeCall) -> OperatorMeaning:
    quick = call.node.op == "FastGelu" or call.text("approximate") == "tanh"
    x = call.elementwise("add", *call.given) if len(call.given) > 1 else call[0]
    return like(x, "elementwise", {"fn": "gelu_tanh" if quick else "gelu"}, [x])


_VARIADIC = {"Max": ("max", 0), "Min": ("min", 0), "Sum": ("add", 0), "Mean": ("add", 1)}
"""The function of two of many inputs, and operations for each element after it."""


@handles(*_VARIADIC)
def _variadic(call: NodeCall) -> OperatorMeaning:
    ins = call.given
    if len(ins) == 1:
        return results.viewed(ins[0], ins[0].shape)
    fn, more = _VARIADIC[call.node.op]
    shape = common(ins)
    found = fitting(shape, results.computed(call.node.op.lower(), ins, shape))
    return OperatorMeaning("elementwise", results.added(ins, fn, more), [Out(shape, ins[0].dtype, found)], ins)


@handles("Shrink")
def _shrink(call: NodeCall) -> OperatorMeaning:
    return like(call[0], "elementwise", {"fn": "softshrink" if call.attrs.get("bias") else "hardshrink"})


@handles("Cast", "CastLike", "BitCast")
def _cast(call: NodeCall) -> OperatorMeaning:
    like_other = call.node.op == "CastLike"
    return results.converted(call[0], call[1].dtype if like_other else DTYPES.get(call.whole("to"), "float32"))


@handles("SwiGLU")
def _swiglu(call: NodeCall) -> OperatorMeaning:
    """The first half through swish, times the second; a factor inside the sigmoid is one product more."""
    fn = "silu" if float(call.attrs.get("alpha", 1.0)) == 1.0 else "quick_gelu"
    return results.pointwise("mul", [call.elementwise(fn, call[0]), call[1]])


@handles("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", domains=("", MICROSOFT))
def _quantize(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    match call.node.op:
        case "DequantizeLinear":
            return like(x, "quantize", dtype=call[1].dtype)
        case "DynamicQuantizeLinear":
            return OperatorMeaning("quantize", NO_ATTRS, [Out(x.shape, "uint8"), Out((), "float32"), Out((), "uint8")])
    zero = call.at(2)
    dtype = DTYPES.get(call.whole("output_dtype"), "") if call.whole("output_dtype") else ""
    return like(x, "quantize", dtype=dtype or (zero.dtype if zero is not None else "uint8"))


# -- the same memory, and copies -----------------------------------------------------------------------------------------


@handles("Identity", "Dropout")
@handles("Identity", "MemcpyFromHost", "MemcpyToHost", domains=(MICROSOFT,))
def _identity(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    outs = [Out(x.shape, x.dtype, x.content, x, x.items), Out(x.shape, "bool")]
    return OperatorMeaning("view", NO_ATTRS, outs, [x])


@handles("Reshape", inputs="x shape")
def _reshape(call: NodeCall) -> OperatorMeaning:
    x, wanted = call["x"], call.extents("shape")
    if wanted is None:
        raise IndexError("the input 1 is missing")
    copies = not call.flag("allowzero")
    if x.shape is None:  # what is written out is known all the same
        return results.viewed(x, tuple([None if n is None or n < 0 or (n == 0 and copies) else n for n in wanted]))
    blocks = len(x.shape) == 4 and wanted[:4] == (0, -1, 0, 0) and len(wanted) == 5
    if blocks and (x.shape[1] or 0) % (wanted[4] or 1):
        return results.viewed(
            x, x.shape
        )  # ONNX Runtime has filled up channels to whole blocks, which are left out here
    return results.viewed(x, shapes.reshaped(x.shape, wanted, zero_copies=copies))


@handles("Slice", inputs="x starts ends axes steps")
def _slice(call: NodeCall) -> OperatorMeaning:
    x, begins, ends = call["x"], call.integers("starts"), call.integers("ends")
    if begins is None or ends is None:
        raise Mismatch("its starts or ends are missing")
    axes = shapes.axes_of(call.integers("axes") or tuple(range(len(begins))), len(x.dims))
    steps = call.integers("steps") or (1,) * len(begins)
    # Backwards, ONNX ends before the first element where Python would count from behind.
    lasts = [
        None if step < 0 and (extent := x.dims[axis]) is not None and last < -extent else last
        for axis, last, step in zip(axes, ends, steps, strict=True)
    ]
    return results.sliced(x, axes, begins, lasts, steps)


@handles("Pad", domains=("", MICROSOFT), inputs="x pads value axes")
def _pad(call: NodeCall) -> OperatorMeaning:
    """All widths before, then all behind."""
    x, pads = call["x"], call.integers("pads") or call.integers("paddings") or ()
    axes = shapes.axes_of(call.integers("axes"), len(x.dims))
    widths = [(0, 0)] * len(x.dims)
    for place, axis in enumerate(axes):
        widths[axis] = (pads[place], pads[place + len(axes)])
    return results.copied(x, shapes.padded(x.dims, widths))


@handles("CenterCropPad")
def _center(call: NodeCall) -> OperatorMeaning:
    shape = list(call[0].dims)
    for axis, extent in zip(shapes.axes_of(call.integers("axes"), len(shape)), call[1].integers, strict=True):
        shape[axis] = extent
    return results.copied(call[0], tuple(shape))


@handles("Col2Im")
def _col2im(call: NodeCall) -> OperatorMeaning:
    batch, channels, _ = call[0].dims
    image, block = call[1].integers, call[2].integers
    deep = None if channels is None else channels // prod(block)
    attrs: dict[str, Any] = {"fn": "add", "elements": numel(call[0].shape)}
    return one("scatter", attrs, (batch, deep, *image), call[0].dtype, [call[0]])


@handles("StringConcat", "RegexFullMatch")
def _texts(call: NodeCall) -> OperatorMeaning:
    dtype = "bool" if call.node.op == "RegexFullMatch" else call[0].dtype
    return one("copy", NO_ATTRS, common(call.given), dtype)


# -- by index ------------------------------------------------------------------------------------------------------------


@handles("Scatter", "ScatterElements", "ScatterND", inputs="x indices updates")
@handles("TensorScatter", inputs="x updates indices")
def _scatter(call: NodeCall) -> OperatorMeaning:
    name, last = call.text("reduction", "none"), call.node.op == "TensorScatter"
    reads = [call["x"], call.at("indices") if last else call["indices"], call["updates"]]
    return like(call["x"], "scatter", {"fn": name} if not last and name != "none" else NO_ATTRS, reads)


@handles("GatherBlockQuantized", domains=(MICROSOFT,))
def _gather_quantized(call: NodeCall) -> OperatorMeaning:
    shape = shapes.gathered(call[0].dims, call[1].dims, shapes.axis_of(call.whole("gather_axis"), len(call[0].dims)))
    return one("embedding", NO_ATTRS, shape, call[2].dtype, call.given)


@handles("Compress")
def _compress(call: NodeCall) -> OperatorMeaning:
    x, shape = call[0], (None,)
    if "axis" in call.attrs:
        shape = shapes.replaced(x.dims, shapes.axis_of(call.whole("axis"), len(x.dims)), None)  # type: ignore[assignment]
    return one("gather", NO_ATTRS, shape, x.dtype)


@handles("NonZero")
def _nonzero(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    hits = None
    if x.content is not None and None not in x.numbers:
        hits = [at for at, number in enumerate(x.numbers) if number]
    shape: Dims = (len(x.dims), None if hits is None else len(hits))
    found = fitting(shape, hits) if len(x.dims) == 1 else None
    return OperatorMeaning("gather", NO_ATTRS, [Out(shape, "int64", found)])


# -- sequences -----------------------------------------------------------------------------------------------------------


def _items(sequence: Operand) -> list[Operand]:
    if sequence.items is None:
        raise Unknown
    return [*sequence.items]


def _sequence(items: list[Operand] | None) -> OperatorMeaning:
    return OperatorMeaning("view", NO_ATTRS, [Out(None, items[0].dtype if items else "float32", items=items)], [])


@handles("SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SplitToSequence", "Optional")
def _make_sequence(call: NodeCall) -> OperatorMeaning:
    match call.node.op:
        case "SequenceInsert":
            items, place = _items(call[0]), call.at(2)
            items.insert(len(items) if place is None else place.integers[0], call[1])
            return _sequence(items)
        case "SequenceErase":
            items = _items(call[0])
            items.pop(call[1].integers[0] if call.at(1) else -1)
            return _sequence(items)
        case "SplitToSequence":
            x, given = call[0], call.at(1)
            axis = shapes.axis_of(call.whole("axis"), len(x.dims))
            extent = known(x.dims[axis : axis + 1])[0]
            if given is None:
                lengths = [1] * min(extent, _MOST_PIECES + 1)
            elif given.dims:
                lengths = list(given.integers)
            else:
                size = given.integers[0]
                lengths = [min(size, extent - begin) for begin in range(0, extent, size)[: _MOST_PIECES + 1]]
            if len(lengths) > _MOST_PIECES:
                raise Unknown
            dims_of_all = [shapes.replaced(x.dims, axis, length) for length in lengths]
            if given is None and not call.flag("keepdims", default=True):
                dims_of_all = [shapes.replaced(x.dims, axis) for _ in lengths]
            return _sequence(call.step("copy", NO_ATTRS, [x], [Out(shape, x.dtype) for shape in dims_of_all]))
        case "Optional":
            return results.viewed(call[0], call[0].shape) if call.given else _sequence(None)
    return _sequence(call.given)


_MOST_PIECES = 4096


@handles("SequenceAt", "OptionalGetElement", "SequenceLength", "OptionalHasElement", "ConcatFromSequence")
def _from_sequence(call: NodeCall) -> OperatorMeaning:
    match call.node.op:
        case "SequenceAt":
            x = _items(call[0])[call[1].integers[0]]
            return results.viewed(x, x.shape)
        case "OptionalGetElement":
            return results.viewed(call[0], call[0].shape)
        case "OptionalHasElement":
            return results.created((), "bool")
        case "SequenceLength":
            items = call[0].items
            return results.created((), "int64", [len(items)] if items is not None else None)
    parts, axis = _items(call[0]), call.whole("axis")
    dims_of_all = [each.dims for each in parts]
    if call.flag("new_axis"):
        dims_of_all = [shapes.inserted(shape, axis) for shape in dims_of_all]
    return one("copy", NO_ATTRS, shapes.concat(dims_of_all, axis), parts[0].dtype, parts)


# -- from nothing --------------------------------------------------------------------------------------------------------


@handles("Size")
def _size(call: NodeCall) -> OperatorMeaning:
    return results.created((), "int64", [numel(call[0].shape)] if shapes.complete(call[0].shape) else None)


@handles("ConstantOfShape")
def _constant_of_shape(call: NodeCall) -> OperatorMeaning:
    wanted, value = call[0].numbers, call.attrs.get("value")
    if any(n is not None and n < 0 for n in wanted):
        raise Mismatch(f"its shape would be {wanted}")
    if not isinstance(value, StoredValue):
        return results.filled_with(0, wanted, "float32")
    items = value.content.items if value.content else ()
    return results.filled_with(items[0] if items else 0, wanted, value.dtype)


@handles("MelWeightMatrix")
def _mel(call: NodeCall) -> OperatorMeaning:
    """Bands of frequencies against those of a Fourier transform; made once, of a handful of numbers."""
    bands, length = (call[place].numbers[0] for place in (0, 1))
    shape: Dims = (None if length is None else int(length) // 2 + 1, None if bands is None else int(bands))
    return results.created(shape, DTYPES.get(call.whole("output_datatype", 1), "float32"))


@handles("HannWindow", "HammingWindow", "BlackmanWindow")
def _window_function(call: NodeCall) -> OperatorMeaning:
    return one("elementwise", {"fn": "cos"}, (call[0].integers[0],), "float32", [])


@handles(
    "EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "RandomNormal", "RandomUniform", "Multinomial"
)
def _created(call: NodeCall) -> OperatorMeaning:
    name, dtype = call.node.op, DTYPES.get(call.whole("dtype"), "") if call.whole("dtype") else ""
    match name:
        case "RandomNormal" | "RandomUniform":
            return one("random", NO_ATTRS, call.integers("shape"), dtype or "float32", [])
        case "Multinomial":
            return one("random", NO_ATTRS, (call[0].dims[0], call.whole("sample_size", 1)), dtype or "int32")
    reads = call.given if name == "Bernoulli" else []  # most take only the shape
    return like(call[0], "create" if name == "EyeLike" else "random", NO_ATTRS, reads, dtype)
