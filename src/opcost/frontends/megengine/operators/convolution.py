"""Convolutions: dense, grouped, packed, transposed, three-dimensional, deformable, and those that share no weights.

MegEngine packs the channels of images and filters for its kernels in many layouts, and converts them into each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, product, spread, text, times
from opcost.frontends.megengine.operators.table import Means, OperatorCall, Row, alike, result

# -- layouts -----------------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """An image's axes: channels (in packs that have an axis of their own at the end) and height, width."""

    batch: int
    channels: int
    spatial: tuple[int, int]
    pack: int = 1

    @property
    def rank(self) -> int:
        return 4 if self.pack == 1 else 5

    def channel_count(self, shape: Sequence[Extent]) -> Extent:
        return times(shape[self.channels], self.pack)

    def plane(self, shape: Sequence[Extent]) -> Dims:
        """Height and width."""
        return tuple([shape[axis] for axis in self.spatial])

    def resized(self, shape: Sequence[Extent], plane: Sequence[Extent]) -> Dims:
        """A shape with another height and width."""
        found = list(shape)
        for axis, extent in zip(self.spatial, plane, strict=True):
            found[axis] = extent
        return tuple(found)

    def shape(self, batch: Extent, channels: Extent, spatial: Sequence[Extent]) -> Dims:
        """A shape in this layout; channels that do not fill the last pack are filled up."""
        shape: list[Extent] = [self.pack] * self.rank
        shape[self.batch] = batch
        shape[self.channels] = None if channels is None else -(-channels // self.pack)
        return self.resized(shape, spatial)


_IMAGES: dict[str, Layout] = {
    "NCHW": Layout(0, 1, (2, 3)),
    "NHWC": Layout(0, 3, (1, 2)),
    "NHWCD4": Layout(0, 2, (1, 3), 4),
    "NCHW4": Layout(0, 1, (2, 3), 4),
    "NCHW8": Layout(0, 1, (2, 3), 8),
    "NCHW32": Layout(0, 1, (2, 3), 32),
    "NCHW64": Layout(0, 1, (2, 3), 64),
    "NCHW88": Layout(0, 1, (2, 3), 8),
    "NCHW44": Layout(0, 1, (2, 3), 4),
    "NCHW44_DOT": Layout(0, 1, (2, 3), 4),
    "CHWN4": Layout(3, 0, (1, 2), 4),
}
_CHANGING = {
    "NCHW4_NCHW32": ("NCHW4", "NCHW32"),
    "NCHW32_NCHW4": ("NCHW32", "NCHW4"),
    "NCHW4_NCHW": ("NCHW4", "NCHW"),
    "NCHW4_NHWC": ("NCHW4", "NHWC"),
    "NHWC_NCHW": ("NHWC", "NCHW"),
    "NHWC_NCHW4_IC_SMALL": ("NHWC", "NCHW4"),
    "NCHW_NCHW4_IC_SMALL": ("NCHW", "NCHW4"),
}
_DOUBLY_PACKED = ("NCHW44", "NCHW44_DOT", "NCHW88")


def image(form: str) -> Layout:
    """The layout of an image with this format."""
    if form not in _IMAGES:
        raise Mismatch(f"the format {form} is not known")
    return _IMAGES[form]


def source_and_result(form: str, source_rank: int) -> tuple[Layout, Layout]:
    """The layouts of a convolution's input and output; the first of a packed net takes a plain image."""
    before, after = _CHANGING.get(form, (form, form))
    if form in _DOUBLY_PACKED and source_rank == 4:
        before = "NCHW"
    return image(before), image(after)


class Filter(NamedTuple):
    """A convolution's filter, however it is packed."""

    out_channels: Extent
    in_channels: Extent
    kernel: Dims


def filter_of(form: str, shape: Sequence[Extent], *, grouped: bool) -> Filter:
    """Channels (of all groups together) and kernel of a filter for this format."""
    before = _CHANGING.get(form, (form,))[0]
    match before:
        case "NCHW" | "NHWC":
            group, rest = (shape[0], shape[1:]) if grouped else (1, shape)
            out, inner, kernel = (rest[0], rest[1], rest[2:]) if before == "NCHW" else (rest[0], rest[-1], rest[1:-1])
        case "NCHW4" | "NCHW8" | "NCHW32" | "NCHW64":
            group, rest = (shape[0], shape[1:]) if grouped else (1, shape)
            out, inner, kernel = rest[0], times(rest[1], rest[-1]), rest[2:4]
        case "CHWN4":
            group, rest = (shape[0], shape[1:]) if grouped else (1, shape)
            out, inner, kernel = rest[3], times(rest[0], rest[-1]), rest[1:3]
        case "NHWCD4":
            group, out, inner, kernel = _image_filter(shape, grouped=grouped)
        case "NCHW44" | "NCHW44_DOT" | "NCHW88":
            group, out, inner, kernel = _doubly_packed(shape, grouped=grouped)
        case _:
            raise Mismatch(f"the format {form} is not known")
    if len(kernel) < 1:
        raise Mismatch(f"a filter of {text(tuple(shape))} has no kernel")
    return Filter(times(group, out), times(group, inner), tuple(kernel))


def _image_filter(shape: Sequence[Extent], *, grouped: bool) -> tuple[Extent, Extent, Extent, Sequence[Extent]]:
    """Group, out, in and kernel of an NHWCD4 filter: out channels in packs of 4, in channels plain or packed too."""
    if grouped and len(shape) == 5:
        return times(shape[0], 4), 1, 1, shape[2:4]
    group, rest = (shape[0], shape[1:]) if grouped else (1, shape)
    inner = rest[3] if len(rest) == 5 else times(rest[3], 4)
    return group, times(rest[0], 4), inner, rest[1:3]


def _doubly_packed(shape: Sequence[Extent], *, grouped: bool) -> tuple[Extent, Extent, Extent, Sequence[Extent]]:
    """Group, out, in and kernel of a filter whose out and in channels are both packed."""
    pack = shape[-1]
    if grouped and len(shape) == 6:  # one channel for each group
        return times(shape[0], pack), 1, 1, shape[3:5]
    if not grouped and len(shape) == 5:  # the first filter of a net: in channels are plain
        return 1, times(shape[0], pack), shape[3], shape[1:3]
    group, rest = (shape[0], shape[1:]) if grouped else (1, shape)
    return group, times(rest[0], pack), times(rest[1], pack), rest[2:4]


# -- conversions --------------------------------------------------------------------------------------------------------

_CONVERSIONS: dict[str, tuple[str, str]] = {
    "NHWC_NHWCD4": ("NHWC", "NHWCD4"), "NHWCD4_NHWC": ("NHWCD4", "NHWC"), "NHWC_NHWCD4I": ("NHWC", "NHWCD4"),
    "NCHW_NHWCD4": ("NCHW", "NHWCD4"), "NCHW_NHWCD4I": ("NCHW", "NHWCD4"), "NHWCD4I_NCHW": ("NHWCD4", "NCHW"),
    "NHWCD4_NCHW": ("NHWCD4", "NCHW"), "NHWCD4I_NHWC": ("NHWCD4", "NHWC"), "NCHW4_CHWN4": ("NCHW4", "CHWN4"),
    "CHWN4_NCHW4": ("CHWN4", "NCHW4"), "NCHW_NCHW88": ("NCHW", "NCHW88"), "NCHW88_NCHW": ("NCHW88", "NCHW"),
    "NCHW_NCHW4_IC_SMALL": ("NCHW", "NCHW4"), "NCHW_NCHW4": ("NCHW", "NCHW4"), "NCHW4_NCHW": ("NCHW4", "NCHW"),
    "NCHW_NCHW64": ("NCHW", "NCHW64"), "NCHW64_NCHW": ("NCHW64", "NCHW"), "NCHW_NHWC": ("NCHW", "NHWC"),
    "NHWC_NCHW": ("NHWC", "NCHW"),
}  # fmt: skip
"""Images: the layout before and after."""

_FILTERS: dict[str, tuple[int, str]] = {
    "INTER_WEIGHT_DENSE": (4, "0/4 2 3 1^4 =4"), "INTER_WEIGHT_DENSEI": (4, "0/4 2 3 1^4 =4"),
    "INTER_WEIGHT_GROUP": (5, "0 1/4 3 4 2 =4"), "INTER_WEIGHT_GROUPI": (5, "0 1/4 3 4 2 =4"),
    "INTER_WEIGHT_CHAN": (5, "0/4 =1 3 4 =4"), "INTER_WEIGHT_CHANI": (5, "0/4 =1 3 4 =4"),
    "INTER_WEIGHT_DENSEI_DOT": (4, "0/4 2 3 1/4 =4 =4"), "INTER_WEIGHT_GROUPI_DOT": (5, "0 1/4 3 4 2/4 =4 =4"),
    "NCHW_NCHW88_CONV_DENSE_WEIGHT": (4, "0/8 1/8 2 3 =8 =8"),
    "NCHW_NCHW88_CONV_CHAN_WEIGHT": (5, "0/8 1 2 3 4 =8"),
    "NCHW_NCHW88_CONV_GROUP_WEIGHT": (5, "0 1/8 2/8 3 4 =8 =8"),
    "NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT": (4, "0 1/4 2 3 =4"),
}  # fmt: skip
"""Filters: their rank, and the axes after: an old axis, `/n` in packs of n, `^n` filled up to a multiple, `=n` fixed."""

_FOUR_PACKED = {4: "0^4 1/4 2 3 =4", 5: "0 1^4 2/4 3 4 =4"}
"""The same for NCHW_NCHW4_WEIGHT, dense and grouped."""


def _converted(call: OperatorCall) -> list[Shape]:
    mode = call.word("mode")
    if mode == "NCHW_NCHW4_WEIGHT":
        dims = call.ranked(0, 4, 5)
        return [_repacked(dims, _FOUR_PACKED[len(dims)])]
    if mode in _FILTERS:
        rank, pattern = _FILTERS[mode]
        return [_repacked(call.ranked(0, rank), pattern)]
    if mode not in _CONVERSIONS:
        raise Mismatch(f"the change of layout {mode} is not known")
    before, after = (image(form) for form in _CONVERSIONS[mode])
    dims = call.ranked(0, before.rank)
    channels = before.channel_count(dims)
    if mode == "NCHW_NCHW4" and channels is not None:  # every group fills its own packs
        groups = call.whole("group") or 1
        channels = groups * (-(-channels // groups // 4) * 4)
    if mode in ("NCHW4_NCHW", "NCHW64_NCHW") and call.whole("oc"):
        channels = call.whole("oc")
    return [after.shape(dims[before.batch], channels, [dims[axis] for axis in before.spatial])]


def _repacked(dims: Dims, pattern: str) -> Shape:
    shape: list[Extent] = []
    for item in pattern.split():
        if item.startswith("="):
            shape.append(int(item[1:]))
            continue
        axis, by = int(item[0]), int(item[2:] or 1)
        extent = dims[axis]
        if extent is not None:
            extent = -(-extent // by) * (by if item[1:2] == "^" else 1)
        shape.append(extent)
    return tuple(shape)


# -- what all convolutions share ----------------------------------------------------------------------------------------

THEN: dict[str, tuple[str, ...]] = {
    "IDENTITY": (),
    "RELU": ("relu",),
    "SIGMOID": ("sigmoid",),
    "H_SWISH": ("hardswish",),
}
"""What a fused convolution does to its result."""

TAPS = 4
"""Source elements of one sample of a deformable convolution: bilinear interpolation."""

_ACCUMULATORS = {
    "int8": "int32", "uint8": "int32", "qint8": "qint32", "quint8": "qint32", "qint4": "qint32", "quint4": "qint32",
    "qint1": "qint32",
}  # fmt: skip
"""The type in which products of elements are summed and handed on, where it is another than theirs."""


def sums(call: OperatorCall) -> list[str]:
    """The type of the sums of products, unless the operator declares another."""
    return [_ACCUMULATORS.get(call.dtype(), call.dtype())] * call.count


def _conv(call: OperatorCall, kernel: Dims, **more: Attr) -> dict[str, Attr]:
    """The attributes of a convolution; from kernel, stride and dilation the receptive field follows."""
    axes = "dhw"[-len(kernel) :]
    return {
        "kernel": kernel,
        "stride": tuple(call.whole(f"stride_{axis}") for axis in axes),
        "dilation": tuple(call.whole(f"dilate_{axis}") or 1 for axis in axes),
        **more,
    }


def _grouped(call: OperatorCall) -> dict[str, Attr]:
    return {"grouped": True} if call.grouped else {}


def _macs(elements: Shape, per_element: Extent, **more: Attr) -> dict[str, Attr]:
    """The multiply-adds, where the filter itself does not give them: products for each element of a shape."""
    count = None if elements is None else product(elements)
    return {} if count is None or per_element is None else {"macs": count * per_element, **more}


# -- plain images ------------------------------------------------------------------------------------------------------


def _shapes(call: OperatorCall) -> list[Shape]:
    source = call.ranked(0, 4, 5)
    before, after = source_and_result(call.format, len(source))
    found = filter_of(call.format, call.dims(1), grouped=call.grouped)
    channels = before.channel_count(source)
    if None not in (channels, found.in_channels) and channels != found.in_channels and before.pack == 1:
        raise Mismatch(f"a filter for {found.in_channels} channels does not fit {channels} channels")
    return [after.shape(source[before.batch], found.out_channels, call.windows(before.plane(source), found.kernel))]


def _plain(call: OperatorCall, then: tuple[str, ...] = (), *, bias: bool | None = None) -> Means:
    """A convolution that reads a filter; where the filter is packed, the attributes have its multiply-adds."""
    attrs = _conv(call, filter_of(call.format, call.dims(1), grouped=call.grouped).kernel)
    if then:
        attrs["then"] = then
    if call.format == "NCHW":
        return "conv", attrs | _grouped(call)
    bias = len(call.ins) > 2 if bias is None else bias
    return "conv", attrs | _macs(result(call), _per_output(call, call.dims(1)), bias=bias)


def _per_output(call: OperatorCall, weight: Dims) -> Extent:
    """Products for one output element: the filter's elements shared out among the output channels."""
    channels, elements = filter_of(call.format, weight, grouped=call.grouped).out_channels, product(weight)
    return None if not channels or elements is None else elements // channels


def _then(call: OperatorCall) -> tuple[str, ...] | None:
    """What is done to the result of a fused convolution; None where the mode is not known."""
    functions = THEN.get(call.word("nonlineMode"))
    return ("add", *functions) if functions is not None and len(call.ins) > 3 else functions


def _biased(call: OperatorCall) -> Means:
    """Convolution, bias, a second tensor added, and an activation in one."""
    then = _then(call)
    return ("unknown", {}) if then is None else _plain(call, then)


# -- transposed --------------------------------------------------------------------------------------------------------


def _transposed_shapes(call: OperatorCall) -> list[Shape]:
    """Filter, x, and sometimes a tensor whose shape the result takes."""
    if len(call.ins) > 2:
        return [call.dims(2)]
    x = call.ranked(1, 4, 5)
    layout, _ = source_and_result(call.format, len(x))
    found = filter_of(call.format, call.dims(0), grouped=call.grouped)
    return [layout.shape(x[layout.batch], found.in_channels, _grown(call, layout.plane(x), found.kernel))]


def _grown(call: OperatorCall, spatial: Dims, kernel: Dims) -> list[Extent]:
    """The extents from which a convolution makes these, the smallest there are."""
    return [
        spread(extent, size, stride=stride, padding=(pad, pad), dilation=dilation)
        for extent, size, (stride, pad, dilation) in zip(spatial, kernel, call.sweep(len(kernel)), strict=True)
    ]


def _transposed(call: OperatorCall) -> Means:
    three = call.type.startswith("Convolution3D")
    kernel = _filter_3d(call, 0)[2] if three else filter_of(call.format, call.dims(0), grouped=call.grouped).kernel
    attrs = {"transposed": True, **_conv(call, kernel)}
    if call.format in ("NCHW", "NCDHW"):
        return "conv", attrs | _grouped(call)
    x = call.ins[1].shape
    return "conv", attrs | (_macs(x, _per_output(call, call.dims(0))) if x is not None else {})


# -- three dimensions --------------------------------------------------------------------------------------------------


def _filter_3d(call: OperatorCall, index: int) -> tuple[Extent, Extent, Dims]:
    """Out channels, in channels (of all groups) and kernel."""
    weight = call.ranked(index, 6 if call.grouped else 5)
    group, rest = (weight[0], weight[1:]) if call.grouped else (1, weight)
    kernel, inner = (rest[1:4], rest[4]) if call.format == "NDHWC" else (rest[2:], rest[1])
    return product((group, rest[0])), product((group, inner)), kernel


def _volume(call: OperatorCall, x: Dims, channels: Extent, spatial: list[Extent]) -> Shape:
    return (x[0], *spatial, channels) if call.format == "NDHWC" else (x[0], channels, *spatial)


def _spatial(call: OperatorCall, x: Dims) -> Dims:
    return x[1:4] if call.format == "NDHWC" else x[2:]


def _shapes_3d(call: OperatorCall) -> list[Shape]:
    x = call.ranked(0, 5)
    out, inner, kernel = _filter_3d(call, 1)
    channels = x[4] if call.format == "NDHWC" else x[1]
    if None not in (channels, inner) and channels != inner:
        raise Mismatch(f"a filter for {inner} channels does not fit {channels} channels")
    return [_volume(call, x, out, call.windows(_spatial(call, x), kernel))]


def _transposed_shapes_3d(call: OperatorCall) -> list[Shape]:
    if len(call.ins) > 2:
        return [call.dims(2)]
    x = call.ranked(1, 5)
    _, inner, kernel = _filter_3d(call, 0)
    return [_volume(call, x, inner, _grown(call, _spatial(call, x), kernel))]


def _plain_3d(call: OperatorCall) -> Means:
    out, _, kernel = _filter_3d(call, 1)
    attrs = _conv(call, kernel)
    if call.format != "NDHWC":
        return "conv", attrs | _grouped(call)
    elements = product(call.dims(1))
    return "conv", attrs | _macs(result(call), elements // out if out and elements is not None else None)


# -- weights that are not shared, and others ---------------------------------------------------------------------------


def _local_filter(call: OperatorCall) -> tuple[Dims, Extent, Extent, Dims]:
    """Plane, out channels, products for one output and kernel of a filter (group, oh, ow, in, kh, kw, out)."""
    grouped = call.grouped if call.type == "LocalShare" else call.type == "GroupLocal"
    weight = call.ranked(1, 7 if grouped else 6)
    group, rest = (weight[0], weight[1:]) if grouped else (1, weight)
    return rest[:2], product((group, rest[5])), product(rest[2:5]), rest[3:5]


def _local_shapes(call: OperatorCall) -> list[Shape]:
    plane, channels, _, kernel = _local_filter(call)
    x = call.ranked(0, 4)
    return [(x[0], channels, *(call.windows(x[2:], kernel) if call.type == "LocalShare" else plane))]


def _local(call: OperatorCall) -> Means:
    return "conv", _macs(result(call), _local_filter(call)[2])


def _batch_shapes(call: OperatorCall) -> list[Shape]:
    """Each image has a filter of its own: the filter begins with the batch."""
    x = call.ranked(0, 4, 5)
    before, after = source_and_result(call.format, len(x))
    found = filter_of(call.format, call.dims(1)[1:], grouped=call.grouped)
    return [after.shape(x[before.batch], found.out_channels, call.windows(before.plane(x), found.kernel))]


def _batch(call: OperatorCall) -> Means:
    per_output, then = _per_output(call, call.dims(1)[1:]), _then(call)
    if then is None:
        return "unknown", {}
    return "conv", {"then": then, **_macs(result(call), per_output, bias=len(call.ins) > 2)}


def _first_two(call: OperatorCall) -> Means:
    """Masks say where to compute; the count is that of a whole convolution."""
    return _plain(call, bias=False)


_GRADIENT = Row(alike(2), lambda call: ("conv", {"grads": ("weight",), **_grouped(call)}), reads=(1, 0, 2))

ROWS = {
    "Convolution": Row(_shapes, _plain, sums),
    "ConvBias": Row(_shapes, _biased, sums),
    "ConvolutionBackwardData": Row(_transposed_shapes, _transposed, sums, (1, 0)),
    "ConvolutionBackwardFilter": _GRADIENT,
    "Convolution3D": Row(_shapes_3d, _plain_3d, sums, (0, 1)),
    "Convolution3DBackwardData": Row(_transposed_shapes_3d, _transposed, (), (1, 0)),
    "Convolution3DBackwardFilter": _GRADIENT,
    "DeformableConv": Row(_shapes, lambda call: ("conv", {"sampled": TAPS, **_grouped(call)}), (), (0, 1)),
    "BatchConvBias": Row(_batch_shapes, _batch, sums),
    "Local": Row(_local_shapes, _local, (), (0, 1)),
    "GroupLocal": Row(_local_shapes, _local, (), (0, 1)),
    "LocalShare": Row(_local_shapes, _local, (), (0, 1)),
    "MaskConvolution": Row(_shapes, _first_two, (), (0, 1)),
    "RegionRestrictedConvolution": Row(_shapes, _first_two, (), (0, 1)),
    "RelayoutFormat": Row(_converted, "copy"),
}
