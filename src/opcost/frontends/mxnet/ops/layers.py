"""Convolutions, pools, norms, softmax and the heads that know how they are trained."""

from math import prod

from opcost.core import shapes as sh
from opcost.core.graph import Attr, Attrs
from opcost.core.shapes import Dims, Extent, Mismatch, Shape
from opcost.frontends.mxnet.ops.reshape import image
from opcost.frontends.mxnet.ops.table import SymbolCall
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes
from opcost.frontends.nodes.windows import SlidingWindow
from opcost.frontends.rows import Means, like_first

# -- convolutions ------------------------------------------------------------------------------------------------------

BILINEAR_TAPS = 4  # Source elements of one value between the elements of an image


class ConvolutionAttributes:
    """The attributes that every convolution has, with MXNet's defaults filled in."""

    __slots__ = ("dilate", "filters", "groups", "kernel", "last", "pad", "stride")

    def __init__(self, attrs: Attributes, filters: int | None = None) -> None:
        self.kernel = attrs.integers("kernel")
        rank = len(self.kernel)
        self.stride = attrs.integers("stride", ()) or (1,) * rank
        self.dilate = attrs.integers("dilate", ()) or (1,) * rank
        self.pad = attrs.integers("pad", ()) or (0,) * rank
        self.filters = attrs.integer("num_filter") if filters is None else filters
        self.groups = attrs.integer("num_group", 1)
        self.last = channels_last(attrs)
        if not rank or not len(self.stride) == len(self.dilate) == len(self.pad) == rank:
            raise AttributeFault("kernel, stride, dilate and pad do not have the same number of axes")
        if min(*self.kernel, *self.stride, *self.dilate, self.groups, self.filters) < 1 or min(self.pad) < 0:
            raise AttributeFault(
                "kernel, stride, dilate, num_group and num_filter are at least 1, and pad is at least 0"
            )

    @property
    def geometry(self) -> dict[str, Attr]:
        """What a receptive field follows from."""
        return {"kernel": self.kernel, "stride": self.stride, "dilation": self.dilate}

    def over(self, space: Dims) -> SlidingWindow:
        """The kernel over these axes."""
        pads = [(pad, pad) for pad in self.pad]
        return SlidingWindow(self.kernel, space, stride=self.stride, dilation=self.dilate, pads=pads)

    def split(self, shape: Shape, what: str = "data") -> tuple[Extent, Extent, Dims]:
        """Batch, channels and space of an image, whatever its layout; all unknown where its shape is."""
        rank = len(self.kernel)
        shape = shape or (None,) * (rank + 2)
        if len(shape) != rank + 2:
            raise Mismatch(f"the {what} is {sh.text(shape)}, and a kernel of {rank} axes takes {rank + 2}")
        return (shape[0], shape[-1], shape[1:-1]) if self.last else (shape[0], shape[1], shape[2:])

    def join(self, batch: Extent, channels: Extent, space: Dims) -> Dims:
        return (batch, *space, channels) if self.last else (batch, channels, *space)


def channels_last(attrs: Attributes) -> bool:
    """Whether the layout attribute puts channels behind the space."""
    return attrs.text("layout", "NCHW").endswith("C")


def _conv(call: SymbolCall, weight: int = 1) -> Attrs:
    window = ConvolutionAttributes(call.attrs)
    batch, channels, space = window.split(call.ins[0])
    out_batch, _, out_space = window.split(call.outs[0])
    inner = sh.divided(channels, window.groups, "channels", "groups")
    sh.divided(window.filters, window.groups, "filters", "groups")
    call.put_in(weight, window.join(window.filters, inner, window.kernel))
    kernels = call.ins[weight]
    if channels is None and kernels is not None:
        channels = sh.times(window.split(kernels, "weight")[1], window.groups)
    call.put_in(weight + 1, (window.filters,))
    call.put_out(0, window.join(batch, window.filters, window.over(space).swept()))
    # With a larger stride several extents give the same number of places.
    certain = tuple([out if step == 1 else None for out, step in zip(out_space, window.stride, strict=True)])
    spread = window.over(certain).spread()
    call.put_in(0, window.join(out_batch if batch is None else batch, channels, spread))
    return window.geometry


