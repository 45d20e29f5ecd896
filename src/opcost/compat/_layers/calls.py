"""The layers of a model as its tables list them: every call of every registered module, with what ran in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from opcost.compat._recording import count_a_run, current_recorder
from opcost.core.graph import TensorSpec
from opcost.core.option import Mode
from opcost.core.report import Report, Row
from opcost.frontends.torch.models.unwrap import unwrap
from opcost.frontends.torch.recording.recorder import Recorder
from opcost.frontends.torch.recording.scope import Paths

Structure: TypeAlias = Any
"""What a call was given or gave back: a TensorSpec for each tensor, inside the tuples, lists and dicts that held it."""


@dataclasses.dataclass(slots=True, eq=False)
class LayerCall:
    """One call of a layer; `rows` are the operators of its own forward, those of the layers that it calls left out."""

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
        """The name of the layer's class; a lazy layer that was called is of the class that it becomes."""
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

    def in_order_of_exit(self) -> Iterator[LayerCall]:
        """This call and the calls inside it, each when it is done."""
        for call in self.nested:
            yield from call.in_order_of_exit()
        yield self


@dataclasses.dataclass(frozen=True, slots=True)
class Layers:
    """One count of a model, call by call."""

    model: nn.Module
    """The model itself where the caller's was wrapped."""
    report: Report
    calls: tuple[LayerCall, ...]
    """In the order of entry, the model's own first."""


def count_layers(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, mode: Mode | None = None
) -> Layers:
    """Count a model and note every call of its modules."""
    model = unwrap(model)
    listener = _Listener(model)
    with ExitStack() as undo:
        for module in model.modules():
            if not isinstance(module, torch.jit.ScriptModule):  # takes no hooks; its operators count where it is called
                enter, leave = listener.hooks(module)
                undo.callback(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True).remove)
                undo.callback(module.register_forward_hook(leave).remove)
        report = count_a_run(model, args, kwargs, mode=mode)
    if not listener.calls:  # a scripted model, of which nothing is seen but the operators
        result = report.outputs[0] if len(report.outputs) == 1 else report.outputs
        whole = LayerCall(
            "", model, tuple(spec for _, spec in report.inputs), None, result=result, rows=list(report.rows)
        )
        return Layers(model, report, (whole,))
    for row, call in zip(report.rows, listener.runner_of_each_row(len(report.rows)), strict=True):
        call.rows.append(row)
    return Layers(model, report, tuple(listener.calls))


class _Listener:
    """Notes calls through hooks, and at which operator each begins and ends."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: list[LayerCall] = []
        self._paths = Paths(model)
        self._recorder: Recorder | None = None
        self._running: list[LayerCall] = []
        self._changes: list[tuple[int, LayerCall]] = []
        """From which operator on which call is the running one."""

    def hooks(self, module: nn.Module) -> tuple[Callable[..., None], Callable[..., None]]:
        """Hooks for one module. A count may run on a copy of it, so they hold the module that the caller knows."""

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            recorder = self._followed()
            parent = self._running[-1] if self._running else None
            path = self._paths.path(module, parent.path if parent else "")
            given = tuple(_described(recorder, item) for item in args)
            call = LayerCall(path, module, given, parent, _described(recorder, kwargs))
            if parent is not None:
                parent.nested.append(call)
            self.calls.append(call)
            self._running.append(call)
            self._changes.append((len(recorder.ops), call))

        def leave(_: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            recorder = self._followed()
            call = self._running.pop()
            call.result = _described(recorder, result)
            if call.parent is not None:
                self._changes.append((len(recorder.ops), call.parent))

        return enter, leave

    def _followed(self) -> Recorder:
        """The recorder at work. A new one is a new run; what was noted of an unfinished one is void."""
        recorder = current_recorder()
        assert recorder is not None
        if recorder is not self._recorder:
            self._recorder = recorder
            for notes in (self.calls, self._running, self._changes):
                notes.clear()  # type: ignore[attr-defined]
        return recorder

    def runner_of_each_row(self, rows: int) -> Iterator[LayerCall]:
        """The innermost call that was running, row by row."""
        ends = [start for start, _ in self._changes[1:]] + [rows]
        for (start, call), end in zip(self._changes, ends, strict=True):
            for _ in range(start, end):
                yield call


def _described(recorder: Recorder, value: Any) -> Structure:
    """The structure of an argument or result; what is neither a tensor nor holds any is None."""
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
        for item in structure.values():
            yield from tensors(item)
