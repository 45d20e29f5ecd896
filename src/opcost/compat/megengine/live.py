"""A live MegEngine model: run once for its layers, traced once for what it computes between them.

MegEngine's own counter sees layers only. Here the model is traced and dumped too, and the dump tells which functions with
multiply-adds were called outside any layer. The model leaves as it came, also when its forward raises: hooks, training
flags, buffers and MegEngine's naming scopes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import nan
from typing import Any, NamedTuple

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.utils.naming import AutoNaming

from opcost.api import count
from opcost.compat.megengine import convention
from opcost.compat.megengine.counted import Values, name_of
from opcost.compat.megengine.megengine_layers import Line, is_fused, lines
from opcost.compat.megengine.records import Activation, Operation, Param, Records, shapes
from opcost.compat.megengine.registered import registered_flops
from opcost.core.graph import TensorSpec
from opcost.core.report import Report
from opcost.errors import InputError

_SUFFIXES = {"weight": "w", "bias": "b"}
_FIRST = ("weight", "bias")


def megengine_inputs(inputs: Any, input_shapes: Any) -> tuple[Any, ...]:
    """Positional arguments: tensors of the data, or zeros of the shapes."""
    if inputs is None:
        return tuple(F.zeros(shape, dtype="float32") for shape in input_shapes)
    items = inputs if isinstance(inputs, (tuple, list)) and not hasattr(inputs, "_fields") else [inputs]
    return tuple(_tensor(item) for item in items)


def _tensor(item: Any) -> Any:
    """Data as tensors, nested as it is; numbers become float32."""
    if isinstance(item, mge.Tensor):
        return item
    if isinstance(item, np.ndarray):
        return mge.Tensor(item)
    if isinstance(item, Mapping):
        return {key: _tensor(value) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*map(_tensor, item))
    if isinstance(item, (list, tuple)):
        return [_tensor(value) for value in item]
    try:
        return mge.Tensor(item, dtype=np.float32)
    except (TypeError, ValueError) as exc:
        raise InputError(f"input data of the type {type(item).__name__} is not an array") from exc


def megengine_records(model: M.Module, args: tuple[Any, ...], *, with_values: bool) -> Records:
    """The records of a model; `with_values` notes mean and deviation of what its layers give."""
    names = {id(module): name for name, module in model.named_modules()}
    listener = _Listener(names, with_values=with_values)
    with _undisturbed(model), listener.attached(model):
        model(*args)
    records = listener.records
    try:
        report, _ = traced(model, args)
    except Exception as exc:  # noqa: BLE001 - whatever tracing runs into, the layers were counted
        warnings.warn(
            f"functions called outside a layer are not counted: the model cannot be traced ({exc})", stacklevel=4
        )
        return records
    _add_functions(records, report, listener.scopes)
    listener.add_read_parameters(model, report)
    return records


class _Listener:
    """Hooks on every module: the layers make lines, all of them show which parameters are in use."""

    def __init__(self, names: dict[int, str], *, with_values: bool) -> None:
        self.records = Records()
        self.scopes: set[str] = set()
        """MegEngine's own names of the layers that were called, by which a dump names what they compute."""
        self._names = names
        self._with_values = with_values
        self._listed: set[int] = set()

    @contextmanager
    def attached(self, model: M.Module) -> Iterator[None]:
        with ExitStack() as undo:
            for module in model.modules():
                undo.callback(module.register_forward_hook(self._called).remove)
            yield

    def _called(self, module: M.Module, inputs: tuple[Any, ...], outputs: Any) -> None:
        name = self._names[id(module)]
        self._list_parameters(module, name)
        given = [tensor for tensor in inputs if isinstance(tensor, mge.Tensor)]
        made = [outputs] if isinstance(outputs, mge.Tensor) else list(_tensors(outputs))
        if not given or not made:
            return
        if (told := registered_flops(module)) is not None:
            found = [Line("", type(module).__name__, int(told(module, inputs, made)))]
        else:
            found = list(lines(module, tuple(given[0].shape), tuple(made[0].shape)))
        if found:
            self.scopes.add(AutoNaming.get_scope())
        for line in found:
            label = ".".join(filter(None, (name, line.suffix)))
            ins, outs = shapes(map(_spec, given)), shapes(map(_spec, made))
            self.records.operations.append(Operation(label, line.class_name, ins, outs, line.flops))
            values = _mean_and_std(made[0]) if self._with_values else (None, None)
            self.records.activations.append(Activation(label, line.class_name, _spec(made[0]), *values))

    def _list_parameters(self, module: M.Module, name: str) -> None:
        """The module's own, and those of the layers that a fused one reads without calling them."""
        for path, holder in module.named_modules() if is_fused(module) else [("", module)]:
            own = dict(holder.named_parameters(recursive=False))
            for key in (*(key for key in _FIRST if key in own), *(key for key in own if key not in _FIRST)):
                self._list(own[key], ".".join(filter(None, (name, path))), key)

    def _list(self, parameter: Any, path: str, key: str) -> None:
        if id(parameter) not in self._listed:
            self._listed.add(id(parameter))
            label = f"{path}-{_SUFFIXES.get(key, key)}"
            self.records.params.append(Param(label, _spec(parameter), *_mean_and_std(parameter)))

    def add_read_parameters(self, model: M.Module, report: Report) -> None:
        """Parameters of modules that are never called, where a function reads them."""
        read = {parameter.name for parameter in report.parameters if parameter.used}
        for full, parameter in model.named_parameters():
            if full in read:
                path, _, key = full.rpartition(".")
                self._list(parameter, path, key)


