"""`summary`: the layers of a model in the order in which they finish, with shapes and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import nn

from opcost.compat._layers.calls import LayerCall, Layers, count_layers
from opcost.compat._layers.parameters import ModuleParameter, Parameters
from opcost.compat.pytorch_model_summary.hierarchical import hierarchical_summary
from opcost.core.harmless import printable

_CONTAINERS = (nn.ModuleList, nn.Sequential)
_NARROWEST_PARENT, _NARROWEST = 13, 15
_ROOM = 3
_NUMBERS = 35
"""The width of the two columns of numbers, and the blanks around them."""


class _Line(NamedTuple):
    parent: str
    layer: str
    shapes: str
    params: int
    trainable: int


def summary(
    model: nn.Module,
    *inputs: Any,
    batch_size: int = -1,
    show_input: bool = False,
    show_hierarchical: bool = False,
    print_summary: bool = False,
    max_depth: int | None = 1,
    show_parent_layers: bool = False,
) -> str:
    """The table as text, printed with `print_summary`; containers do not count as a depth."""
    layers = count_layers(model, inputs, mode="eval")
    parameters = Parameters(layers.model, layers.report)
    lines = list(_lines(layers, parameters, show_input=show_input, max_depth=max_depth))
    text = "\n".join(
        _table(lines, parameters.of(layers.model), batch_size, parents=show_parent_layers, inputs=show_input)
    )
    if show_hierarchical:
        text += f"\n\n\n{hierarchical_summary(layers.model)[0]}"
    if print_summary:
        print(text)
    return text


def _lines(layers: Layers, parameters: Parameters, *, show_input: bool, max_depth: int | None) -> Iterator[_Line]:
    """Each layer that is shown, at its first call."""
    parents = _parents(layers.model)
    calls = layers.calls if show_input else tuple(layers.calls[0].in_order_of_exit())
    done: set[int] = set()
    for call in calls:
        if id(call.module) in done or not _is_shown(call.module, parents.get(id(call.module)), max_depth):
            continue
        done.add(id(call.module))
        held = parameters.of(call.module)
        yield _Line(
            "/".join(parents[id(call.module)]),
            f"{call.type_name}-{len(done)}",
            _shapes(call, show_input=show_input),
            sum(p.numel for p in held),
            sum(p.numel for p in held if p.trainable),
        )


def _parents(model: nn.Module) -> dict[int, tuple[str, ...]]:
    """The classes of what every layer is part of, containers left out; containers themselves are no layers."""
    found: dict[int, tuple[str, ...]] = {id(model): ()}

    def visit(module: nn.Module, above: tuple[str, ...]) -> None:
        for child in module.children():
            if isinstance(child, _CONTAINERS):
                visit(child, above)
            else:
                found.setdefault(id(child), above)
                visit(child, (*above, type(child).__name__))

    visit(model, (type(model).__name__,))
    return found


def _is_shown(module: nn.Module, above: tuple[str, ...] | None, max_depth: int | None) -> bool:
    """Whether a layer is of the depth that was asked for, or has nothing below it and is above that depth."""
    if above is None:
        return False
    depth = len(above)
    if max_depth is not None and depth >= max_depth:
        return depth == max_depth
    return not any(not isinstance(part, _CONTAINERS) for part in module.modules() if part is not module)


def _shapes(call: LayerCall, *, show_input: bool) -> str:
    return ", ".join(str(list(spec.dims)) for spec in (call.inputs if show_input else call.outputs))


def _table(
    lines: list[_Line], every: Iterable[ModuleParameter], batch_size: int, *, parents: bool, inputs: bool
) -> Iterator[str]:
    parent_width = max([len(line.parent) for line in lines] + [_NARROWEST_PARENT]) + _ROOM
    layer_width = max([len(line.layer) for line in lines] + [_NARROWEST]) + _ROOM
    shape_width = max([len(line.shapes) for line in lines] + [_NARROWEST]) + _ROOM
    width = _NUMBERS + layer_width + shape_width + (parent_width if parents else 0)

    def row(parent: str, layer: str, shapes: str, params: str, trainable: str) -> str:
        first = f"{printable(parent):>{parent_width}} " if parents else ""
        return f"{first}{printable(layer):>{layer_width}}  {shapes:>{shape_width}} {params:>15} {trainable:>15}"

    yield "-" * width
    yield row("Parent Layers", "Layer (type)", f"{'Input' if inputs else 'Output'} Shape", "Param #", "Tr. Param #")
    yield "=" * width
    for line in lines:
        yield row(line.parent, line.layer, line.shapes, f"{line.params:,}", f"{line.trainable:,}")
    yield "=" * width
    every = list(every)
    total, trainable = sum(p.numel for p in every), sum(p.numel for p in every if p.trainable)
    yield f"Total params: {total:,}"
    yield f"Trainable params: {trainable:,}"
    yield f"Non-trainable params: {total - trainable:,}"
    if batch_size != -1:
        yield f"Batch size: {batch_size:,}"
    yield "-" * width
