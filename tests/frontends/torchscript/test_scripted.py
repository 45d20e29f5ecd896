"""Traced, scripted, frozen and optimized archives of the same nets: each costs what the net itself costs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sampling import FULL

import opcost
from opcost.errors import InputError

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
T = torch.Tensor


class Block(nn.Module):
    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide)
        self.conv2, self.bn2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.down: nn.Module | None = None
        if narrow != wide:
            self.down = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x: T) -> T:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.down is not None:
            x = self.down(x)
        y += x
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.pool = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.mean, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(16, 10)

    def forward(self, x: T) -> T:
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.mean(self.layers(x)), 1))


class Inverted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), nn.Conv2d(8, 8, 3, 1, 1, groups=8),
            nn.Hardswish(), nn.Conv2d(8, 4, 1),
        )  # fmt: skip
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.SiLU(), nn.Conv2d(2, 4, 1), nn.Hardsigmoid()
        )

    def forward(self, x: T) -> T:
        y = self.body(x)
        return x + y * self.gate(y)


class Words(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(30, 8), kind(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, words: T) -> T:
        y, _ = self.body(self.table(words))
        return self.head(y[:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out, self.scale = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16), 4**-0.5

    def forward(self, x: T) -> T:
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = ((q @ k.transpose(-2, -1)) * self.scale).softmax(dim=-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(n, length, width))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.zeros(1, 5, 16))
        self.blocks = nn.ModuleList([nn.Sequential(Attention(), nn.Linear(16, 16), nn.GELU()) for _ in range(2)])

    def forward(self, x: T) -> T:
        n, _, high, wide = x.shape
        torch._assert(high == 8, f"the picture is {high} high")
        assert wide == 8, f"the picture is {wide} wide"
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(n, -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return x[:, 0]


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm, self.deep = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.Conv2d(4, 8, 3, padding=1),
        )
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)

    def forward(self, x: T) -> T:
        wide = F.relu(self.norm(self.down(x)))
        y = self.up(self.deep(F.max_pool2d(wide, 2)))
        y = F.interpolate(y, size=wide.shape[-2:], mode="bilinear", align_corners=False)
        return torch.sigmoid(self.last(torch.cat([wide, y], dim=1)))


class MultiHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: T) -> T:
        y, _ = self.body(x, x, x, need_weights=False)
        return y


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 4), "b": nn.Linear(8, 4)})

    def forward(self, x: T) -> T:
        for place, layer in enumerate(self.layers):
            x = F.relu(layer(x)) * float(place + 1)
        y = torch.zeros(x.shape[0], 4)
        for _, head in self.heads.items():  # noqa: PERF102 - a script of it is another
            y = y + head(x)
        return y


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 4), nn.Linear(8, 2)

    def forward(self, x: T) -> T:
        if x.dim() == 2 and x.size(0) > 1:
            return self.one(x)
        else:  # noqa: RET505 - a script needs both
            return self.two(x)


class Choice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: T, mask: T | None = None, scale: float = 2.0) -> T:
        y = self.fc(x)
        if mask is not None:
            y = y * mask
        return y * scale


class Dicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: T) -> dict[str, T]:
        found: dict[str, T] = {}
        found["one"] = self.one(x)
        found["two"] = self.two(found["one"])
        parts: list[T] = []
        for _, value in found.items():  # noqa: PERF102
            parts.append(value)
        found["sum"] = torch.stack(parts).sum(0)
        return found


class Pair(NamedTuple):
    left: T
    right: T


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def pair(self, x: T) -> Pair:
        return Pair(self.one(x), self.two(x))

    def forward(self, x: T) -> tuple[T, T]:
        found = self.pair(x)
        return found.left + found.right, found.right


class Turns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: T) -> T:
        turn = 0
        while turn < x.size(0):
            x = self.fc(x)
            turn += 1
            if turn > 2:
                break
        return x


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gate = nn.LSTMCell(4, 5), nn.GRUCell(5, 5)

    def forward(self, x: T) -> T:
        h, c = torch.zeros(x.size(1), 5), torch.zeros(x.size(1), 5)
        found: list[T] = []
        for t in range(x.size(0)):
            h, c = self.cell(x[t], (h, c))
            h = self.gate(h, h)
            found.append(h)
        return torch.stack(found)


class Lines(nn.Module):
    """One axis and three, padding by words, and transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.up = nn.Conv1d(4, 8, 5, padding=2, padding_mode="circular"), nn.ConvTranspose1d(8, 4, 4, 2, 1)
        self.three = nn.Conv3d(1, 2, 3, padding="same")

    def forward(self, x: T) -> T:
        y = self.up(self.one(x))
        return F.avg_pool3d(self.three(y.reshape(y.shape[0], 1, 4, -1, 4)), 2).flatten(1)


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.both = nn.Parameter(torch.zeros(4, 8, 8)), nn.Bilinear(8, 8, 3)

    def forward(self, x: T) -> T:
        y = torch.einsum("bi,kij->bkj", x, self.weight)
        y = y.masked_fill((torch.triu(torch.ones(4, 4), 1) > 0)[:1].transpose(0, 1), 0.0)
        largest, _ = torch.topk(y, 2, dim=1)
        return self.both(y, y) + largest.mean()


