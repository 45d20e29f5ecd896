"""One call of an operator: its trial without the user's data, its translation, and the description of what it makes."""

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from opcost.core.graph import Attr
from opcost.core.interrupts import is_delivered
from opcost.core.names import mesh_axis
from opcost.errors import RuleError
from opcost.frontends.aten.call import AtenCall, Translation
from opcost.frontends.aten.schema import translate as translate_call
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import has_package
from opcost.frontends.torch.ledger.recorder_state import RecorderState
from opcost.frontends.torch.ledger.tensors import QUANTIZED, OperatorEntry, OutputSignature, State, TensorRecord
from opcost.frontends.torch.operators.closed_form import closed_form, overloads, plan_of
from opcost.frontends.torch.restore import written_by

META = torch.device("meta")
CPU = torch.device("cpu")
NO_AXES: Mapping[str, str] = MappingProxyType({})


class Trial(NamedTuple):
    """The arguments of a call with stand-ins for its tensors."""

    tensors: list[torch.Tensor]
    args: Any
    kwargs: dict[str, Any]


class DispatchedCall(NamedTuple):
    """One call of an operator as it reached the recorder."""

    ledger: RecorderState
    func: Any
    args: Any
    kwargs: dict[str, Any]
    states: list[State]  # What is known of the tensors among the arguments, in their order

    @property
    def device(self) -> torch.device:
        """Where the results are: on the given device, else on that of its first tensor that is not a scalar."""
        if (device := self.kwargs.get("device")) is not None:
            device = torch.device(device)
            return self.ledger.device if device.type == "meta" else device
        for state in self.states:
            if state.sig.shape:
                return state.sig.device
        return self.states[0].sig.device if self.states else self.ledger.default_device

    def argument(self, name: str) -> Any:
        """An argument by its name in the schema, or its default; None where the schema has no such argument."""
        for index, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                return self.args[index] if index < len(self.args) else self.kwargs.get(name, argument.default_value)
        return None

    def on_meta(self) -> Trial:
        """The call on the meta device."""
        return self.on([state.sig.meta() for state in self.states], META)

    def on(self, tensors: list[torch.Tensor], device: torch.device) -> Trial:
        """The call with these tensors, which lie on `device`."""
        feed = iter(tensors)
        return Trial(tensors, substitute(self.args, feed, device), substitute(self.kwargs, feed, device))


def substitute(tree: Any, feed: Iterator[torch.Tensor], device: torch.device) -> Any:
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


# -- ranks: Operators that talk to other ranks: which they are, how many ranks take part, and along which axis of the mesh.

RANKS = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "symm_mem"})
"""The libraries of such operators. None of them is ever run without data: the other ranks do not count, and would not answer."""


def group_attrs(args: dict[str, Any], axes: Mapping[str, str]) -> dict[str, Attr]:
    """The group that is named or handed over among the arguments of an operator: its ranks, and its dimension of the mesh.

    Empty where no group is given; a group that is of no DeviceMesh has no dimension. `axes` has those of groups by name, for
    the group of all ranks, which a mesh does not describe.
    """
    handed, name = args.get("process_group"), args.get("group_name")
    if handed is None and not isinstance(name, str):
        return {}
    groups = private.distributed()
    try:
        found = groups.ProcessGroup.unbox(handed) if handed is not None else groups._resolve_process_group(name)
        size, name, description = int(found.size()), str(found.group_name), str(found.group_desc)
    except (RuntimeError, TypeError, ValueError):  # a group that is gone
        return {}
    axis = mesh_axis(description) or axes.get(name)
    attrs: dict[str, Attr] = {"group": size} if axis is None else {"group": size, "axis": axis}
    parts, sent = args.get("input_split_sizes"), args.get("input", args.get("self"))
    if parts and len({*parts}) > 1 and isinstance(sent, torch.Tensor):
        attrs["kept"] = int(parts[found.rank()]) * sent.numel() // sum(parts)
    return attrs


# -- requested gradients: those of the running autograd node, where its operator computes all of them in one.

_INPUT, _STATE = 0, 5  # Places of the input and of the first state among what oneDNN's layer is differentiated by