def _deconv(call: SymbolCall) -> Attrs:
    window = ConvolutionAttributes(call.attrs)
    rank = len(window.kernel)
    target = call.attrs.integers("target_shape", ())
    adj = call.attrs.integers("adj", ()) or (0,) * rank
    if len(adj) != rank:
        raise AttributeFault("adj and kernel do not have the same number of axes")
    call.put_in(2, (window.filters,))
    per_group = sh.divided(window.filters, window.groups, "filters", "groups")
    call.put_in(1, window.join(None, per_group, window.kernel))
    batch, channels, space = window.split(call.ins[0])
    weight = call.ins[1]
    channels = sh.merge((channels,), (weight[0] if weight is not None else None,))[0]  # type: ignore[index]
    sh.divided(channels, window.groups, "channels", "groups")
    call.put_in(1, window.join(channels, per_group, window.kernel))
    call.put_out(0, window.join(batch, window.filters, target if any(target) else window.over(space).spread(adj)))
    if call.outs[0] is not None:
        call.put_in(0, window.join(call.outs[0][0], channels, (None,) * rank))
    return {"transposed": True, **window.geometry}


def _deformable(call: SymbolCall, offsets: int) -> Attrs:
    """A convolution whose kernel elements are at learned places; one input before the weight, or two, says where."""
    geometry, window = _conv(call, 1 + offsets), ConvolutionAttributes(call.attrs)
    if call.outs[0] is not None:
        batch, _, space = window.split(call.outs[0])
        places = window.kernel[0] * window.kernel[-1] * call.attrs.integer("num_deformable_group", 1)
        call.put_in(1, (batch, 2 * places, *space))
        if offsets == 2:
            call.put_in(2, (batch, places, *space))
    return {"sampled": BILINEAR_TAPS, **geometry}


def _deformable_reads(call: SymbolCall, offsets: int) -> tuple[int, ...]:
    """Data, weight, bias, places; without a bias the places would be where a bias is, so they are left away."""
    weight = 1 + offsets
    order = (0, *range(weight, len(call.ins)), *range(1, weight))
    return order if len(call.ins) > weight + 1 else order[:2]