class Maps(nn.Module):
    """Lists that are written to, and a loop that runs backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList([nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)])
        self.sides = nn.ModuleList([nn.Conv2d(4, 2, 1) for _ in range(2)])

    def up(self, x: T, size: list[int]) -> T:
        return F.interpolate(x, size, mode="nearest")

    def forward(self, x: T) -> list[T]:
        found: list[T] = []
        for layer in self.body:
            x = F.relu(layer(x))
            found.append(x)
        outs: list[T] = []
        for place, side in enumerate(self.sides):
            outs.append(side(found[place]))
        for place in range(len(outs) - 1, 0, -1):
            outs[place - 1] = outs[place - 1] + self.up(outs[place], outs[place - 1].shape[-2:])
        return outs


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

    def forward(self, x: T) -> T:
        n, length, width = x.size()
        q, k, v = self.qkv(x).split(16, dim=2)
        q, k, v = q.view(n, length, 4, 4), k.view(n, length, 4, 4), v.view(n, length, 4, 4)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        weights = (q @ k.transpose(-2, -1)).masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True) + F.softmax(weights, dim=-1) @ v
        return y.transpose(1, 2).contiguous().view(n, length, width)


class Net(NamedTuple):
    """A net, its input, and its multiply-accumulates worked out from the shapes."""

    make: Callable[[], Any]
    x: Any
    macs: int
    folded: int = 0
    """Parameters that freezing folds into others."""
    buffers: int = 0
    """Buffers that a frozen archive still has."""
    slow: bool = False


zeros = torch.zeros


def words(*shape: int) -> Any:
    return torch.zeros(*shape, dtype=torch.int64)


def attention(rows: int, length: int, width: int = 16) -> int:
    """The four projections and the two products of attention."""
    return rows * length * 4 * width * width + 2 * rows * length * length * width


_BLOCKS = 2 * 8 * 8 * 64 * 9 + 4 * 4 * 16 * (8 * 9 + 16 * 9 + 8)
NETS = {
    "linear": Net(lambda: nn.Linear(8, 4), zeros(2, 8), 2 * 8 * 4),
    "resnet": Net(
        ResNet, zeros(2, 3, 32, 32), 2 * (16 * 16 * 8 * 3 * 49 + _BLOCKS + 16 * 10), folded=8 + 8 + 8 + 16 + 16 + 16
    ),
    "mobilenet": Net(
        Inverted, zeros(1, 4, 6, 6), 36 * (4 * 8 + 8 * 9 + 8 * 4) + 4 * 2 + 2 * 4, folded=8, slow=True
    ),
    "lstm": Net(lambda: nn.LSTM(4, 6, 2, bidirectional=True), zeros(5, 2, 4), 10 * 2 * 24 * (4 + 6 + 12 + 6)),
    "gru": Net(lambda: nn.GRU(4, 6), zeros(5, 2, 4), 10 * 18 * (4 + 6), slow=True),
    "words, lstm": Net(lambda: Words(nn.LSTM), words(2, 5), 10 * 24 * (8 + 6) + 2 * 6 * 3, slow=True),
    "words, gru": Net(lambda: Words(nn.GRU), words(2, 5), 10 * 18 * (8 + 6) + 2 * 6 * 3, slow=True),
    "words, rnn": Net(lambda: Words(nn.RNN), words(2, 5), 10 * 6 * (8 + 6) + 2 * 6 * 3, slow=True),
    "vit": Net(ViT, zeros(2, 3, 8, 8), 2 * 4 * 16 * 48 + 2 * (attention(2, 5) + 2 * 5 * 16 * 16)),
    "unet": Net(
        UNet, zeros(1, 3, 8, 8), 64 * 4 * 27 + 16 * 8 * 36 + 16 * 8 * 4 * 4 + 64 * 8, folded=8, slow=True
    ),
    "multi-head": Net(MultiHead, zeros(2, 5, 16), attention(2, 5)),
    "encoder": Net(
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), zeros(2, 5, 16),
        attention(2, 5) + 2 * 5 * 2 * 16 * 32, slow=True,
    ),
    "embedding": Net(lambda: nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 4)), words(2, 5), 10 * 8 * 4),
    "lists": Net(Lists, zeros(2, 8), 2 * (3 * 64 + 2 * 32)),
    "branch": Net(Branch, zeros(2, 8), 2 * 8 * 4),
    "choice": Net(Choice, zeros(2, 8), 2 * 64),
    "dicts": Net(Dicts, zeros(2, 8), 2 * 2 * 64),
    "named tuple": Net(Named, zeros(2, 8), 2 * 2 * 64),
    "turns": Net(Turns, zeros(4, 8), 3 * 4 * 64),
    "cells": Net(Cells, zeros(3, 2, 4), 3 * 2 * (20 * (4 + 5) + 15 * (5 + 5))),
    "lines": Net(Lines, zeros(2, 4, 8), 2 * (8 * 8 * 4 * 5 + 8 * 8 * 4 * 4 + 4 * 4 * 4 * 2 * 27)),
    "products": Net(Products, zeros(2, 8), 2 * 4 * 64 + 2 * 4 * 3 * 8 * 8),
    "maps": Net(Maps, zeros(1, 3, 8, 8), 16 * 4 * 27 + 4 * 4 * 36 + (16 + 4) * 8),
    "causal": Net(Causal, zeros(2, 6, 16), 2 * 6 * 16 * 48 + 2 * (2 * 2 * 6 * 6 * 16), buffers=64),
    "norms": Net(
        lambda: nn.Sequential(
            nn.ReflectionPad2d(1), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.PReLU(4), nn.Conv2d(4, 8, 1),
            nn.PixelShuffle(2), nn.Upsample(scale_factor=2), nn.AvgPool2d(2), nn.LeakyReLU(), nn.Softmax(1),
        ),
        zeros(1, 4, 4, 4), 36 * 4 * 8, slow=True,
    ),
}  # fmt: skip


def archives(model: Any, x: Any) -> dict[str, Any]:
    """The module as an archive in every form that PyTorch has for it."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = torch.jit.trace(model, x, check_trace=False, strict=False), torch.jit.script(model)
        frozen = {"frozen trace": torch.jit.freeze(one), "frozen script": torch.jit.freeze(two)}
        return {"traced": one, "scripted": two, **frozen}