def unasked_of_layer(call: AtenCall) -> dict[str, Attr]:
    """What a recurrent layer of oneDNN need not be differentiated by: an input or a first state that requires no gradient."""
    node = private.autograd_node()
    if call.base != "mkldnn_rnn_layer_backward" or node is None:
        return {}
    followed = [function is not None for function, _ in node.next_functions]
    unasked: dict[str, Attr] = {}
    if not followed[_INPUT]:
        unasked["constant_input"] = True
    if not followed[_STATE]:
        unasked["constant_states"] = call["hx_"].numel() // call["hidden_size"]
    return unasked


# -- translate: PyTorch's operators as objects, translated by the table of `frontends.aten`.


def translate(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    outs: tuple[torch.Tensor, ...],
    axes: Mapping[str, str] = NO_AXES,
) -> Translation:
    """What this call of an operator overload or a higher-order operator computes.

    `args`, `kwargs` and `outs` hold tensors whose shape, strides and type are valid; their data is never looked at. An
    operator that is not known is of the kind `unknown`. `axes` has dimensions of the mesh by the names of groups.
    """
    plan = plan_of(func)
    call = plan.call(plan.named(args, kwargs), outs)  # type: ignore[arg-type]
    found = translate_call(plan, call)
    if found.kind == "collective":
        found.attrs.update(group_attrs(call.args, axes))
    if found.kind == "unknown":
        # The formulas that were registered with PyTorch's own counter, beside those that it brings for PyTorch's operators
        counter: Any = sys.modules.get("torch.utils.flop_counter")
        formula = counter and counter.flop_registry.get(getattr(func, "_overloadpacket", None))
        if formula is not None:
            try:
                flops = int(formula(*args, **kwargs, out_val=outs[0] if len(outs) == 1 else outs))
            except Exception as exc:
                raise RuleError(f"the FLOP formula registered for {func} raised {type(exc).__name__}: {exc}") from exc
            return Translation("custom", {"flops": flops})
    if found.kind == "recurrent" and "grad" in found.attrs:
        found.attrs.update(unasked_of_layer(call))
    return found


# -- describe: What a call was, found by a trial of it: its kind and attributes, and the signatures and memory of its outputs.

_untyped_storage = torch.Tensor.untyped_storage  # itself, not what replaces it during a count


def record(call: DispatchedCall, trial: Trial, result: Any, contents: list[torch.Tensor | None] | None = None) -> Any:
    """Write a call down whose trial gave `result`, and make its outputs."""
    return call.ledger.emit(describe(call, trial, result), call.states, contents)


def describe(call: DispatchedCall, trial: Trial, result: Any, device: torch.device | None = None) -> OperatorEntry:
    """The entry for a call whose trial gave `result`; `device` is where the result lies if the call does not tell."""
    ledger, func, states = call.ledger, call.func, call.states
    device = call.device if device is None else device
    tensors = trial.tensors
    flat: list[torch.Tensor] = []
    pack = _packer(result, flat)
    position = {id(tensor): index for index, tensor in reversed(list(enumerate(tensors)))}
    memory = {key: index for index, tensor in reversed(list(enumerate(tensors))) if (key := _storage(tensor))}
    outs = []
    for tensor in flat:
        index = position.get(id(tensor))
        if index is not None:  # in place, where the shape may change as well
            outs.append(OutputSignature(ledger.signature_of(tensor, states[index].sig.device), index, same=True))
        else:
            base = memory.get(_storage(tensor), -1)
            outs.append(OutputSignature(ledger.signature_of(tensor, device), base, same=False))
    translation = translate(func, trial.args, trial.kwargs, tuple(flat), ledger.axes)
    if not flat and translation.outs:  # it returns nothing and writes into its arguments
        places = [position[id(tensor)] for tensor in translation.outs if id(tensor) in position]
        outs = [OutputSignature(states[at].sig, at, same=True) for at in places]
    order = None
    if translation.ins is not None:
        order = tuple([position[id(tensor)] for tensor in translation.ins])
    written = tuple([position[id(tensor)] for tensor in written_by(func, trial.args, trial.kwargs)])
    return OperatorEntry(translation.kind, name_of(func), translation.attrs, order, tuple(outs), pack, written)


def name_of(func: Any) -> str:
    """The operator's name as traces and schemas write it, without the overload."""
    if (schema := getattr(func, "_schema", None)) is not None:
        return str(schema.name)
    return f"higher_order::{func.name() if callable(func.name) else func.name}"


