"""The layers of a counted model: every call of every registered module, with its operators, shapes and parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from opcost.compat._recording import count_a_run, current_recorder
from opcost.core.graph import TensorSpec
from opcost.core.option import Mode
from opcost.core.report import Parameter, Report, Row
from opcost.frontends.torch.models.unwrap import unwrap
from opcost.frontends.torch.recording.module_calls import Paths
from opcost.frontends.torch.recording.recorder import DatalessRecorder

Structure: TypeAlias = Any
"""The arguments or the result of a call: a TensorSpec for each tensor, inside the same tuples, lists and dicts."""


@dataclasses.dataclass(slots=True, eq=False)
class LayerCall:
    """One call of a layer; `rows` are the operators of its own forward, without those of the layers that it calls."""

    path: str
    module: nn.Module
    args: tuple[Structure, ...]
    parent: LayerCall | None
    kwargs: Mapping[str, Structure] = dataclasses.field(default_factory=dict)
    result: Structure = None
    rows: list[Row] = dataclasses.field(default_factory=list)
    nested: list[LayerCall] = dataclasses.field(default_factory=list)

    @property
    def type_name(self) -> str:
        """The name of the layer's class; for a lazy layer, of the class that it becomes."""
        return (getattr(self.module, "cls_to_become", None) or type(self.module)).__name__

    @property
    def macs(self) -> int:
        return sum(row.cost.macs * row.op.repeat for row in self.rows if row.cost is not None)

    @property
    def inputs(self) -> list[TensorSpec]:
        """The tensors among the positional arguments."""
        return list(tensors(self.args))

    @property
    def outputs(self) -> list[TensorSpec]:
        return list(tensors(self.result))

    def lineage(self) -> Iterator[LayerCall]:
        """This call and the calls that it is part of, the model's own last."""
        yield self
        if self.parent is not None:
            yield from self.parent.lineage()

    def in_order_of_exit(self) -> Iterator[LayerCall]:
        """This call and the calls inside it, each when it is done."""
        for call in self.nested:
            yield from call.in_order_of_exit()
        yield self

    def mult_adds_per_sample(self, batch_dim: int = 0) -> int:
        """Multiply-adds without biases of one sample; a layer that has none counts its weights once."""
        if not self.macs:
            return sum(p.numel() for name, p in self.module.named_parameters() if "weight" in name)
        dims = self.outputs[0].dims if self.outputs else ()
        return self.macs // ((dims[batch_dim] if len(dims) > batch_dim else 1) or 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Layers:
    """One count of a model, call by call."""

    model: nn.Module  # The model itself where the caller's was wrapped
    report: Report
    calls: tuple[LayerCall, ...]  # In the order of entry, the model's own first
    parameters: Parameters


def count_layers(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, mode: Mode | None = None
) -> Layers:
    """Count a model and note every call of its modules."""
    model = unwrap(model)
    paths = Paths(model)
    run: DatalessRecorder | None = None
    calls: list[LayerCall] = []
    running: list[LayerCall] = []
    changes: list[tuple[int, LayerCall]] = []  # From which operator on which call is the running one

    def note_calls(module: nn.Module) -> None:
        """Note the calls of a module through hooks. A count may run on a copy of it; the caller's own is kept."""

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal run
            recorder = current_recorder()
            assert recorder is not None
            if recorder is not run:  # a new run, which voids the notes of an unfinished one
                run = recorder
                for notes in (calls, running, changes):
                    notes.clear()
            parent = running[-1] if running else None
            path = paths.path(module, parent.path if parent else "")
            given = tuple(_described(recorder, item) for item in args)
            call = LayerCall(path, module, given, parent, _described(recorder, kwargs))
            if parent is not None:
                parent.nested.append(call)
            calls.append(call)
            running.append(call)
            changes.append((len(recorder.ops), call))

        def leave(_: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            assert run is not None
            call = running.pop()
            call.result = _described(run, result)
            if call.parent is not None:
                changes.append((len(run.ops), call.parent))

        undo.callback(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True).remove)
        undo.callback(module.register_forward_hook(leave).remove)

    with ExitStack() as undo:
        for module in model.modules():
            if not isinstance(module, torch.jit.ScriptModule):  # takes no hooks; its operators count where it is called
                note_calls(module)
        report = count_a_run(model, args, kwargs, mode=mode)
    if not calls:  # a scripted model, of which only the operators are visible
        result = report.outputs[0] if len(report.outputs) == 1 else report.outputs
        given = tuple(spec for _, spec in report.inputs)
        calls = [LayerCall("", model, given, None, result=result, rows=list(report.rows))]
    else:
        ends = [start for start, _ in changes[1:]] + [len(report.rows)]
        for (start, call), end in zip(changes, ends, strict=True):
            call.rows += report.rows[start:end]
    return Layers(model, report, tuple(calls), Parameters(model, report))


