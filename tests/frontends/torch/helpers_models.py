"""Models whose forward pass changes things: themselves, what they hold, and the process around them."""

from __future__ import annotations

import random
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

B, D = 4, 6


def x() -> Tensor:
    return torch.linspace(-1, 1, B * D).reshape(B, D)


class Stats(nn.Module):
    """Batch statistics, and running buffers written in place, assigned anew and written through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(D)
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("table", torch.zeros(2, D))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.steps = self.steps + 1
        self.table[0] = x.mean(0)
        self.table.view(-1)[3:].add_(1)
        return x + self.mean + self.table[0]


class Holder:
    """An object that a module holds."""

    def __init__(self) -> None:
        self.last: Any = None
        self.seen: list[Any] = []


class Slotted:
    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Any = None


class Remembers(nn.Module):
    """Keeps what it sees in attributes, containers of all kinds, and objects."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.list: list[Any] = []
        self.dict: dict[str, Any] = {"nested": {"deep": [1]}}
        self.ordered: OrderedDict[str, Any] = OrderedDict(a=1, b=2)
        self.default: defaultdict[str, list[Any]] = defaultdict(list)
        self.queue: deque[Any] = deque([1, 2], maxlen=2)
        self.set = {1}
        self.holder = Holder()
        self.slotted = Slotted()
        self.outside = [nn.Linear(D, D)]
        self.cache: Any = None
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) + self.outside[0](x)
        self.calls += 1
        self.cache = y
        self.list.append(y)
        self.dict["y"] = y
        self.dict["nested"]["deep"].append(y)
        self.ordered.move_to_end("a")
        self.default["y"].append(y)
        self.queue.append(y)
        self.set.add(2)
        self.holder.last = y
        self.holder.seen.append(y)
        self.slotted.last = y
        self.outside[0].last = y
        self.layer.extra = y
        del self.set
        return y


class Meddles(nn.Module):
    """Turns switches, hooks and flags in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.frozen = nn.Linear(D, D).requires_grad_(False)
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        self.eval()
        self.layer.register_forward_hook(lambda module, args, output: output + 1)
        self.layer.weight.note = "seen"
        self.frozen.weight.requires_grad_()
        self.generator.manual_seed(7)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(11)
        random.seed(11)
        np.random.seed(11)  # noqa: NPY002 - the generator of the whole process
        noise = torch.rand(D, generator=self.generator, dtype=x.dtype) + torch.rand(D, dtype=x.dtype)
        return self.frozen(self.layer(x)) + noise + random.random() + np.random.rand()  # noqa: NPY002


class Rewrites(nn.Module):
    """Writes to its own parameters: in place under no_grad, through .data, and by giving them other memory."""

    def __init__(self) -> None:
        super().__init__()
        self.clamped = nn.Linear(D, D)
        self.scaled = nn.Linear(D, D)
        self.plain = torch.zeros(D)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.clamped.weight.clamp_(-0.1, 0.1)
        self.clamped.bias.data.zero_()
        self.scaled.weight.data = self.scaled.weight.data * 2
        self.plain += 1
        return self.scaled(self.clamped(x)) + self.plain


class BackwardInside(nn.Module):
    """Differentiates in its forward pass, which fills .grad."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.layer.weight.grad = torch.ones(D, D)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self.layer(x).sum().backward()
        return self.layer(x)


class Hooked(nn.Module):
    """Has hooks of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.log: list[str] = []
        self.layer.register_forward_pre_hook(lambda module, args: self.log.append("before"))
        self.layer.register_forward_hook(lambda module, args, output: self.log.append("after"))
        self.layer.register_full_backward_hook(lambda module, grad_in, grad_out: self.log.append("gradient"))
        self.layer.weight.register_hook(lambda grad: self.log.append("weight"))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True, dropout=0.1)
    return nn.Sequential(nn.Unflatten(0, (1, B)), nn.TransformerEncoder(layer, 2))


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def forward(self, pair: Any) -> Any:
            return pair[0]

    return nn.Sequential(nn.LSTM(D, D, 2, bidirectional=True, dropout=0.2), Last())


def weight_normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(D, D)), nn.utils.spectral_norm(nn.Linear(D, D)))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))
    model[1].weight = model[0].weight
    return model


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.Dropout(0.5), nn.Linear(D, D))


def mixed_modes() -> nn.Module:
    model = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.Sequential(nn.BatchNorm1d(D), nn.Dropout()))
    model[2].eval()
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "statistics": Stats,
    "caches": Remembers,
    "switches": Meddles,
    "rewritten weights": Rewrites,
    "backward inside": BackwardInside,
    "hooks": Hooked,
    "attention": attention,
    "recurrent": recurrent,
    "computed weights": weight_normed,
    "tied weights": tied,
    "dropout": dropped,
    "mixed modes": mixed_modes,
}
