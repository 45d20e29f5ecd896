"""What an operator makes, found without the user's data: in closed form, on the meta device, or on zeros."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from opcost.errors import DataDependent
from opcost.frontends.torch.closed_form import closed_form
from opcost.frontends.torch.entry import Entry, Leaf, Out, State
from opcost.frontends.torch.operators import translate
from opcost.frontends.torch.packages import has_package
from opcost.frontends.torch.strict import refuse
from opcost.frontends.torch.tensor import QUANTIZED

if TYPE_CHECKING:
    from opcost.frontends.torch.recorder import Recorder

META = torch.device("meta")
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


def unknown_value(recorder: Recorder, what: str) -> DataDependent:
    """The error for a value that only data could tell."""
    return DataDependent(
        f"{what} depends on values that a count without data does not have",
        module=recorder.where(),
        hint="count with real=True (on the command line --real) to run the model on its own weights, "
        "or give inputs with which the question is not asked",
    )


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether PyTorch itself expresses the operator in others."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def work_out(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Entry:
    """Describe an operator: its kind and attributes, and its outputs' signatures and memory."""
    refuse(func, states)
    device = device_of(recorder, kwargs, states)
    if not _has_meta_kernel(func, args, states):
        result, zeros, real_args, real_kwargs = _run_on_zeros(func, args, kwargs, states, None)
        return describe(recorder, func, real_args, real_kwargs, zeros, states, result, device)
    metas = [state.sig.meta() for state in states]
    feed = iter(metas)
    meta_args = substitute(args, feed, META)
    meta_kwargs = substitute(kwargs, feed, META)
    result = closed_form(func, meta_args, meta_kwargs)
    if result is NotImplemented:
        try:
            result = func(*meta_args, **meta_kwargs)
        except (NotImplementedError, RuntimeError, AttributeError) as failure:
            if any(tag in func.tags for tag in (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)):
                raise unknown_value(recorder, f"the result of {func._schema.name}") from failure
            result, metas, meta_args, meta_kwargs = _run_on_zeros(func, args, kwargs, states, failure)
    return describe(recorder, func, meta_args, meta_kwargs, metas, states, result, device)


def _has_meta_kernel(func: Any, args: Any, states: list[State]) -> bool:
    """Whether an operator may be tried on the meta device: not with packages, sparse or quantized tensors."""
    return func not in _QUANTIZING and all(_plain(state) for state in states) and not has_package(args)


def _run_on_zeros(
    func: Any, args: Any, kwargs: dict[str, Any], states: list[State], failure: Exception | None
) -> tuple[Any, list[torch.Tensor], Any, Any]:
    """Some operators (quantized, sparse, a user's own without a meta kernel) know only real tensors."""
    if sum(state.sig.spec.nbytes for state in states if _replaceable(state)) > _ZEROS_LIMIT:
        raise failure or MemoryError(f"{func} would need more than {_ZEROS_LIMIT} bytes of zeros")
    zeros = [
        state.sig.zeros() if _replaceable(state) or state.sig.stored is not None else state.tensor  # type: ignore[union-attr]
        for state in states
    ]
    feed = iter(zeros)
    cpu = torch.device("cpu")
    real_args = substitute(args, feed, cpu)
    real_kwargs = substitute(kwargs, feed, cpu)
    try:
        result = func(*real_args, **real_kwargs)
    except Exception:
        if failure is not None:
            raise failure from None
        raise
    return result, zeros, real_args, real_kwargs


def _plain(state: State) -> bool:
    """A tensor that one on the meta device can replace."""
    return _replaceable(state) and state.sig.dtype not in QUANTIZED


def _replaceable(state: State) -> bool:
    """A tensor that a stand-in of the same shape and strides can replace."""
    return not isinstance(state, Leaf) or (state.tensor.layout is torch.strided and not state.tensor.is_quantized)


