"""Images at other sizes, and values between their elements."""

from __future__ import annotations

import struct

from opcost.core.shapes import Dims, Extent, Mismatch, product, text, times, total
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.convolution import image
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.table import (
    Call,
    Translation,
    always_type,
    define,
    elementwise,
    same_types,
    types_of,
)

_MOST_INPUTS = 1024
_BILINEAR = Translation("resize", {"fn": "bilinear"}, (0,))


def _scaled(extent: Extent, factor: float) -> Extent:
    return None if extent is None else int(factor * extent)


def _single(number: float) -> float:
    """A number in the precision in which MXNet keeps it."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _upsample(call: Call) -> None:
    batch, channels, height, width = image(call.dims(0))
    scale = call.attrs.integer("scale")
    if scale < 1:
        raise AttributeFault(f"the scale is {scale}")
    if call.attrs.text("sample_type") == "bilinear":
        size = 2 * scale - scale % 2
        call.put_in(1, (channels, 1, size, size))
    elif call.attrs.text("multi_input_mode", "concat") == "concat":
        channels = total(None if shape is None else image(shape)[1] for shape in call.ins)
    call.put_out(0, (batch, channels, times(height, scale), times(width, scale)))


def _upsampled(call: Call) -> Translation:
    """Bilinear upsampling is a transposed convolution of each channel with a learned kernel."""
    if call.attrs.text("sample_type") == "bilinear":
        return Translation("conv", {"transposed": True})
    if call.attrs.text("multi_input_mode", "concat") == "sum" and len(call.ins) > 1:
        return elementwise("add", elements=(len(call.ins) - 1) * (product(call.y()) or 0))
    return Translation("resize", {"fn": "nearest"})


def _upsample_slots(attrs: Attributes) -> tuple[str, ...]:
    bilinear = attrs.text("sample_type", "nearest") == "bilinear"
    return ("data", "weight") if bilinear else ("data",) * min(attrs.integer("num_args", 1), _MOST_INPUTS)


def _resize(call: Call) -> None:
    batch, channels, *space = image(call.dims(0))
    call.put_out(0, (batch, channels, *_target(call, space)))


def _target(call: Call, space: list[Extent]) -> list[Extent]:
    mode = call.attrs.text("mode", "size")
    if mode == "like":
        return list(image(call.dims(1))[2:])
    if mode == "size":
        if "scale_height" in call.attrs:
            scales = _scales(call.attrs)
            return [_scaled(extent, scale) for extent, scale in zip(space, scales, strict=True)]
        return [call.attrs.integer("height", 1), call.attrs.integer("width", 1)]
    if mode == "odd_scale":
        return [
            None if extent is None else int((extent - extent % 2) * scale) + extent % 2
            for extent, scale in zip(space, _scales(call.attrs), strict=True)
        ]
    shifts = {"to_even_down": (0, -1), "to_even_up": (0, 1), "to_odd_down": (1, -1), "to_odd_up": (1, 1)}
    if mode not in shifts:
        raise AttributeFault(f"the mode {mode!r} is not known")
    parity, shift = shifts[mode]
    return [None if extent is None else extent if extent % 2 == parity else extent + shift for extent in space]


def _scales(attrs: Attributes) -> tuple[float, float]:
    return _single(attrs.number("scale_height")), _single(attrs.number("scale_width"))


def _resize_slots(attrs: Attributes) -> tuple[str, ...]:
    return ("data", "like") if attrs.text("mode", "size") == "like" else ("data",)


def _sampler(call: Call) -> None:
    x, grid = (image(shape) for shape in call.every())
    call.put_out(0, (*x[:2], *grid[2:]))


def _transformer(call: Call) -> None:
    batch, channels, _, _ = image(call.dims(0))
    call.put_in(1, (batch, 6))
    call.put_out(0, (batch, channels, *call.attrs.integers("target_shape")))


def _grid(call: Call) -> None:
    x = call.dims(0)
    if call.attrs.text("transform_type") == "affine":
        call.put_in(0, (None, 6))
        call.put_out(0, (x[0], 2, *call.attrs.integers("target_shape")))
    else:
        call.put_out(0, x)


def _gridded(call: Call) -> Translation:
    """An affine place is two products and two sums, a warped one a sum."""
    if call.attrs.text("transform_type") == "affine":
        return elementwise("fma", elements=2 * (product(call.y()) or 0))
    return elementwise("add")


_INTERPOLATIONS = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area", 4: "bicubic"}
"""OpenCV's numbers; of a Lanczos window, the nearest that has a cost."""


def _picture(call: Call) -> Dims:
    """Height, width and channels, with a batch before them or not."""
    x = call.dims(0)
    if len(x) not in (3, 4):
        raise Mismatch(f"the data is {text(x)}, not height, width and channels")
    return x


def _image_resize(call: Call) -> None:
    *batch, rows, columns, channels = _picture(call)
    size = call.attrs.integers("size")
    width, height = (size[0], size[0]) if len(size) == 1 else (size[0], size[1])
    if len(size) == 1 and call.attrs.flag("keep_ratio") and rows is not None and columns is not None:
        if rows > columns:
            height = rows * size[0] // columns
        else:
            width = columns * size[0] // rows
    call.put_out(0, (*batch, height, width, channels))


def _image_resized(call: Call) -> Translation:
    return Translation("resize", {"fn": _INTERPOLATIONS.get(call.attrs.integer("interp", 1), "bilinear")})


def _image_crop(call: Call) -> None:
    *batch, _, _, channels = _picture(call)
    call.put_out(0, (*batch, call.attrs.integer("height"), call.attrs.integer("width"), channels))


def _to_tensor(call: Call) -> None:
    *batch, height, width, channels = _picture(call)
    call.put_out(0, (*batch, channels, height, width))


define("UpSampling _npx_upsampling", _upsample, _upsampled, slots=_upsample_slots)
define("_contrib_BilinearResize2D _npx_bilinear_resize2d", _resize, _BILINEAR, types_of(0), slots=_resize_slots)
define("BilinearSampler", _sampler, Translation("sample"), slots="data grid")
define("SpatialTransformer", _transformer, Translation("sample"), same_types, slots="data loc")
define("GridGenerator", _grid, _gridded, slots="data")
define("_image_resize _npx__image_resize", _image_resize, _image_resized)
define(
    [
        f"{prefix}image_{name}"
        for prefix in ("_", "_npx__")
        for name in (
            "adjust_lighting",
            "random_brightness",
            "random_color_jitter",
            "random_contrast",
            "random_flip_left_right",
            "random_flip_top_bottom",
            "random_hue",
            "random_lighting",
            "random_saturation",
        )
    ],
    like_first,
    elementwise("fma"),
)
define("_image_crop _npx__image_crop", _image_crop, Translation("copy"))
define("_image_to_tensor _npx__image_to_tensor", _to_tensor, elementwise("div"), always_type("float32"))
define("_image_normalize _npx__image_normalize", like_first, elementwise("fma"))
