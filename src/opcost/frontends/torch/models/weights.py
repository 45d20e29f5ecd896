"""The weights of a model: made without memory, initialized where they are lazy, in another type, compared with a checkpoint."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin

from opcost.errors import InputError, UnknownSource
from opcost.frontends.torch import private
from opcost.frontends.torch.restore.process import random_state
from opcost.frontends.torch.tree import map_tensors, tensors_passed

if TYPE_CHECKING:
    from opcost.core.graph import Note
    from opcost.frontends.checkpoint.scan import ExpectedTensors, Shapes

LARGE = 1 << 14
"""A tensor of more elements is made without memory. Smaller ones stay real because constructors read them:
`[x.item() for x in torch.linspace(0, rate, depth)]`, index tables, scalar buffers."""
LONG_RANGE = 1 << 24
"""Ranges stay real up to more elements, because models read their values: ten million positions have been seen."""
META = torch.device("meta")
_aten = torch.ops.aten
_RANGES = (_aten.arange.start_step, _aten.arange.start, _aten.arange.default)


@contextmanager
def weightless() -> Iterator[None]:
    """Inside, large tensors take no memory. Random generators are restored."""
    with random_state(), _Weightless():
        yield


class _Weightless(private.DispatchMode):
    """Sends factories of large tensors, and every operator on a tensor without memory, to the meta device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(tensor.device.type == "meta" for tensor in tensors_passed((args, kwargs), [])):
            if func is _aten.copy_.default:
                return args[0]
            if func is _aten._to_copy.default:
                return func(*args, **{**kwargs, "device": META})
            args, kwargs = private.pytree.tree_map(_to_meta, (args, kwargs))
            return func(*args, **kwargs)
        sized = args and isinstance(args[0], (list, tuple)) and all(type(extent) is int for extent in args[0])
        if sized and prod(args[0]) > LARGE:
            if any(argument.name == "device" for argument in func._schema.arguments):
                kwargs = {**kwargs, "device": META}
        elif func in _RANGES and _extent(*args) > LONG_RANGE:
            kwargs = {**kwargs, "device": META}
        return func(*args, **kwargs)


def _extent(first: float, end: float | None = None, step: float = 1) -> float:
    start, end = (0, first) if end is None else (first, end)
    return (end - start) / step if step else 0