def _correlation_shapes(call: SymbolCall) -> Shape:
    pad, kernel = call.attrs.integer("pad_size", 0), call.attrs.integer("kernel_size", 1)
    reach = call.attrs.integer("max_displacement", 1)
    step, apart = call.attrs.integer("stride1", 1), call.attrs.integer("stride2", 1)
    call.put_in(1, call.ins[0])
    call.put_in(0, call.ins[1])
    batch, _, *space = image(call.dims(0))
    border = reach + (kernel - 1) // 2
    swept = [sh.same_windows(sh.total((extent, 2 * pad - 2 * border)), step) for extent in space]
    if any(extent is not None and extent < 1 for extent in swept):
        raise Mismatch(f"displacements of {reach} do not fit an image of {sh.text(call.ins[0])}")
    return (batch, (2 * (reach // apart) + 1) ** 2, *swept)


def _correlation(call: SymbolCall) -> Means:
    depth = call.x()[1] * call.attrs.integer("kernel_size", 1) ** 2
    if call.attrs.flag("is_multiply", default=True):
        return "matmul", {"depth": depth}
    return "elementwise", {"fn": "fma", "elements": depth * prod(call.y())}  # subtract, absolute


def _unfold(call: SymbolCall) -> Shape:
    """`im2col`: every place of the kernel becomes a column."""
    window = ConvolutionAttributes(call.attrs, filters=1)
    batch, channels, space = window.split(call.dims(0))
    return (batch, sh.times(channels, prod(window.kernel)), sh.product(window.over(space).swept()))


def _fold(call: SymbolCall) -> Shape:
    """`col2im`: columns are added up into an image again."""
    x = call.dims(0)
    if len(x) != 3:
        return None
    channels = sh.divided(x[1], prod(call.attrs.integers("kernel")), "rows", "places of a kernel")
    return (x[0], channels, *call.attrs.integers("output_size"))


# -- pools over windows, fixed or adaptive -----------------------------------------------------------------------------

_POOLS = {"max": "max", "avg": "avg", "sum": "avg", "lp": "lp"}  # A sum costs what a mean does, but for one division


def _pool(call: SymbolCall) -> Attrs:
    attrs, x = call.attrs, call.ins[0]
    kind, convention = attrs.text("pool_type", "max"), attrs.text("pooling_convention", "valid")
    if kind not in _POOLS:
        raise AttributeFault(f"the pool_type {kind!r} is not known")
    if attrs.flag("global_pool"):
        x = call.dims(0)
        if len(x) < 3:
            raise Mismatch(f"the data is {sh.text(x)}, which has no space to pool over")
        space = x[1:-1] if channels_last(attrs) else x[2:]
        kernel = stride = space
        ones = (1,) * len(space)
        call.put_out(0, (x[0], *ones, x[-1]) if channels_last(attrs) else (*x[:2], *ones))
    else:
        window = ConvolutionAttributes(attrs, filters=1)
        kernel, stride = window.kernel, window.stride
        if x is not None:
            batch, channels, space = window.split(x)
            swept = window.over(space).swept()
            axes = zip(space, kernel, stride, window.pad, strict=True)
            if convention == "full":
                swept = tuple(sh.windows(n, k, stride=s, padding=(p, p), last="any") for n, k, s, p in axes)
            elif convention == "same":
                swept = tuple(sh.same_windows(sh.total((n, 2 * p)), s) for n, _, s, p in axes)
            call.put_out(0, window.join(batch, channels, swept))
    if x is not None and call.outs[0] is not None:
        call.put_in(0, (call.outs[0][0], *(None,) * (len(x) - 1)))
    return {
        "fn": _POOLS[kind],
        "window": prod(sh.known(kernel)),
        "kernel": sh.known(kernel),
        "stride": sh.known(stride),
    }


def _adaptive(call: SymbolCall) -> Attrs:
    size = call.attrs.integers("output_size", ())
    size = size * 2 if len(size) == 1 else size
    call.put_out(0, (*image(call.dims(0))[:2], *(size if len(size) == 2 else (1, 1))))
    source, target = call.x()[2:], call.y()[2:]
    kernel, stride = sh.adaptive_windows(source, target)
    geometry: dict[str, Attr] = {"kernel": kernel, "stride": stride} if all(target) else {}
    return {"window": prod(kernel), **geometry}


# -- norms -------------------------------------------------------------------------------------------------------------

NUMPY_ERA = 20000  # The first version whose GroupNorm has a weight for every channel and not for every group


def _batch_norm(call: SymbolCall) -> Attrs:
    training = call.training and not call.attrs.flag("use_global_stats")
    call.both()
    x = call.ins[0]
    if x is not None:
        axis = sh.axis_of(call.attrs.integer("axis", 1), len(x))
        known = [shape for shape in call.ins[1:5] if shape is not None and len(shape) == 1]
        channels: Extent = next((shape[0] for shape in known if shape[0] is not None), x[axis])
        for slot in range(1, 5):
            call.put_in(slot, (channels,))
            call.put_out(slot, (channels,))
        call.put_in(0, sh.replaced((None,) * len(x), axis, channels))
        call.both()
    return {"training": True} if training else {}


def _batch_norm_types(call: SymbolCall) -> None:
    """Statistics of half precision are kept in single precision."""
    data = call.in_types[0] or call.out_types[0]
    call.type_in(0, data)
    call.type_out(0, data)
    if data is not None:
        statistics = "float32" if data in ("float16", "bfloat16") else data
        call.in_types[1:] = [dtype or statistics for dtype in call.in_types[1:]]
        call.out_types[1:] = [dtype or statistics for dtype in call.out_types[1:]]


def _layer_norm(call: SymbolCall) -> None:
    call.both()
    x = call.dims(0)
    axis = sh.axis_of(call.attrs.integer("axis", -1), len(x))
    for slot in (1, 2):
        call.put_in(slot, (x[axis],))
        call.put_out(slot, sh.replaced(x, axis, 1))


def _group_norm(call: SymbolCall) -> None:
    call.both()
    x, groups = call.dims(0), call.attrs.integer("num_groups", 1)
    for slot in (1, 2):
        call.put_in(slot, (x[1] if call.version >= NUMPY_ERA else groups,))
        call.put_out(slot, (x[0], groups))


# -- softmax and losses: forward the heads are an activation or hand their input on ------------------------------------


def _softmax(call: SymbolCall) -> None:
    """The second input says for every row how much of it counts."""
    if len(call.ins) > 1:
        call.type_in(1, "int32")
    like_first(call)
    x = call.dims(0)
    if len(call.ins) > 1:
        call.put_in(1, sh.replaced(x, sh.axis_of(call.attrs.integer("axis", -1), len(x))))


def _softmax_output(call: SymbolCall) -> None:
    like_first(call)
    x, label = call.ins[0], call.ins[1] if len(call.ins) > 1 else None
    if x is None or len(call.ins) < 2 or (label is not None and label == x):
        return
    if not call.attrs.flag("multi_output"):
        call.put_in(1, x[:-1])
    elif label is None and None not in x and len(x) > 1:
        call.put_in(1, (x[0], sh.product(x[2:])))


def _regression(call: SymbolCall) -> None:
    """A label like the data, but a plain vector where there is one number for each sample."""
    like_first(call)
    x, label = call.ins[0], call.ins[1]
    if x is None or None in x:
        return
    if label is None:
        call.put_in(1, x[:1] if len(x) == 2 and x[1] == 1 else x)
    elif None not in label and sh.product(label) != sh.product(x):
        raise Mismatch(f"a label of {sh.text(label)} does not fit data of {sh.text(x)}")
