"""torchsummaryX: `summary`, a table of layers with kernels, shapes, parameters and mult-adds."""

from math import floor, log10
from typing import Any

from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import count_layers, inputs_first, listed_layers, total_and_trainable
from opcost.compat._tables import float_cells, frame
from opcost.core.escaping import printable

__all__ = ["summary"]
add_submodules(__name__, "torchsummaryX")

_COLUMNS = ("Kernel Shape", "Output Shape", "Params", "Mult-Adds")
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


def summary(model: nn.Module, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Print the layers of a model that is called with x and further arguments.

    Returns a data frame of pandas, where that is installed, else a list of rows.
    """
    layers = count_layers(model, (x, *args), kwargs)
    names: dict[int, str] = {}  # its path, with its class in front of its own name where it is not at the top
    for path, module in layers.model.named_modules():
        above, _, own_name = path.rpartition(".")
        if path:
            names[id(module)] = f"{above}.{type(module).__name__}_{own_name}" if above else own_name
    calls = list(layers.calls[0].in_order_of_exit())
    leaves = [call for call in calls if id(call.module) in names and not any(call.module.children())]
    rows: dict[str, tuple[Any, ...]] = {}  # of each call of a layer; None where a column has no value
    for number, call, parameters, new in listed_layers(layers, leaves):
        weight = dict(call.module.named_parameters(recurse=False)).get("weight")
        kernel = None if weight is None else inputs_first(weight.shape)
        output = list(call.outputs[0].dims) if call.outputs else []
        each = call.mult_adds_per_sample() if parameters or call.macs else None
        rows[f"{number - 1}_{names[id(call.module)]}"] = kernel, output, total_and_trainable(new)[1] or None, each
    kernels, results, params, own_mult_adds = zip(*rows.values(), strict=True) if rows else [()] * len(_COLUMNS)
    total, trainable = total_and_trainable(layers.parameters.of(layers.model))
    outputs = layers.calls[0].outputs
    batch = outputs[0].dims[0] if outputs and outputs[0].dims else 1
    own = sum(call.macs for call in calls) - sum(call.macs for call in leaves)
    mult_adds = sum(filter(None, own_mult_adds)) + own // batch
    # The layers as pandas prints a frame with engineering prefixes, and below a rule the totals
    index = ["Layer", *map(printable, rows)]
    shapes = [["-" if kernel is None else str(kernel) for kernel in kernels], [*map(str, results)]]
    numbers = (params, own_mult_adds)
    cells = [*shapes, *([_number(number) for number in column] for column in numbers)]
    above = frame(
        index, [(name, ["", *(f" {x}" for x in column)]) for name, column in zip(_COLUMNS, cells, strict=True)]
    )
    totals = {
        "Total params": total, "Trainable params": trainable, "Non-trainable params": total - trainable,
        "Mult-Adds": mult_adds,
    }  # fmt: skip
    below = frame(list(totals), [("Totals", [f" {_number(number)}" for number in totals.values()])])
    # Rules are as wide as the frame with plain numbers.
    plain = [[name, *(f" {shape}" for shape in column)] for name, column in zip(_COLUMNS[:2], shapes, strict=True)]
    for name, column in zip(_COLUMNS[2:], numbers, strict=True):
        plain.append([f" {name}", *float_cells(number for number in column if number is not None)])
    width = max(map(len, index)) + sum(1 + max(map(len, column)) for column in plain)
    print("\n".join(["=" * width, *above, "-" * width, *below, "=" * width]))
    try:
        import pandas as pd
    except ImportError:
        return [dict(zip(("Layer", *_COLUMNS), (name, *row), strict=True)) for name, row in rows.items()]
    return pd.DataFrame([*rows.values()], index=pd.Index([*rows], name="Layer"), columns=list(_COLUMNS))


def _number(number: float | None) -> str:
    """With an engineering prefix; a plain number has a point."""
    if number is None:
        return "-"
    power = 3 * floor(log10(number) // 3) if number >= 1 else 0
    power = min(power, max(_PREFIXES))
    shown = number / 10**power
    return f"{shown:g}{_PREFIXES[power]}" if power else f"{float(shown)}"
