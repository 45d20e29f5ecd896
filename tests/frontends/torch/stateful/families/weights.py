"""Parameters, buffers and modules that forward writes to, replaces, adds and removes."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from stateful.registry import B, D, stateful
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


@stateful("an embedding that renormalizes the rows it looks up")
class MaxNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(D, D, max_norm=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.embedding(torch.arange(D))


@stateful("a bag of embeddings that renormalizes")
class BagMaxNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(D, D, max_norm=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bag(torch.arange(D).reshape(1, D))


@stateful("a weight scaled in place under no_grad")
class Scaled(Layer):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.layer.weight.mul_(0.5)
        return self.layer(x)


@stateful("a weight copied over")
class CopiedOver(Layer):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(D))
        return self.layer(x)


@stateful("a weight written through .data")
class DataWritten(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.data.clamp_(-0.1, 0.1)
        self.layer.bias.data.zero_()
        return self.layer(x)


@stateful("a weight that gets other memory")
class DataReplaced(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.data = self.layer.weight.data * 2
        return self.layer(x)


@stateful("a weight written through a view that was kept")
class WrittenThroughView(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.row = self.layer.weight.detach()[0]

    def forward(self, x: Tensor) -> Tensor:
        self.row.add_(1)
        return self.layer(x)


@stateful("a weight written through numpy")
class WrittenThroughNumpy(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.array = self.layer.weight.detach().numpy()

    def forward(self, x: Tensor) -> Tensor:
        self.array[0] += 1
        return self.layer(x)


@stateful("rows renormalized in place")
class Renormalized(Layer):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.layer.weight.renorm_(2, 0, 0.3)
        return self.layer(x)


@stateful("an operator that writes into a buffer by out=")
class WrittenByOut(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("result", torch.zeros(D))

    def forward(self, x: Tensor) -> Tensor:
        torch.mean(x, 0, out=self.result)
        return self.layer(x) + self.result


@stateful("a weight that is resized")
class Resized(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = torch.zeros(D)

    def forward(self, x: Tensor) -> Tensor:
        self.scratch.resize_(2 * D).fill_(1)
        return self.layer(x) * self.scratch[:D]


@stateful("spectral norm by hooks, which iterates in training")
def SpectralNorm() -> nn.Module:
    return nn.utils.spectral_norm(nn.Linear(D, D))


@stateful("spectral norm by a parametrization")
def SpectralNormParametrized() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(D, D))


@stateful("weight norm by hooks, which sets the weight anew")
def WeightNorm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(D, D))


@stateful("weight norm by a parametrization", restless=False)
def WeightNormParametrized() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(D, D))


@stateful("batch normalization in training")
def BatchStatistics() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D))


@stateful("batch normalization with cumulative averages")
def CumulativeStatistics() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D, momentum=None))


@stateful("instance normalization that tracks statistics")
def InstanceStatistics() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.Unflatten(0, (1, -1)), nn.InstanceNorm1d(B, track_running_stats=True))


@stateful("a moving average of the weights in a copy")
class MovingAverage(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.average = copy.deepcopy(self.layer).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.layer.parameters(), strict=True):
                slow.lerp_(fast + 1, 0.1)
        return self.layer(x) + self.average(x)


@stateful("a moving average by torch.optim.swa_utils, outside the modules")
class SwaAverage(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.outside = [torch.optim.swa_utils.AveragedModel(self.layer)]

    def forward(self, x: Tensor) -> Tensor:
        self.outside[0].update_parameters(self.layer)
        return self.layer(x) + self.outside[0](x)


@stateful("a buffer that is bound anew")
class BufferBoundAnew(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return self.layer(x) * self.steps


@stateful("a buffer registered in forward")
class BufferRegistered(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.register_buffer("mean", x.mean(0), persistent=False)
        return self.layer(x) + self.mean


@stateful("a parameter registered in forward")
class ParameterRegistered(Layer):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "scale"):
            self.register_parameter("scale", nn.Parameter(torch.ones(D)))
        return self.layer(x) * self.scale


@stateful("a module added in forward")
class ModuleAdded(Layer):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "second"):
            self.add_module("second", nn.Linear(x.shape[1], 3))
        return self.second(self.layer(x))


@stateful("a layer that is made when the first input is there")
class MadeLazily(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.fc is None:
            self.fc = nn.Linear(x.shape[1], 3)
        return self.fc(x)


@stateful("layers that are lazy")
def LazyLayers() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.LazyLinear(3))


@stateful("a module that forward deletes")
class ModuleDeleted(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(D, D)
        self.table = torch.ones(D)

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "first"):
            x = self.first(x) + self.table
            del self.first, self.table
        return self.layer(x)


@stateful("a module that is replaced by another")
class ModuleReplaced(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.layer = nn.Linear(D, D, bias=False)
        return y


@stateful("a ModuleList that grows")
class ListGrows(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.weights = nn.ParameterList()

    def forward(self, x: Tensor) -> Tensor:
        self.layers.append(nn.Linear(D, D))
        self.weights.append(nn.Parameter(torch.ones(D)))
        for layer, weight in zip(self.layers, self.weights, strict=True):
            x = layer(x) * weight
        return x
