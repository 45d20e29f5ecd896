"""Convolutions: dense, grouped, packed, transposed, three-dimensional, deformable, and those that share no weights.

MegEngine packs the channels of images and filters for its kernels in many layouts, and converts them into each other.
"""

from collections.abc import Sequence
from typing import NamedTuple

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, product, text, times
from opcost.frontends.megengine.operators.table import DATA, FUNCTIONS, MegEngineCall
from opcost.frontends.rows import Means, Type

# -- layouts -----------------------------------------------------------------------------------------------------------


class ImageLayout(NamedTuple):
    """An image's axes: channels (in packs that have an axis of their own at the end) and height, width, or depth too."""

    batch: int
    channels: int
    spatial: tuple[int, ...]
    pack: int = 1

    @property
    def rank(self) -> int:
        return len(self.spatial) + (2 if self.pack == 1 else 3)

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


_IMAGES: dict[str, ImageLayout] = {
    "NCHW": ImageLayout(0, 1, (2, 3)), "NHWC": ImageLayout(0, 3, (1, 2)), "NCDHW": ImageLayout(0, 1, (2, 3, 4)),
    "NDHWC": ImageLayout(0, 4, (1, 2, 3)), "NHWCD4": ImageLayout(0, 2, (1, 3), 4), "CHWN4": ImageLayout(3, 0, (1, 2), 4),
    **{f"NCHW{pack}": ImageLayout(0, 1, (2, 3), pack) for pack in (4, 8, 32, 64)},
    "NCHW88": ImageLayout(0, 1, (2, 3), 8), "NCHW44": ImageLayout(0, 1, (2, 3), 4), "NCHW44_DOT": ImageLayout(0, 1, (2, 3), 4),
}  # fmt: skip


def _changes(forms: str) -> dict[str, tuple[str, str]]:
    """The layouts before and after, which the name of a change begins with."""
    words = {form: form.split("_") for form in forms.split()}
    return {form: (before.removesuffix("I"), after.removesuffix("I")) for form, (before, after, *_) in words.items()}


_CHANGING = _changes("""
    NCHW4_NCHW32 NCHW32_NCHW4 NCHW4_NCHW NCHW4_NHWC NHWC_NCHW NHWC_NCHW4_IC_SMALL NCHW_NCHW4_IC_SMALL
""")
_DOUBLY_PACKED = ("NCHW44", "NCHW44_DOT", "NCHW88")


def image(form: str) -> ImageLayout:
    """The layout of an image with this format."""
    if form not in _IMAGES:
        raise Mismatch(f"the format {form} is not known")
    return _IMAGES[form]


def source_and_result(form: str, source_rank: int) -> tuple[ImageLayout, ImageLayout]:
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
    group, rest = (shape[0], shape[1:]) if grouped else (1, shape)
    match before:
        case "NCHW" | "NCDHW":
            out, inner, kernel = rest[0], rest[1], rest[2:]
        case "NHWC" | "NDHWC":
            out, inner, kernel = rest[0], rest[-1], rest[1:-1]
        case "NCHW4" | "NCHW8" | "NCHW32" | "NCHW64":
            out, inner, kernel = rest[0], times(rest[1], rest[-1]), rest[2:4]
        case "CHWN4":
            out, inner, kernel = rest[3], times(rest[0], rest[-1]), rest[1:3]
        case "NHWCD4" if grouped and len(shape) == 5:  # one channel for each group
            group, out, inner, kernel = times(shape[0], 4), 1, 1, shape[2:4]
        case "NHWCD4":  # out channels in packs of 4, in channels plain or packed too
            inner = rest[3] if len(rest) == 5 else times(rest[3], 4)
            out, kernel = times(rest[0], 4), rest[1:3]
        case _ if before not in _DOUBLY_PACKED:
            raise Mismatch(f"the format {form} is not known")
        case _ if grouped and len(shape) == 6:  # one channel for each group
            group, out, inner, kernel = times(shape[0], shape[-1]), 1, 1, shape[3:5]
        case _ if not grouped and len(shape) == 5:  # the first filter of a net: in channels are plain
            out, inner, kernel = times(shape[0], shape[-1]), shape[3], shape[1:3]
        case _:
            out, inner, kernel = times(rest[0], shape[-1]), times(rest[1], shape[-1]), rest[2:4]
    if len(kernel) < 1:
        raise Mismatch(f"a filter of {text(tuple(shape))} has no kernel")
    return Filter(times(group, out), times(group, inner), tuple(kernel))


