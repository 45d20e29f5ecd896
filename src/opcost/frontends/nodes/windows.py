"""Windows that sweep over the axes of a tensor, of convolutions and pools, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Extent, Mismatch, known, same_windows, spread, times, windows


class Window:
    """Kernel, stride, dilation and padding along each axis; what is not told is 1, or nothing.

    `same`: the axes are padded so that only the stride shortens them.
    """

    def __init__(
        self,
        kernel: Dims,
        space: Dims,
        *,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        pads: Sequence[tuple[int, int]] | None = None,
        same: bool = False,
    ) -> None:
        rank = len(kernel)
        self.kernel, self.space, self.same = kernel, space, same
        self.stride, self.dilation = tuple(stride or (1,) * rank), tuple(dilation or (1,) * rank)
        self.pads = tuple(pads or ((0, 0),) * rank)
        if not len(self.stride) == len(self.dilation) == len(self.pads) == len(space) == rank:
            raise Mismatch("kernel, strides, dilations and paddings do not have the same number of axes")
        if min(self.stride, default=1) < 1:
            raise Mismatch(f"its strides are {self.stride}")

    def swept(self, *, ceil: bool = False) -> Dims:
        """How many places the kernel takes along each axis."""
        found: list[Extent] = []
        for n, k, s, d, p in zip(self.space, self.kernel, self.stride, self.dilation, self.pads, strict=True):
            if self.same:
                found.append(same_windows(n, s))
            else:
                found.append(windows(n, k, stride=s, dilation=d, padding=p, last="begun" if ceil else "whole"))
        return tuple(found)

    def spread(self, extra: Sequence[int] | None = None) -> Dims:
        """What a transposed convolution makes of each axis."""
        more = extra or (0,) * len(self.kernel)
        axes = zip(self.space, self.kernel, self.stride, self.dilation, self.pads, more, strict=True)
        return tuple(
            times(n, s) if self.same else spread(n, k, stride=s, dilation=d, padding=p, extra=e)
            for n, k, s, d, p, e in axes
        )

    @property
    def geometry(self) -> dict[str, Attr]:
        """What a receptive field follows from."""
        return {"kernel": known(self.kernel), "stride": self.stride, "dilation": self.dilation}
