"""Ways from a tensor to its numbers where no operator shows it: `torch.tensor([sizes.max(), 1])`, `self.table.numpy()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from opcost.frontends.torch.ledger.ledger import Ledger
from opcost.frontends.torch.ledger.subclass import is_foreign
from opcost.frontends.torch.ledger.tensor import Recorded
from opcost.frontends.torch.restore.process import replaced

_COPIED = ("tolist", "__reduce_ex__")
_SHARED = ("numpy", "__dlpack__")
_ADDRESSED = ("data_ptr", "untyped_storage")
"""What is asked of large weights too, to tell them apart: of one that nothing was written to, its own memory is given."""


@contextmanager
def reading_contents(ledger: Ledger) -> Iterator[None]:
    """Inside, what reads a tensor gets the content that the ledger knows.

    Tensors without data have no memory to read, and what operators write to the user's own is not written there.
    """
    with ExitStack() as undo:
        for owner, name, position in ((torch, "tensor", 0), (torch, "as_tensor", 0), (torch.Tensor, "new_tensor", 1)):
            undo.enter_context(replaced(owner, name, _with_contents(getattr(owner, name), position)))
        for name in (*_COPIED, *_SHARED, *_ADDRESSED):
            undo.enter_context(replaced(torch.Tensor, name, _of_plain(ledger, name)))
        undo.enter_context(replaced(torch.utils.dlpack, "to_dlpack", lambda tensor: tensor.__dlpack__()))
        yield


def _of_plain(ledger: Ledger, name: str) -> Callable[..., Any]:
    """A method of tensors that answers by the content where the ledger knows the tensor."""
    method = getattr(torch.Tensor, name)

    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if type(tensor) is Recorded:
            return getattr(tensor, name)(*args, **kwargs)
        leaf = ledger.leaf_of(tensor)
        if leaf is None or is_foreign(tensor) or tensor.layout is not torch.strided:
            with _disable_current_modes():
                return method(tensor, *args, **kwargs)
        if name not in _ADDRESSED or not leaf.untouched or ledger.knows(leaf):
            tensor = ledger.content_asked(leaf, shares=name not in _COPIED)
        with _disable_current_modes():
            return method(tensor, *args, **kwargs)

    return read


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
