"""Convolutions: plain, transposed, deformable, and the correlation of two images."""

from __future__ import annotations

from math import prod

from opcost.core.graph import Attr
from opcost.core.shapes import (
    Dims,
    Extent,
    Mismatch,
    divided,
    merge,
    product,
    same_windows,
    spread,
    text,
    times,
    total,
    windows,
)
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.table import Call, Operator, Translation, define, register, same_types

BILINEAR_TAPS = 4
"""Source elements of one value between the elements of an image."""


class Window:
    """The attributes that every convolution has, with MXNet's defaults filled in."""

    __slots__ = ("dilate", "filters", "groups", "kernel", "last", "pad", "stride")

    def __init__(self, attrs: Attributes) -> None:
        self.kernel = attrs.integers("kernel")
        rank = len(self.kernel)
        self.stride = attrs.integers("stride", ()) or (1,) * rank
        self.dilate = attrs.integers("dilate", ()) or (1,) * rank
        self.pad = attrs.integers("pad", ()) or (0,) * rank
        self.filters = attrs.integer("num_filter")
        self.groups = attrs.integer("num_group", 1)
        self.last = channels_last(attrs)
        if not rank or not len(self.stride) == len(self.dilate) == len(self.pad) == rank:
            raise AttributeFault("kernel, stride, dilate and pad do not have the same number of axes")
        if min(*self.kernel, *self.stride, *self.dilate, self.groups, self.filters) < 1 or min(self.pad) < 0:
            raise AttributeFault(
                "kernel, stride, dilate, num_group and num_filter are at least 1, and pad is at least 0"
            )

    def swept(self, space: Dims) -> Dims:
        """How many places the kernel takes along each axis."""
        axes = zip(space, self.kernel, self.stride, self.pad, self.dilate, strict=True)
        return tuple([windows(n, k, stride=s, padding=(p, p), dilation=d) for n, k, s, p, d in axes])

    def spread(self, space: Dims, extra: tuple[int, ...]) -> Dims:
        """From how many places the kernel takes so many, and some more."""
        axes = zip(space, self.kernel, self.stride, self.pad, self.dilate, extra, strict=True)
        return tuple([spread(n, k, stride=s, padding=(p, p), dilation=d, extra=e) for n, k, s, p, d, e in axes])

    def split(self, shape: Dims, what: str = "data") -> tuple[Extent, Extent, Dims]:
        """Batch, channels and space of an image, whatever its layout."""
        if len(shape) != len(self.kernel) + 2:
            raise Mismatch(
                f"the {what} is {text(shape)}, and a kernel of {len(self.kernel)} axes takes {len(self.kernel) + 2}"
            )
        if self.last:
            return shape[0], shape[-1], shape[1:-1]
        return shape[0], shape[1], shape[2:]

    @property
    def geometry(self) -> dict[str, Attr]:
        """What a receptive field follows from."""
        return {"kernel": self.kernel, "stride": self.stride, "dilation": self.dilate}

    def join(self, batch: Extent, channels: Extent, space: Dims) -> Dims:
        return (batch, *space, channels) if self.last else (batch, channels, *space)


def channels_last(attrs: Attributes) -> bool:
    """Whether the layout attribute puts channels behind the space."""
    return attrs.text("layout", "NCHW").endswith("C")


def _convolution(call: Call, weight: int = 1, bias: int = 2) -> None:
    window = Window(call.attrs)
    rank = len(window.kernel)
    batch, channels, space = window.split(call.ins[0] or (None,) * (rank + 2))
    out_batch, _, out_space = window.split(call.outs[0] or (None,) * (rank + 2))
    inner = divided(channels, window.groups, "channels", "groups")
    divided(window.filters, window.groups, "filters", "groups")
    call.put_in(weight, window.join(window.filters, inner, window.kernel))
    held = call.ins[weight]
    if channels is None and held is not None:
        channels = times(window.split(held, "weight")[1], window.groups)
    call.put_in(bias, (window.filters,))
    call.put_out(0, window.join(batch, window.filters, window.swept(space)))
    # With a larger stride several extents give the same number of places.
    certain = tuple([out if step == 1 else None for out, step in zip(out_space, window.stride, strict=True)])
    call.put_in(0, window.join(out_batch if batch is None else batch, channels, window.spread(certain, (0,) * rank)))


