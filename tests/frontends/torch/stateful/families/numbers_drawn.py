"""Arrays of numpy that forward writes to, and generators of random numbers of every kind."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from stateful.registry import D, stateful
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


@stateful("a numpy array that is written in place")
class Array(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.steps = np.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        self.steps[0] += 1
        self.steps *= 2
        return self.layer(x) * float(self.steps[0])


@stateful("a numpy array written through a view of it")
class ArrayView(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.whole = np.zeros((3, 4))
        self.part = self.whole[1:, ::2]

    def forward(self, x: Tensor) -> Tensor:
        self.part += 1
        return self.layer(x) * float(self.whole.sum())


@stateful("a numpy array of objects")
class ArrayOfObjects(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seen = np.empty(2, dtype=object)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) if self.seen[0] is None else self.layer(x) + self.seen[0]
        self.seen[0] = y.mean(0).detach()
        return y


@stateful("a tensor that shares its memory with a numpy array")
class SharedWithArray(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.array = np.zeros(D, dtype=np.float32)
        self.tensor = torch.from_numpy(self.array)

    def forward(self, x: Tensor) -> Tensor:
        self.array += 1
        return self.layer(x) + self.tensor


@stateful("a numpy array in the globals")
class GlobalArray(Layer):
    def forward(self, x: Tensor) -> Tensor:
        COUNTS[0] += 1
        return self.layer(x) * int(COUNTS[0])


COUNTS = np.zeros(2, dtype=np.int64)


@stateful("a numpy array with names for its columns")
class ArrayWithFields(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = np.zeros(2, dtype=[("steps", "i8"), ("scale", "f4")])

    def forward(self, x: Tensor) -> Tensor:
        self.table["steps"][0] += 1
        return self.layer(x) * int(self.table["steps"][0])


# -- generators --------------------------------------------------------------------------------------------------------------


@stateful("a numpy Generator of its own")
class NumpyGenerator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * float(self.random.random())


@stateful("a numpy RandomState of its own")
class NumpyRandomState(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.RandomState(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * float(self.random.rand())


@stateful("a random.Random of its own")
class PythonGenerator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.random.random()


@stateful("a torch.Generator of its own")
class TorchGenerator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.random = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.rand(D, generator=self.random)


SHARED: Any = random.Random(7)
SHARED_NUMPY: Any = np.random.default_rng(7)
SHARED_TORCH: Any = torch.Generator().manual_seed(7)


@stateful("generators in the globals")
class GlobalGenerators(Layer):
    def forward(self, x: Tensor) -> Tensor:
        drawn = SHARED.random() + float(SHARED_NUMPY.random())
        return self.layer(x) * drawn + torch.rand(D, generator=SHARED_TORCH)


@stateful("the random numbers of the process, drawn from all three")
class ProcessGenerators(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * random.random() * float(np.random.rand()) + torch.randn(D)  # noqa: NPY002


@stateful("the generators of the process, seeded anew")
class SeedsAnew(Layer):
    def forward(self, x: Tensor) -> Tensor:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        return self.layer(x)


@stateful("dropout in training mode")
class Dropped(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(x), 0.5, training=True)


@stateful("layers that are dropped at random")
class DropsLayers(Layer):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            if torch.rand(()) < 0.9:
                x = self.layer(x)
        return x
