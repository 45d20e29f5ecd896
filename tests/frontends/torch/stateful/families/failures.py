"""Threads with tensors, and forward passes that fail after they have changed something."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch
from stateful.registry import D, stateful
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


@stateful("work on tensors in a pool of threads", restless=False)
class Pool(Layer):
    def forward(self, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(torch.relu, [self.layer(x), x]))
        return parts[0] + parts[1]


@stateful("a thread that appends tensors to a list of the model's")
class ThreadAppends(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        worker = threading.Thread(target=lambda: self.seen.append(y))
        worker.start()
        worker.join()
        return y * len(self.seen)


@stateful("a thread that makes tensors of its own and keeps them")
class ThreadMakes(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        worker = threading.Thread(target=lambda: self.tables.append(torch.ones(D)))
        worker.start()
        worker.join()
        return self.layer(x) + sum(self.tables)


@stateful("a thread-local value of another thread's")
class ThreadKeeps(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()
        self.done: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.done.append(self.pool.submit(lambda: 2).result())
        return y * sum(self.done)


@lru_cache
def table(length: int) -> Tensor:
    return torch.arange(length) / length


@stateful("a forward that has filled a cache when it fails", fails=True)
class FailsAfterCache(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) + table(x.shape[1])
        raise ValueError(f"cannot go on with {len(y)} rows")


SEEN: list[Any] = []


@stateful("a forward that has written everywhere when it fails", fails=True)
class FailsAfterWrites(Layer):
    last: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(D)
        self.counts = {"calls": 0}

    def forward(self, x: Tensor) -> Tensor:
        self.counts["calls"] += 1
        type(self).last = y = self.norm(self.layer(x))
        SEEN.append(y)
        with torch.no_grad():
            self.layer.weight.zero_()
        torch.set_default_dtype(torch.float64)
        raise RuntimeError("out of luck")


class Careful(nn.Module):
    """Keeps the error that it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Any = None


@stateful("an error that the model keeps and raises again", fails=True)
class KeepsItsError(Careful):
    def forward(self, x: Tensor) -> Tensor:
        try:
            raise ValueError("first", x * 2)  # noqa: TRY301 - the frame is what is kept
        except ValueError as exc:
            self.error = exc
            raise


@stateful("an error that the model made before, raises and handles")
class RaisesTheSameError(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.error = ValueError("always this one")

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        try:
            raise self.error
        except ValueError:
            return y + 1


@stateful("a forward that fails the second time", restless=True)
class FailsLater(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 2:
            raise RuntimeError("called too often")
        return self.layer(x)
