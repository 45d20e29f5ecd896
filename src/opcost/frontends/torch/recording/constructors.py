"""Constructors that read the numbers of other tensors where no operator shows it: `torch.tensor([sizes.max(), 1])`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from opcost.frontends.torch.ledger.tensor import Recorded
from opcost.frontends.torch.unchanged.replaced import replaced


@contextmanager
def reading_contents() -> Iterator[None]:
    """Inside, they are given the content of tensors without data, which have no memory to read."""
    with ExitStack() as undo:
        for owner, name, position in ((torch, "tensor", 0), (torch, "as_tensor", 0), (torch.Tensor, "new_tensor", 1)):
            undo.enter_context(replaced(owner, name, _with_contents(getattr(owner, name), position)))
        yield


def _with_contents(make: Callable[..., Any], position: int) -> Callable[..., Any]:
    """The constructor that is called with contents; its data is the argument at `position`."""

    def made(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position and type(args[position]) in (list, tuple):
            args = (*args[:position], _read(args[position]), *args[position + 1 :])
        elif type(kwargs.get("data")) in (list, tuple):
            kwargs["data"] = _read(kwargs["data"])
        return make(*args, **kwargs)

    return made


def _read(items: Any) -> Any:
    """A list as it is, or one of the same structure with contents in the place of tensors without data."""
    kinds = {*map(type, items)}
    if kinds.isdisjoint((Recorded, list, tuple)):
        return items
    return [
        item.answer(lambda content: content)
        if type(item) is Recorded
        else _read(item)
        if type(item) in (list, tuple)
        else item
        for item in items
    ]
