"""`ModelSummary`: the modules of a model with parameters, FLOPs and, where it has an example input, shapes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from opcost.compat._layers.calls import LayerCall, Layers, Structure, count_layers
from opcost.compat.lightning.table import human_readable, summary_table
from opcost.core.graph import TensorSpec

UNKNOWN_SIZE = "?"
LEFTOVER_PARAMS_NAME = "other params"
NOT_APPLICABLE = "n/a"
_BITS = {"64": 64, "32": 32, "16": 16, "bf16": 16, "16-true": 16, "bf16-true": 16, "32-true": 32, "64-true": 64}


class LayerSummary:
    """One module; its sizes are those of its first call."""

    def __init__(self, module: nn.Module, call: LayerCall | None = None) -> None:
        self._module = module
        self._call = call

    @property
    def in_size(self) -> str | list[Any]:
        args = () if self._call is None else (*self._call.args, *self._call.kwargs.values())
        return (_shape(args[0] if len(args) == 1 else list(args)) if args else "") or UNKNOWN_SIZE

    @property
    def out_size(self) -> str | list[Any]:
        return (_shape(self._call.result) if self._call is not None else "") or UNKNOWN_SIZE

    @property
    def layer_type(self) -> str:
        return type(self._module).__name__

    @property
    def num_parameters(self) -> int:
        return _params(self._module)

    @property
    def training(self) -> bool:
        return bool(self._module.training)


class ModelSummary:
    """The modules of a model down to a depth: -1 is all of them, 0 none.

    The model is any module; where it has an `example_input_array`, it is counted with it, in evaluation mode and without data.
    """

    def __init__(self, model: nn.Module, max_depth: int = 1) -> None:
        if not isinstance(max_depth, int) or max_depth < -1:
            raise ValueError(f"`max_depth` can be -1, 0 or > 0, got {max_depth}.")
        self._model = model
        self._max_depth = max_depth
        self._warned = False
        self._layers = self._counted()
        self._flops = _flops_by_path(self._layers)
        self._layer_summary = self.summarize()
        trainer = getattr(model, "_trainer", None)
        precision = "32" if trainer is None else str(trainer.precision)
        self._bits = _BITS.get(precision, 32)
        if precision not in _BITS:
            warnings.warn(
                f"Precision {precision} is not supported by the model summary. "
                " Estimated model size in MB will not be accurate. Using 32 bits instead.",
                stacklevel=2,
            )

    def _counted(self) -> Layers | None:
        example = getattr(self._model, "example_input_array", None)
        if example is None:
            return None
        if isinstance(example, Mapping):
            return count_layers(self._model, (), dict(example), mode="eval")
        args = tuple(example) if isinstance(example, (list, tuple)) else (example,)
        return count_layers(self._model, args, mode="eval")

    def summarize(self) -> dict[str, LayerSummary]:
        """A summary of every module that is shown."""
        first: dict[int, LayerCall] = {}
        for call in self._layers.calls if self._layers is not None else ():
            first.setdefault(id(call.module), call)
        return {name: LayerSummary(module, first.get(id(module))) for name, module in self.named_modules}

    @property
    def named_modules(self) -> list[tuple[str, nn.Module]]:
        """The modules that are shown."""
        if self._max_depth == 1:
            return list(self._model.named_children())
        depth = self._max_depth if self._max_depth >= 0 else float("inf")
        return [(name, part) for name, part in self._model.named_modules() if name and name.count(".") < depth]

    @property
    def layer_names(self) -> list[str]:
        return list(self._layer_summary)

    @property
    def layer_types(self) -> list[str]:
        return [layer.layer_type for layer in self._layer_summary.values()]

    @property
    def in_sizes(self) -> list[Any]:
        return [layer.in_size for layer in self._layer_summary.values()]

    @property
    def out_sizes(self) -> list[Any]:
        return [layer.out_size for layer in self._layer_summary.values()]

    @property
    def param_nums(self) -> list[int]:
        return [layer.num_parameters for layer in self._layer_summary.values()]

    @property
    def training_modes(self) -> list[bool]:
        return [layer.training for layer in self._layer_summary.values()]

    @property
    def total_training_modes(self) -> dict[str, int]:
        modes = [bool(part.training) for part in self._model.modules() if part is not self._model]
        return {"train": modes.count(True), "eval": modes.count(False)}

    @property
    def total_parameters(self) -> int:
        if any(map(is_lazy, self._model.parameters())) and not self._warned:
            self._warned = True
            warnings.warn(
                "The total number of parameters detected may be inaccurate because the model contains an instance of "
                "`UninitializedParameter`. To get an accurate number, set `self.example_input_array` in your LightningModule.",
                stacklevel=2,
            )
        return _params(self._model)

    @property
    def trainable_parameters(self) -> int:
        return sum(p.numel() for p in self._model.parameters() if p.requires_grad and not is_lazy(p))

    @property
    def total_layer_params(self) -> int:
        return sum(self.param_nums)

    @property
    def model_size(self) -> float:
        """Megabytes of the parameters in the precision of the trainer, or in 32 bits."""
        return self.total_parameters * self._bits / 8 * 1e-6

    @property
    def total_flops(self) -> int:
        return sum(self._flops.get("", Counter()).values())

    @property
    def flop_counts(self) -> dict[str, dict[str, int]]:
        """FLOPs of every shown module by operator."""
        return {name: dict(self._flops.get(name, {})) for name in self.layer_names}

    def __str__(self) -> str:
        columns = dict(self._get_summary_data())
        totals = [
            (human_readable(self.trainable_parameters), "Trainable params"),
            (human_readable(self.total_parameters - self.trainable_parameters), "Non-trainable params"),
            (human_readable(self.total_parameters), "Total params"),
            (f"{self.model_size:,.3f}", "Total estimated model params size (MB)"),
            (str(self.total_training_modes["train"]), "Modules in train mode"),
            (str(self.total_training_modes["eval"]), "Modules in eval mode"),
            (human_readable(self.total_flops), "Total Flops"),
        ]
        return summary_table(columns, totals)

    __repr__ = __str__

    def _get_summary_data(self) -> list[tuple[str, list[str]]]:
        columns = {
            " ": [str(at) for at in range(len(self._layer_summary))],
            "Name": self.layer_names,
            "Type": self.layer_types,
            "Params": [human_readable(number) for number in self.param_nums],
            "Mode": ["train" if mode else "eval" for mode in self.training_modes],
            "FLOPs": [human_readable(sum(counts.values())) for counts in self.flop_counts.values()],
        }
        if self._layers is not None:
            columns["In sizes"] = [str(size) for size in self.in_sizes]
            columns["Out sizes"] = [str(size) for size in self.out_sizes]
        other = self.total_parameters - self.total_layer_params
        if other > 0:
            known = {" ": " ", "Name": LEFTOVER_PARAMS_NAME, "Params": human_readable(other)}
            for title, cells in columns.items():
                cells.append(known.get(title, NOT_APPLICABLE))
        return list(columns.items())


def summarize(lightning_module: nn.Module, max_depth: int = 1) -> ModelSummary:
    """The summary of a model."""
    return ModelSummary(lightning_module, max_depth=max_depth)


def _flops_by_path(layers: Layers | None) -> dict[str, Counter[str]]:
    """FLOPs by operator of every module with everything that it calls."""
    found: dict[str, Counter[str]] = {}
    for call in layers.calls if layers is not None else ():
        for row in call.rows:
            if row.cost is None or not row.cost.macs:
                continue
            caller: LayerCall | None = call
            while caller is not None:
                number = 2 * row.cost.macs * row.op.repeat
                found.setdefault(caller.path, Counter())[row.op.raw.replace("::", ".")] += number
                caller = caller.parent
    return found


def _shape(structure: Structure) -> str | list[Any]:
    if isinstance(structure, TensorSpec):
        return list(structure.dims)
    if isinstance(structure, (list, tuple)):
        return [_shape(item) for item in structure]
    return UNKNOWN_SIZE


def _params(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if not is_lazy(p) and isinstance(p, torch.Tensor))