def substitute(tree: Any, feed: Any, device: torch.device) -> Any:
    """The arguments with the next stand-in for every tensor, and `device` for every device."""
    if isinstance(tree, torch.Tensor):
        return next(feed)
    kind = type(tree)
    if kind is list:
        return [substitute(item, feed, device) for item in tree]
    if kind is tuple:
        return tuple([substitute(item, feed, device) for item in tree])
    if isinstance(tree, dict):
        return {name: substitute(value, feed, device) for name, value in tree.items()}
    if kind is torch.device:
        return device
    return tree


def device_of(recorder: Recorder, kwargs: dict[str, Any], states: list[State]) -> torch.device:
    """Where an operator's results lie: where it was told, else where its first tensor that is no mere scalar lies."""
    if (asked := kwargs.get("device")) is not None:
        asked = torch.device(asked)
        return recorder.device if asked.type == "meta" else asked
    for state in states:
        if state.sig.shape:
            return state.sig.device
    return states[0].sig.device if states else recorder.default_device


def describe(
    recorder: Recorder,
    func: Any,
    args: Any,
    kwargs: Any,
    tensors: list[torch.Tensor],
    states: list[State],
    result: Any,
    device: torch.device,
) -> Entry:
    """The entry for an operator that was run on `tensors` and gave `result`."""
    flat: list[torch.Tensor] = []
    pack = _packer(result, flat)
    position = {id(tensor): index for index, tensor in reversed(list(enumerate(tensors)))}
    memory = {key: index for index, tensor in reversed(list(enumerate(tensors))) if (key := _storage(tensor))}
    outs = []
    for tensor in flat:
        index = position.get(id(tensor))
        if index is not None:  # in place, where the shape may change as well
            outs.append(Out(recorder.signatures.of(tensor, states[index].sig.device), index, same=True))
        else:
            base = memory.get(_storage(tensor), -1)
            outs.append(Out(recorder.signatures.of(tensor, device), base, same=False))
    translation = translate(func, args, kwargs, tuple(flat))
    if not flat and translation.outs:  # it returns nothing and writes into its arguments
        outs = [
            Out(states[at].sig, at, same=True)
            for tensor in translation.outs
            if (at := position.get(id(tensor))) is not None
        ]
    order = None
    if translation.ins is not None:
        order = tuple([position[id(tensor)] for tensor in translation.ins])
    return Entry(
        translation.kind,
        name_of(func),
        translation.attrs,
        order,
        tuple(outs),
        pack,
        _written(func, args, kwargs, position),
    )


def name_of(func: Any) -> str:
    """The operator's name as traces and schemas write it, without the overload."""
    schema = getattr(func, "_schema", None)
    return (
        str(schema.name) if schema is not None else f"higher_order::{func.name() if callable(func.name) else func.name}"
    )


def _written(func: Any, args: Any, kwargs: dict[str, Any], position: dict[int, int]) -> tuple[int, ...]:
    """The tensor arguments that the schema says are written."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return ()
    found: list[int] = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            for tensor in given if isinstance(given, (list, tuple)) else (given,):
                found += [position[id(tensor)]] if isinstance(tensor, torch.Tensor) else []
    return tuple(found)


def _storage(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return 0
    return int(tensor.untyped_storage()._cdata)


def _packer(result: Any, flat: list[torch.Tensor]) -> Callable[[list[Any]], Any] | None:
    """Collect the tensors of a result into `flat`; the function returned rebuilds the result around new ones."""
    if isinstance(result, torch.Tensor):
        flat.append(result)
        return None
    if type(result) in (tuple, list) and all(isinstance(item, torch.Tensor) for item in result):
        flat.extend(result)
        return type(result)
    template = _template(result, flat)
    return lambda outputs: _fill(template, outputs)


class _Slot(int):
    """The place of an output in a template."""


def _template(result: Any, flat: list[torch.Tensor]) -> Any:
    if isinstance(result, torch.Tensor):
        flat.append(result)
        return _Slot(len(flat) - 1)
    if isinstance(result, (tuple, list)):
        return type(result)([_template(item, flat) for item in result])
    return result


def _fill(template: Any, outputs: list[Any]) -> Any:
    if type(template) is _Slot:
        return outputs[template]
    if isinstance(template, (tuple, list)):
        return type(template)([_fill(item, outputs) for item in template])
    return template
