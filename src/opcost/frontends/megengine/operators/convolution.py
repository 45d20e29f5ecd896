"""Convolutions: dense, grouped, packed, transposed, three-dimensional, deformable, and those that share no weights."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, product, spread
from opcost.frontends.megengine.layouts import filter_of, source_and_result
from opcost.frontends.megengine.node import Meaning, Node, Rule, alike

THEN: dict[str, tuple[str, ...]] = {
    "IDENTITY": (),
    "RELU": ("relu",),
    "SIGMOID": ("sigmoid",),
    "H_SWISH": ("hardswish",),
}
"""What a fused convolution does to its result."""

TAPS = 4
"""Source elements of one sample of a deformable convolution: bilinear interpolation."""

_ACCUMULATORS = {"int8": "int32", "uint8": "int32", "qint8": "qint32", "quint8": "qint32", "qint4": "qint32",
                 "quint4": "qint32", "qint1": "qint32"}  # fmt: skip


def accumulated(dtype: str) -> str:
    """The type in which products of elements of this type are summed and handed on, unless the operator says another."""
    return _ACCUMULATORS.get(dtype, dtype)


def _sums(node: Node) -> list[str]:
    return [accumulated(node.dtypes[0])] * len(node.op.outputs)


def _grouped(node: Node) -> bool:
    return node.word("sparse") == "GROUP"


# -- plain images ------------------------------------------------------------------------------------------------------


def _shapes(node: Node) -> list[Shape]:
    source = node.ranked(0, 4, 5)
    form = node.word("format") or "NCHW"
    before, after = source_and_result(form, len(source))
    found = filter_of(form, node.dims(1), grouped=_grouped(node))
    channels = before.channel_count(source)
    if None not in (channels, found.in_channels) and channels != found.in_channels and before.pack == 1:
        raise Mismatch(f"a filter for {found.in_channels} channels does not fit {channels} channels")
    return [after.shape(source[before.batch], found.out_channels, node.windows(before.plane(source), found.kernel))]


def _biased_meaning(node: Node) -> Meaning:
    """Convolution, bias, a second tensor added, and an activation in one."""
    then = _then(node)
    return Meaning("unknown") if then is None else _conv(node, inputs=tuple(range(len(node.shapes))), then=then)


def _then(node: Node) -> tuple[str, ...] | None:
    """What is done to the result of a fused convolution; None where the mode is not known."""
    functions = THEN.get(node.word("nonlineMode"))
    if functions is None:
        return None
    return ("add", *functions) if len(node.shapes) > 3 else functions


def _geometry(node: Node, kernel: Dims) -> dict[str, Attr]:
    """Kernel, stride and dilation, from which the receptive field follows."""
    axes = "dhw"[-len(kernel) :]
    return {
        "kernel": kernel,
        "stride": tuple(node.whole(f"stride_{axis}") for axis in axes),
        "dilation": tuple(node.whole(f"dilate_{axis}") or 1 for axis in axes),
    }


def _conv(node: Node, *, inputs: tuple[int, ...], then: tuple[str, ...]) -> Meaning:
    """A convolution that reads a filter; where the filter is packed, its MACs are told instead."""
    form = node.word("format") or "NCHW"
    attrs = _geometry(node, filter_of(form, node.dims(1), grouped=_grouped(node)).kernel)
    if then:
        attrs["then"] = then
    if form == "NCHW":
        if _grouped(node):
            attrs["grouped"] = True
        return Meaning("conv", attrs, inputs)
    y = node.out_shapes[0]
    if y is not None:
        per_element = _per_output(form, node.dims(1), grouped=_grouped(node))
        elements = product(y)
        if per_element is not None and elements is not None:
            attrs["macs"] = elements * per_element
            attrs["bias"] = len(inputs) > 2
    return Meaning("conv", attrs, inputs)


def _per_output(form: str, weight: Dims, *, grouped: bool) -> Extent:
    """Products for one output element: the filter's elements shared out among the output channels."""
    channels, elements = filter_of(form, weight, grouped=grouped).out_channels, product(weight)
    return None if channels is None or elements is None or channels == 0 else elements // channels


# -- transposed --------------------------------------------------------------------------------------------------------