@pytest.mark.parametrize("name", [name for name, net in NETS.items() if FULL or not net.slow])
def test_every_form_of_an_archive_costs_what_its_net_costs(tmp_path: Path, name: str) -> None:
    net = NETS[name]
    model = net.make().eval()
    with torch.no_grad():
        for place, weight in enumerate(model.parameters()):  # freezing merges equal ones
            weight.copy_(torch.linspace(0.1, 1 + place, weight.numel()).view(weight.shape))
    params = sum(weight.numel() for weight in model.parameters())
    unused = sum(weight.numel() for weight in model.two.parameters()) if name == "branch" else 0
    for form, archive in archives(model, net.x).items():
        archive.save(str(tmp_path / "net.pt"))
        dtype = str(net.x.dtype).removeprefix("torch.")
        report = opcost.count(tmp_path / "net.pt", shapes=[tuple(net.x.shape)], dtypes=[dtype])
        frozen = form == "frozen trace" or (form == "frozen script" and name not in ("lstm", "gru"))  # left as they are
        expected = params - frozen * net.folded - (form == "frozen trace") * unused
        assert (form, report.totals.macs, report.totals.params) == (form, net.macs, expected)
        assert not report.coverage.uncounted
        assert any(note.code == "frozen" for note in report.notes) == frozen
        assert not frozen or report.totals.buffers == net.buffers


@pytest.mark.skipif(not FULL, reason="the numbers above are worked out by hand; this counts the nets themselves")
def test_the_net_itself_has_these_numbers() -> None:
    for name, net in NETS.items():
        report = opcost.count(net.make().eval(), net.x)
        assert (name, report.totals.macs) == (name, net.macs)


def test_an_optimized_archive_costs_what_its_net_costs(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.optimize_for_inference(torch.jit.script(model)).save(str(tmp_path / "net.pt"))
    report = opcost.count(tmp_path / "net.pt", shapes=[(2, 8)])
    assert (report.totals.macs, report.totals.params) == (2 * (64 + 32), 64 + 8 + 8 + 8 + 32 + 4)


def test_what_the_module_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    torch.jit.script(ViT().eval()).save(str(tmp_path / "net.pt"))
    with pytest.raises(InputError, match=r"the module refuses these inputs: .*the picture is 12 wide"):
        opcost.count(tmp_path / "net.pt", shapes=[(2, 3, 8, 12)])


@torch.jit.script
class Counter:
    def __init__(self, start: int) -> None:
        self.turns = start

    def more(self) -> int:
        self.turns += 1
        return self.turns


class WithObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: T) -> T:
        counter = Counter(1)
        counter.more()
        for _ in range(counter.more()):
            x = self.fc(x)
        return x


def test_objects_of_scripted_classes_keep_what_is_put_into_them(tmp_path: Path) -> None:
    torch.jit.script(WithObject()).save(str(tmp_path / "net.pt"))
    assert opcost.count(tmp_path / "net.pt", shapes=[(2, 8)]).totals.macs == 3 * 2 * 64
