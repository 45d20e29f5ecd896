"""Tensors that forward makes and keeps outside the instance: in caches, globals and classes."""

from __future__ import annotations

import functools
import sys
import types
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import torch
from stateful.registry import D, stateful
from torch import Tensor, nn


class Layer(nn.Module):
    """What all of these have: one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


# -- functools ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def table(length: int) -> Tensor:
    return torch.arange(length) / length


@stateful("a table kept by lru_cache, keyed by a length")
class CacheByLength(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + table(x.shape[1])


@functools.cache
def boundless(length: int) -> Tensor:
    return torch.linspace(0, 1, length)


@stateful("a table kept by functools.cache, which has no bound")
class CacheWithoutBound(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * boundless(x.shape[1])


@lru_cache
def typed(device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.eye(D, device=device, dtype=dtype)


@stateful("an lru_cache keyed by device and dtype")
class CacheByType(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ typed(x.device, x.dtype)


@stateful("an lru_cache on a method, keyed by the module itself")
class CacheOnMethod(Layer):
    @lru_cache(maxsize=4)  # noqa: B019 - this is what users write
    def mask(self, length: int) -> Tensor:
        return torch.ones(length).cumsum(0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.mask(x.shape[1])


@lru_cache
def doubled(tensor: Tensor) -> Tensor:
    return tensor * 2


@stateful("an lru_cache keyed by a tensor that forward made")
class CacheByTensor(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return doubled(self.layer(x))


@stateful("an lru_cache keyed by a parameter")
class CacheByParameter(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return x @ doubled(self.layer.weight).detach() + self.layer(x)


@lru_cache(maxsize=2)
def filled(length: int) -> Tensor:
    return torch.zeros(length)


@stateful("an lru_cache that was filled before, whose entry is a running state")
class CacheFilledBefore(Layer):
    def __init__(self) -> None:
        super().__init__()
        filled(D).fill_(3)

    def forward(self, x: Tensor) -> Tensor:
        filled(D).add_(1)
        return self.layer(x) + filled(D) + filled(1)


@stateful("an lru_cache that drops an old entry for a new one")
class CacheThatOverflows(Layer):
    def __init__(self) -> None:
        super().__init__()
        filled(1).fill_(1)
        filled(2).fill_(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + filled(D)


@stateful("an lru_cache that forward empties")
class CacheThatIsCleared(Layer):
    def __init__(self) -> None:
        super().__init__()
        filled(D).fill_(2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) + filled(D)
        filled.cache_clear()
        return y


@lru_cache
def number(length: int) -> float:
    return length / 2


@stateful("an lru_cache of plain numbers", restless=True)
class CacheOfNumbers(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * number(x.shape[1])


@stateful("a cached_property that is a tensor")
class CachedProperty(Layer):
    @cached_property
    def scale(self) -> Tensor:
        return torch.ones(D) / 3

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


@stateful("the keyword arguments of a functools.partial")
class PartialKeywords(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.add = partial(torch.add, other=torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        y = self.add(self.layer(x))
        self.add.keywords["other"] = y.mean(0)
        return y


@stateful("a list among the positional arguments of a functools.partial")
class PartialArguments(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.keep = partial(list.append, [])

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.keep(y)
        return y


@functools.singledispatch
def shown(value: Any) -> Any:
    return value


shown.seen = []  # type: ignore[attr-defined]


@stateful("an attribute of a single-dispatch function")
class FunctionWithDispatch(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = shown(self.layer(x))
        shown.seen.append(y)  # type: ignore[attr-defined]
        return y


# -- globals and modules --------------------------------------------------------------------------------------------------

LAST: Any = None
EVERY: list[Any] = []
BY_NAME: dict[str, Any] = {}
CALLS = 0


@stateful("a global that forward binds anew")
class GlobalName(Layer):
    def forward(self, x: Tensor) -> Tensor:
        global LAST  # noqa: PLW0603
        y = self.layer(x) if LAST is None else self.layer(x) + LAST.detach()
        LAST = y
        return y


@stateful("a new global")
class NewGlobal(Layer):
    def forward(self, x: Tensor) -> Tensor:
        globals()["MADE_LATE"] = x * 2
        return self.layer(x)


@stateful("a list in the globals")
class GlobalList(Layer):
    def forward(self, x: Tensor) -> Tensor:
        EVERY.append(self.layer(x))
        return sum(EVERY).detach() + self.layer(x)  # type: ignore[union-attr]


@stateful("a dictionary in the globals")
class GlobalDictionary(Layer):
    def forward(self, x: Tensor) -> Tensor:
        if "scale" not in BY_NAME:
            BY_NAME["scale"] = x.mean(0)
        return self.layer(x) * BY_NAME["scale"]


@stateful("a number in the globals that decides what runs")
class GlobalCounter(Layer):
    def forward(self, x: Tensor) -> Tensor:
        global CALLS  # noqa: PLW0603
        CALLS += 1
        for _ in range(CALLS):
            x = self.layer(x)
        return x


@stateful("a module of its own in sys.modules")
class Registry(Layer):
    def forward(self, x: Tensor) -> Tensor:
        name = f"{__name__}_registry"
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
        registry: Any = sys.modules[name]
        registry.last = self.layer(x)
        return registry.last


SIDE = sys.modules[f"{__name__}_side"] = types.ModuleType(f"{__name__}_side")
SIDE.tensors = []  # type: ignore[attr-defined]


@stateful("a list in another module")
class OtherModule(Layer):
    def forward(self, x: Tensor) -> Tensor:
        SIDE.tensors.append(self.layer(x))  # type: ignore[attr-defined]
        return SIDE.tensors[-1] * len(SIDE.tensors)  # type: ignore[attr-defined]


# -- classes -------------------------------------------------------------------------------------------------------------


@stateful("a class attribute that forward binds")
class ClassAttribute(Layer):
    last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        type(self).last = y = self.layer(x)
        return y


@stateful("a dictionary that all instances share")
class ClassDictionary(Layer):
    cache: ClassVar[dict[Any, Any]] = {}

    def forward(self, x: Tensor) -> Tensor:
        key = (x.shape[1], x.dtype)
        if key not in self.cache:
            self.cache[key] = torch.ones(x.shape[1], dtype=x.dtype).cumsum(0)
        return self.layer(x) + self.cache[key]


class Base(Layer):
    shared: ClassVar[list[Any]] = []


@stateful("a list of a class above its own")
class ClassAbove(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.shared.append(self.layer(x))
        return self.shared[-1] * len(self.shared)


@stateful("a method that forward puts in place of another")
class ReplacedMethod(Layer):
    def scale(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        y = self.scale(self.layer(x))
        type(self).scale = lambda self, x: x * 2  # type: ignore[method-assign]
        return y


class Counted:
    made: ClassVar[list[Any]] = []

    def __init__(self, tensor: Tensor) -> None:
        self.made.append(tensor)


@stateful("a list of a helper's class")
class HelperClass(Layer):
    def forward(self, x: Tensor) -> Tensor:
        Counted(self.layer(x))
        return Counted.made[-1] * len(Counted.made)


class Once:
    instance: Any = None

    def __new__(cls) -> Any:
        if cls.instance is None:
            cls.instance = super().__new__(cls)
            cls.instance.table = torch.arange(D) / D
        return cls.instance


@stateful("a singleton that is made in forward")
class Singleton(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + Once().table
