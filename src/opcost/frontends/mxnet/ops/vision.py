"""Images at other sizes, values between their elements, boxes and regions."""

import struct
from math import prod

from opcost.core.graph import Attrs
from opcost.core.shapes import Extent, Mismatch, Shape, adaptive_windows, divided, product, text, times, total
from opcost.frontends.mxnet.ops.layers import BILINEAR_TAPS
from opcost.frontends.mxnet.ops.reshape import image
from opcost.frontends.mxnet.ops.table import FUNCTIONS, SymbolCall
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes
from opcost.frontends.rows import Means

# -- interpolation -----------------------------------------------------------------------------------------------------

_MOST_INPUTS = 1024


def _upsample_shapes(call: SymbolCall) -> Shape:
    batch, channels, height, width = image(call.dims(0))
    scale = call.attrs.integer("scale")
    if scale < 1:
        raise AttributeFault(f"the scale is {scale}")
    if call.attrs.text("sample_type") == "bilinear":
        size = 2 * scale - scale % 2
        call.put_in(1, (channels, 1, size, size))
    elif call.attrs.text("multi_input_mode", "concat") == "concat":
        channels = total(None if shape is None else image(shape)[1] for shape in call.ins)
    return (batch, channels, times(height, scale), times(width, scale))


def _upsample(call: SymbolCall) -> Means:
    """Bilinear upsampling is a transposed convolution of each channel with a learned kernel."""
    if call.attrs.text("sample_type") == "bilinear":
        return "conv", {"transposed": True}
    if call.attrs.text("multi_input_mode", "concat") == "sum" and len(call.ins) > 1:
        return "elementwise", {"fn": "add", "elements": (len(call.ins) - 1) * prod(call.y())}
    return "resize", {"fn": "nearest"}


def _upsample_slots(attrs: Attributes) -> tuple[str, ...]:
    bilinear = attrs.text("sample_type", "nearest") == "bilinear"
    return ("data", "weight") if bilinear else ("data",) * min(attrs.integer("num_args", 1), _MOST_INPUTS)


_SHIFTS = {"to_even_down": (0, -1), "to_even_up": (0, 1), "to_odd_down": (1, -1), "to_odd_up": (1, 1)}
"""Modes of a resize that make extents even or odd: the parity that is kept, and the step of others."""


def _resize(call: SymbolCall) -> Shape:
    batch, channels, *space = image(call.dims(0))
    mode = call.attrs.text("mode", "size")
    if mode == "like":
        return (batch, channels, *image(call.dims(1))[2:])
    if mode == "size" and "scale_height" not in call.attrs:
        return (batch, channels, call.attrs.integer("height", 1), call.attrs.integer("width", 1))
    if mode in ("size", "odd_scale"):
        # MXNet keeps the scales in single precision; with `odd_scale` an odd extent stays odd.
        scales = struct.unpack("<2f", struct.pack("<2f", *map(call.attrs.number, ("scale_height", "scale_width"))))
        rests = [extent % 2 if mode == "odd_scale" and extent is not None else 0 for extent in space]
        sizes = zip(space, scales, rests, strict=True)
        return (batch, channels, *(None if n is None else int(scale * (n - rest)) + rest for n, scale, rest in sizes))
    if mode not in _SHIFTS:
        raise AttributeFault(f"the mode {mode!r} is not known")
    parity, shift = _SHIFTS[mode]
    return (batch, channels, *(n if n is None or n % 2 == parity else n + shift for n in space))


def _grid(call: SymbolCall) -> Attrs:
    """An affine place is two products and two sums, a warped one a sum."""
    if call.attrs.text("transform_type") != "affine":
        call.put_out(0, call.ins[0])
        return {"fn": "add"}
    call.put_in(0, (None, 6))
    call.put_out(0, (call.dims(0)[0], 2, *call.attrs.integers("target_shape")))
    return {"fn": "fma", "elements": 2 * prod(call.y())}


