"""What an operator makes, found without the user's data: in closed form, on the meta device, or on zeros."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import Any

import torch

from opcost.core.interrupts import is_delivered
from opcost.frontends.torch.ledger.entry import Entry, Leaf, State
from opcost.frontends.torch.ledger.packages import has_package
from opcost.frontends.torch.ledger.tensor import QUANTIZED
from opcost.frontends.torch.operators.call import CPU, Call, Trial
from opcost.frontends.torch.operators.closed_form import closed_form
from opcost.frontends.torch.operators.describe import describe
from opcost.frontends.torch.operators.ranks import RANKS
from opcost.frontends.torch.operators.strict import refuse

_QUANTIZING = frozenset(
    {
        torch.ops.aten.quantize_per_tensor.default,
        torch.ops.aten.quantize_per_tensor.tensor_qparams,
        torch.ops.aten.quantize_per_tensor_dynamic.default,
        torch.ops.aten.quantize_per_channel.default,
    }
)
"""On the meta device these make plain tensors."""
_ZEROS_LIMIT = 1 << 30
"""An operator without a meta kernel is run on zeros if its tensors take at most so many bytes."""


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether PyTorch itself expresses the operator in others, on processors and GPUs too: `silu_backward` is a kernel there."""
    has_kernel: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "CPU")


def work_out(call: Call) -> Entry:
    """Describe an operator: its kind and attributes, and its outputs' signatures and memory."""
    refuse(call.func, call.states)
    imported = len(sys.modules)
    entry = describe(call, *(_tried_on_meta(call) if _has_meta_kernel(call) else _tried_on_zeros(call, None)))
    if len(sys.modules) != imported:
        # What PyTorch imports the first time leaves frames that hold one another, and through those below them the
        # tensors of this call, which would then seem to live to the end.
        gc.collect(0)
    return entry


def _has_meta_kernel(call: Call) -> bool:
    """Whether an operator may be tried on the meta device: not with packages, sparse or quantized tensors."""
    return call.func not in _QUANTIZING and all(_plain(state) for state in call.states) and not has_package(call.args)


def _tried_on_meta(call: Call) -> tuple[Trial, Any]:
    """A trial without memory, and what it gave; where the meta device refuses the operator, one on zeros."""
    trial = call.on_meta()
    result = closed_form(call.func, trial.args, trial.kwargs)
    if result is not NotImplemented:
        return trial, result
    try:
        return trial, call.func(*trial.args, **trial.kwargs)
    except (NotImplementedError, RuntimeError, AttributeError) as failure:
        if is_delivered(failure):
            raise
        if any(tag in call.func.tags for tag in (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)):
            raise call.ledger.unknown("the size of a result", call.func) from failure
        return _tried_on_zeros(call, failure)


def _tried_on_zeros(call: Call, failure: Exception | None) -> tuple[Trial, Any]:
    """Some operators (quantized, sparse, a user's own without a meta kernel) know only real tensors."""
    if call.func.namespace in RANKS:
        return _told_by_nobody(call, failure)
    if sum(state.sig.spec.nbytes for state in call.states if _replaceable(state)) > _ZEROS_LIMIT:
        raise failure or MemoryError(f"{call.func} would need more than {_ZEROS_LIMIT} bytes of zeros")
    trial = call.on([_zeros_for(state) for state in call.states], CPU)
    try:
        return trial, call.func(*trial.args, **trial.kwargs)
    except Exception as exc:
        if failure is None or is_delivered(exc):
            raise
        raise failure from None


def _told_by_nobody(call: Call, failure: Exception | None) -> tuple[Trial, Any]:
    """A collective is never run, as the other ranks do not count. One of a process group writes to arguments and returns work."""
    if call.func.namespace != "c10d" or [str(out.type).rpartition(".")[2] for out in call.func._schema.returns] != [
        "Work"
    ]:
        raise failure or NotImplementedError(f"{call.func} on sparse or quantized tensors needs the other ranks")
    from torch._C._distributed_c10d import FakeWork

    return call.on_meta(), FakeWork().boxed()


def _zeros_for(state: State) -> torch.Tensor:
    """Zeros in the place of a tensor; a quantized or blocked one of the user's, for which there are none, stands for itself."""
    if isinstance(state, Leaf) and not _replaceable(state) and state.sig.stored is None:
        return state.tensor
    return state.sig.zeros()


def _plain(state: State) -> bool:
    """A tensor that one on the meta device can replace."""
    return _replaceable(state) and state.sig.dtype not in QUANTIZED


def _replaceable(state: State) -> bool:
    """A tensor that a stand-in of the same shape and strides can replace."""
    return not isinstance(state, Leaf) or (state.tensor.layout is torch.strided and not state.tensor.is_quantized)