def _add_functions(records: Records, report: Report, scopes: set[str]) -> None:
    for row in report.rows:
        module = row.op.module
        inside = any(not scope or module == scope or module.startswith(f"{scope}.") for scope in scopes)
        flops = convention.of_row(row)
        if flops and not inside:
            name, kind = name_of(row), row.op.raw.rpartition("::")[2]
            records.operations.append(Operation(name, kind, shapes(row.ins), shapes(row.outs), flops))
            records.activations.append(Activation(name, kind, row.outs[0]))


def traced(model: M.Module, args: tuple[Any, ...]) -> tuple[Report, Values]:
    """The report of a model, and the mean and deviation of its parameters."""
    leaves = tuple(_tensors(args))
    with _undisturbed(model):
        report = count(_Bound(lambda tensors: model(*_filled(args, iter(tensors)))), leaves)
    named = dict(model.named_parameters())
    held = [(value, named[p.name]) for p in report.parameters if p.name in named for value in p.values]
    return report, {value: _mean_and_std(parameter) for value, parameter in held}


class _Bound(M.Module):
    """A model behind a function of its tensors alone: it need not be an attribute, which would rename it."""

    def __init__(self, run: Callable[[tuple[Any, ...]], Any]) -> None:
        super().__init__()
        self._run = run

    def forward(self, *args: Any) -> Any:
        return self._run(args)


def _tensors(value: Any) -> Iterator[Any]:
    """Every tensor in nested containers, in order."""
    if isinstance(value, mge.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _filled(value: Any, tensors: Iterator[Any]) -> Any:
    """The same containers with other tensors in them."""
    if isinstance(value, mge.Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _filled(item, tensors) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_filled(item, tensors) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(item, tensors) for item in value)
    return value


class _Kept(NamedTuple):
    """A buffer and what it held."""

    tensor: Any
    content: Any


@contextmanager
def _undisturbed(model: M.Module) -> Iterator[None]:
    """Evaluation mode; flags, buffers and naming scopes come back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    buffers = [_Kept(tensor, tensor.numpy().copy()) for tensor in model.buffers()]
    # A forward that raised leaves its scopes behind, and they would stand in front of every name.
    scopes = list(AutoNaming.scopes)
    _leave_scopes()
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, training in flags:
            module.training = training
        for kept in buffers:
            if not np.array_equal(kept.tensor.numpy(), kept.content):
                kept.tensor[...] = kept.content
        _leave_scopes()
        for scope in scopes:
            AutoNaming.push_scope(scope)


def _leave_scopes() -> None:
    while AutoNaming.scopes:
        AutoNaming.pop_scope()


def _spec(tensor: Any) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), np.dtype(tensor.dtype).name)


def _mean_and_std(tensor: Any) -> tuple[float, float]:
    """As MegEngine works them out, a quantized tensor as the numbers that it stands for."""
    content = mge.Tensor(tensor).astype("float32")
    return (float(F.mean(content).numpy()), float(F.std(content).numpy())) if content.size else (nan, nan)