def _described(recorder: DatalessRecorder, value: Any) -> Structure:
    """The structure of an argument or result; None for what contains no tensors."""
    if isinstance(value, torch.Tensor):
        return recorder.spec(value)
    if isinstance(value, PackedSequence):
        return recorder.spec(value.data)
    if isinstance(value, Mapping):
        return {key: _described(recorder, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_described(recorder, item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if hasattr(value, "tensors"):  # batches of images of several sizes
        return _described(recorder, value.tensors)
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) is not None and value.dtype.kind in "biufc":
        return TensorSpec(tuple(value.shape), value.dtype.name)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _described(recorder, getattr(value, f.name)) for f in dataclasses.fields(value)}
    return None


def tensors(structure: Structure) -> Iterator[TensorSpec]:
    """Every tensor in a structure, in order."""
    if isinstance(structure, TensorSpec):
        yield structure
    elif isinstance(structure, (list, tuple)):
        for item in structure:
            yield from tensors(item)
    elif isinstance(structure, dict):
        yield from tensors(list(structure.values()))


def inputs_of(
    model: nn.Module, sizes: Sequence[Sequence[int]], dtypes: Sequence[Any] | None, batch: int | None = None,
    batch_dim: int | None = 0,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Inputs without data of these sizes, with a batch put in; integers may decide what runs, so they are zeros.

    Types are given as the peers take them: `torch.float32`, the default, or a class of tensors such as `torch.LongTensor`.
    """
    from opcost.frontends.torch.load import device_of

    found = []
    for size, given in zip(sizes, dtypes or [torch.float32] * len(sizes), strict=False):
        shape, dtype = list(size), getattr(given, "dtype", given)
        if batch is not None and batch_dim is not None:
            shape.insert(batch_dim, batch)
        if dtype.is_floating_point or dtype.is_complex:
            found.append(torch.empty(shape, dtype=dtype, device="meta"))
        else:
            found.append(torch.zeros(shape, dtype=dtype, device=device_of(model)))
    return tuple(found)


def meta_tensors(specs: Iterable[TensorSpec]) -> tuple[torch.Tensor, ...]:
    """Tensors without data of these shapes and types."""
    return tuple(torch.empty(spec.dims, dtype=getattr(torch, spec.dtype), device="meta") for spec in specs)


# -- parameters -------------------------------------------------------------------------------------------------------


class ModuleParameter(NamedTuple):
    """One parameter inside a module; two with the same `key` are the same tensor."""

    key: int
    name: str
    shape: tuple[int, ...]
    numel: int  # Elements, or those that a pruning mask leaves
    nbytes: int
    trainable: bool


class Parameters:
    """The parameters of a model's modules; a report has the shapes that only a run decides, and which are one tensor."""

    def __init__(self, model: nn.Module, report: Report | None = None) -> None:
        self._counted: dict[int, Parameter] = {}
        if report is not None:
            known = {name: parameter for parameter in report.parameters for name in parameter.names}
            for name, tensor in model.named_parameters(remove_duplicate=False):
                if name in known:
                    self._counted[id(tensor)] = known[name]

    def of(self, module: nn.Module, *, recurse: bool = True) -> list[ModuleParameter]:
        """The distinct parameters of a module, in definition order."""
        found: dict[int, ModuleParameter] = {}
        for name, tensor in module.named_parameters(recurse=recurse):
            counted = self._counted.get(id(tensor))
            if counted is None and is_lazy(tensor):
                continue
            key = id(tensor if counted is None else counted)
            shape = tuple(tensor.shape) if counted is None else counted.spec.dims
            numel, shown_name = prod(shape), name
            if name.endswith("_orig"):  # a mask of `torch.nn.utils.prune` may be over it
                path, _, own_name = name.removesuffix("_orig").rpartition(".")
                mask = dict(module.get_submodule(path).named_buffers(recurse=False)).get(f"{own_name}_mask")
                if mask is not None and mask.device.type != "meta":
                    numel, shown_name = int(mask.sum()), name.removesuffix("_orig")
            nbytes = numel * tensor.dtype.itemsize
            found.setdefault(key, ModuleParameter(key, shown_name, shape, numel, nbytes, tensor.requires_grad))
        return list(found.values())


def total_and_trainable(parameters: Iterable[ModuleParameter]) -> tuple[int, int]:
    """Elements of all parameters, and of the trainable ones."""
    parameters = list(parameters)
    return sum(p.numel for p in parameters), sum(p.numel for p in parameters if p.trainable)


def take_new(parameters: Iterable[ModuleParameter], seen: set[int]) -> list[ModuleParameter]:
    """The parameters that were not seen before; they are from now on."""
    new = [p for p in parameters if p.key not in seen]
    seen.update(p.key for p in new)
    return new


class ListedLayer(NamedTuple):
    """One row of a layer table, numbered from 1."""

    number: int
    call: LayerCall
    parameters: list[ModuleParameter]
    new: list[ModuleParameter]  # The parameters that no earlier row has


def listed_layers(layers: Layers, calls: Iterable[LayerCall], *, recurse: bool = True) -> list[ListedLayer]:
    """A row for each of these calls, with all parameters of the module or with its own only."""
    seen: set[int] = set()
    rows = []
    for number, call in enumerate(calls, 1):
        parameters = layers.parameters.of(call.module, recurse=recurse)
        rows.append(ListedLayer(number, call, parameters, take_new(parameters, seen)))
    return rows


def inputs_first(shape: Sequence[int]) -> list[int]:
    """The shape of a weight as [in, out, *kernel]."""
    return [shape[1], shape[0], *shape[2:]] if len(shape) > 1 else list(shape)


RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def gates(module: nn.Module) -> int:
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        return 4
    return 3 if isinstance(module, (nn.GRU, nn.GRUCell)) else 1


def steps(call: LayerCall) -> int:
    """Steps of a recurrent layer or cell, over the batch: each uses every weight once, so they follow from the MACs."""
    module = call.module
    hidden, state = module.hidden_size, getattr(module, "proj_size", 0) or module.hidden_size
    directions = 2 if getattr(module, "bidirectional", False) else 1
    weights = 0
    for layer in range(getattr(module, "num_layers", 1)):
        size = module.input_size if layer == 0 else state * directions
        weights += directions * gates(module) * hidden * (size + state)
        weights += directions * hidden * state if state != hidden else 0
    return call.macs // weights
