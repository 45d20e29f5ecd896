"""What ONNX Runtime's optimizers make of several operators: each is taken apart into the kinds that it fuses."""

from __future__ import annotations

from typing import Any

from opcost.core.graph import NO_ATTRS, Attr
from opcost.core.shapes import Dims, Extent, known, matmul, times
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, numel
from opcost.frontends.nodes.meanings import common, pointwise
from opcost.frontends.onnx.model import DTYPES
from opcost.frontends.onnx.table import MICROSOFT, handles

_DOMAIN = (MICROSOFT,)


def _each(call: Call, fn: str, *ins: Made | None) -> Made:
    """A function of each element on the way."""
    given = [made for made in ins if made is not None]
    return call.step("elementwise", {"fn": fn}, given, [Out(common(given), given[0].dtype)])[0]


def _same(x: Made, kind: str, attrs: dict[str, Attr], reads: list[Made | None]) -> Meaning:
    """One result with the shape and the elements' type of a tensor."""
    return Meaning(kind, attrs, [Out(x.shape, x.dtype)], reads)


# -- functions of each element -----------------------------------------------------------------------------------------


@handles("BiasSoftmax", domains=_DOMAIN)
def _bias_softmax(call: Call) -> Meaning:
    """The bias is stretched by rules of its own, to the shape of what it is added to."""
    x = call[0]
    added = call.step("elementwise", {"fn": "add"}, [x, call[1]], [Out(x.shape, x.dtype)])[0]
    return _same(x, "softmax", {"fn": "softmax"}, [added])


