"""Where the channels of an image or a filter lie: MegEngine packs them for its kernels in many ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opcost.core.shapes import Dims, Extent, Mismatch, text, times


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


_IMAGES = {
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
