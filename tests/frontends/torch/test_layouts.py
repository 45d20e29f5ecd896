"""The layout of tensors in memory, where the time of an operator depends on it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opcost
from opcost.core.graph import Attrs

LAST = torch.channels_last


def attributes(raw: str, call: object, *given: torch.Tensor) -> Attrs:
    (row,) = (row for row in opcost.count(call, given, backward="backward" in raw).rows if row.op.raw == raw)
    return row.op.attrs


def join(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.cat(tensors, -1)


def test_joined_tensors_have_one_layout_or_not() -> None:
    rows, images = torch.zeros(2, 4, 6, 8), torch.zeros(2, 4, 6, 8).contiguous(memory_format=LAST)
    assert "strided" not in attributes("aten::cat", join, rows, rows)
    assert "strided" not in attributes("aten::cat", join, images, images)
    assert attributes("aten::cat", join, rows, images)["strided"]
    assert attributes("aten::cat", join, rows[..., :4], rows[..., 4:])["strided"]
    # What is empty has any layout, and so has an axis of one element.
    assert "strided" not in attributes("aten::cat", join, rows, rows[..., :0].transpose(0, 1).reshape(2, 4, 6, 0))
    assert "strided" not in attributes(
        "aten::cat", join, torch.zeros(2, 6, 1, 8).transpose(1, 2), torch.zeros(2, 1, 6, 8)
    )


def test_a_convolution_of_images_whose_channels_are_side_by_side() -> None:
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


def test_a_convolution_copies_what_lies_otherwise_than_it_reads() -> None:
    weight = torch.zeros(16, 8, 3, 3)

    def copied(image: torch.Tensor, filters: torch.Tensor = weight) -> object:
        attrs = attributes("aten::convolution", lambda x: F.conv2d(x, filters), image)
        return attrs.get("channels_last"), attrs.get("copied")

    rows, last = torch.zeros(2, 8, 5, 5), torch.zeros(2, 8, 5, 5).contiguous(memory_format=LAST)
    assert copied(rows) == (None, None)
    assert copied(last) == (True, ("weight",))
    assert copied(last, weight.contiguous(memory_format=LAST)) == (True, None)
    assert copied(last, weight[..., :1, :1].contiguous()) == (True, None)  # both orders are the same
    assert copied(rows, weight.contiguous(memory_format=LAST)) == (True, ("image",))
    assert copied(torch.zeros(2, 5, 8, 5).transpose(1, 2)) == (None, ("image",))
    # A view of one image has any stride along its first axis, and PyTorch asks for that of a batch.
    tokens = torch.zeros(1, 25, 8).transpose(1, 2)
    assert copied(tokens.view(1, 8, 5, 5)) == (None, ("image",))
    assert tokens.view(1, 8, 5, 5).is_contiguous(memory_format=LAST)


IMAGES = torch.zeros(2, 6, 7, 8).permute(0, 3, 1, 2)
"""Channels side by side."""


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 16, 3),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 1, 1),
        nn.Conv2d(8, 16, 3, dilation=2, padding=2),
        nn.ConvTranspose2d(8, 4, 2, 2),
        nn.ConvTranspose2d(8, 4, 3, 2, output_padding=1, groups=2),
    ],
    ids=str,
)
def test_the_result_of_a_convolution_has_the_layout_of_a_real_run(
    layer: nn.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        print(tuple(y.shape), y.stride())  # what a forward writes into a list is taken back after a count
        return y

    def runs_as_counted(x: torch.Tensor) -> bool:
        net(x)
        opcost.count(net, x)
        runs = capsys.readouterr().out.splitlines()
        return len(runs) == 2 and runs[0] == runs[1]

    assert runs_as_counted(IMAGES)
    layer.to(memory_format=LAST)  # a weight with this layout does the same
    assert runs_as_counted(IMAGES.contiguous())


def test_what_follows_a_convolution_of_such_images_copies_nothing() -> None:
    """Tokens seen as an image, and as tokens again, as in the feed-forward layers of vision transformers."""
    layer, out = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Linear(8, 4)

    def net(tokens: torch.Tensor) -> torch.Tensor:
        image = layer(tokens.transpose(1, 2).unflatten(2, (6, 7)))
        return out(image.flatten(2).transpose(1, 2))

    kinds = [row.op.kind for row in opcost.count(net, torch.zeros(2, 42, 8)).rows if row.op.kind != "view"]
    assert kinds == ["conv", "matmul"]


def test_simple_operators_on_tensors_alike_apart_or_turned_round() -> None:
    rows = torch.zeros(4, 6, 8)

    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    def layout(*given: torch.Tensor) -> dict[str, object]:
        attrs = attributes("aten::add", added, *given)
        return {name: attrs[name] for name in ("strided", "turned") if name in attrs}

    assert not layout(rows, rows)
    turned = torch.zeros(4, 8, 6).transpose(1, 2)
    assert not layout(turned, turned)
    assert layout(rows, turned) == {"strided": True, "turned": True}
    assert layout(rows[..., :4], rows[..., 4:]) == {"strided": True}
    assert layout(rows, torch.zeros(4, 6, 1).expand(4, 6, 8)) == {"strided": True}
    # What is spread by the operator itself is known from its shape, and an axis of one element has any layout.
    assert not layout(rows, torch.zeros(8))
    assert not layout(torch.zeros(6, 1, 8).transpose(0, 1), torch.zeros(1, 6, 8))


def test_copies_of_tensors_apart_turned_round_and_expanded() -> None:
    """An expanded tensor is read in the order in which it is written: what turns it round besides is not."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.clone(memory_format=torch.contiguous_format)

    def layout(given: torch.Tensor) -> set[str]:
        return {"strided", "turned", "expanded"}.intersection(attributes("aten::clone", copied, given))

    heads = torch.zeros(2, 4, 1, 6, 8)
    assert layout(heads[..., :4]) == {"strided"}
    assert layout(heads.transpose(-1, -2)) == {"strided", "turned"}
    assert layout(heads.expand(2, 4, 3, 6, 8)) == {"expanded"}
    assert layout(heads.transpose(-1, -2).expand(2, 4, 3, 8, 6)) == {"strided", "turned"}
    assert layout(torch.zeros(2, 6, 1, 4, 8).transpose(1, 3).expand(2, 4, 3, 6, 8).transpose(1, 3)) == {"expanded"}


def test_a_normalization_of_a_transposed_tensor_copies_it_first() -> None:
    norm = nn.LayerNorm(8)
    assert "strided" not in attributes("aten::native_layer_norm", norm, torch.zeros(2, 6, 8))
    assert attributes("aten::native_layer_norm", norm, torch.zeros(2, 8, 6).transpose(1, 2))["turned"]
