"""Operators that move a kernel over an image: convolutions, transposed ones, and pools, with the words that formats have."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.core import shapes
from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Mismatch, divided, known, same_windows, times
from opcost.frontends.nodes.meaning import NodeCall, Operand, Operands, OperatorMeaning, Out
from opcost.frontends.nodes.results import element_type, numel, one, with_bias

_ACTIVATIONS = {
    **{name: name for name in "relu tanh sigmoid hardsigmoid hardswish gelu gelu_tanh".split()},
    "leakyrelu": "leaky_relu", "clip": "clamp",
    "1": "relu", "2": "hardtanh", "3": "relu6", "4": "tanh", "5": "sign",  # TensorFlow Lite has numbers
}  # fmt: skip


def then(call: NodeCall) -> dict[str, tuple[str, ...]]:
    """The activation that a product or a convolution applies to its result."""
    given = call.attrs.get("activation")
    name = _ACTIVATIONS.get(str(given).lower()) if given else None
    return {"then": (name,)} if name else {}


class SlidingWindow:
    """Kernel, stride, dilation and padding along each axis of an image; what is not given is 1, or nothing.

    `same`: the axes are padded so that only the stride shortens them.
    """

    def __init__(
        self, kernel: Dims, space: Dims, *, stride: Sequence[int] = (), dilation: Sequence[int] = (),
        pads: Sequence[tuple[int, int]] = (), same: bool = False,
    ) -> None:  # fmt: skip
        rank = len(kernel)
        self.kernel, self.space, self.same = kernel, space, same
        self.stride, self.dilation = tuple(stride or (1,) * rank), tuple(dilation or (1,) * rank)
        self.pads = tuple(pads or ((0, 0),) * rank)
        if not len(self.stride) == len(self.dilation) == len(self.pads) == len(space) == rank:
            raise Mismatch("kernel, strides, dilations and paddings do not have the same number of axes")
        if min(self.stride, default=1) < 1:
            raise Mismatch(f"its strides are {self.stride}")

    @classmethod
    def of(cls, call: NodeCall, kernel: Dims, space: Dims) -> SlidingWindow:
        """By the attributes of a node.

        Formats have their own words for the padding: Core ML's `pad_type` and pairs, ONNX's `auto_pad` and all that is before,
        then all that is behind, and TensorFlow Lite's number.
        """
        rank = len(kernel)
        pads: Any = ()
        mode = call.text("pad_type", call.text("auto_pad", "NOTSET"))
        if mode == "custom" and (given := call.integers("pad")):
            pads = tuple(zip(given[::2], given[1::2], strict=False))
        elif mode == "NOTSET" and (given := call.integers("pads")):
            pads = tuple(zip(given[:rank], given[rank:], strict=False))
        same = mode[:4] in ("same", "SAME") or call.attrs.get("padding") == 0
        stride, dilation = _along(call, "strides", "stride", rank), _along(call, "dilations", "dilation", rank)
        return cls(kernel, space, stride=stride, dilation=dilation, pads=pads, same=same)

    def swept(self, *, ceil: bool = False) -> Dims:
        """The number of places that the kernel takes along each axis."""
        if self.same:
            return tuple(map(same_windows, self.space, self.stride))
        axes = zip(self.space, self.kernel, self.stride, self.dilation, self.pads, strict=True)
        last: Any = "begun" if ceil else "whole"
        return tuple([shapes.windows(n, k, stride=s, dilation=d, padding=p, last=last) for n, k, s, d, p in axes])

    def spread(self, extra: Sequence[int] | None = None) -> Dims:
        """What a transposed convolution makes of each axis."""
        if self.same:
            return tuple(map(times, self.space, self.stride))
        more = extra or (0,) * len(self.kernel)
        axes = zip(self.space, self.kernel, self.stride, self.dilation, self.pads, more, strict=True)
        return tuple([shapes.spread(n, k, stride=s, dilation=d, padding=p, extra=e) for n, k, s, d, p, e in axes])

    @property
    def geometry(self) -> dict[str, Attr]:
        """What a receptive field follows from."""
        return {"kernel": known(self.kernel), "stride": self.stride, "dilation": self.dilation}


def _along(call: NodeCall, many: str, each: str, rank: int) -> tuple[int, ...]:
    """A number for each axis: in one attribute, or in several for depth, height and width; 1 unless given."""
    given = call.integers(many)
    if not given and (f"{each}_h" in call.attrs or f"{each}_d" in call.attrs):
        return tuple([call.whole(f"{each}_{axis}", 1) for axis in "dhw"[-rank:]])
    return given or (1,) * rank


def _image(call: NodeCall, x: Operand, rank: int) -> tuple[Dims, Dims, Dims]:
    """The axes before those over which the kernel moves, these, and those behind; `loose`: some may lack in front."""
    end = len(x.dims) - bool(call.attrs.get("last"))
    before, space, behind = x.dims[: end - rank], x.dims[end - rank : end], x.dims[end:]
    if len(before) + len(behind) != 2 and "loose" not in call.attrs:
        raise Mismatch(
            f"a kernel of {rank} axes does not fit an image of {len(x.dims)}, with those of batch and channels"
        )
    return before, space, behind


def conv(call: NodeCall) -> OperatorMeaning:
    """The weight is (out, in, *kernel), of transposed ones (in, out, *kernel); the image may lack axes in front.

    `last`: channels come last in the image, `weight_last`: in the weight, too; `channels`: the number of results without padding;
    `added`: a tensor that is added before the activation.
    """
    x, weight, bias, added = call["x"], call["weight"], call.at("bias"), call.at("added")
    weight_last = call.attrs.get("weight_last")
    kernel = call.integers("kernel_shape") or (weight.dims[1:-1] if weight_last else weight.dims[2:])
    before, space, behind = _image(call, x, len(kernel))
    over = SlidingWindow.of(call, kernel, space)
    after = then(call)
    attrs: dict[str, Any] = {**over.geometry, **after}
    if "transposed" in call.attrs:
        attrs["transposed"] = True
        target, channels = call.integers("output_shape"), times(weight.dims[1], call.whole("groups", 1))
        space = target[-len(kernel) :] if target else over.spread(call.integers("output_padding"))
    else:
        space, channels = over.swept(), call.attrs.get("channels", weight.dims[0])
    if weight_last and x.dims[-1]:
        divided(x.dims[-1], known(weight.dims[-1:])[0], "channels", "of a group")
    shape = (*before, *space, channels) if behind else (*before[:-1], channels, *space)
    reads: Operands = [x, weight, bias, added]
    if "quantized" in call.attrs:  # scales are between the operands
        attrs |= with_bias(bias, macs=numel(shape) * prod(known(weight.dims[1:])))
        reads = call.given
    elif added is not None:
        attrs |= {"then": ("add", *after.get("then", ())), "bias": bias is not None}
    return one("conv", attrs, shape, element_type(call, x), reads)


def pool(call: NodeCall) -> OperatorMeaning:
    """The greatest, the mean or the norm under each window, and maybe where it is; `global`: of the whole image."""
    x, fn = call["x"], call.attrs["fn"]
    kernel: Dims = _along(call, "kernel_sizes", "filter", len(x.dims) - 2)
    before, space, behind = _image(call, x, len(kernel))
    if call.attrs.get("global"):
        attrs: dict[str, Any] = {"fn": fn if fn == "lp" else f"adaptive_{fn}", "window": prod(known(space))}
        space = (1,) * len(kernel)
    else:
        over = SlidingWindow.of(call, kernel, space)
        attrs = {"fn": fn, "window": prod(known(kernel)), **over.geometry}
        space = over.swept(ceil=bool(call.attrs.get("ceil_mode")))
    shape = (*before, *space, *behind)
    return OperatorMeaning("pool", attrs, [Out(shape, x.dtype), Out(shape, "int64")], [x])