def _storage(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return 0
    return int(_untyped_storage(tensor)._cdata)


def _packer(result: Any, flat: list[torch.Tensor]) -> Callable[[list[Any]], Any] | None:
    """Collect the tensors of a result into `flat`; the function returned rebuilds the result around new ones."""
    if isinstance(result, torch.Tensor):
        flat.append(result)
        return None
    if type(result) in (tuple, list) and all(isinstance(item, torch.Tensor) for item in result):
        flat.extend(result)
        return type(result)
    leaves, spec = private.pytree.tree_flatten(result)
    flat.extend(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    template = [_SLOT if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def pack(outputs: list[Any]) -> Any:
        made = iter(outputs)
        return private.pytree.tree_unflatten([next(made) if leaf is _SLOT else leaf for leaf in template], spec)

    return pack


_SLOT = object()  # The place of an output in a template


# -- strict: What PyTorch's real kernels refuse and its meta kernels let pass.

_ONE_TYPE = frozenset(overloads("mm addmm bmm baddbmm addbmm mv addmv dot vdot convolution"))


def refuse(func: Any, states: list[State]) -> None:
    """Raise where the operands of a product differ in their element type."""
    if func in _ONE_TYPE:
        kinds = dict.fromkeys(state.sig.spec.dtype for state in states)
        if len(kinds) > 1:
            raise RuntimeError(f"{func._schema.name} needs operands of one element type, but got {' and '.join(kinds)}")


# -- without_data: What an operator makes, found without the user's data: in closed form, on the meta device, or on zeros.

_QUANTIZING = frozenset(
    overloads("quantize_per_tensor quantize_per_tensor.tensor_qparams quantize_per_tensor_dynamic quantize_per_channel")
)
"""On the meta device these make plain tensors."""
_ZEROS_LIMIT = 1 << 30  # An operator without a meta kernel is run on zeros if its tensors take at most this many bytes


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether PyTorch itself expresses the operator in others, on processors and GPUs too: `silu_backward` is a kernel there."""
    name = func.name()
    return private.has_kernel(name, "CompositeImplicitAutograd") and not private.has_kernel(name, "CPU")


def work_out(call: DispatchedCall) -> OperatorEntry:
    """Describe an operator: its kind and attributes, and its outputs' signatures and memory."""
    refuse(call.func, call.states)
    imported = len(sys.modules)
    # Neither packages nor sparse or quantized tensors can be on the meta device
    plain = all(_replaceable(state) and state.sig.dtype not in QUANTIZED for state in call.states)
    on_meta = plain and call.func not in _QUANTIZING and not has_package(call.args)
    entry = describe(call, *(_tried_on_meta(call) if on_meta else _tried_on_zeros(call, None)))
    if len(sys.modules) != imported:
        # What PyTorch imports the first time leaves frames that hold one another, and through those below them the
        # tensors of this call, which would then seem to live to the end.
        gc.collect(0)
    return entry


def _tried_on_meta(call: DispatchedCall) -> tuple[Trial, Any]:
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


def _tried_on_zeros(call: DispatchedCall, failure: Exception | None) -> tuple[Trial, Any]:
    """Some operators (quantized, sparse, a user's own without a meta kernel) know only real tensors."""
    if call.func.namespace in RANKS:
        # A collective is never run, as the other ranks do not count. One of a process group writes to
        # arguments and returns work
        returned = [str(out.type).rpartition(".")[2] for out in call.func._schema.returns]
        if call.func.namespace != "c10d" or returned != ["Work"]:
            raise failure or NotImplementedError(f"{call.func} on sparse or quantized tensors needs the other ranks")
        return call.on_meta(), private.distributed().FakeWork().boxed()
    if sum(state.sig.spec.nbytes for state in call.states if _replaceable(state)) > _ZEROS_LIMIT:
        raise failure or MemoryError(f"{call.func} would need more than {_ZEROS_LIMIT} bytes of zeros")
    zeros = []
    for state in call.states:  # for a quantized or blocked tensor of the user's there are none: it is used itself
        is_used = isinstance(state, TensorRecord) and not _replaceable(state) and state.sig.stored is None
        zeros.append(state.tensor if is_used else state.sig.zeros())
    trial = call.on(zeros, CPU)
    try:
        return trial, call.func(*trial.args, **trial.kwargs)
    except Exception as exc:
        if failure is None or is_delivered(exc):
            raise
        raise failure from None


def _replaceable(state: State) -> bool:
    """A tensor that a stand-in of the same shape and strides can replace."""
    tensor = state.tensor if isinstance(state, TensorRecord) else None
    return tensor is None or (tensor.layout is torch.strided and not tensor.is_quantized)
