"""What a count changes in the process for its time: nested tensors, reading of contents, switches and global functions.

The jagged layout is a class of PyTorch's that takes an operator apart into operators on the elements of all components, and
those are seen. The strided layout is taken apart in compiled code, unseen, so it is counted in the jagged layout.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils.checkpoint import CheckpointFunction, checkpoint, set_checkpoint_early_stop

from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import is_foreign
from opcost.frontends.torch.ledger.recorder_state import RecorderState, counting_thread
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.operators.layers import pad_packed
from opcost.frontends.torch.recording.sharded import unseen
from opcost.frontends.torch.restore import process
from opcost.frontends.torch.restore.process import replaced


def as_jagged(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """A nested input in the jagged layout."""
    try:
        made = torch.nested.as_nested_tensor(list(tensor.detach().unbind()), layout=torch.jagged)
    except (RuntimeError, ValueError, TypeError) as exc:
        raise InputError(
            f"the input {name or 'tensor'} is nested in the strided layout, and not in a way that the jagged layout knows: {exc}",
            hint="let its components differ in one dimension only, or pass them one by one",
        ) from exc
    return made.requires_grad_() if tensor.requires_grad else made


def attention_apart() -> AbstractContextManager[None]:
    """Attention on jagged tensors as that of each component: on the CPU, PyTorch changes to the strided layout for it."""
    jagged = sys.modules.get("torch.nested._internal.ops")
    name = "jagged_scaled_dot_product_attention"
    own: Any = getattr(jagged, name, None)

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **options: Any) -> torch.Tensor:
        if attn_mask is not None or query._ragged_idx != 2:
            return own(query, key, value, attn_mask, *rest, **options)  # type: ignore[no-any-return]
        heads_last = [each.transpose(1, 2) for each in (query, key, value)]
        lengths = [each.offsets().diff().tolist() for each in heads_last]
        split = [each.values().split(sizes) for each, sizes in zip(heads_last, lengths, strict=True)]
        made = [
            F.scaled_dot_product_attention(*(part.transpose(0, 1)[None] for part in parts), None, *rest, **options)
            for parts in zip(*split, strict=True)
        ]
        values = torch.cat([part[0].transpose(0, 1) for part in made])
        return torch.nested.nested_tensor_from_jagged(values, heads_last[0].offsets()).transpose(1, 2)

    return nullcontext() if own is None else replaced(jagged, name, attend)


# -- reading a tensor's numbers without an operator: `torch.tensor([sizes.max(), 1])`, `self.table.numpy()`

_COPIED = ("tolist", "__reduce_ex__")
_SHARED = ("numpy", "__dlpack__")
_ADDRESSED = ("data_ptr", "untyped_storage")
"""What is read of large weights too, to tell them apart: of one that nothing was written to, its own memory is given."""


@contextmanager
def reading_contents(ledger: RecorderState) -> Iterator[None]:
    """Inside, what reads a tensor gets the content that the ledger knows.

    Tensors without data have no memory to read, and what operators write to the user's own is not written there.
    """
    with ExitStack() as undo:
        for owner, name, position in ((torch, "tensor", 0), (torch, "as_tensor", 0), (torch.Tensor, "new_tensor", 1)):
            undo.enter_context(replaced(owner, name, partial(_with_contents, getattr(owner, name), position)))
        for name in (*_COPIED, *_SHARED, *_ADDRESSED):
            undo.enter_context(
                replaced(torch.Tensor, name, partial(_of_plain, ledger, getattr(torch.Tensor, name), name))
            )
        undo.enter_context(replaced(torch.utils.dlpack, "to_dlpack", lambda tensor: tensor.__dlpack__()))
        yield


def _of_plain(ledger: RecorderState, method: Any, name: str, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """A method of tensors, which answers by the content where the ledger knows the tensor."""
    if type(tensor) is Recorded:
        return getattr(tensor, name)(*args, **kwargs)
    leaf = None if is_foreign(tensor) or tensor.layout is not torch.strided else ledger.leaf_of.get(id(tensor))
    if leaf is not None and (name not in _ADDRESSED or not leaf.untouched or ledger.knows(leaf)):
        tensor = ledger.real_content(leaf, shares=name not in _COPIED)
    return unseen(method, tensor, *args, **kwargs)


def _with_contents(make: Callable[..., Any], position: int, *args: Any, **kwargs: Any) -> Any:
    """What a constructor makes of contents; its data is the argument at `position`."""
    if len(args) > position and type(args[position]) in (list, tuple):
        args = (*args[:position], _read(args[position]), *args[position + 1 :])
    elif type(kwargs.get("data")) in (list, tuple):
        kwargs["data"] = _read(kwargs["data"])
    return make(*args, **kwargs)


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


# -- quiet: What a count turns in the whole process for its time: for the counting thread alone where that is possible.


@contextmanager
def settings_for_run() -> Iterator[None]:
    """Random generators, and the switches that a forward may turn or that hide operators."""
    with ExitStack() as undo:
        undo.enter_context(process.random_state())
        undo.enter_context(process.switches())
        # Between two modules of a nest there are more calls here than in a plain run.
        sys.setrecursionlimit(2 * sys.getrecursionlimit())
        torch.set_anomaly_enabled(False)  # else the values of every gradient are read
        # A weight is cast once in an autocast region and kept: not from an earlier run, nor for a later one.
        torch.clear_autocast_cache()
        undo.callback(torch.clear_autocast_cache)
        # The fused path of nn.MultiheadAttention is one opaque operator; the plain one shows what it consists of.
        undo.enter_context(replaced(torch.backends.mha, "get_fastpath_enabled", lambda: False))
        undo.enter_context(process.as_written())
        undo.enter_context(replaced(private.variable_functions, "_pad_packed_sequence", pad_packed))
        # Forward itself may give shapes to parameters and buffers, which reads tensors that have none yet.
        shaped = partial(unseen, UninitializedTensorMixin.materialize)
        undo.enter_context(replaced(UninitializedTensorMixin, "materialize", shaped))
        undo.enter_context(checkpoints_for_grad())
        # Checkpoints compare what they recompute, but not where that is: a weight without memory is nowhere.
        compared = private.checkpoint_checks["default"]
        undo.callback(private.checkpoint_checks.__setitem__, "default", compared)
        private.checkpoint_checks["default"] = partial(_anywhere, compared, counting_thread())
        undo.enter_context(replaced(torch.Tensor, "__deepcopy__", _deep_copy))
        undo.enter_context(replaced(torch.Tensor, "_make_subclass", _subclassed))
        undo.enter_context(process.no_sharing())
        undo.enter_context(process.no_inference_mode())
        undo.enter_context(attention_apart())
        undo.enter_context(flex_attention_in_training())
        # Where there are GPUs it would copy the model's inputs to them.
        undo.enter_context(replaced(torch.nn.DataParallel, "forward", lambda wrapper, *a, **k: wrapper.module(*a, **k)))
        yield


@contextmanager
def flex_attention_in_training() -> Iterator[None]:
    """Let flex attention have gradients, which it refuses on a processor, without a trace of its score function."""
    with ExitStack() as undo:
        for module, name, stand_in in (
            ("torch.nn.attention.flex_attention", "_validate_device", lambda *_: None),
            ("torch._higher_order_ops.flex_attention", "create_fw_bw_graph", lambda score_mod, *_: (score_mod, None)),
        ):
            if hasattr(sys.modules.get(module), name):
                undo.enter_context(replaced(sys.modules[module], name, stand_in))
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


def _anywhere(compared: Callable[..., Any], here: int, tensor: torch.Tensor) -> Any:
    found = compared(tensor)
    return {**found, "device": None} if counting_thread() == here else found


def _deep_copy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A copy by an operator that is seen; PyTorch's own copies the memory, and there may be none."""
    if id(tensor) not in memo:
        if not tensor.is_leaf:
            raise RuntimeError("only tensors that are no result of a differentiated operator can be copied deeply")
        memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return memo[id(tensor)]  # type: ignore[no-any-return]


def _subclassed(cls: type, data: torch.Tensor, require_grad: bool = False, **options: Any) -> torch.Tensor:  # noqa: FBT001, FBT002
    """A parameter of a class of the model's own made in forward; a tensor without data stays of its own class."""
    if type(data) is Recorded:
        return data.detach().requires_grad_(require_grad)
    return private.make_subclass(cls, data, require_grad, **options)


_HOOKS_OF_ALL_MODULES = tuple(
    hooks
    for name, hooks in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and name.endswith("_hooks") and isinstance(hooks, dict)
)


@contextmanager
def no_surrounding_modes() -> Iterator[None]:
    """Outside of whatever is at work around: other dispatch modes (fake tensors, counters) and transforms (vmap, grad)."""
    with ExitStack() as undo:
        if private.mode_count():
            undo.enter_context(private.no_modes())
            for hooks in _HOOKS_OF_ALL_MODULES:  # with which some modes follow the modules
                undo.callback(hooks.update, dict(hooks))
                hooks.clear()
        if (tracing := private.tracing_state()) is not None:
            undo.callback(private.set_tracing_state, tracing)
            private.set_tracing_state(None)
        if private.interpreter_stack() is not None:
            undo.enter_context(private.no_transforms())
        yield
