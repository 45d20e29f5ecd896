"""Results of matrix products and convolutions, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call, per_axis
from opcost.frontends.aten.outputs.table import like, made, on, on_each, only
from opcost.frontends.aten.tensor import Described, Tensor, type_name


def product(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape of a product over the last axis of one and the last but one of the other, the others broadcast."""
    rows, columns = tuple(a[-2:-1]), tuple(b[-1:]) if len(b) > 1 else ()
    return (*broadcast([a[:-2], b[:-2]]), *rows, *columns)


@on("mm", "bmm", "mv", "matmul", "linalg_matmul", "dot", "vdot", "_scaled_mm", "_int_mm")
def _plain(call: Call) -> tuple[Described, ...]:
    a, b = (call[name] for name in list(call.args)[:2])
    wanted = next((call[name] for name in ("out_dtype", "dtype") if name in call.args), None)
    dtype = "int32" if call.base == "_int_mm" else wanted or type_name(a)
    return (made(product(a.shape, b.shape), dtype),)


@on("addmm", "_addmm_activation", "baddbmm", "addmv", "sspaddmm")
def _added(call: Call) -> tuple[Described, ...]:
    a, b = (call[name] for name in list(call.args)[1:3])
    wanted = call["out_dtype"] if "out_dtype" in call.args else None
    return (made(product(a.shape, b.shape), wanted or type_name(a)),)


@on("addbmm")
def _addbmm(call: Call) -> tuple[Described, ...]:
    a, b = call["batch1"], call["batch2"]
    return (made((a.shape[1], b.shape[2]), type_name(a)),)


@on("linear", "mkldnn_linear")
def _linear(call: Call) -> tuple[Described, ...]:
    x, weight = call.get("input", "self"), call["weight"]
    return (made((*x.shape[:-1], *weight.shape[:-1]), type_name(x)),)


@on("linear_backward", "mkldnn_linear_backward")
def _linear_backward(call: Call) -> tuple[Tensor, ...]:
    grad, weight = call["grad_output"], call["weight"]
    grads = like(call["self"]), like(weight), made(grad.shape[-1:], type_name(grad))
    return only(grads, call["output_mask"])


@on("linalg_vecdot")
def _vecdot(call: Call) -> tuple[Described, ...]:
    shape = list(broadcast([call["x"].shape, call["y"].shape]))
    del shape[call["dim"]]
    return (made(shape, type_name(call["x"])),)


@on("tensordot")
def _tensordot(call: Call) -> tuple[Described, ...]:
    kept = (
        tuple(n for axis, n in enumerate(x.shape) if axis not in {dim % x.dim() for dim in dims})
        for x, dims in ((call["self"], call["dims_self"]), (call["other"], call["dims_other"]))
    )
    return (made(sum(kept, ()), type_name(call["self"])),)


@on("_trilinear")
def _trilinear(call: Call) -> tuple[Described, ...]:
    """Each operand gets axes of one element where it is expanded; the summed axes are gone."""
    shapes = []
    for name, where in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        shape = list(call[name].shape)
        for axis in call[where]:
            shape.insert(axis, 1)
        shapes.append(shape)
    summed = set(call["sumdim"])
    kept = (n for axis, n in enumerate(broadcast(shapes)) if axis not in summed)
    return (made(kept, type_name(call["i1"])),)


@on("affine_grid_generator", "cudnn_affine_grid_generator")
def _affine_grid(call: Call) -> tuple[Described, ...]:
    if "size" in call.args:
        batch, _, *extents = call["size"]
    else:
        batch, extents = call["N"], [call["H"], call["W"]]
    return (made((batch, *extents, len(extents)), type_name(call["theta"])),)


def _list(call: Call, name: str, axes: int, otherwise: int) -> tuple[int, ...]:
    """A setting of a convolution, one number for each axis."""
    return per_axis(call[name], axes) if name in call.args else (otherwise,) * axes


def _turned(call: Call) -> bool:
    return bool(call["transposed"]) if "transposed" in call.args else "transpose" in call.base


@on(
    "conv1d", "conv2d", "conv3d", "_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv3d", "thnn_conv2d",
    "slow_conv_dilated2d", "slow_conv_dilated3d", "_conv_depthwise2d", "conv_depthwise3d", "cudnn_convolution",
    "miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution", "convolution", "_convolution",
    "convolution_overrideable", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "slow_conv_transpose2d",
    "slow_conv_transpose3d", "cudnn_convolution_transpose", "miopen_convolution_transpose", "cudnn_convolution_relu",
    "cudnn_convolution_add_relu", "miopen_convolution_relu", "miopen_convolution_add_relu", "_convolution_mode",
)  # fmt: skip
def _convolution(call: Call) -> tuple[Described, ...]:
    x, weight = call.get("input", "self"), call["weight"]
    axes = weight.dim() - 2
    if call.args.get("padding") == "same":
        return (made((*x.shape[: -axes - 1], weight.shape[0], *x.shape[-axes:]), type_name(x)),)
    valid = call.args.get("padding") == "valid"
    padding, stride = (0,) * axes if valid else _list(call, "padding", axes, 0), _list(call, "stride", axes, 1)
    dilation = _list(call, "dilation", axes, 1)
    sizes = zip(x.shape[-axes:], weight.shape[2:], stride, padding, dilation, strict=True)
    if _turned(call):
        extra = _list(call, "output_padding", axes, 0)
        spatial = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + e for (n, k, s, p, d), e in zip(sizes, extra, strict=True)]
        channels = weight.shape[1] * (call["groups"] if "groups" in call.args else 1)
    else:
        spatial = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
        channels = weight.shape[0]
    return (made((*x.shape[: -axes - 1], channels, *spatial), type_name(x)),)


@on("bilinear")
def _bilinear(call: Call) -> tuple[Described, ...]:
    x = call["input1"]
    return (made((*x.shape[:-1], call["weight"].shape[0]), type_name(x)),)


@on("conv_tbc")
def _conv_tbc(call: Call) -> tuple[Described, ...]:
    x, weight = call["self"], call["weight"]
    steps = x.shape[0] + 2 * call["pad"] - weight.shape[0] + 1
    return (made((steps, x.shape[1], weight.shape[2]), type_name(x)),)


def _conv_grads(call: Call, x: str) -> tuple[Any, ...]:
    grad, weight = call["grad_output"], call["weight"]
    grads = like(call[x]), like(weight), made(grad.shape[1:2], type_name(grad))
    return only(grads, call["output_mask"])


on_each(
    {
        "outer ger": lambda call: (made((*call["self"].shape, *call.get("vec2").shape), type_name(call["self"])),),
        "addr": lambda call: (made((*call["vec1"].shape, *call["vec2"].shape), type_name(call["self"])),),
        "convolution_backward convolution_backward_overrideable": lambda call: _conv_grads(call, "input"),
        "_slow_conv2d_backward": lambda call: _conv_grads(call, "self"),
    }
)
