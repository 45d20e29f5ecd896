"""What a count turns in the whole process for its time: for the counting thread alone where that is possible."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import (
    CheckpointFunction,
    checkpoint,
    set_checkpoint_early_stop,
)
from torch.utils.checkpoint import (
    _allowed_determinism_checks_to_fns as _CHECKS,
)

from opcost.frontends.torch.ledger.ledger import counting_thread
from opcost.frontends.torch.ledger.tensor import Recorded
from opcost.frontends.torch.models.weights import unrecorded_initialization
from opcost.frontends.torch.operators.packed import pad_packed
from opcost.frontends.torch.recording.nested import attention_apart
from opcost.frontends.torch.recording.sharded import as_one_rank
from opcost.frontends.torch.restore.process import (
    as_written,
    no_inference_mode,
    no_sharing,
    random_state,
    replaced,
    switches,
)


@contextmanager
def quiet_globals() -> Iterator[None]:
    """Random generators, and the switches that a forward may turn or that hide operators."""
    with ExitStack() as undo:
        undo.enter_context(random_state())
        undo.enter_context(switches())
        # Between two modules of a nest there are more calls here than in a plain run.
        sys.setrecursionlimit(2 * sys.getrecursionlimit())
        torch.set_anomaly_enabled(False)  # else every gradient is asked for its values
        # A weight is cast once in an autocast region and kept: not from an earlier run, nor for a later one.
        torch.clear_autocast_cache()
        undo.callback(torch.clear_autocast_cache)
        # The fused path of nn.MultiheadAttention is one opaque operator; the plain one shows what it consists of.
        undo.enter_context(replaced(torch.backends.mha, "get_fastpath_enabled", lambda: False))
        undo.enter_context(as_written())
        undo.enter_context(replaced(torch._VF, "_pad_packed_sequence", pad_packed))
        undo.enter_context(unrecorded_initialization())
        undo.enter_context(checkpoints_for_grad())
        undo.enter_context(_checkpoints_anywhere())
        undo.enter_context(replaced(torch.Tensor, "__deepcopy__", _deep_copy))
        undo.enter_context(replaced(torch.Tensor, "_make_subclass", _subclassed))
        undo.enter_context(no_sharing())
        undo.enter_context(no_inference_mode())
        undo.enter_context(as_one_rank())
        undo.enter_context(attention_apart())
        # Where there are GPUs it would copy the model's inputs to them.
        undo.enter_context(replaced(torch.nn.DataParallel, "forward", lambda wrapper, *a, **k: wrapper.module(*a, **k)))
        yield


def checkpoints_for_grad() -> AbstractContextManager[None]:
    """Make reentrant checkpoints work with `torch.autograd.grad`."""
    return replaced(CheckpointFunction, "apply", _checkpoint)


def _checkpoint(function: Callable[..., Any], *given: Any) -> Any:
    """Reentrant checkpointing by the other variant, since it demands `.backward()`, which writes to every `.grad`.

    It recomputes all of the function, and only where some argument requires a gradient.
    """
    preserve, *args = given
    if not any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
        with torch.no_grad():
            return function(*args)
    with set_checkpoint_early_stop(False):
        return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)


@contextmanager
def _checkpoints_anywhere() -> Iterator[None]:
    """Let checkpoints compare what they recompute but for where it lies: a weight without memory lies nowhere."""
    before, here = _CHECKS["default"], counting_thread()

    def told(tensor: torch.Tensor) -> Any:
        found = before(tensor)
        return {**found, "device": None} if counting_thread() == here else found

    _CHECKS["default"] = told
    try:
        yield
    finally:
        _CHECKS["default"] = before


def _deep_copy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A copy by an operator that is seen; PyTorch's own copies the memory, and there may be none."""
    if id(tensor) not in memo:
        memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return memo[id(tensor)]  # type: ignore[no-any-return]


_make_subclass = torch.Tensor._make_subclass


def _subclassed(cls: type, data: torch.Tensor, require_grad: bool = False, **options: Any) -> torch.Tensor:  # noqa: FBT001, FBT002
    """A parameter of a class of the model's own made in forward; a tensor without data stays of its own class."""
    if type(data) is Recorded:
        return data.detach().requires_grad_(require_grad)
    return _make_subclass(cls, data, require_grad, **options)


_HOOKS_OF_ALL_MODULES = tuple(
    hooks
    for name, hooks in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and name.endswith("_hooks") and isinstance(hooks, dict)
)


@contextmanager
def no_surrounding_modes() -> Iterator[None]:
    """Outside of whatever is at work around: other dispatch modes (fake tensors, counters) and transforms (vmap, grad)."""
    with ExitStack() as undo:
        if torch._C._len_torch_dispatch_stack():
            undo.enter_context(_disable_current_modes())
            for hooks in _HOOKS_OF_ALL_MODULES:  # with which some modes follow the modules
                undo.callback(hooks.update, dict(hooks))
                hooks.clear()
        if (tracing := torch._C._get_tracing_state()) is not None:
            undo.callback(torch._C._set_tracing_state, tracing)
            torch._C._set_tracing_state(None)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            undo.enter_context(temporarily_clear_interpreter_stack())
        yield
