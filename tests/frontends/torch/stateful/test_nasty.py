"""Objects on a model whose own methods raise: a count calls none of them, and what the run changes in them is put back."""

from __future__ import annotations

import ctypes
import functools
import io
import random
import threading
from array import array
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import opcost
from opcost.errors import StateError

B, D = 2, 4


def boom(*_: object, **__: object) -> Any:
    raise AssertionError("code of the user's was called")


METHODS = """
__len__ __iter__ __reversed__ __eq__ __ne__ __hash__ __bool__ __getattr__ __getattribute__ __setattr__ __delattr__ __repr__
__str__ __copy__ __deepcopy__ __reduce__ __reduce_ex__ __getstate__ __contains__ __getitem__ __setitem__ __delitem__ __dir__
__format__ __index__ __length_hint__ __enter__ __exit__ __call__ keys values items append clear extend update copy getvalue
getstate tell seek tolist tobytes __torch_function__ __array_finalize__
""".split()
PROPERTIES = (
    "__class__ func args keywords fget __func__ __wrapped__ grad is_leaf requires_grad nbytes closed _fields".split()
)
BASES = (
    object, tuple, list, dict, set, frozenset, OrderedDict, deque, bytearray, random.Random, io.BytesIO, io.StringIO, Exception,
    functools.partial, str, int, float, array, np.ndarray, torch.Tensor, nn.Parameter, ctypes.Structure,
)  # fmt: skip


def nasty(base: Any) -> Any:
    """An object of a subclass of which every method raises."""
    body = {**dict.fromkeys(METHODS, boom), **dict.fromkeys(PROPERTIES, property(boom))}
    if base is np.ndarray:
        del body["__array_finalize__"]  # numpy itself calls it to make one
    cls = type("Nasty", (base,), body)
    if issubclass(base, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return torch.Tensor._make_subclass(cls, torch.ones(3))
    if base is np.ndarray:
        return np.ones(3).view(cls)
    made = base.__new__(cls, *{array: ("i", [1, 2]), functools.partial: (print, 1)}.get(base, ()))
    if base in (list, dict, set, OrderedDict, deque, bytearray, io.BytesIO, io.StringIO):
        base.__init__(made)
    return made


class Slotted:
    __slots__ = ("kept", "unset")
    __getattr__ = __getattribute__ = __setattr__ = __delattr__ = boom


class Meta(type):
    __hash__ = __eq__ = __len__ = __bool__ = __iter__ = __instancecheck__ = boom  # type: ignore[assignment]

    def __getattribute__(cls, name: str) -> Any:
        return (
            boom() if name in ("__mro__", "__dict__", "__module__", "__qualname__") else super().__getattribute__(name)
        )


class OfMeta(metaclass=Meta):
    pass


def slotted() -> Slotted:
    made = Slotted()
    vars(Slotted)["kept"].__set__(made, [1])
    return made


class Holds(nn.Module):
    """Keeps an object in several places, and changes what is around it."""

    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D, bias=False)
        vars(self).update(thing=thing, listed=[thing], named={"thing": thing}, calls=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attributes = vars(self)
        attributes["listed"].append(x)
        attributes["named"]["more"] = x
        self.calls += 1
        return self.layer(x)


MAKERS = {base.__name__: functools.partial(nasty, base) for base in BASES} | {
    "slots": slotted,
    "class of a class": OfMeta,
    "the class itself": lambda: OfMeta,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_no_method_of_an_object_is_called(kind: str) -> None:
    model = Holds(MAKERS[kind]())
    before = {**vars(model), "listed": list(model.listed), "named": dict(model.named)}
    for options in ({}, {"backward": True}, {"real": True}):
        report = opcost.count(model, torch.ones(B, D), **options)
        assert report.totals.macs == B * D * D * (2 if options.get("backward") else 1)
        now = vars(model)
        assert now["thing"] is before["thing"]
        assert [*map(id, now["listed"])] == [*map(id, before["listed"])]
        assert [*now["named"]] == ["thing"]
        assert now["calls"] == 0


class Tupled(tuple):  # noqa: SLOT001 - it has attributes
    """As e3nn's irreps: no length, and attributes of its own."""

    def __len__(self) -> int:
        raise NotImplementedError


class Changes(nn.Module):
    """Changes objects by the methods of Python's own classes, since their own raise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D, bias=False)
        vars(self).update({base.__name__: nasty(base) for base in (list, dict, set, deque, OrderedDict, bytearray)})
        self.tupled = Tupled((1, 2))
        self.tupled.seen = 0
        vars(self)["slotted"] = slotted()  # PyTorch would read its class
        self.memory = (ctypes.c_int * 4)(1, 2, 3, 4)
        self.seeds = np.random.SeedSequence(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attributes = vars(self)
        list.append(attributes["list"], 1)
        dict.__setitem__(attributes["dict"], "one", 1)
        OrderedDict.__setitem__(attributes["OrderedDict"], "one", 1)
        set.add(attributes["set"], 1)
        deque.append(attributes["deque"], 1)
        bytearray.extend(attributes["bytearray"], b"1")
        self.tupled.seen += 1
        vars(Slotted)["kept"].__get__(self.slotted).append(2)
        vars(Slotted)["unset"].__set__(self.slotted, 3)
        self.memory[0] = 7
        self.seeds.spawn(2)
        return self.layer(x)


def test_what_a_run_changes_in_such_objects_is_put_back() -> None:
    model = Changes()
    opcost.count(model, torch.ones(B, D))
    attributes = vars(model)
    for base in (list, dict, set, deque, OrderedDict, bytearray):
        assert base.__len__(attributes[base.__name__]) == 0, base
    assert model.tupled.seen == 0
    assert vars(Slotted)["kept"].__get__(model.slotted) == [1]
    with pytest.raises(AttributeError):
        vars(Slotted)["unset"].__get__(model.slotted)
    assert list(model.memory) == [1, 2, 3, 4]
    assert model.seeds.n_children_spawned == 0


BROKEN = threading.Lock()
"""Locks are never put back."""


class Key:
    """Its hash raises, once it is in the dictionary."""

    def __hash__(self) -> int:
        return boom() if BROKEN.locked() else 1


def test_what_cannot_be_put_back_is_named_after_the_rest_was() -> None:
    class Keyed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(D, D)
            self.calls = 0
            self.by_key = {Key(): 1}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.by_key["more"] = 2
            BROKEN.acquire()
            return self.layer(x)

    model = Keyed()
    try:
        with pytest.raises(StateError, match="a dict whose keys raise"):
            opcost.count(model, torch.ones(B, D))
    finally:
        BROKEN.release()
    assert model.calls == 0
