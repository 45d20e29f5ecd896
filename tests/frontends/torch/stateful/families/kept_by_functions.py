"""Tensors that forward makes and keeps in functions, variables of contexts and threads, weak containers, and objects."""

from __future__ import annotations

import contextvars
import threading
import types
import weakref
from collections import ChainMap
from typing import Any

import torch
from stateful.registry import D, stateful
from torch import Tensor, nn


class Layer(nn.Module):
    """What all of these have: one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


# -- functions -----------------------------------------------------------------------------------------------------------


@stateful("a variable of a closure")
def Closure() -> nn.Module:
    last: Any = None
    layer = nn.Linear(D, D)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            nonlocal last
            y = self.layer(x) if last is None else self.layer(x) - last
            last = y.detach()
            return y

    return Model()


@stateful("a variable of a closure that did not have a value yet")
def EmptyCell() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            nonlocal late
            late = self.layer(x)
            return late

    if not Model:
        late: Any = None
    return Model()


@stateful("a list of a closure that is a hook")
def HookClosure() -> nn.Module:
    model = nn.Sequential(nn.Linear(D, D), nn.ReLU())
    seen: list[Any] = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output))
    return model


@stateful("a counter in the closure of a hook that changes the output")
def HookCounter() -> nn.Module:
    model = nn.Sequential(nn.Linear(D, D), nn.ReLU())
    calls = 0

    def scale(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return output * calls

    model[0].register_forward_hook(scale)
    return model


def remembered(tensor: Tensor, seen: list[Any] = []) -> Tensor:  # noqa: B006 - this is what users write
    seen.append(tensor)
    return tensor * len(seen)


@stateful("a default argument that can be changed")
class DefaultArgument(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return remembered(self.layer(x))


def scaled(x: Tensor, by: Any = 2, *, plus: Any = 1) -> Tensor:
    return x * by + plus


@stateful("defaults of a function that forward binds anew")
class DefaultsBoundAnew(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = scaled(self.layer(x))
        scaled.__defaults__ = (y.mean().detach(),)
        scaled.__kwdefaults__ = {"plus": y.mean(0).detach()}
        return y


def noted(x: Tensor) -> Tensor:
    noted.last = x  # type: ignore[attr-defined]
    return x


@stateful("an attribute of a function")
class FunctionAttribute(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return noted(self.layer(x))


@stateful("an attribute of its own forward")
class ForwardAttribute(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        ForwardAttribute.forward.last = y  # type: ignore[attr-defined]
        return y


@stateful("a forward that replaces itself on the instance after the first call")
class ReplacesForward(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.forward = lambda x, y=y: self.layer(x) + y.detach()  # type: ignore[method-assign]
        return y


# -- variables of contexts and threads, weak containers -------------------------------------------------------------------

CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("CURRENT")
WITH_DEFAULT: contextvars.ContextVar[Any] = contextvars.ContextVar("WITH_DEFAULT", default=None)
LOCAL = threading.local()


@stateful("a context variable without a value before")
class ContextVariable(Layer):
    def forward(self, x: Tensor) -> Tensor:
        CURRENT.set(self.layer(x))
        return CURRENT.get()


@stateful("a context variable that had a value")
class ContextVariableWithValue(Layer):
    def __init__(self) -> None:
        super().__init__()
        WITH_DEFAULT.set(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) + WITH_DEFAULT.get()
        WITH_DEFAULT.set(y.mean(0).detach())
        return y


@stateful("a threading.local in the globals")
class ThreadLocal(Layer):
    def forward(self, x: Tensor) -> Tensor:
        LOCAL.last = self.layer(x) + getattr(LOCAL, "last", x).detach()
        return LOCAL.last


class Key:
    """Something that can be referenced weakly."""


@stateful("a WeakKeyDictionary whose values are tensors")
class WeakKeys(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.key = Key()
        self.weak: Any = weakref.WeakKeyDictionary()

    def forward(self, x: Tensor) -> Tensor:
        if self.key not in self.weak:
            self.weak[self.key] = torch.ones(D) / 2
        return self.layer(x) * self.weak[self.key]


MODULES: Any = weakref.WeakKeyDictionary()


@stateful("a WeakKeyDictionary in the globals, keyed by the module")
class WeakModules(Layer):
    def forward(self, x: Tensor) -> Tensor:
        MODULES[self] = y = self.layer(x)
        return y


@stateful("a WeakValueDictionary of tensors that are kept elsewhere")
class WeakValues(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weak: Any = weakref.WeakValueDictionary()
        self.strong: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.strong.append(y)
        self.weak[len(self.strong)] = y
        return y * len(self.weak)


@stateful("a WeakSet of tensors that are kept elsewhere")
class WeakMembers(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weak: Any = weakref.WeakSet()
        self.holders: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        self.holders.append(Key())
        self.weak.add(self.holders[-1])
        return self.layer(x) * len(self.weak)


@stateful("a weakref.finalize whose arguments are tensors")
class Finalizer(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.finalizers: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.finalizers.append(weakref.finalize(self.layer, list, y))
        self.finalizers[-1].atexit = False
        return y


# -- objects -------------------------------------------------------------------------------------------------------------


class Slots:
    __slots__ = ("last", "table")


class Covered(Slots):
    """What a property answers in place of the slot is another thing each time."""

    __slots__ = ("count",)

    @property
    def table(self) -> list[int]:  # type: ignore[override]
        return [1]


@stateful("a slot that a property covers")
class CoveredSlot(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kept = Covered()
        self.kept.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.kept.count += len(self.kept.table)
        return self.layer(x) * self.kept.count


@stateful("slots that had no value before")
class UnsetSlots(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots()

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self.slots, "table"):
            self.slots.table = torch.arange(D) / D
        self.slots.last = y = self.layer(x) + self.slots.table
        return y


@stateful("a slot that forward deletes")
class DeletedSlot(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots()
        self.slots.last = torch.ones(D)

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self.slots, "last"):
            x = x + self.slots.last
            del self.slots.last
        return self.layer(x)


class Node:
    def __init__(self, below: Any) -> None:
        self.below = below


@stateful("a list nine objects deep")
class Deep(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.node: Any = Node([])
        for _ in range(8):
            self.node = Node(self.node)

    def forward(self, x: Tensor) -> Tensor:
        node = self.node
        while isinstance(node, Node):
            node = node.below
        node.append(self.layer(x))
        return node[-1] * len(node)


@stateful("a ChainMap whose first mapping is written")
class Chain(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.settings: Any = ChainMap({}, {"scale": torch.ones(D)})

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) * self.settings["scale"]
        self.settings["scale"] = y.mean(0).detach()
        return y


class WithProperty(Layer):
    def __init__(self) -> None:
        super().__init__()
        self._scale: Any = None

    @property
    def scale(self) -> Tensor:
        if self._scale is None:
            self._scale = torch.ones(D) / 4
        return self._scale


@stateful("an attribute behind a property")
class LazyProperty(WithProperty):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Descriptor:
    """Keeps the values of its owners itself."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else self.values.get(id(owner))

    def __set__(self, owner: Any, value: Any) -> None:
        self.values[id(owner)] = value


@stateful("a descriptor that keeps the values itself")
class DescribedAttribute(Layer):
    last = Descriptor()

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        type(self).__dict__["last"].values[0] = y
        return y


@stateful("an object whose __setattr__ refuses")
class Refusing(Layer):
    class Frozen:
        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError("frozen")

    def __init__(self) -> None:
        super().__init__()
        self.frozen = self.Frozen()

    def forward(self, x: Tensor) -> Tensor:
        vars(self.frozen)["last"] = y = self.layer(x)
        return y


class Proxy:
    """An object that shows the attributes of another one."""

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)


@stateful("an object that hands attributes on to another one")
class HandedOn(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.proxy = Proxy(types.SimpleNamespace(last=None))

    def forward(self, x: Tensor) -> Tensor:
        self.proxy.last = y = self.layer(x)
        return y


@stateful("a bound method of another object")
class BoundMethod(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.keep = [].append  # type: ignore[var-annotated]
        self.node = Node(None)
        self.other = types.MethodType(lambda node, value: setattr(node, "below", value), self.node)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.keep(y)
        self.other(y)
        return y
