"""How memory lies, where the time of an operator depends on it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import opcost
from opcost.core.graph import Attrs

LAST = torch.channels_last


def attributes(raw: str, call: object, *given: torch.Tensor) -> Attrs:
    (row,) = (row for row in opcost.count(call, given, backward="backward" in raw).rows if row.op.raw == raw)
    return row.op.attrs


def join(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.cat(tensors, -1)


def test_what_is_joined_lies_alike_or_not() -> None:
    rows, images = torch.zeros(2, 4, 6, 8), torch.zeros(2, 4, 6, 8).contiguous(memory_format=LAST)
    assert "strided" not in attributes("aten::cat", join, rows, rows)
    assert "strided" not in attributes("aten::cat", join, images, images)
    assert attributes("aten::cat", join, rows, images)["strided"]
    assert attributes("aten::cat", join, rows[..., :4], rows[..., 4:])["strided"]
    # What is empty lies anyhow, and so does an axis of one element.
    assert "strided" not in attributes("aten::cat", join, rows, rows[..., :0].transpose(0, 1).reshape(2, 4, 6, 0))
    assert "strided" not in attributes(
        "aten::cat", join, torch.zeros(2, 6, 1, 8).transpose(1, 2), torch.zeros(2, 1, 6, 8)
    )


def test_a_convolution_of_images_whose_channels_lie_side_by_side() -> None:
    x, weight = torch.zeros(2, 8, 5, 5, requires_grad=True), torch.zeros(16, 8, 3, 3)

    def net(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight).sum()

    laid_out = x.detach().contiguous(memory_format=LAST).requires_grad_()
    for raw in ("aten::convolution", "aten::convolution_backward"):
        assert "channels_last" not in attributes(raw, net, x)
        assert attributes(raw, net, laid_out)["channels_last"]
    # With one place or one channel both are the same.
    for shape in ((2, 8, 1, 1), (2, 1, 5, 5)):
        image = torch.zeros(shape).contiguous(memory_format=LAST)
        filters = torch.zeros(4, shape[1], 1, 1)
        assert "channels_last" not in attributes(
            "aten::convolution", lambda x, filters=filters: F.conv2d(x, filters), image
        )