def _to_meta(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item if item.device.type == "meta" else item.to(META)
    return META if isinstance(item, torch.device) else item


# -- lazy modules: parameters get shapes from the first input, on a copy, so those of the user stay lazy -----------------


def countable_model(model: nn.Module, *, real: bool = False) -> nn.Module:
    """The model itself, or, where something in it is lazy, a copy that shares every tensor that already exists.

    What is lazy is initialized without memory, unless the run is `real`.
    """
    return copy_with_lazy_parts(model, model, None if real else "meta") if has_lazy_parts(model) else model


def has_lazy_parts(model: nn.Module) -> bool:
    """Whether something in a model has no shape yet."""
    return any(is_uninitialized(tensor) for tensor in (*model.parameters(), *model.buffers()))


def copy_with_lazy_parts(source: Any, model: nn.Module, device: str | None = None) -> Any:
    """A copy of a model, or of its wrapper, in which the lazy parts can be initialized; the rest is shared."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        memo[id(tensor)] = tensor
        if is_uninitialized(tensor):
            kind: Any = UninitializedParameter if isinstance(tensor, UninitializedParameter) else UninitializedBuffer
            memo[id(tensor)] = kind(tensor.requires_grad, device=device or tensor.device, dtype=tensor.dtype)
    return copy.deepcopy(source, memo)


def is_uninitialized(tensor: torch.Tensor) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)


def is_lazy(module: nn.Module) -> bool:
    """Whether this module has not seen its first input yet."""
    return isinstance(module, LazyModuleMixin) and module.has_uninitialized_params()  # type: ignore[misc]


def initialize(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Give a lazy module its parameters, on the meta device, from the shapes of its inputs."""
    with private.no_modes():
        given = map_tensors((args, kwargs), lambda tensor: tensor.sig.meta() if hasattr(tensor, "sig") else tensor)
        module._infer_parameters(module, *given)


# -- another floating element type ----------------------------------------------------------------------------------------


def retyped(model: nn.Module, dtype: torch.dtype, *, real: bool) -> nn.Module:
    """A copy whose floats are of this type; without data, unless it is to run on its own weights."""
    if not dtype.is_floating_point:
        fault = f"a model cannot compute in {str(dtype).removeprefix('torch.')}"
        raise InputError(fault, hint="give a floating type: bf16")

    def typed(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor.detach()
        return tensor.detach().to(dtype) if real else torch.empty_like(tensor, dtype=dtype, device="meta")

    return _with_tensors(model, typed, "in another type", "make the model in that type")


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """The same image or weight of a convolution with its channels last in memory; other tensors as they are."""
    images = tensor.dim() == len("NCHW") and tensor.is_floating_point()
    return tensor.detach().contiguous(memory_format=torch.channels_last) if images else tensor.detach()


def with_channels_last(model: nn.Module) -> nn.Module:
    """A copy whose weights of convolutions have their channels last in memory."""
    return _with_tensors(model, channels_last, "with channels last", "give it in that format")


def _with_tensors(model: nn.Module, changed: Callable[[torch.Tensor], torch.Tensor], how: str, hint: str) -> nn.Module:
    """A copy with each parameter and buffer changed, those that share memory by one name too."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in memo:
            made = changed(tensor)
            if isinstance(tensor, nn.Parameter):
                made = nn.Parameter(made, requires_grad=tensor.requires_grad and made.is_floating_point())
            memo[id(tensor)] = made
    return copied(model, memo, how, hint)


def copied(model: nn.Module, memo: dict[int, Any], how: str, hint: str) -> nn.Module:
    """A copy of a model to be counted otherwise, with the tensors of `memo` in place of its own."""
    try:
        return copy.deepcopy(model, memo)
    except (RuntimeError, TypeError, NotImplementedError) as exc:
        fault = f"{type(model).__name__} cannot be copied, so it cannot be counted {how}: {exc}"
        raise InputError(fault, hint=hint) from exc


# -- checkpoints ---------------------------------------------------------------------------------------------------------


def compare_with_checkpoint(model: Any, checkpoint: Path) -> tuple[Note, ...]:
    """Where the weights in a folder differ from the code; nothing where the folder has no weights."""
    from opcost.frontends.checkpoint.scan import disagreements, scan_files

    try:
        found = scan_files([checkpoint])
    except UnknownSource:
        return ()
    return disagreements(found, expected_of(model))


def expected_of(model: Any) -> ExpectedTensors:
    """The layouts in which a checkpoint of this model may come, with and without the prefix of its base."""
    from opcost.frontends.checkpoint.scan import ExpectedTensors

    state = {name: torch.empty_like(tensor, device="meta") for name, tensor in model.state_dict().items()}
    layouts = [_shapes(state)]
    try:
        from transformers.core_model_loading import revert_weight_conversion

        layouts.append(_shapes(revert_weight_conversion(model, dict(state))))
    except Exception:  # noqa: S110 - an older library stores what the code has; what this one cannot convert stays as it is
        pass
    if prefix := getattr(model, "base_model_prefix", ""):
        longer = [{f"{prefix}.{name}": shape for name, shape in layout.items()} for layout in layouts]
        shorter = [{name.removeprefix(f"{prefix}."): shape for name, shape in layout.items()} for layout in layouts]
        layouts += longer + shorter
    # A checkpoint may lack tied weights (an older library has another name for those), and what the library computes.
    tied = getattr(model, "all_tied_weights_keys", None)
    tied = getattr(model, "_tied_weights_keys", None) or () if tied is None else tied
    made = [re.compile(pattern) for pattern in getattr(model, "_keys_to_ignore_on_load_missing", None) or ()]
    names = {name for layout in layouts for name in layout if any(pattern.search(name) for pattern in made)}
    return ExpectedTensors(layouts, frozenset({*tied, *names}))


def _shapes(state: dict[str, Any]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
