"""Functions of PyTorch replaced for one count and for a time, because what they do would hide operators or outlast a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from opcost.frontends.torch.ledger.ledger import counting_thread


@contextmanager
def replaced(owner: Any, name: str, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Replace a function for the calls of this thread and those it starts; other threads reach the original."""
    original = getattr(owner, name)
    inherited = name not in vars(owner)
    here = counting_thread()

    def choose(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if counting_thread() == here else original)(*args, **kwargs)

    setattr(owner, name, choose)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextmanager
def as_written() -> Iterator[None]:
    """Let compiled functions run as they are written."""
    with ExitStack() as undo:
        if "torch._dynamo" in sys.modules:
            undo.enter_context(torch.compiler.set_stance("force_eager"))  # type: ignore[no-untyped-call]
        undo.enter_context(replaced(torch, "compile", _uncompiled))
        yield


def no_inference_mode() -> AbstractContextManager[None]:
    """Inference mode as `no_grad`: it hands over composite operators whole, and left open it would keep a dispatch mode on."""
    return replaced(torch.inference_mode, "__enter__", _without_grad)


@contextmanager
def no_sharing() -> Iterator[None]:
    """Leave memory where it is: once moved to where other processes see it, it would stay there.

    What storages copy by themselves they do copy: it is no operator of the run.
    """
    with ExitStack() as undo:
        undo.enter_context(replaced(torch.UntypedStorage, "share_memory_", lambda storage, *_: storage))
        for name in ("_share_fd_cpu_", "_share_filename_cpu_", "copy_"):
            undo.enter_context(replaced(torch.UntypedStorage, name, _unseen(getattr(torch.UntypedStorage, name))))
        yield


def _unseen(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of storages outside of dispatch modes; PyTorch raises for one that has no memory."""

    def called(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            storage.data_ptr()
            return method(storage, *args, **kwargs)

    return called


def _uncompiled(model: Any = None, **_: Any) -> Any:
    return model if model is not None else lambda function: function


def _without_grad(mode: Any) -> None:
    """Enter inference mode as if it were `no_grad`; leaving it is the same for both."""
    mode._inference_mode_context = torch.no_grad() if mode.mode else torch._C._InferenceMode(mode.mode)
    mode._inference_mode_context.__enter__()