# -- conversions --------------------------------------------------------------------------------------------------------

_CONVERSIONS = _changes(" ".join(DATA["conversions"]))  # Images: the layout before and after
_FILTERS: dict[str, list[str]] = DATA["filters"]
"""Filters, dense or grouped: the axes after, each an old axis, `/n` in packs of n, `^n` filled up to a multiple, `=n` fixed."""


def _converted(call: MegEngineCall) -> list[Shape]:
    mode = call.attrs.text("mode")
    if mode in _FILTERS:
        forms = {1 + max(int(item[0]) for item in form.split() if item[0] != "="): form for form in _FILTERS[mode]}
        dims = call.ranked(0, *forms)
        return [_repacked(dims, forms[len(dims)])]
    if mode not in _CONVERSIONS:
        raise Mismatch(f"the change of layout {mode} is not known")
    before, after = (image(form) for form in _CONVERSIONS[mode])
    dims = call.ranked(0, before.rank)
    channels = before.channel_count(dims)
    if mode == "NCHW_NCHW4" and channels is not None:  # every group fills its own packs
        groups = call.attrs.integer("group") or 1
        channels = groups * (-(-channels // groups // 4) * 4)
    if mode in ("NCHW4_NCHW", "NCHW64_NCHW") and call.attrs.integer("oc"):
        channels = call.attrs.integer("oc")
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

THEN = {"IDENTITY": (), "RELU": ("relu",), "SIGMOID": ("sigmoid",), "H_SWISH": ("hardswish",)}
"""What a fused convolution does to its result."""

_ACCUMULATORS: dict[str, str] = DATA["accumulators"]
"""The type in which products of elements are summed and handed on, where it is another than theirs."""


def sums(call: MegEngineCall) -> list[Type]:
    """The type of the sums of products, unless the operator declares another."""
    return [_ACCUMULATORS.get(call.dtype(), call.dtype())] * len(call.outs)


def _grouped(call: MegEngineCall) -> dict[str, Attr]:
    return {"grouped": True} if call.grouped else {}


def _macs(elements: Shape, per_element: Extent, **more: Attr) -> dict[str, Attr]:
    """The multiply-adds, where the filter itself does not give them: products for each element of a shape."""
    count = None if elements is None else product(elements)
    return {} if count is None or per_element is None else {"macs": count * per_element, **more}


# -- plain images ------------------------------------------------------------------------------------------------------


def _filter(call: MegEngineCall, index: int = 1) -> Filter:
    """The filter that an input is; where each image has a filter of its own, it begins with the batch."""
    weight = call.dims(index)[1:] if call.type == "BatchConvBias" else call.dims(index)
    return filter_of(call.format, weight, grouped=call.grouped)


def _image(call: MegEngineCall, index: int) -> Dims:
    return call.ranked(index, *((5,) if call.type.startswith("Convolution3D") else (4, 5)))


def _conv_shapes(call: MegEngineCall) -> list[Shape]:
    source, found = _image(call, 0), _filter(call)
    before, after = source_and_result(call.format, len(source))
    channels = before.channel_count(source)
    if None not in (channels, found.in_channels) and channels != found.in_channels and before.pack == 1:
        raise Mismatch(f"a filter for {found.in_channels} channels does not fit {channels} channels")
    return [
        after.shape(source[before.batch], found.out_channels, call.window(before.plane(source), found.kernel).swept())
    ]


def _conv(call: MegEngineCall, then: tuple[str, ...] = (), *, bias: bool | None = None) -> Means:
    """A convolution that reads a filter; where the filter is packed, the attributes have its multiply-adds."""
    kernel = _filter(call).kernel
    attrs = call.window(kernel, kernel).geometry
    if then:
        attrs["then"] = then
    if call.format in ("NCHW", "NCDHW"):
        return "conv", attrs | _grouped(call)
    more: dict[str, Attr] = {} if len(kernel) == 3 else {"bias": len(call.ins) > 2 if bias is None else bias}
    return "conv", attrs | _macs(call.outs[0], _per_output(call), **more)


def _per_output(call: MegEngineCall, index: int = 1) -> Extent:
    """Products for one output element: the filter's elements shared out among the output channels."""
    weight = call.dims(index)[1:] if call.type == "BatchConvBias" else call.dims(index)
    channels, elements = _filter(call, index).out_channels, product(weight)
    return None if not channels or elements is None else elements // channels


def _then(call: MegEngineCall) -> tuple[str, ...] | None:
    """What is done to the result of a fused convolution; None where the mode is not known."""
    functions = THEN.get(call.attrs.text("nonlineMode"))
    return ("add", *functions) if functions is not None and len(call.ins) > 3 else functions


def _biased(call: MegEngineCall) -> Means:
    """Convolution, bias, a second tensor added, and an activation in one."""
    then = _then(call)
    return ("unknown", {}) if then is None else _conv(call, then)


# -- transposed --------------------------------------------------------------------------------------------------------


def _transposed_shapes(call: MegEngineCall) -> list[Shape]:
    """Filter, x, and sometimes a tensor whose shape the result takes."""
    if len(call.ins) > 2:
        return [call.dims(2)]
    x = _image(call, 1)
    layout, _ = source_and_result(call.format, len(x))
    found = _filter(call, 0)
    # The extents from which a convolution makes these, the smallest there are
    grown = call.window(layout.plane(x), found.kernel).spread()
    return [layout.shape(x[layout.batch], found.in_channels, grown)]


def _transposed(call: MegEngineCall) -> Means:
    kernel = _filter(call, 0).kernel
    attrs = {"transposed": True, **call.window(kernel, kernel).geometry}
    if call.format in ("NCHW", "NCDHW"):
        return "conv", attrs | _grouped(call)
    x = call.ins[1]
    return "conv", attrs | (_macs(x, _per_output(call, 0)) if x is not None else {})


# -- weights that are not shared, and others ---------------------------------------------------------------------------


def _local_filter(call: MegEngineCall) -> tuple[Dims, Extent, Extent, Dims]:
    """Plane, out channels, products for one output and kernel of a filter (group, oh, ow, in, kh, kw, out)."""
    grouped = call.grouped if call.type == "LocalShare" else call.type == "GroupLocal"
    weight = call.ranked(1, 7 if grouped else 6)
    group, rest = (weight[0], weight[1:]) if grouped else (1, weight)
    return rest[:2], product((group, rest[5])), product(rest[2:5]), rest[3:5]


def _local_shapes(call: MegEngineCall) -> list[Shape]:
    plane, channels, _, kernel = _local_filter(call)
    x = call.ranked(0, 4)
    return [(x[0], channels, *(call.window(x[2:], kernel).swept() if call.type == "LocalShare" else plane))]


def _local(call: MegEngineCall) -> Means:
    return "conv", _macs(call.outs[0], _local_filter(call)[2])


def _batch_conv(call: MegEngineCall) -> Means:
    per_output, then = _per_output(call), _then(call)
    if then is None:
        return "unknown", {}
    return "conv", {"then": then, **_macs(call.outs[0], per_output, bias=len(call.ins) > 2)}


FUNCTIONS.update(
    # Without a bias; where masks say where to compute, the count is that of a whole convolution
    first_two=lambda call: _conv(call, bias=False),
    filter_gradient=lambda call: ("conv", {"grads": ("weight",), **_grouped(call)}),
)
