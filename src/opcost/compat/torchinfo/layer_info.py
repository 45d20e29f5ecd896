"""One row of the table: a layer each time it is called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from opcost.compat.torchinfo.enums import ColumnSettings

if TYPE_CHECKING:
    from opcost.compat._layers.parameters import ModuleParameter

_RECURSIVE = "(recursive)"
_NOTHING = "--"


class LayerInfo:
    """What is known of one call of a layer, or of a container that is shown above the layers it holds."""

    def __init__(
        self,
        var_name: str,
        module: nn.Module,
        depth: int,
        parent_info: LayerInfo | None,
        parameters: Iterable[ModuleParameter],
    ) -> None:
        self.layer_id = id(module)
        self.module = module
        self.class_name = (
            str(module.original_name) if isinstance(module, torch.jit.ScriptModule) else type(module).__name__
        )
        self.var_name = var_name
        self.depth = depth
        self.depth_index: int | None = None
        self.parent_info = parent_info
        self.children: list[LayerInfo] = []
        """All rows below this one, at any depth."""
        self.executed = False
        self.is_leaf_layer = not any(module.children())
        self.is_recursive = False
        self.input_size: list[Any] = []
        self.output_size: list[Any] = []
        self.output_bytes = 0
        self.kernel_size = self.get_kernel_size(module)
        self.macs = 0
        """Mult-adds of the whole call, the layers that it calls included."""
        self.own_macs = 0
        """Mult-adds of the operators that run in this layer's own forward."""
        self.parameters = tuple(parameters)
        self.num_params = sum(p.numel for p in self.parameters)
        self.trainable_params = sum(p.numel for p in self.parameters if p.trainable)
        self.param_bytes = sum(p.nbytes for p in self.parameters)
        self.claimed: tuple[ModuleParameter, ...] = ()
        """The parameters that this row shows: those that no other row shows."""
        self.inner_layers = self._inner_layers()

    def __repr__(self) -> str:
        return f"{self.class_name}: {self.depth}"

    @property
    def trainable(self) -> str:
        """Whether all, some or none of the parameters are trained."""
        if not self.num_params:
            return _NOTHING
        if not self.trainable_params:
            return "False"
        return "True" if self.trainable_params == self.num_params else "Partial"

    @staticmethod
    def get_kernel_size(module: nn.Module) -> int | list[int] | None:
        size = getattr(module, "kernel_size", None)
        if isinstance(size, torch.Tensor):
            size = size.tolist()
        return list(size) if isinstance(size, Iterable) else size

    def _inner_layers(self) -> dict[str, dict[ColumnSettings, str]]:
        """The parameters as rows of their own; of the model itself only those that it holds directly."""
        shown = [p for p in self.parameters if self.parent_info is not None or "." not in p.name]
        return {
            p.name: {
                ColumnSettings.KERNEL_SIZE: str(_inputs_first(p)),
                ColumnSettings.NUM_PARAMS: f"{'└─' if p is shown[-1] else '├─'}{p.numel:,}",
            }
            for p in shown
        }

    def get_layer_name(self, show_var_name: bool, show_depth: bool) -> str:
        name = self.class_name
        if show_var_name and self.var_name:
            name += f" ({self.var_name})"
        if show_depth and self.depth > 0:
            name += f": {self.depth}"
            if self.depth_index is not None:
                name += f"-{self.depth_index}"
        return name

    def leftover_params(self) -> int:
        """Parameters that no other row shows: this layer's own, and those of layers that were not called."""
        return sum(p.numel for p in self.claimed)

    def leftover_trainable_params(self) -> int:
        return sum(p.numel for p in self.claimed if p.trainable)

    def _params(self, reached_max_depth: bool) -> int | None:
        """The number in this row, or None where other rows show these parameters already.

        The last row that is shown stands for all below it.
        """
        if reached_max_depth or self.is_leaf_layer:
            shown = self.leftover_params() + sum(child.leftover_params() for child in self.children)
            return shown or None if self.num_params or self.is_recursive else 0
        return None if self.is_recursive else self.leftover_params()

    def num_params_to_str(self, reached_max_depth: bool) -> str:
        if not self.num_params:
            return _NOTHING
        shown = self._params(reached_max_depth)
        if shown is None:
            return _RECURSIVE
        if not shown:
            return _NOTHING
        frozen = (reached_max_depth or self.is_leaf_layer) and not self.trainable_params
        return f"({shown:,})" if frozen else f"{shown:,}"

    def params_percent(self, total_params: int, reached_max_depth: bool, precision: int = 2) -> str:
        spacing = 5
        shown = self._params(reached_max_depth)
        if total_params and shown is None:
            return _RECURSIVE
        if not total_params or not shown:
            return " " * spacing + _NOTHING
        return f"{shown / total_params:>{precision + spacing}.{precision}%}"

    def macs_to_str(self, reached_max_depth: bool) -> str:
        below = sum(child.own_macs for child in self.children) if reached_max_depth else 0
        shown = self.own_macs + below
        return f"{shown:,}" if shown else _NOTHING


def _inputs_first(parameter: ModuleParameter) -> list[int]:
    """The shape of a weight as [in, out, *kernel], of anything else as it is."""
    shape = list(parameter.shape)
    if parameter.name == "weight" and len(shape) > 1:
        shape[0], shape[1] = shape[1], shape[0]
    return shape