def _deconvolution(call: Call) -> None:
    window = Window(call.attrs)
    rank = len(window.kernel)
    target = call.attrs.integers("target_shape", ())
    adj = call.attrs.integers("adj", ()) or (0,) * rank
    if len(adj) != rank:
        raise AttributeFault("adj and kernel do not have the same number of axes")
    call.put_in(2, (window.filters,))
    per_group = divided(window.filters, window.groups, "filters", "groups")
    call.put_in(1, window.join(None, per_group, window.kernel))
    batch, channels, space = window.split(call.ins[0] or (None,) * (rank + 2))
    weight = call.ins[1]
    channels = merge((channels,), (weight[0] if weight is not None else None,))[0]  # type: ignore[index]
    divided(channels, window.groups, "channels", "groups")
    call.put_in(1, window.join(channels, per_group, window.kernel))
    call.put_out(0, window.join(batch, window.filters, target if any(target) else window.spread(space, adj)))
    if call.outs[0] is not None:
        call.put_in(0, window.join(call.outs[0][0], channels, (None,) * rank))


def _with_bias(call: Call) -> Translation:
    return Translation("conv", Window(call.attrs).geometry)


def _transposed(call: Call) -> Translation:
    return Translation("conv", {"transposed": True, **Window(call.attrs).geometry})


def _deformable(offsets: int) -> Operator:
    """A convolution whose kernel elements lie at learned places; so many inputs before the weight say where."""
    weight = 1 + offsets

    def infer(call: Call) -> None:
        window = Window(call.attrs)
        _convolution(call, weight, weight + 1)
        swept = call.outs[0]
        if swept is None:
            return
        batch, _, space = window.split(swept)
        places = window.kernel[0] * window.kernel[-1] * call.attrs.integer("num_deformable_group", 1)
        call.put_in(1, (batch, 2 * places, *space))
        if offsets == 2:
            call.put_in(2, (batch, places, *space))

    def translate(call: Call) -> Translation:
        order = (0, *range(weight, len(call.ins)), *range(1, weight))
        has_bias = len(call.ins) > weight + 1
        # Without a bias the places would stand where a bias does, so they are left away.
        attrs = {"sampled": BILINEAR_TAPS, **Window(call.attrs).geometry}
        return Translation("conv", attrs, order if has_bias else order[:2])

    slots = ("data", "offset", "weight", "bias") if offsets == 1 else ("data", "offset", "mask", "weight", "bias")
    return Operator(infer, translate, slots=slots)


def _correlation(call: Call) -> None:
    pad, kernel = call.attrs.integer("pad_size", 0), call.attrs.integer("kernel_size", 1)
    reach = call.attrs.integer("max_displacement", 1)
    step, apart = call.attrs.integer("stride1", 1), call.attrs.integer("stride2", 1)
    call.put_in(1, call.ins[0])
    call.put_in(0, call.ins[1])
    batch, _, *space = image(call.dims(0))
    border = reach + (kernel - 1) // 2
    swept = [same_windows(total((extent, 2 * pad - 2 * border)), step) for extent in space]
    if any(extent is not None and extent < 1 for extent in swept):
        raise Mismatch(f"displacements of {reach} do not fit an image of {text(call.ins[0])}")
    call.put_out(0, (batch, (2 * (reach // apart) + 1) ** 2, *swept))


def image(shape: Dims) -> Dims:
    """A shape of four axes."""
    if len(shape) != 4:
        raise Mismatch(f"the data is {text(shape)}, not batch, channels, height and width")
    return shape


def _correlate(call: Call) -> Translation:
    depth = call.x()[1] * call.attrs.integer("kernel_size", 1) ** 2
    if call.attrs.flag("is_multiply", default=True):
        return Translation("matmul", {"depth": depth})
    elements = depth * prod(call.y())
    return Translation("elementwise", {"fn": "fma", "elements": elements})  # subtract, absolute


def _unfold(call: Call) -> None:
    """`im2col`: every place of the kernel becomes a column."""
    window = Window(Attributes({**call.attrs.raw, "num_filter": "1"}))
    batch, channels, space = window.split(call.dims(0))
    call.put_out(0, (batch, times(channels, prod(window.kernel)), product(window.swept(space))))


def _fold(call: Call) -> None:
    """`col2im`: columns are added up into an image again."""
    x = call.dims(0)
    if len(x) == 3:
        channels = divided(x[1], prod(call.attrs.integers("kernel")), "rows", "places of a kernel")
        call.put_out(0, (x[0], channels, *call.attrs.integers("output_size")))


define("Convolution _npx_convolution Convolution_v1", _convolution, _with_bias, slots="data weight bias")
define("Deconvolution _npx_deconvolution", _deconvolution, _transposed, slots="data weight bias")
register(("_contrib_DeformableConvolution", "_npx_deformable_convolution"), _deformable(1))
register(("_contrib_ModulatedDeformableConvolution", "_npx_modulated_deformable_convolution"), _deformable(2))
define("Correlation", _correlation, _correlate, same_types, slots="data1 data2")
define("im2col", _unfold, Translation("copy"))
define("col2im", _fold, Translation("scatter", {"fn": "add"}, (0,)))
