"""Pooling over windows, fixed or adaptive."""

from __future__ import annotations

from math import prod

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Extent, Last, Mismatch, adaptive_windows, same_windows, text, total, windows
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.convolution import channels_last, image
from opcost.frontends.mxnet.ops.table import Call, Translation, define

_FUNCTIONS = {"max": "max", "avg": "avg", "sum": "avg", "lp": "lp"}
"""A sum costs what a mean does, but for one division."""


def _space(call: Call, shape: Dims) -> slice:
    """The axes between batch and channels, or behind both."""
    if len(shape) < 3:
        raise Mismatch(f"the data is {text(shape)}, which has no space to pool over")
    return slice(1, -1) if channels_last(call.attrs) else slice(2, None)


def _pooling(call: Call) -> None:
    x = call.dims(0)
    space = _space(call, x)
    y = list(x)
    if call.attrs.flag("global_pool"):
        y[space] = [1] * len(x[space])
    else:
        y[space] = _swept(call.attrs, x[space])
    call.put_out(0, tuple(y))
    if call.outs[0] is not None:
        call.put_in(0, tuple(n if i == 0 else None for i, n in enumerate(call.outs[0])))


def _swept(attrs: Attributes, space: Dims) -> list[Extent]:
    kernel = attrs.integers("kernel")
    rank = len(kernel)
    stride = attrs.integers("stride", ()) or (1,) * rank
    pad = attrs.integers("pad", ()) or (0,) * rank
    if not len(stride) == len(pad) == rank or min(*kernel, *stride) < 1 or min(pad) < 0:
        raise AttributeFault("kernel, stride and pad do not fit each other")
    if rank != len(space):
        raise Mismatch(f"a kernel of {rank} axes does not fit a space of {len(space)}")
    convention = attrs.text("pooling_convention", "valid")
    axes = zip(space, kernel, stride, pad, strict=True)
    last: Last = "any" if convention == "full" else "whole"
    swept = [windows(n, k, stride=s, padding=(p, p), last=last) for n, k, s, p in axes]
    if convention == "same":
        return [same_windows(total((n, 2 * p)), s) for n, s, p in zip(space, stride, pad, strict=True)]
    return swept


def _pooled(call: Call) -> Translation:
    fn = _FUNCTIONS.get(call.attrs.text("pool_type", "max"))
    if fn is None:
        raise AttributeFault(f"the pool_type {call.attrs.text('pool_type')!r} is not known")
    if call.attrs.flag("global_pool"):
        x = call.x()
        kernel = stride = x[_space(call, x)]
    else:
        kernel = call.attrs.integers("kernel")
        stride = call.attrs.integers("stride", ()) or (1,) * len(kernel)
    return Translation("pool", {"fn": fn, "window": prod(kernel), "kernel": kernel, "stride": stride})


def _adaptive(call: Call) -> None:
    batch, channels, _, _ = image(call.dims(0))
    size = call.attrs.integers("output_size", ())
    height, width = size if len(size) == 2 else (size * 2 if len(size) == 1 else (1, 1))
    call.put_out(0, (batch, channels, height, width))


def _adapted(call: Call) -> Translation:
    source, target = call.x()[2:], call.y()[2:]
    kernel, stride = adaptive_windows(source, target)
    attrs: dict[str, Attr] = {"fn": "adaptive_avg", "window": prod(kernel)}
    if all(target):
        attrs["kernel"] = kernel
        attrs["stride"] = stride
    return Translation("pool", attrs)


define("Pooling _npx_pooling Pooling_v1", _pooling, _pooled, slots="data")
define(
    "_contrib_AdaptiveAvgPooling2D _npx_adaptive_avg_pooling2d contrib_AdaptiveAvgPooling2D",
    _adaptive,
    _adapted,
    slots="data",
)