_INTERPOLATIONS = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area", 4: "bicubic"}
"""OpenCV's numbers; of a Lanczos window, the nearest that has a cost."""


def _picture_resize(call: SymbolCall) -> Attrs:
    """Pictures are height, width and channels, with a batch before them or not."""
    *batch, rows, columns, channels = call.dims(0)
    size = call.attrs.integers("size")
    width, height = size if len(size) == 2 else (size[0], size[0])
    if len(size) == 1 and call.attrs.flag("keep_ratio") and rows is not None and columns is not None:
        if rows > columns:
            height = rows * size[0] // columns
        else:
            width = columns * size[0] // rows
    call.put_out(0, (*batch, height, width, channels))
    return {"fn": _INTERPOLATIONS.get(call.attrs.integer("interp", 1), "bilinear")}


# -- boxes: anchors, proposals, non-maximum suppression ----------------------------------------------------------------
#
# In rows, the overlap of two boxes takes 14 FLOPs: four comparisons, two differences and two clamps, a product, and what the
# union needs (5).

DECODE_FLOPS = 14  # Of a box: four products, four sums, two exponentials, two halvings, two differences


def _sorted(batch: tuple[int, ...], boxes: int, flops: int = 0) -> Attrs:
    """Comparisons that sort boxes by score, and `flops` for each box.

    How many pairs are compared after that depends on the data and is left out.
    """
    return {"elements": (prod(batch) or 1) * (boxes * max(boxes - 1, 0).bit_length() + boxes * flops)}


def _prior(call: SymbolCall) -> Shape:
    x = call.dims(0)
    if len(x) < 4:
        raise Mismatch(f"the data is {text(x)}, not batch, channels, height and width")
    each = call.attrs.count("sizes", 1) + call.attrs.count("ratios", 1) - 1
    return (1, times(product(x[2:4]), each), 4)


def _proposal(call: SymbolCall) -> Attrs:
    batch, channels, height, width = call.x()
    return _sorted((batch,), channels // 2 * height * width, DECODE_FLOPS)


FUNCTIONS.update(
    sorted_boxes=lambda call: _sorted(call.x()[:-2], call.x()[-2]),
    sorted_pairs=lambda call: _sorted(call.x()[:-2], prod(call.x()[-2:])),
    sorted_detections=lambda call: _sorted(call.y()[:1], call.y()[1], DECODE_FLOPS),
    coded_boxes=lambda call: {"elements": DECODE_FLOPS * (prod(call.y()) // 4)},
    overlaps=lambda call: (*call.dims(0)[:-1], *call.dims(1)[:-1]),
)

# -- pools over regions ------------------------------------------------------------------------------------------------


def _regions(call: SymbolCall) -> dict[str, int]:
    """One small image for every region; its channels are the data's unless `output_dim` says otherwise.

    Regions are in data; a window is taken as its share of the whole image.
    """
    x, regions = call.dims(0), call.dims(1)
    if len(x) != 4 or len(regions) != 2:
        raise Mismatch(f"the data is {text(x)} and the regions are {text(regions)}")
    size = call.attrs.integers("pooled_size")
    height, width = size if len(size) == 2 else (size[0], size[0])
    depth: Extent = call.attrs.integer("output_dim") if "output_dim" in call.attrs else x[1]
    if call.attrs.flag("position_sensitive"):
        depth = divided(depth, height * width, "channels", "places")
    call.put_out(0, (regions[0], depth, height, width))
    return {"window": prod(adaptive_windows(call.x()[2:], call.y()[2:])[0])}


def _align(call: SymbolCall) -> Attrs:
    """Each output averages bilinear samples; a ratio that adapts itself to the region is taken as two."""
    ratio = call.attrs.integer("sample_ratio", call.attrs.integer("sampling_ratio", -1))
    return {"taps": BILINEAR_TAPS * (ratio * ratio if ratio > 0 else 4)}
