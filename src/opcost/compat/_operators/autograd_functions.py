"""Calls of functions with a backward of their own (`class Scan(torch.autograd.Function)`), seen as one operator each.

torch's tracer notes such a call as `prim::PythonOp`, and a peer's handle goes by the name of the class:
`prim::PythonOp.Scan`. No mode of torch is told of it, so `apply` itself is listened to, by the thread that counts alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd import Function

Apply = Callable[..., Any]


@contextmanager
def listening_to_apply(around: Callable[[type, Apply, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """Hand every `apply` of this thread to `around(class, apply, args, kwargs)` for the time of the block."""
    plain = vars(Function)["apply"]
    here = threading.get_ident()

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        bound = plain.__get__(None, cls)
        return around(cls, bound, args, kwargs) if threading.get_ident() == here else bound(*args, **kwargs)

    Function.apply = classmethod(apply)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Function.apply = plain
