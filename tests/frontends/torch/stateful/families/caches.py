"""What deep learning models keep between calls: keys and values, positions, masks, codebooks, queues, hidden states, steps."""

from __future__ import annotations

from typing import Any

import torch
from stateful.registry import B, D, stateful
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


@stateful("keys and values in a list that grows")
class KeysInList(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.past: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.past.append((self.layer(x), x))
        keys = torch.cat([key for key, _ in self.past])
        values = torch.cat([value for _, value in self.past])
        return F.softmax(x @ keys.T, -1) @ values


@stateful("keys and values in buffers that are there from the beginning")
class KeysInBuffers(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(4 * B, D))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))
        self.length = 0

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(self.length, self.length + len(x)) % (4 * B)
        self.keys.index_copy_(0, places, self.layer(x).detach())
        self.at.add_(len(x))
        self.length += len(x)
        return x @ self.keys.T


@stateful("keys and values by layer in a dictionary")
class KeysByLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(D, D), nn.Linear(D, D)])
        self.cache: dict[int, dict[str, Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            past = self.cache.setdefault(index, {})
            key = layer(x)
            past["key"] = torch.cat([past["key"], key]) if "key" in past else key
            x = x @ past["key"].T[:, : x.shape[1]] if len(past["key"]) >= x.shape[1] else key
        return x


class CacheLayer:
    """As in transformers: a layer of a cache, which is initialised when the first keys come."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.is_initialized = False

    def update(self, keys: Tensor) -> Tensor:
        if not self.is_initialized:
            self.keys = torch.zeros(0, keys.shape[1])
            self.is_initialized = True
        self.keys = torch.cat([self.keys, keys])
        return self.keys


class DynamicCache:
    def __init__(self) -> None:
        self.layers: list[CacheLayer] = []
        self.seen = 0

    def update(self, keys: Tensor, index: int) -> Tensor:
        while len(self.layers) <= index:
            self.layers.append(CacheLayer())
        self.seen += len(keys)
        return self.layers[index].update(keys)


@stateful("an object like the caches of transformers")
class KeysInObject(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.cache = DynamicCache()

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.cache.update(self.layer(x), 0).T


CACHE = DynamicCache()


@stateful("a cache that comes as an argument", inputs=lambda: (torch.ones(B, D), DynamicCache()), restless=False)
class CacheAsArgument(Layer):
    def forward(self, x: Tensor, cache: Any) -> Tensor:
        return x @ cache.update(self.layer(x), 0).T


@stateful("rotary positions that grow with the longest input")
class Rotary(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.longest = 0
        self.register_buffer("cos", torch.zeros(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.longest:
            self.longest = len(x)
            angles = torch.outer(torch.arange(len(x)), 1.0 / 10 ** (torch.arange(D) / D))
            self.register_buffer("cos", angles.cos(), persistent=False)
        return self.layer(x) * self.cos[: len(x)]


@stateful("masks by length in a dictionary")
class Masks(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[tuple[int, torch.device], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        key = (len(x), x.device)
        if key not in self.masks:
            self.masks[key] = torch.full((len(x), len(x)), float("-inf")).triu(1)
        return F.softmax(self.layer(x) @ x.T + self.masks[key], -1) @ x


@stateful("relative positions that are an attribute after the first call")
class RelativePositions(Layer):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "index"):
            places = torch.arange(len(x))
            self.index = places[:, None] - places[None] + len(x) - 1
        return self.layer(x)[self.index % len(x)].sum(1)


@stateful("an observer of quantization")
class Observed(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.observer = torch.ao.quantization.MinMaxObserver()

    def forward(self, x: Tensor) -> Tensor:
        return self.observer(self.layer(x))


@stateful("a moving observer with fake quantization")
class FakeQuantized(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.quantize = torch.ao.quantization.FakeQuantize()

    def forward(self, x: Tensor) -> Tensor:
        return self.quantize(self.layer(x))


@stateful("LoRA that is merged in the first call in eval")
class Lora(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.ones(2, D))
        self.up = nn.Parameter(torch.ones(D, 2))
        self.merged = False
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if not self.merged and not self.training:
            self.layer.weight.data += self.up.data @ self.down.data
            self.merged = True
        return self.layer(x)


@stateful("a memory bank with a position, as in MoCo")
class MemoryBank(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.ones(D, 2 * B))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        at = int(self.position)
        self.queue[:, at : at + len(keys)] = keys.T
        self.position[0] = (at + len(keys)) % self.queue.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        y = F.normalize(self.layer(x), dim=1)
        logits = y @ self.queue.clone().detach()
        self.enqueue(y)
        return logits


@stateful("a codebook with moving averages, as in VQ-VAE")
class Codebook(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(5, D))
        self.register_buffer("sizes", torch.ones(5))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        nearest = torch.cdist(y, self.codes).argmin(1)
        chosen = F.one_hot(nearest, 5).to(y.dtype)
        if self.training:
            self.sizes.data.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
            self.sums.data.mul_(0.9).add_(chosen.T @ y.detach(), alpha=0.1)
            self.codes.data.copy_(self.sums / self.sizes[:, None])
        return y + (self.codes[nearest] - y).detach()


@stateful("a hidden state that is kept and detached")
class HiddenState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(D, D)
        self.hidden: Any = None

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.cell(x, self.hidden)
        self.hidden = hidden.detach()
        return hidden


@stateful("a hidden state of an LSTM that is kept with its graph")
class HiddenLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(D, D)
        self.state: Any = None

    def forward(self, x: Tensor) -> Tensor:
        y, state = self.rnn(x, self.state)
        self.state = tuple(part.detach() for part in state)
        return y


@stateful("a hidden state that is written in place")
class HiddenInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(D, D)
        self.hidden = torch.zeros(B, D)

    def forward(self, x: Tensor) -> Tensor:
        y = self.cell(x, self.hidden.clone())
        self.hidden[: len(x)] = y.detach()
        return y


@stateful("a step that decides what runs")
class Steps(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: Tensor) -> Tensor:
        self.step += 1
        return self.layer(self.layer(x)) if self.step % 2 else self.layer(x)


@stateful("a step in a tensor that decides what runs")
class StepTensor(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.step += 1
        for _ in range(int(self.step)):
            x = self.layer(x)
        return x


@stateful("features gathered by a hook")
class Features(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D))
        self.features: dict[str, Tensor] = {}
        for name, layer in self.body.named_children():
            layer.register_forward_hook(lambda module, args, output, name=name: self._keep(name, output))

    def _keep(self, name: str, output: Tensor) -> None:
        self.features[name] = output

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return y + self.features["0"]


@stateful("attention weights kept for later")
class AttentionMaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)
        self.maps: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        y, weights = self.attention(x[None], x[None], x[None])
        self.maps.append(weights)
        return y


@stateful("losses that layers add to a list of the model's")
class Losses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.losses: list[Tensor] = []
        self.total = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.losses.append(y.square().mean())
        self.total = self.total + self.losses[-1].detach()
        return y


@stateful("a mean over everything seen, in plain tensors")
class PlainTensorState(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(D)
        self.history = {"all": [torch.zeros(D)]}

    def forward(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.mean(0), 0.5)
        self.history["all"][0] += 1
        return self.layer(x) + self.mean + self.history["all"][0]


@stateful("a tensor made in inference mode and kept")
class MadeInInference(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            with torch.inference_mode():
                self.table = torch.arange(D) / D
        return self.layer(x) + self.table.clone()


@stateful("a routing table of experts that is balanced while it runs")
class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(D, D) for _ in range(3)])
        self.router = nn.Linear(D, 3)
        self.register_buffer("bias", torch.zeros(3))
        self.load = [0, 0, 0]

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x) + self.bias
        weights = scores.softmax(-1)
        self.bias += 0.01 * (1 / 3 - weights.detach().mean(0))
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            self.load[index] += len(x)
            out = out + weights[:, index : index + 1] * expert(x)
        return out
