"""What the tests of the translation share: operators caught as they run, or translated without running them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opcost.core.graph import Cost, TensorSpec
from opcost.core.kinds import check_operator
from opcost.frontends.aten.call import Translation
from opcost.frontends.torch.operators.calls import translate
from opcost.rules import default_rules
from opcost.rules.registry import OpView


class Seen(NamedTuple):
    """One operator as translated: the tensors are given as their shapes."""

    name: str
    kind: str
    attrs: dict[str, Any]
    ins: tuple[tuple[int, ...], ...]
    outs: tuple[tuple[int, ...], ...]
    cost: Cost | None


def _tensors(values: Any) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _meta(value: Any) -> Any:
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized
    if not plain:
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _seen(func: Any, args: Any, kwargs: Any, outs: tuple[torch.Tensor, ...]) -> Seen:
    found: Translation = translate(func, args, kwargs, outs)
    given = _tensors((args, kwargs))
    ins = given if found.ins is None else found.ins
    assert {id(tensor) for tensor in ins} <= {id(tensor) for tensor in given}, "inputs are arguments, by identity"
    written = outs if found.outs is None else found.outs
    name = func._schema.name if hasattr(func, "_schema") else func.name()
    check_operator(found.kind, name, found.attrs, len(ins), len(written))
    cost = None
    if found.kind != "unknown":
        specs = [tuple(TensorSpec(tuple(t.shape), str(t.dtype)[6:]) for t in group) for group in (ins, written)]
        cost = default_rules()[found.kind](OpView(found.kind, name, specs[0], specs[1], found.attrs))
    shapes = [tuple(tuple(t.shape) for t in group) for group in (ins, written)]
    return Seen(name, found.kind, found.attrs, shapes[0], shapes[1], cost)


class _Catch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        metas = tree_map(_meta, (args, kwargs or {}))
        self.seen.append(_seen(func, *metas, tuple(_meta(t) for t in _tensors(result))))
        return result


@pytest.fixture(scope="session")
def record() -> Callable[[Callable[[], Any]], list[Seen]]:
    """The operators that a function runs and that are no views, in order."""

    def run(function: Callable[[], Any]) -> list[Seen]:
        with _Catch() as catch:
            function()
        return [seen for seen in catch.seen if seen.kind not in ("view", "create", "random")]

    return run


@pytest.fixture(scope="session")
def translated() -> Callable[..., Seen]:
    """An operator translated without running it; `outs` are the shapes of what it would return."""

    def run(func: Any, *args: Any, outs: tuple[tuple[int, ...], ...] = (), **kwargs: Any) -> Seen:
        dtype = next((t.dtype for t in _tensors((args, kwargs)) if t.dtype.is_floating_point), torch.float32)
        return _seen(func, args, kwargs, tuple(torch.empty(shape, dtype=dtype, device="meta") for shape in outs))

    return run


@pytest.fixture(scope="session")
def meta() -> Callable[..., torch.Tensor]:
    """A tensor without data."""

    def make(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    return make
