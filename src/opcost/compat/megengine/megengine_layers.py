"""A live MegEngine model: run once for its layers, traced once for what it computes between them.

MegEngine's own counter sees layers only. Here the model is traced and dumped too, and the dump lists the functions with
multiply-adds that were called outside any layer. The model is restored, also when its forward raises: hooks, training
flags, buffers and MegEngine's naming scopes. What a call costs is MegEngine's own convention, faults of its counter left out.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import nan, prod
from typing import Any

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.module.qat as Q
import megengine.module.quantized as Z
import numpy as np
from megengine.utils.naming import AutoNaming

from opcost.api import count
from opcost.compat.megengine import layer_costs
from opcost.compat.megengine.layer_costs import registered_flops
from opcost.compat.megengine.tables import Records, Values, name_of
from opcost.core.graph import TensorSpec
from opcost.core.report import Report
from opcost.frontends.inputs import leaves

Shape = tuple[int, ...]
Line = tuple[str, str, int]  # A layer by its name relative to the module that was called, its class, and its cost

_NORMS = (M.batchnorm._BatchNorm, M.LayerNorm, M.GroupNorm, M.InstanceNorm, M.GeneralNorm)


def lines(module: M.Module, x: Shape, y: Shape) -> Iterator[Line]:
    """The lines of a call from x to y: one for a layer, two for a fused one, none for anything else."""
    cost = _layer(module, x, y)
    if cost is not None:
        yield "", type(module).__name__, cost
    elif (layer := folded(module)) is not None:
        # Counted as the layer and the norm that it was made from, as in the net before quantization.
        place = next(name for name, child in module.named_children() if child is layer)
        cost = _linear(layer, y) if isinstance(layer, M.Linear) else _convolution(layer, x, y)
        yield place, type(layer).__name__, cost
        yield "bn", type(module.bn).__name__, layer_costs.NORM * prod(y)


def _layer(module: M.Module, x: Shape, y: Shape) -> int | None:
    """What a layer costs; None for other modules."""
    if isinstance(module, M.conv._ConvNd):
        return _convolution(module, x, y)
    if isinstance(module, M.Linear):
        return _linear(module, y)
    if isinstance(module, Z.Linear):
        out_features, in_features = module.weight.shape
        return layer_costs.linear(y, in_features, out_features, bias=module.bias is not None)
    if isinstance(module, M.BatchMatMulActivation):
        return int(prod(y) * (module.weight.shape[-1] + (module.bias is not None)))
    if isinstance(module, _NORMS):
        return layer_costs.NORM * prod(x)
    if isinstance(module, M.pooling._PoolNd):
        size = module.kernel_size
        return int(prod(y) * (prod(size) if isinstance(size, (tuple, list)) else size * size))
    if isinstance(module, M.adaptive_pooling._AdaptivePoolNd):
        return layer_costs.adaptive_pool(x, y, axes=2)
    if isinstance(module, (M.rnn.RNNBase, M.rnn.RNNCellBase)):
        return _recurrent(module, x)
    return None


def folded(module: M.Module) -> M.Module | None:
    """The layer of a module that computes a layer and a batch norm in one, without calling either of them."""
    if isinstance(module, Q.QATModule) and hasattr(module, "bn"):
        for attribute in ("conv", "conv_transpose2d", "linear"):
            layer = getattr(module, attribute, None)
            if isinstance(layer, (M.conv._ConvNd, M.Linear)):
                return layer
    return None


def _convolution(module: Any, x: Shape, y: Shape) -> int:
    bias = module.bias is not None
    size = module.kernel_size
    kernel = prod(size) if isinstance(size, (tuple, list)) else size
    if isinstance(module, (M.ConvTranspose2d, M.ConvTranspose3d)):
        return int(prod(x) * (module.out_channels // module.groups) * kernel + prod(y) * bias)
    return int(prod(y) * (module.in_channels // module.groups * kernel + bias))


def _linear(module: Any, y: Shape) -> int:
    return layer_costs.linear(y, module.in_features, module.out_features, bias=module.bias is not None)


def _recurrent(module: Any, x: Shape) -> int:
    cell = "lstm" if isinstance(module, (M.LSTM, M.LSTMCell)) else "rnn_tanh"
    size, hidden = module.input_size, module.hidden_size
    layers = [(size, hidden, hidden)]
    if not isinstance(module, M.rnn.RNNCellBase):
        output, ways = module.proj_size or hidden, module.num_directions
        layers = [(size, hidden, output)] * ways
        layers += [(output * ways, hidden, output)] * ways * (module.num_layers - 1)
    return layer_costs.recurrent(cell, prod(x) // size, layers, bias=bool(module.bias))


# -- the whole model ---------------------------------------------------------------------------------------------------

_FIRST = ("weight", "bias")


def megengine_inputs(inputs: Any, input_shapes: Any) -> tuple[Any, ...]:
    """Positional arguments: tensors of the data, or zeros of the shapes."""
    if inputs is None:
        return tuple(F.zeros(shape, dtype="float32") for shape in input_shapes)

    def tensor(item: Any) -> Any:
        if isinstance(item, mge.Tensor):
            return item
        return mge.Tensor(item) if isinstance(item, np.ndarray) else mge.Tensor(item, dtype=np.float32)

    return layer_costs.as_tensors(inputs, tensor)


def megengine_records(model: M.Module, args: tuple[Any, ...], *, with_values: bool) -> Records:
    """The records of a model; `with_values` notes mean and deviation of what its layers give."""
    names = {id(module): name for name, module in model.named_modules()}
    listener = _Listener(names, with_values=with_values)
    with _restoring(model), listener.attached(model):
        model(*args)
    records = listener.records
    try:
        report, _ = traced(model, args)
    except Exception as exc:  # noqa: BLE001 - whatever tracing runs into, the layers were counted
        warnings.warn(
            f"functions called outside a layer are not counted: the model cannot be traced ({exc})", stacklevel=4
        )
        return records
    for row in report.rows:
        module = row.op.module
        inside = any(not scope or f"{module}.".startswith(f"{scope}.") for scope in listener.scopes)
        flops = layer_costs.of_row(row)
        if flops and not inside:
            records.add_call(name_of(row), row.op.raw.rpartition("::")[2], row.ins, row.outs, flops)
    listener.add_read_parameters(model, report)
    return records


class _Listener:
    """Hooks on every module: the layers make lines, all of them show which parameters are in use."""

    def __init__(self, names: dict[int, str], *, with_values: bool) -> None:
        self.records = Records()
        # MegEngine's own names of the layers that were called, by which a dump names what they compute
        self.scopes: set[str] = set()
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
        # The module's own, and those of the layers that a fused one reads without calling them
        for path, holder in module.named_modules() if folded(module) is not None else [("", module)]:
            own = dict(holder.named_parameters(recursive=False))
            for key in (*(key for key in _FIRST if key in own), *(key for key in own if key not in _FIRST)):
                self._list(own[key], ".".join(filter(None, (name, path))), key)
        given = [tensor for tensor in inputs if isinstance(tensor, mge.Tensor)]
        made = list(leaves(outputs, mge.Tensor))
        if not given or not made:
            return
        if (registered := registered_flops(module)) is not None:
            found = [("", type(module).__name__, int(registered(module, inputs, made)))]
        else:
            found = list(lines(module, tuple(given[0].shape), tuple(made[0].shape)))
        if found:
            self.scopes.add(AutoNaming.get_scope())
        for suffix, class_name, flops in found:
            label = ".".join(filter(None, (name, suffix)))
            values = _mean_and_std(made[0]) if self._with_values else ()
            self.records.add_call(label, class_name, [*map(_spec, given)], [*map(_spec, made)], flops, *values)

    def _list(self, parameter: Any, path: str, key: str) -> None:
        if id(parameter) not in self._listed:
            self._listed.add(id(parameter))
            label = f"{path}-{layer_costs.SUFFIXES.get(key, key)}"
            self.records.add_param(label, _spec(parameter), *_mean_and_std(parameter))

    def add_read_parameters(self, model: M.Module, report: Report) -> None:
        """Parameters of modules that are never called, where a function reads them."""
        read = {parameter.name for parameter in report.parameters if parameter.used}
        for full, parameter in model.named_parameters():
            if full in read:
                path, _, key = full.rpartition(".")
                self._list(parameter, path, key)


def traced(model: M.Module, args: tuple[Any, ...]) -> tuple[Report, Values]:
    """The report of a model, and the mean and deviation of its parameters."""
    given = tuple(leaves(args, mge.Tensor))
    with _restoring(model):
        report = count(_Bound(lambda tensors: model(*_filled(args, iter(tensors)))), given)
    named = dict(model.named_parameters())
    stored = [(value, named[p.name]) for p in report.parameters if p.name in named for value in p.values]
    return report, {value: _mean_and_std(parameter) for value, parameter in stored}


class _Bound(M.Module):
    """A model behind a function of its tensors alone: it need not be an attribute, which would rename it."""

    def __init__(self, run: Callable[[tuple[Any, ...]], Any]) -> None:
        super().__init__()
        self._run = run

    def forward(self, *args: Any) -> Any:
        return self._run(args)


def _filled(value: Any, tensors: Iterator[Any]) -> Any:
    """The same containers with other tensors in them."""
    if isinstance(value, mge.Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _filled(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_filled(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


@contextmanager
def _restoring(model: M.Module) -> Iterator[None]:
    """Evaluation mode; flags, buffers and naming scopes are restored afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    buffers = [(tensor, tensor.numpy().copy()) for tensor in model.buffers()]
    # A forward that raised leaves its scopes behind, and they would be in front of every name.
    scopes = list(AutoNaming.scopes)
    _leave_scopes()
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, training in flags:
            module.training = training
        for tensor, content in buffers:
            if not np.array_equal(tensor.numpy(), content):
                tensor[...] = content
        _leave_scopes()
        for scope in scopes:
            AutoNaming.push_scope(scope)


def _leave_scopes() -> None:
    while AutoNaming.scopes:
        AutoNaming.pop_scope()


def _spec(tensor: Any) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), np.dtype(tensor.dtype).name)


def _mean_and_std(tensor: Any) -> tuple[float, float]:
    """As MegEngine works them out, a quantized tensor as the numbers that it represents."""
    content = mge.Tensor(tensor).astype("float32")
    return (float(F.mean(content).numpy()), float(F.std(content).numpy())) if content.size else (nan, nan)
