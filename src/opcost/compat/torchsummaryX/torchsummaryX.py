"""`summary`: a line for each call of a layer, printed as pandas prints a frame."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from opcost.compat._layers.calls import LayerCall, count_layers
from opcost.compat._layers.parameters import Parameters
from opcost.compat.torchsummaryX.table import table

_COLUMNS = ("Kernel Shape", "Output Shape", "Params", "Mult-Adds")


class Line(NamedTuple):
    """One call of a layer; None where there is nothing to say."""

    name: str
    kernel: list[int] | None
    output: list[int]
    params: int | None
    """Trainable ones that no earlier line shows."""
    mult_adds: int | None


def summary(model: nn.Module, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Print the layers of a model that is called with x and further arguments.

    Returns a data frame of pandas, where that is installed, else a list of rows.
    """
    layers = count_layers(model, (x, *args), kwargs)
    parameters = Parameters(layers.model, layers.report)
    names = _names(layers.model)
    shown: set[int] = set()
    lines: list[Line] = []
    own = 0
    for call in layers.calls[0].in_order_of_exit():
        if any(call.module.children()) or id(call.module) not in names:
            own += call.macs
            continue
        new = [p for p in parameters.of(call.module) if p.key not in shown]
        held = parameters.of(call.module)
        shown.update(p.key for p in held)
        trainable = sum(p.numel for p in new if p.trainable)
        name = f"{len(lines)}_{names[id(call.module)]}"
        mult_adds = _mult_adds(call) if held or call.macs else None
        lines.append(Line(name, _kernel(call.module), _output(call), trainable or None, mult_adds))
    every = parameters.of(layers.model)
    trainable = sum(p.numel for p in every if p.trainable)
    total_mult_adds = sum(line.mult_adds or 0 for line in lines) + own // _batch(layers.calls[0])
    print(table(lines, sum(p.numel for p in every), trainable, total_mult_adds))
    return _frame(lines)


def _names(model: nn.Module) -> dict[int, str]:
    """What torchsummaryX calls a layer: its path, with its class in front of its own name where it is not at the top."""
    found: dict[int, str] = {}
    for path, module in model.named_modules():
        above, _, own = path.rpartition(".")
        if path:
            found[id(module)] = f"{above}.{type(module).__name__}_{own}" if above else own
    return found


def _kernel(module: nn.Module) -> list[int] | None:
    """The shape of a weight, inputs first."""
    weight = dict(module.named_parameters(recurse=False)).get("weight")
    if weight is None:
        return None
    shape = list(weight.shape)
    return [shape[1], shape[0], *shape[2:]] if len(shape) > 1 else shape


def _output(call: LayerCall) -> list[int]:
    return list(call.outputs[0].dims) if call.outputs else []


def _batch(call: LayerCall) -> int:
    return call.outputs[0].dims[0] if call.outputs and call.outputs[0].dims else 1


def _mult_adds(call: LayerCall) -> int:
    """Multiply-adds of one sample, without biases; a layer that has none counts its weights once."""
    if call.macs:
        return call.macs // (_batch(call) or 1)
    return sum(p.numel() for name, p in call.module.named_parameters() if "weight" in name)


def _frame(lines: list[Line]) -> Any:
    rows = [dict(zip(_COLUMNS, line[1:], strict=True)) for line in lines]
    try:
        import pandas as pd
    except ImportError:
        return [{"Layer": line.name, **row} for line, row in zip(lines, rows, strict=True)]
    return pd.DataFrame(rows, index=pd.Index([line.name for line in lines], name="Layer"), columns=list(_COLUMNS))
