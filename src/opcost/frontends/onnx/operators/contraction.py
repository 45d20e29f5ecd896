"""Products: matrices, convolutions, Einstein's sums, and recurrent layers, plain, fused and quantized."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from opcost.core.graph import Attr
from opcost.core.shapes import (
    Dims,
    Extent,
    einsum,
    explicit,
    known,
    matmul,
    swapped,
    times,
)
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, numel
from opcost.frontends.nodes.windows import Window
from opcost.frontends.onnx.model import DTYPES
from opcost.frontends.onnx.table import MICROSOFT, handles

_ACTIVATIONS = {
    "Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "LeakyRelu": "leaky_relu", "Clip": "clamp",
    "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish", "Gelu": "gelu", "RELU": "relu", "GELU": "gelu",
}  # fmt: skip


def then(call: Call) -> dict[str, Attr]:
    """What a fused operator applies to its result."""
    name = _ACTIVATIONS.get(call.text("activation"))
    return {"then": (name,)} if name else {}


# -- matrices ----------------------------------------------------------------------------------------------------------


def _product(
    call: Call, a: Made, b: Made, reads: list[Made], dtype: str, *, bias: bool = False, **turned: bool
) -> Meaning:
    shape = matmul(a.dims, b.dims, **turned)
    depth = a.dims[-2 if turned.get("transpose_a") and len(a.dims) > 1 else -1]
    attrs: dict[str, Any] = {"depth": depth, **then(call)}
    if bias:
        attrs["bias"] = True
    if depth is None:
        return Meaning("unknown", {}, [Out(shape, dtype)], reads)
    return Meaning("matmul", attrs, [Out(shape, dtype)], reads)


@handles("MatMul")
@handles("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domains=(MICROSOFT,))
def _matmul(call: Call) -> Meaning:
    a, b = (
        # Its first axis is the rows of the matrices, and the batch comes between.
        replace(made, shape=(*made.dims[1:-1], made.dims[0], made.dims[-1])) if call.flag(f"transBatch{side}") else made
        for made, side in ((call[0], "A"), (call[1], "B"))
    )
    turned = {"transpose_a": call.flag("transA"), "transpose_b": call.flag("transB")}
    return _product(call, a, b, call.given, a.dtype, **turned)


@handles("Gemm")
@handles("FusedGemm", "GemmFastGelu", "GemmFloat8", domains=(MICROSOFT,))
def _gemm(call: Call) -> Meaning:
    turned = {"transpose_a": call.flag("transA"), "transpose_b": call.flag("transB")}
    eight = call.node.op == "GemmFloat8"
    a, biased = call[0], call.at(2) is not None and bool(call.attrs.get("beta", not eight))
    dtype = DTYPES.get(call.whole("dtype", 1), "float32") if eight else a.dtype
    found = _product(call, a, call[1], call.given, dtype, bias=biased, **turned)
    if call.node.op == "GemmFastGelu":
        return found._replace(attrs={**found.attrs, "then": ("gelu_tanh",)})
    return found


@handles("MatMulInteger")
@handles("MatMulInteger16", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", domains=(MICROSOFT,))
def _matmul_integer(call: Call) -> Meaning:
    """DynamicQuantizeMatMul also finds the scale of its first operand and brings it down to bytes."""
    a = call[0]
    whole = call.node.op in ("MatMulInteger", "MatMulInteger16")
    place = 6 if call.node.op == "MatMulIntegerToFloat" else 4
    if call.node.op == "DynamicQuantizeMatMul":
        a = call.step("quantize", {}, [a], [Out(a.shape, "uint8")])[0]
    reads = [a, *[made for made in call.given if made is not call[0]]]
    dtype = "int32" if whole else call[2].dtype
    return _product(call, a, call[1], reads, dtype, bias=call.at(place) is not None)


@handles("QLinearMatMul", domains=("", MICROSOFT))
def _qlinear_matmul(call: Call) -> Meaning:
    a, b = call[0], call[3]
    return _product(call, a, b, [a, b, *[made for made in call.given if made not in (a, b)]], call[7].dtype)


@handles("QGemm", domains=(MICROSOFT,))
def _qgemm(call: Call) -> Meaning:
    a, b, bias, zero = call[0], call[3], call.at(6), call.at(8)
    reads = [a, b, *[made for made in call.given if made not in (a, b)]]
    dtype = zero.dtype if zero is not None else "float32"
    turned = {"transpose_a": call.flag("transA"), "transpose_b": call.flag("transB")}
    return _product(call, a, b, reads, dtype, bias=bias is not None, **turned)


@handles("MatMulNBits", "MatMulBnb4", domains=(MICROSOFT,))
def _matmul_bits(call: Call) -> Meaning:
    """The weight is packed; the attributes say how many elements it has."""
    a, depth, width = call[0], call.whole("K"), call.whole("N")
    attrs: dict[str, Any] = {"depth": depth}
    if call.node.op == "MatMulNBits" and call.at(5) is not None:
        attrs["bias"] = True
    return Meaning("matmul", attrs, [Out((*a.dims[:-1], width), a.dtype)])


@handles("Einsum")
def _einsum(call: Call) -> Meaning:
    shapes = [made.dims for made in call.given]
    equation = explicit(call.text("equation"), [len(shape) for shape in shapes])
    return Meaning("einsum", {"equation": equation}, [Out(einsum(equation, shapes), call[0].dtype)])


# -- convolutions ------------------------------------------------------------------------------------------------------


def window(call: Call, kernel: Dims, space: Dims) -> Window:
    """The window of a node, with ONNX's defaults."""
    rank, auto = len(kernel), call.text("auto_pad", "NOTSET")
    pads = (call.integers("pads") if auto == "NOTSET" else None) or ()
    return Window(
        kernel,
        space,
        stride=call.integers("strides"),
        dilation=call.integers("dilations"),
        pads=tuple(zip(pads[:rank], pads[rank:], strict=False)),
        same=auto in ("SAME_UPPER", "SAME_LOWER"),
    )