def _transposed_shapes(node: Node) -> list[Shape]:
    """Filter, x, and sometimes a tensor whose shape the result takes."""
    if len(node.shapes) > 2:
        return [node.dims(2)]
    x = node.ranked(1, 4, 5)
    form = node.word("format") or "NCHW"
    layout, _ = source_and_result(form, len(x))
    found = filter_of(form, node.dims(0), grouped=_grouped(node))
    return [layout.shape(x[layout.batch], found.in_channels, _grown(node, layout.plane(x), found.kernel))]


def _grown(node: Node, spatial: Dims, kernel: Dims) -> list[Extent]:
    """The extents from which a convolution makes these, the smallest there are."""
    return [
        spread(extent, size, stride=stride, padding=(pad, pad), dilation=dilation)
        for extent, size, (stride, pad, dilation) in zip(spatial, kernel, node.sweep(len(kernel)), strict=True)
    ]


def _transposed_meaning(node: Node) -> Meaning:
    form = node.word("format") or "NCHW"
    three = node.op.type.startswith("Convolution3D")
    kernel = _filter_3d(node, 0)[2] if three else filter_of(form, node.dims(0), grouped=_grouped(node)).kernel
    attrs: dict[str, Attr] = {"transposed": True, **_geometry(node, kernel)}
    if form in ("NCHW", "NCDHW"):
        if _grouped(node):
            attrs["grouped"] = True
        return Meaning("conv", attrs, (1, 0))
    x = node.shapes[1]
    if x is not None:
        per_element = _per_output(form, node.dims(0), grouped=_grouped(node))
        elements = product(x)
        if per_element is not None and elements is not None:
            attrs["macs"] = elements * per_element
    return Meaning("conv", attrs, (1, 0))


def _weight_gradient(node: Node) -> Meaning:
    attrs: dict[str, Attr] = {"grads": ("weight",)}
    if _grouped(node):
        attrs["grouped"] = True
    return Meaning("conv", attrs, (1, 0, 2))


# -- three dimensions --------------------------------------------------------------------------------------------------


def _filter_3d(node: Node, index: int) -> tuple[Extent, Extent, Dims]:
    """Out channels, in channels (of all groups) and kernel."""
    weight = node.ranked(index, 6 if _grouped(node) else 5)
    group, rest = (weight[0], weight[1:]) if _grouped(node) else (1, weight)
    last = node.word("format") == "NDHWC"
    kernel, inner = (rest[1:4], rest[4]) if last else (rest[2:], rest[1])
    return product((group, rest[0])), product((group, inner)), kernel


def _volume(node: Node, shape: Dims, channels: Extent, spatial: list[Extent]) -> Shape:
    if node.word("format") == "NDHWC":
        return (shape[0], *spatial, channels)
    return (shape[0], channels, *spatial)


def _spatial(node: Node, shape: Dims) -> Dims:
    return shape[1:4] if node.word("format") == "NDHWC" else shape[2:]


def _shapes_3d(node: Node) -> list[Shape]:
    x = node.ranked(0, 5)
    out, inner, kernel = _filter_3d(node, 1)
    channels = x[4] if node.word("format") == "NDHWC" else x[1]
    if None not in (channels, inner) and channels != inner:
        raise Mismatch(f"a filter for {inner} channels does not fit {channels} channels")
    return [_volume(node, x, out, node.windows(_spatial(node, x), kernel))]


def _transposed_shapes_3d(node: Node) -> list[Shape]:
    if len(node.shapes) > 2:
        return [node.dims(2)]
    x = node.ranked(1, 5)
    _, inner, kernel = _filter_3d(node, 0)
    return [_volume(node, x, inner, _grown(node, _spatial(node, x), kernel))]


