"""Pooling over windows, fixed or adaptive."""

from __future__ import annotations

from math import prod

from opcost.core.graph import Attr
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.convolution import channels_last
from opcost.frontends.mxnet.ops.table import Call, Operator, Translation, register
from opcost.frontends.mxnet.shape import Extent, Mismatch, show

_FUNCTIONS = {"max": "max", "avg": "avg", "sum": "avg", "lp": "lp"}
"""A sum costs what a mean does, but for one division."""


def _space(call: Call, shape: tuple[Extent, ...]) -> slice:
    """The axes between batch and channels, or behind both."""
    if len(shape) < 3:
        raise Mismatch(f"the data is {show(shape)}, which has no space to pool over")
    return slice(1, -1) if channels_last(call.attrs) else slice(2, None)


def _pooling(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    space = _space(call, x)
    y = list(x)
    if call.attrs.flag("global_pool"):
        y[space] = [1] * len(x[space])
    else:
        y[space] = _swept(call.attrs, x[space])
    call.put_out(0, tuple(y))
    if call.outs[0] is not None:
        call.put_in(0, tuple(n if i == 0 else None for i, n in enumerate(call.outs[0])))


def _swept(attrs: Attributes, space: tuple[Extent, ...]) -> list[Extent]:
    kernel = attrs.integers("kernel")
    rank = len(kernel)
    stride = attrs.integers("stride", ()) or (1,) * rank
    pad = attrs.integers("pad", ()) or (0,) * rank
    if not len(stride) == len(pad) == rank or min(*kernel, *stride) < 1 or min(pad) < 0:
        raise AttributeFault("kernel, stride and pad do not fit each other")
    if rank != len(space):
        raise Mismatch(f"a kernel of {rank} axes does not fit a space of {len(space)}")
    convention = attrs.text("pooling_convention", "valid")
    found: list[Extent] = []
    for extent, k, s, p in zip(space, kernel, stride, pad, strict=True):
        if extent is None:
            found.append(None)
            continue
        room = extent + 2 * p - k
        if room < 0:
            raise Mismatch(f"a window of {k} does not fit {extent} padded by {p}")
        if convention == "full":
            found.append(1 - (-room // s))
        elif convention == "same":
            found.append(-(-(extent + 2 * p) // s))
        else:
            found.append(1 + room // s)
    return found


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
    x = call.ins[0]
    if x is None:
        return
    if len(x) != 4:
        raise Mismatch(f"the data is {show(x)}, not batch, channels, height and width")
    size = call.attrs.integers("output_size", ())
    height, width = size if len(size) == 2 else (size * 2 if len(size) == 1 else (1, 1))
    call.put_out(0, (x[0], x[1], height, width))


def adaptive_window(source: tuple[int, ...], target: tuple[int, ...]) -> int:
    """Elements under one output, on average."""
    return prod(-(-n // m) for n, m in zip(source, target, strict=True) if m)


def _adapted(call: Call) -> Translation:
    source, target = call.x()[2:], call.y()[2:]
    attrs: dict[str, Attr] = {"fn": "adaptive_avg", "window": adaptive_window(source, target)}
    if all(target):
        attrs["kernel"] = tuple(-(-n // m) for n, m in zip(source, target, strict=True))
        attrs["stride"] = tuple(n // m for n, m in zip(source, target, strict=True))
    return Translation("pool", attrs)


register(("Pooling", "_npx_pooling", "Pooling_v1"), Operator(_pooling, _pooled, slots=("data",)))
register(
    ("_contrib_AdaptiveAvgPooling2D", "_npx_adaptive_avg_pooling2d", "contrib_AdaptiveAvgPooling2D"),
    Operator(_adaptive, _adapted, slots=("data",)),
)