def _kernel(call: Call, weight: Dims) -> tuple[Extent, ...]:
    return call.integers("kernel_shape") or weight


@handles("Conv")
@handles("FusedConv", domains=(MICROSOFT,))
def _conv(call: Call) -> Meaning:
    x, weight, bias = call[0], call[1], call.at(2)
    over = window(call, _kernel(call, weight.dims[2:]), x.dims[2:])
    out = Out((x.dims[0], weight.dims[0], *over.swept()), x.dtype)
    reads = [x, weight, bias]
    attrs = {**over.geometry, **then(call)}
    if call.at(3) is not None:  # FusedConv adds another tensor before its activation
        attrs |= {"then": ("add", *attrs.get("then", ())), "bias": bias is not None}  # type: ignore[misc]
        reads.append(call[3])
    return Meaning("conv", attrs, [out], reads)


@handles("NhwcConv", "NhwcFusedConv", domains=(MICROSOFT, "com.ms.internal.nhwc"))
@handles("Conv", domains=("com.ms.internal.nhwc",))
def _nhwc_conv(call: Call) -> Meaning:
    """Channels come last in the image, not in the weight."""
    x, weight, bias = call[0], call[1], call.at(2)
    over = window(call, _kernel(call, weight.dims[2:]), x.dims[1:-1])
    out = Out((x.dims[0], *over.swept(), weight.dims[0]), x.dtype)
    return Meaning("conv", {**over.geometry, **then(call)}, [out], [x, weight, bias])


@handles("ConvInteger", "QLinearConv", domains=("", MICROSOFT))
def _quantized_conv(call: Call) -> Meaning:
    integer = call.node.op == "ConvInteger"
    x, weight, bias = call[0], call[1 if integer else 3], None if integer else call.at(8)
    last = call.flag("channels_last")
    over = window(call, _kernel(call, weight.dims[2:]), x.dims[1:-1] if last else x.dims[2:])
    space = over.swept()
    shape = (x.dims[0], *space, weight.dims[0]) if last else (x.dims[0], weight.dims[0], *space)
    attrs: dict[str, Any] = {"macs": numel(shape) * prod(known(weight.dims[1:])), **over.geometry}
    if bias is not None:
        attrs["bias"] = True
    return Meaning("conv", attrs, [Out(shape, "int32" if integer else call[7].dtype)], call.given)


@handles("ConvTranspose")
def _conv_transpose(call: Call) -> Meaning:
    x, weight, bias = call[0], call[1], call.at(2)
    rank = len(x.dims) - 2
    over = window(call, _kernel(call, weight.dims[2:]), x.dims[2:])
    target = call.integers("output_shape")
    space = tuple(target[-rank:]) if target else over.spread(call.integers("output_padding"))
    channels = times(weight.dims[1], call.whole("group", 1))
    attrs = {"transposed": True, **over.geometry}
    return Meaning("conv", attrs, [Out((x.dims[0], channels, *space), x.dtype)], [x, weight, bias])


@handles("DeformConv")
def _deform_conv(call: Call) -> Meaning:
    x, weight, bias = call[0], call[1], call.at(3)
    over = window(call, _kernel(call, weight.dims[2:]), x.dims[2:])
    reads = [x, weight, bias, call[2], call.at(4)]
    out = Out((x.dims[0], weight.dims[0], *over.swept()), x.dtype)
    return Meaning("conv", {"sampled": 4, "bias": bias is not None, **over.geometry}, [out], reads)


# -- recurrent layers --------------------------------------------------------------------------------------------------


@handles("LSTM", "GRU", "RNN")
@handles("DynamicQuantizeLSTM", domains=(MICROSOFT,))
def _recurrent(call: Call) -> Meaning:
    x, state = call[0], call[2]
    name = "LSTM" if call.node.op.endswith("LSTM") else call.node.op
    hidden = call.whole("hidden_size") or known(state.dims[-1:])[0]
    ways = 2 if call.text("direction") == "bidirectional" else 1
    length, batch, width = x.dims if not call.whole("layout") else swapped(x.dims, 0, 1)
    cell = {"LSTM": "lstm", "GRU": "gru"}.get(name, "rnn_tanh")
    if name == "RNN" and call.attrs.get("activations", ("Tanh",))[0] == "Relu":
        cell = "rnn_relu"
    attrs: dict[str, Any] = {
        "cell": cell,
        "steps": numel((length, batch)),
        "layers": ((known((width,))[0], hidden, hidden),) * ways,
    }
    if call.at(3) is not None:
        attrs["bias"] = True
    every: Dims = (length, ways, batch, hidden)
    last: Dims = (ways, batch, hidden)
    if call.whole("layout"):
        every, last = (batch, length, ways, hidden), (batch, ways, hidden)
    outs = [Out(every, x.dtype), Out(last, x.dtype), Out(last, x.dtype)]
    if (
        name == "LSTM" and call.node.op == "LSTM" and call.at(7) is not None
    ):  # a product and an addition for three of its gates
        peeped = Out((3 * numel((length, batch)), ways, hidden), x.dtype)
        call.step("elementwise", {"fn": "fma"}, [call[7]], [peeped])
    return Meaning("recurrent", attrs, outs)