def _meaning_3d(node: Node) -> Meaning:
    out, _, kernel = _filter_3d(node, 1)
    attrs = _geometry(node, kernel)
    if node.word("format") != "NDHWC":
        return Meaning("conv", attrs | ({"grouped": True} if _grouped(node) else {}), (0, 1))
    elements = product(node.dims(1))
    y = product(node.out_shapes[0]) if node.out_shapes[0] is not None else None
    if out and elements is not None and y is not None:
        attrs["macs"] = y * (elements // out)
    return Meaning("conv", attrs, (0, 1))


# -- weights that are not shared ---------------------------------------------------------------------------------------


def _local_filter(node: Node, *, grouped: bool) -> tuple[tuple[Extent, Extent], Extent, Extent]:
    """Plane, out channels and products for one output of a filter (group, oh, ow, in, kh, kw, out)."""
    weight = node.ranked(1, 7 if grouped else 6)
    group, rest = (weight[0], weight[1:]) if grouped else (1, weight)
    return (rest[0], rest[1]), product((group, rest[5])), product(rest[2:5])


def _local_shapes(node: Node) -> list[Shape]:
    plane, channels, _ = _local_filter(node, grouped=node.op.type == "GroupLocal")
    return [(node.ranked(0, 4)[0], channels, *plane)]


def _local_meaning(node: Node) -> Meaning:
    _, _, per_output = _local_filter(node, grouped=node.op.type == "GroupLocal")
    return _told(node, per_output)


def _told(node: Node, per_output: Extent) -> Meaning:
    """A convolution whose products for one output element are told."""
    y = node.out_shapes[0]
    elements = product(y) if y is not None else None
    if elements is None or per_output is None:
        return Meaning("conv", {}, (0, 1))
    return Meaning("conv", {"macs": elements * per_output}, (0, 1))


def _share_filter(node: Node) -> tuple[Extent, Extent, Dims]:
    """Out channels, products for one output and kernel of a filter (group, gh, gw, in, kh, kw, out)."""
    weight = node.ranked(1, 7 if _grouped(node) else 6)
    group, rest = (weight[0], weight[1:]) if _grouped(node) else (1, weight)
    return product((group, rest[5])), product(rest[2:5]), rest[3:5]


def _share_shapes(node: Node) -> list[Shape]:
    channels, _, kernel = _share_filter(node)
    x = node.ranked(0, 4)
    return [(x[0], channels, *node.windows(x[2:], kernel))]


# -- others ------------------------------------------------------------------------------------------------------------


def _deformable_meaning(node: Node) -> Meaning:
    attrs: dict[str, Attr] = {"sampled": TAPS}
    if _grouped(node):
        attrs["grouped"] = True
    return Meaning("conv", attrs, (0, 1))


def _batch_shapes(node: Node) -> list[Shape]:
    """Each image has a filter of its own: the filter begins with the batch."""
    x, weight = node.ranked(0, 4, 5), node.dims(1)
    form = node.word("format") or "NCHW"
    before, after = source_and_result(form, len(x))
    found = filter_of(form, weight[1:], grouped=_grouped(node))
    return [after.shape(x[before.batch], found.out_channels, node.windows(before.plane(x), found.kernel))]


def _batch_meaning(node: Node) -> Meaning:
    y, weight = node.out_shapes[0], node.dims(1)
    per_output = _per_output(node.word("format") or "NCHW", weight[1:], grouped=_grouped(node))
    elements = product(y) if y is not None else None
    then = _then(node)
    if then is None:
        return Meaning("unknown")
    attrs: dict[str, Attr] = {"then": then}
    if elements is not None and per_output is not None:
        attrs |= {"macs": elements * per_output, "bias": len(node.shapes) > 2}
    return Meaning("conv", attrs)


def _first_two(node: Node) -> Meaning:
    """Masks say where to compute; the count is that of a whole convolution."""
    return _conv(node, inputs=(0, 1), then=())


RULES = {
    "Convolution": Rule(_shapes, lambda node: _conv(node, inputs=tuple(range(len(node.shapes))), then=()), _sums),
    "ConvBias": Rule(_shapes, _biased_meaning, _sums),
    "ConvolutionBackwardData": Rule(_transposed_shapes, _transposed_meaning, _sums),
    "ConvolutionBackwardFilter": Rule(alike(2), _weight_gradient),
    "Convolution3D": Rule(_shapes_3d, _meaning_3d, _sums),
    "Convolution3DBackwardData": Rule(_transposed_shapes_3d, _transposed_meaning),
    "Convolution3DBackwardFilter": Rule(alike(2), _weight_gradient),
    "DeformableConv": Rule(_shapes, _deformable_meaning),
    "BatchConvBias": Rule(_batch_shapes, _batch_meaning, _sums),
    "Local": Rule(_local_shapes, _local_meaning),
    "GroupLocal": Rule(_local_shapes, _local_meaning),
    "LocalShare": Rule(_share_shapes, lambda node: _told(node, _share_filter(node)[1])),
    "MaskConvolution": Rule(_shapes, _first_two),
    "RegionRestrictedConvolution": Rule(_shapes, _first_two),
}
