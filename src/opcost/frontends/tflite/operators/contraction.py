"""Products: convolutions, matrices, and StableHLO's general forms of both. Weights of convolutions are (out, *kernel, in)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.core.shapes import Dims, Extent, Mismatch, divided, known, matmul, product, times, windows
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, numel
from opcost.frontends.nodes.windows import Window
from opcost.frontends.tflite.table import handles, then

SAME = 0


def window(call: Call, space: Dims, kernel: Dims, axes: str) -> Window:
    """The window of an operator along the axes `hw` or `dhw`."""
    return Window(
        kernel,
        space,
        stride=[call.whole(f"stride_{axis}", 1) for axis in axes],
        dilation=[call.whole(f"dilation_{axis}", 1) for axis in axes],
        same=call.whole("padding") == SAME,
    )


def _told(macs: int, bias: Made | None, **more: Any) -> dict[str, Any]:
    """Attributes of a product whose weight is not laid out as the rule knows it."""
    return {"macs": macs, **({"bias": True} if bias is not None else {}), **more}


@handles("CONV_2D")
def _conv(call: Call) -> Meaning:
    """The weight has the channels of one group."""
    x, weight, bias = call[0], call[1], call.at(2)
    if x.dims[-1]:
        divided(x.dims[-1], known(weight.dims[-1:])[0], "channels", "of a group")
    over = window(call, x.dims[1:-1], weight.dims[1:-1], "hw")
    out = Out((x.dims[0], *over.swept(), weight.dims[0]), x.dtype)
    return Meaning("conv", {**over.geometry, **then(call)}, [out], [x, weight, bias])


@handles("DEPTHWISE_CONV_2D")
def _depthwise(call: Call) -> Meaning:
    """The weight is (1, *kernel, out): each element of the result meets one kernel."""
    x, weight, bias = call[0], call[1], call.at(2)
    kernel = weight.dims[1:-1]
    over = window(call, x.dims[1:-1], kernel, "hw")
    shape = (x.dims[0], *over.swept(), weight.dims[-1])
    attrs = _told(numel(shape) * prod(known(kernel)), bias, **over.geometry, **then(call))
    return Meaning("conv", attrs, [Out(shape, x.dtype)], [x, weight, bias])


@handles("CONV_3D")
def _conv_3d(call: Call) -> Meaning:
    """The weight is (*kernel, in, out)."""
    x, weight, bias = call[0], call[1], call.at(2)
    over = window(call, x.dims[1:-1], weight.dims[:3], "dhw")
    shape = (x.dims[0], *over.swept(), weight.dims[-1])
    attrs = _told(numel(shape) * prod(known(weight.dims[:-1])), bias, **over.geometry, **then(call))
    return Meaning("conv", attrs, [Out(shape, x.dtype)], [x, weight, bias])


@handles("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
def _transposed(call: Call) -> Meaning:
    """Each element of x meets the kernel, for every channel of the result; the shape of the result is an input."""
    target, weight, x, bias = call[0], call[1], call[2], call.at(3)
    flat = call.node.op == "TRANSPOSE_CONV"
    kernel, channels = (weight.dims[1:-1], weight.dims[0]) if flat else (weight.dims[:3], weight.dims[3])
    shape: Dims = target.integers if target.content is not None else _spread(call, x, kernel, channels)
    attrs = _told(numel(x.shape) * prod(known((*kernel, channels))), bias, **then(call))
    return Meaning("conv", attrs, [Out(shape, x.dtype)], [x, weight, bias])


def _spread(call: Call, x: Made, kernel: Dims, channels: Extent) -> Dims:
    """The shape that follows from x alone, where the one that is asked for depends on data."""
    strides = [call.whole(f"stride_{axis}", 1) for axis in ("dhw" if len(kernel) > 2 else "hw")]
    space = [times(n, s) for n, s in zip(x.dims[1:-1], strides, strict=True)]
    if call.whole("padding") != SAME:
        space = [
            None if n is None or k is None else n + max(k - s, 0)
            for n, k, s in zip(space, kernel, strides, strict=True)
        ]
    return (x.dims[0], *space, channels)


@handles("FULLY_CONNECTED")
def _fully_connected(call: Call) -> Meaning:
    x, weight, bias = call[0], call[1], call.at(2)
    width, depth = known(weight.dims)
    if call.flag("keep_num_dims"):
        if x.dims[-1] not in (None, depth):
            raise Mismatch(f"rows of {x.dims[-1]} elements do not fit a weight of {depth}")
        shape: Dims = (*x.dims[:-1], width)
    else:
        shape = (divided(product(x.dims), depth, "elements", "rows") if depth else None, width)
    attrs: dict[str, Any] = {"depth": depth, **then(call), **({"bias": True} if bias is not None else {})}
    return Meaning("matmul", attrs, [Out(shape, x.dtype)], [x, weight, bias])


@handles("BATCH_MATMUL")
def _batch_matmul(call: Call) -> Meaning:
    a, b = call[0], call[1]
    shape = matmul(a.dims, b.dims, transpose_a=call.flag("adj_x"), transpose_b=call.flag("adj_y"))
    depth = known((a.dims[-2 if call.flag("adj_x") else -1],))[0]
    return Meaning("matmul", {"depth": depth}, [Out(shape, a.dtype)])


@handles("STABLEHLO_DOT_GENERAL")
def _dot_general(call: Call) -> Meaning:
    a, b = call[0], call[1]
    batch, summed = call.attrs["batch_a"], call.attrs["summed_a"]
    rows = [n for axis, n in enumerate(a.dims) if axis not in (*batch, *summed)]
    gone = (*call.attrs["batch_b"], *call.attrs["summed_b"])
    columns = [n for axis, n in enumerate(b.dims) if axis not in gone]
    depth = prod(known(tuple(a.dims[axis] for axis in summed)))
    shape = (*[a.dims[axis] for axis in batch], *rows, *columns)
    return Meaning("matmul", {"depth": depth}, [Out(shape, a.dtype)])


@handles("STABLEHLO_CONVOLUTION")
def _convolution(call: Call) -> Meaning:
    """Axes stand where the options say; an element of the result meets the kernel of one group."""
    x, weight, at = call[0], call[1], call.attrs
    kernel = [weight.dims[axis] for axis in at["kernel_space"]]
    rank = len(kernel)
    strides, dilations, spread = (at[name] or (1,) * rank for name in ("strides", "dilations", "spread"))
    pads: Sequence[int] = at["padding"] or (0,) * (2 * rank)
    shape: list[Extent] = [None] * (rank + 2)
    shape[at["out_batch"]] = x.dims[at["in_batch"]]
    shape[at["out_channels"]] = weight.dims[at["kernel_out"]]
    for place, axis in enumerate(at["out_space"]):
        extent = x.dims[at["in_space"][place]]
        grown = None if extent is None else (extent - 1) * spread[place] + 1
        shape[axis] = windows(
            grown,
            kernel[place],
            stride=strides[place],
            dilation=dilations[place],
            padding=(pads[2 * place], pads[2 * place + 1]),
        )
    macs = numel(tuple(shape)) * prod(known((*kernel, weight.dims[at["kernel_in"]])))
    return Meaning("conv", {"macs": macs}, [Out(tuple(shape), x.dtype)], [x, weight])
