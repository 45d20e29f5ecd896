"""Convolutions, matrix products and attention, and their gradients, as PyTorch's traces name them."""

from __future__ import annotations

from typing import NamedTuple

from opcost.core.graph import NO_ATTRS, Attrs, TensorSpec
from opcost.core.parsing import parse
from opcost.traces.aten_call import Argument, Meaning, Told, Translator, broadcast, numbers, of, tensor


def _product(a: TensorSpec, b: TensorSpec, added: Argument = None) -> Meaning:
    """A matrix product, perhaps of batches that broadcast."""
    depth = a.dims[-1]
    batch = broadcast(a.dims[:-2], b.dims[:-2])
    shape = batch + a.dims[-2:-1] + (b.dims[-1:] if len(b.dims) > 1 else ())
    attrs: dict[str, int | bool] = {"depth": depth}
    if added is not None:
        attrs["bias"] = True
    return Meaning("matmul", (a, b) if added is None else (a, b, added), (TensorSpec(shape, a.dtype),), attrs)


def _plain_product(arguments: list[Argument], values: list[str]) -> Meaning:
    return _product(tensor(arguments, 0), tensor(arguments, 1))


def _added_product(arguments: list[Argument], values: list[str]) -> Meaning:
    return _product(tensor(arguments, 1), tensor(arguments, 2), tensor(arguments, 0))


def _linear(arguments: list[Argument], values: list[str]) -> Meaning:
    x, weight = tensor(arguments, 0), tensor(arguments, 1)
    bias = arguments[2] if len(arguments) > 2 else None
    y = TensorSpec(x.dims[:-1] + weight.dims[:1], x.dtype)
    attrs: dict[str, int | bool] = {"depth": weight.dims[-1]}
    if bias is not None:
        attrs["bias"] = True
    return Meaning("matmul", (x, weight) if bias is None else (x, weight, bias), (y,), attrs)


class _Places(NamedTuple):
    """Where a convolution's arguments stand; None where it has no such argument."""

    bias: int | None
    stride: int
    padding: int
    dilation: int | None = None
    transposed: int | bool | None = None
    output_padding: int | None = None
    groups: int | None = None


def _convolution(places: _Places) -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        x, weight = tensor(arguments, 0), tensor(arguments, 1)
        bias = None if places.bias is None else arguments[places.bias]
        rank = len(weight.dims) - 2
        turned = places.transposed
        transposed = turned if isinstance(turned, bool) else turned is not None and values[turned] == "True"
        stride, padding = numbers(values, places.stride, rank), numbers(values, places.padding, rank)
        dilation = numbers(values, places.dilation, rank) if places.dilation is not None else [1] * rank
        groups = int(values[places.groups]) if places.groups is not None else 1
        sizes = zip(x.dims[-rank:], weight.dims[2:], stride, padding, dilation, strict=True)
        if transposed:
            extra = numbers(values, places.output_padding, rank) if places.output_padding is not None else [0] * rank
            spatial = [
                (n - 1) * s - 2 * p + d * (k - 1) + 1 + e for (n, k, s, p, d), e in zip(sizes, extra, strict=True)
            ]
            channels = weight.dims[1] * groups
        else:
            spatial = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
            channels = weight.dims[0]
        y = TensorSpec((*x.dims[: -rank - 1], channels, *spatial), x.dtype)
        attrs: Attrs = {"transposed": True} if transposed else NO_ATTRS
        return Meaning("conv", (x, weight) if bias is None else (x, weight, bias), (y,), attrs)

    return translate


def _convolution_backward(arguments: list[Argument], values: list[str]) -> Meaning:
    grad_y, x, weight = (tensor(arguments, place) for place in range(3))
    mask = parse(values[-1].lower())
    grads = tuple(name for name, wanted in zip(("input", "weight", "bias"), mask, strict=True) if wanted)
    made = {"input": x, "weight": weight, "bias": TensorSpec(grad_y.dims[1:2], grad_y.dtype)}
    attrs: dict[str, bool | tuple[str, ...]] = {"grads": grads}
    if values[7] == "True":
        attrs["transposed"] = True
    return Meaning("conv", (grad_y, x, weight), tuple(made[name] for name in grads), attrs)


