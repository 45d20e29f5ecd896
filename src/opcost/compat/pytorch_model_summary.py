"""pytorch_model_summary: `summary`, a table of layers as text, and `hierarchical_summary`, the model's repr with parameters."""

from typing import Any

from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import LayerCall, ListedLayer, count_layers, listed_layers, total_and_trainable
from opcost.compat._modules import annotated_repr, parameter_elements
from opcost.compat._tables import TableColumn, lay_out, parameter_lines

__all__ = ["hierarchical_summary", "summary"]
add_submodules(__name__, "model_summary", "hierarchical")

_CONTAINERS = (nn.ModuleList, nn.Sequential)
_TITLE = " Hierarchical Summary "


def summary(
    model: nn.Module, *inputs: Any, batch_size: int = -1, show_input: bool = False, show_hierarchical: bool = False,
    print_summary: bool = False, max_depth: int | None = 1, show_parent_layers: bool = False,
) -> str:  # fmt: skip
    """The table as text, printed with `print_summary`; containers do not count as a depth."""
    layers = count_layers(model, inputs, mode="eval")
    # The classes of the modules above every layer, containers left out; containers themselves are no layers
    parents: dict[int, tuple[str, ...]] = {id(layers.model): ()}

    def visit(module: nn.Module, above: tuple[str, ...]) -> None:
        for child in module.children():
            if isinstance(child, _CONTAINERS):
                visit(child, above)
            else:
                parents.setdefault(id(child), above)
                visit(child, (*above, type(child).__name__))

    visit(layers.model, (type(layers.model).__name__,))
    first: dict[int, LayerCall] = {}
    for call in layers.calls if show_input else layers.calls[0].in_order_of_exit():
        if id(call.module) in parents:
            # A layer at the requested depth is shown, and one above it that has no layers inside
            depth = len(parents[id(call.module)])
            shown = depth == max_depth
            if max_depth is None or depth < max_depth:
                shown = all(isinstance(part, _CONTAINERS) for part in call.module.modules() if part is not call.module)
            if shown:
                first.setdefault(id(call.module), call)

    def shapes(row: ListedLayer) -> str:
        return ", ".join(str(list(spec.dims)) for spec in (row.call.inputs if show_input else row.call.outputs))

    columns = [
        TableColumn("Parent Layers", lambda row: "/".join(parents[id(row.call.module)]), ">", least=13, room=3),
        TableColumn("Layer (type)", lambda row: f"{row.call.type_name}-{row.number}", ">", least=15, room=3),
        TableColumn(f"{'Input' if show_input else 'Output'} Shape", shapes, ">", least=15, room=3, gap="  "),
        TableColumn("Param #", lambda row: f"{total_and_trainable(row.parameters)[0]:,}", ">", 15),
        TableColumn("Tr. Param #", lambda row: f"{total_and_trainable(row.parameters)[1]:,}", ">", 15),
    ]
    if not show_parent_layers:
        del columns[0]
    header, *lines = lay_out(columns, listed_layers(layers, first.values()))
    width = len(header) + (0 if show_parent_layers else 1)  # as pytorch_model_summary draws its rules
    text = [
        "-" * width, header, "=" * width, *lines, "=" * width,
        *parameter_lines(*total_and_trainable(layers.parameters.of(layers.model))),
        *([f"Batch size: {batch_size:,}"] if batch_size != -1 else []), "-" * width,
    ]  # fmt: skip
    if show_hierarchical:
        text += ["", "", hierarchical_summary(layers.model)[0]]
    if print_summary:
        print("\n".join(text))
    return "\n".join(text)


def hierarchical_summary(model: nn.Module, print_summary: bool = False) -> tuple[str, int]:
    """The model's repr with the parameters of every module behind it, and the number of distinct parameters."""
    lines = annotated_repr(model, lambda _, module: f", {parameter_elements(module):,} params", behind=True)
    side = "=" * (max(max(map(len, lines)) - 20, 0) // 2)
    rule = "=" * (2 * len(side) + len(_TITLE))
    text = "\n".join([f"{side}{_TITLE}{side}\n", *lines, f"\n\n{rule}\n"])
    if print_summary:
        print(text)
    return text, parameter_elements(model)