@handles("BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", domains=_DOMAIN)
def _bias_dropout(call: Call) -> Meaning:
    """In use nothing is dropped: a bias and a residual are added, where there are such."""
    x = call[0]
    added = [made for made in (call.at(1), call.at(2)) if made is not None] if "Bias" in call.node.op else []
    for other in added[:-1]:
        x = _each(call, "add", x, other)
    bits = call.node.op.startswith("Bitmask")
    mask = Out((-(-numel(x.shape) // 32),), "uint32") if bits else Out(x.shape, "bool")
    if not added:
        return Meaning("view", NO_ATTRS, [Out(x.shape, x.dtype, home=x), mask], [x])
    outs = [Out(x.shape, x.dtype), mask]
    return Meaning("elementwise", {"fn": "add", "elements": numel(x.shape)}, outs, [x, added[-1]])


@handles("ComplexMul", "ComplexMulConj", domains=_DOMAIN)
def _complex(call: Call) -> Meaning:
    """Pairs of numbers stand for complex ones: a b - c d and a d + b c, three operations for each number."""
    return pointwise("mul_mul_add", call.given)


@handles("GatedAdd", "MulInteger", "ScaledSiLU", "QOrderedGelu", domains=_DOMAIN)
def _gated(call: Call) -> Meaning:
    x = call[0]
    match call.node.op:
        case "GatedAdd":
            return _same(x, "elementwise", {"fn": "fma"}, [*call.given])
        case "ScaledSiLU":
            return _same(x, "elementwise", {"fn": "quick_gelu"}, [*call.given])
        case "QOrderedGelu":
            return _same(x, "elementwise", {"fn": "gelu"}, [*call.given])
    other, zeros = call[2], (call.at(1), call.at(3))
    a, b = (_each(call, "sub", made, zero) if zero else made for made, zero in zip((x, other), zeros, strict=True))
    return Meaning("elementwise", {"fn": "mul"}, [Out(common([a, b]), "int32")], [a, b])


@handles("GemmaRotaryEmbedding", domains=_DOMAIN)
def _gemma_rotary(call: Call) -> Meaning:
    """Sine and cosine of the angles, by which queries and keys and their turned halves are multiplied."""
    angles, q, k = call[0], call[1], call[3]
    sine, cosine = _each(call, "sin", angles), _each(call, "cos", angles)
    outs = [Out(made.shape, made.dtype) for made in (q, k)]
    return Meaning("elementwise", {"fn": "mul_mul_add"}, outs, [*call.given[1:], sine, cosine])


@handles("QuantizeWithOrder", "DequantizeWithOrder", domains=_DOMAIN)
def _ordered(call: Call) -> Meaning:
    dtype = DTYPES.get(call.whole("to", 1), "float32") if call.node.op.startswith("De") else "int8"
    return Meaning("quantize", NO_ATTRS, [Out(call[0].shape, dtype)])


@handles("IsAllFinite", domains=_DOMAIN)
def _finite(call: Call) -> Meaning:
    elements = sum(numel(made.shape) for made in call.given)
    return Meaning("elementwise", {"fn": "nan_check", "elements": elements}, [Out((), "bool")])


# -- normalizations ----------------------------------------------------------------------------------------------------


@handles("GatedRMSNorm", "BranchwiseRMSNorm", "QOrderedLayerNormalization", domains=_DOMAIN)
def _norms(call: Call) -> Meaning:
    x = call[0]
    match call.node.op:
        case "BranchwiseRMSNorm":
            return _same(x, "norm", {"fn": "rms"}, [x, call.at(1)])
        case "QOrderedLayerNormalization":
            affine = 1 if call.at(3) is None else 2
            return _same(x, "norm", {"fn": "layer", "affine": affine}, [*call.given])
    normed = call.step("norm", {"fn": "rms"}, [x, call[1]], [Out(x.shape, x.dtype)])[0]
    fn = "sigmoid" if call.text("activation", "silu") == "sigmoid" else "silu"
    return _same(x, "elementwise", {"fn": "mul"}, [normed, _each(call, fn, call[2])])


@handles("SkipGroupNorm", domains=_DOMAIN)
def _skip_group_norm(call: Call) -> Meaning:
    x, bias = call[0], call.at(4)
    added = x
    for other in (call[3], bias):  # the skip may lack the axes of the image
        if other is not None:
            added = call.step("elementwise", {"fn": "add"}, [added, other], [Out(x.shape, x.dtype)])[0]
    normed = call.step("norm", {"fn": "group"}, [added, call[1], call[2]], [Out(x.shape, x.dtype)])[0]
    outs = [Out(x.shape, x.dtype), Out(x.shape, x.dtype, home=added)]
    if not call.flag("activation"):
        return Meaning("view", NO_ATTRS, [outs[0]._replace(home=normed), *outs[1:]], [normed])
    return Meaning("elementwise", {"fn": "silu", "elements": numel(x.shape)}, outs, [normed])


# -- products ----------------------------------------------------------------------------------------------------------


@handles("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domains=_DOMAIN)
def _block_quantized(call: Call) -> Meaning:
    """The weight is (out, in), of four bits two in a byte; with a scale of its own the first operand comes down to eight."""
    four = call.node.op.endswith("Fp4Weight")
    a, weight, bias = call[0], call[1], call.at(5 if four else 4)
    scale = None if four else call.at(3)
    if scale is not None:
        a = call.step("quantize", NO_ATTRS, [a, scale], [Out(a.shape, "float8_e4m3fn")])[0]
    depth = times(weight.dims[1], 2 if four else 1)
    attrs: dict[str, Any] = {"depth": known((depth,))[0], **({"bias": True} if bias is not None else {})}
    reads = [a, weight, bias, *[made for made in call.given[2:] if made not in (bias, scale)]]
    return Meaning("matmul", attrs, [Out((*a.dims[:-1], weight.dims[0]), call[0].dtype)], reads)


@handles("MatMulFpQ4", domains=_DOMAIN)
def _packed_four(call: Call) -> Meaning:
    """The weight is a run of bytes; its shape is an input."""
    depth, width = call[2].integers
    return Meaning("matmul", {"depth": depth}, [Out((*call[0].dims[:-1], width), call[0].dtype)], [call[0], call[1]])


@handles("QOrderedMatMul", domains=_DOMAIN)
def _ordered_product(call: Call) -> Meaning:
    """Order 0 of the second operand, by columns, means that it is transposed; other orders permute what lies in memory."""
    a, b, bias, more = call[0], call[2], call.at(5), call.at(6)
    shape = matmul(a.dims, b.dims, transpose_b=True)
    attrs: dict[str, Any] = {"depth": known(a.dims[-1:])[0], **({"bias": True} if bias is not None else {})}
    if more is not None:
        attrs["then"] = ("fma",)
    return Meaning("matmul", attrs, [Out(shape, a.dtype)], [a, b, bias, *call.given])


@handles("MatMulNBitsMlp", "MatMulNBitsQkv", domains=_DOMAIN)
def _quantized_block(call: Call) -> Meaning:
    """A normalization, maybe of a sum, and products with packed weights: gate and up, or queries, keys and values."""
    gated = call.node.op == "MatMulNBitsMlp"
    x, skip, scale = call[0], call.at(1), call.at(2)
    depth = call.whole("K")
    added = _each(call, "add", x, skip) if skip is not None else x
    normed = call.step("norm", {"fn": "rms"}, [added, scale], [Out(x.shape, x.dtype)])[0] if scale is not None else x
    widths = [call.whole("N")] * 2 if gated else [call.whole("Nq"), *[call.whole("Nkv")] * 2]
    made = []
    for place, width in enumerate(widths):
        weight, scales, bias = (call.at(3 + 3 * place + at) for at in range(3))
        attrs: dict[str, Any] = {"depth": depth, **({"bias": True} if bias is not None else {})}
        out = Out((*x.dims[:-1], width), x.dtype)
        made += call.step("matmul", attrs, [normed, weight, bias, scales], [out])
    total = Out(x.shape, x.dtype, home=added)
    if not gated:
        outs = [Out(each.shape, each.dtype, home=each) for each in made]
        return Meaning("view", NO_ATTRS, [*outs, total], made)
    fn = {"gelu": "gelu", "relu": "relu"}.get(call.text("activation").lower(), "silu")
    gate, up = _each(call, fn, made[0]), made[1]
    outs = [Out(up.shape, up.dtype), total]
    return Meaning("elementwise", {"fn": "mul", "elements": numel(up.shape)}, outs, [gate, up])


@handles("HyperConnectionPreMix", "HyperConnectionPostMix", domains=_DOMAIN)
def _streams(call: Call) -> Meaning:
    """Streams side by side: before a block they are added up with weights, after it they are mixed and given its result."""
    x, count = call[0], call.whole("num_branches")
    streams: Extent = count or x.dims[-2]
    features = known((x.dims[-1],))[0] // (count or 1)
    front = x.dims[:-1] if count else x.dims[:-2]
    if call.node.op == "HyperConnectionPreMix":
        attrs: dict[str, Any] = {"depth": known((streams,))[0]}
        if float(call.attrs.get("reduction_scale", 1.0)) != 1.0:
            attrs["then"] = ("mul",)
        return Meaning("matmul", attrs, [Out((*front, features), x.dtype)], [x, call[1]])
    block, gate, mix = call[1], call[2], call.at(3)
    if mix is not None:
        x = call.step("matmul", {"depth": known((streams,))[0]}, [x, mix], [Out(x.shape, x.dtype)])[0]
    return _same(x, "elementwise", {"fn": "fma"}, [x, gate, block])


# -- in other places ---------------------------------------------------------------------------------------------------


@handles("TorchEmbedding", domains=_DOMAIN)
def _embedding(call: Call) -> Meaning:
    table, indices = call[0], call[1]
    return Meaning("embedding", NO_ATTRS, [Out((*indices.dims, table.dims[-1]), table.dtype)], [table, indices])


@handles("RestorePadding", "NGramRepeatBlock", domains=_DOMAIN)
def _restored(call: Call) -> Meaning:
    if call.node.op == "NGramRepeatBlock":
        return Meaning("scatter", NO_ATTRS, [Out(call[1].shape, call[1].dtype)], [call[1], call[0]])
    return Meaning("scatter", NO_ATTRS, [Out((*call[1].dims, call[0].dims[-1]), call[0].dtype)], call.given)


@handles("UnfoldTensor", domains=_DOMAIN)
def _unfold(call: Call) -> Meaning:
    """All windows along an axis, each as a last axis of its own."""
    x, size = call[0], call.whole("size", 1)
    axis = call.whole("dim", -1) % len(x.dims)
    extent = known((x.dims[axis],))[0]
    count = (extent - size) // call.whole("step", 1) + 1
    shape: Dims = (*x.dims[:axis], count, *x.dims[axis + 1 :], size)
    return Meaning("copy", NO_ATTRS, [Out(shape, x.dtype)], [x])