def _attention(mask: int | None, causal: int, *, heads_last: bool = False, yes: str = "True") -> Translator:
    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        q, k, v = (tensor(arguments, place) for place in range(3))
        masked = arguments[mask] if mask is not None else None
        attrs = {}
        if values[causal] == yes:
            attrs["causal"] = True
        if heads_last:
            attrs["heads_last"] = True
        y = TensorSpec(q.dims[:-1] + v.dims[-1:], q.dtype)
        return Meaning("attention", (q, k, v) if masked is None else (q, k, v, masked), (y,), attrs)

    return translate


def _attention_backward(
    causal: int, *, mask: int | None = None, heads_last: bool = False, yes: str = "True"
) -> Translator:
    forward = _attention(None if mask is None else mask - 1, causal - 1, heads_last=heads_last, yes=yes)

    def translate(arguments: list[Argument], values: list[str]) -> Meaning:
        """The gradient of the output stands before the arguments of the forward operator."""
        told = forward(arguments[1:], values[1:])
        grad_y, (q, k, v, *_) = tensor(arguments, 0), told.ins
        return Meaning("attention", (grad_y, *told.ins), (q, k, v), {"grad": True, "products": 5, **told.attrs})

    return translate


VALUED: dict[str, Told] = {
    **of(
        "conv",
        {
            "conv1d": _convolution(_Places(2, 3, 4, 5, groups=6)),
            "conv2d": _convolution(_Places(2, 3, 4, 5, groups=6)),
            "conv3d": _convolution(_Places(2, 3, 4, 5, groups=6)),
            "convolution": _convolution(_Places(2, 3, 4, 5, 6, 7, 8)),
            "_convolution": _convolution(_Places(2, 3, 4, 5, 6, 7, 8)),
            "convolution_overrideable": _convolution(_Places(2, 3, 4, 5, 6, 7, 8)),
            "mkldnn_convolution": _convolution(_Places(2, 4, 3, 5, groups=6)),
            "miopen_convolution": _convolution(_Places(2, 4, 3, 5, groups=6)),
            "cudnn_convolution": _convolution(_Places(None, 3, 2, 4, groups=5)),
            "cudnn_convolution_relu": _convolution(_Places(2, 3, 4, 5, groups=6)),
            "cudnn_convolution_transpose": _convolution(_Places(None, 4, 2, 5, True, 3, 6)),  # noqa: FBT003
            "_slow_conv2d_forward": _convolution(_Places(3, 4, 5)),
            "thnn_conv2d": _convolution(_Places(3, 4, 5)),
            "_conv_depthwise2d": _convolution(_Places(3, 4, 5, 6)),
            "slow_conv_dilated2d": _convolution(_Places(3, 4, 5, 6)),
            "convolution_backward": _convolution_backward,
        },
    ),
    **of(
        "attention",
        {
            "scaled_dot_product_attention": _attention(3, 5),
            "_scaled_dot_product_flash_attention": _attention(None, 4),
            "_scaled_dot_product_flash_attention_for_cpu": _attention(None, 4),
            "_scaled_dot_product_efficient_attention": _attention(3, 6),
            "_scaled_dot_product_cudnn_attention": _attention(3, 6),
            "_cudnn_attention_forward": _attention(3, 10),
            "_flash_attention_forward": _attention(None, 8, heads_last=True),
            "_efficient_attention_forward": _attention(3, 9, heads_last=True, yes="1"),
            "_scaled_dot_product_flash_attention_backward": _attention_backward(11),
            "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward(7),
            "_scaled_dot_product_efficient_attention_backward": _attention_backward(11, mask=4),
            "_scaled_dot_product_cudnn_attention_backward": _attention_backward(14, mask=8),
            "_cudnn_attention_backward": _attention_backward(14, mask=8),
            "_flash_attention_backward": _attention_backward(11, heads_last=True),
            "_efficient_attention_backward": _attention_backward(14, mask=4, heads_last=True, yes="1"),
        },
    ),
}

PLAIN: dict[str, Told] = {
    **of(
        "matmul",
        {
            "mm": _plain_product,
            "bmm": _plain_product,
            "mv": _plain_product,
            "_scaled_mm": _plain_product,
            "addmm": _added_product,
            "_addmm_activation": _added_product,
            "baddbmm": _added_product,
            "addmv": _added_product,
            "linear": _linear,
            "mkldnn_linear": _linear,
        },
    ),
}
