"""Gradients, hooks, parametrizations and what else forward changes about parameters and modules."""

from __future__ import annotations

from typing import Any

import torch
from stateful.registry import D, stateful
from torch import Tensor, nn
from torch.nn.utils import parametrize


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


@stateful("requires_grad turned off and on")
class Freezes(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.requires_grad_(False)
        return self.second(self.layer(x))


@stateful("a gradient that forward writes")
class WritesGradient(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layer.weight.grad = torch.ones(D, D)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.grad += 1
        self.layer.bias.grad = torch.zeros(D)
        return self.layer(x) + self.layer.weight.grad[0]


@stateful("a backward pass inside forward, which fills gradients")
class BackwardInside(Layer):
    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self.layer(x).sum().backward()
        return self.layer(x)


@stateful("a step of an optimizer inside forward")
class OptimizerInside(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.optimizer = torch.optim.Adam(self.layer.parameters(), lr=0.1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self.optimizer.zero_grad()
            self.layer(x).square().sum().backward()
        self.optimizer.step()
        return self.layer(x)


@stateful("hooks that are added in forward")
class HooksAdded(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.layer.register_forward_hook(lambda module, args, output: output + 1)
        self.layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        self.layer.weight.register_hook(lambda grad: grad)
        return self.layer(x)


@stateful("hooks that are removed in forward")
class HooksRemoved(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.handle: Any = self.layer.register_forward_hook(lambda module, args, output: output + 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.handle.remove()
        return y


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


@stateful("a parametrization registered in forward")
class ParametrizationRegistered(Layer):
    def forward(self, x: Tensor) -> Tensor:
        parametrize.register_parametrization(self.layer, "weight", Doubled())
        return self.layer(x)


@stateful("a parametrization removed in forward")
class ParametrizationRemoved(Layer):
    def __init__(self) -> None:
        super().__init__()
        parametrize.register_parametrization(self.layer, "weight", Doubled())

    def forward(self, x: Tensor) -> Tensor:
        if parametrize.is_parametrized(self.layer):
            parametrize.remove_parametrizations(self.layer, "weight")
        return self.layer(x)


@stateful("eval() called in forward")
class TurnsToEval(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(D, D), nn.Dropout(), nn.BatchNorm1d(D))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        self.eval()
        return y


@stateful("train() called in forward of a model in eval")
class TurnsToTrain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(D, D), nn.Dropout())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        self.train()
        return y


@stateful("to(dtype) called in forward")
class ChangesType(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.to(torch.float64)
        return self.layer(x.double())


@stateful("bfloat16() called once in forward")
class HalvedLazily(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.halved = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.halved:
            self.bfloat16()
            self.halved = True
        return self.layer(x.bfloat16())


@stateful("a tensor without data: memory format changed in forward")
class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.to(memory_format=torch.channels_last)
        return self.conv(x.reshape(2, 2, 2, 3))


@stateful("share_memory() called in forward")
class SharesMemory(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.ones(D)

    def forward(self, x: Tensor) -> Tensor:
        self.table.share_memory_()
        return self.layer(x) + self.table


@stateful("state loaded in forward")
class LoadsState(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.other = {name: torch.zeros_like(value) for name, value in self.layer.state_dict().items()}

    def forward(self, x: Tensor) -> Tensor:
        self.layer.load_state_dict(self.other)
        return self.layer(x)


@stateful("weights initialised anew in forward")
class Initialises(Layer):
    def forward(self, x: Tensor) -> Tensor:
        nn.init.constant_(self.layer.weight, 0.3)
        nn.init.normal_(self.layer.bias)
        return self.layer(x)


@stateful("attributes put on parameters")
class MarksParameters(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.calls = getattr(self.layer.weight, "calls", 0) + 1  # type: ignore[attr-defined]
        self.layer.bias.last = x * 2  # type: ignore[attr-defined]
        return self.layer(x) * self.layer.weight.calls  # type: ignore[attr-defined]


@stateful("weights tied in forward")
class TiesWeights(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        self.second.weight = self.layer.weight
        return self.second(self.layer(x))


@stateful("two tensors that swap their content")
class Swaps(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.ones(D, D))

    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.data, self.other.data = self.other.data, self.layer.weight.data
        return self.layer(x)
