"""Lightning's `ModelSummary`, and Lightning Fabric's `Throughput` with `measure_flops` and `get_available_flops`."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping
from math import ceil
from operator import itemgetter
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from opcost.compat._layers import LayerCall, Structure, count_layers
from opcost.compat._tables import TableColumn, lay_out
from opcost.compat.flop_counter import FlopCounterMode
from opcost.core.devices import named_by_driver
from opcost.core.graph import TensorSpec

__all__ = [
    "LEFTOVER_PARAMS_NAME", "NOT_APPLICABLE", "UNKNOWN_SIZE", "LayerSummary", "ModelSummary", "Throughput",
    "ThroughputMonitor", "get_available_flops", "measure_flops", "summarize",
]  # fmt: skip

UNKNOWN_SIZE = "?"
LEFTOVER_PARAMS_NAME = "other params"
NOT_APPLICABLE = "n/a"
_BITS = {"64": 64, "32": 32, "16": 16, "bf16": 16, "16-true": 16, "bf16-true": 16, "32-true": 32, "64-true": 64}
_UNITS = (" ", "K", "M", "B", "T")
_TITLES = (" ", "Name", "Type", "Params", "Mode", "FLOPs", "In sizes", "Out sizes")


def summarize(lightning_module: nn.Module, max_depth: int = 1) -> ModelSummary:
    """The summary of a model."""
    return ModelSummary(lightning_module, max_depth=max_depth)


class LayerSummary:
    """One module; its sizes are those of its first call."""

    def __init__(self, module: nn.Module, call: LayerCall | None = None) -> None:
        self._module = module
        args = () if call is None else (*call.args, *call.kwargs.values())
        self.in_size = (_shape(args[0] if len(args) == 1 else list(args)) if args else "") or UNKNOWN_SIZE
        self.out_size = (_shape(call.result) if call is not None else "") or UNKNOWN_SIZE
        self.layer_type = type(module).__name__
        self.num_parameters = _params(module)

    @property
    def training(self) -> bool:
        return bool(self._module.training)


def _of_each_layer(attribute: str) -> Any:
    """A property of a summary: an attribute of all its layers, as a list."""
    return property(lambda self: [getattr(layer, attribute) for layer in self._layer_summary.values()])


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
        example = getattr(model, "example_input_array", None)
        args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (example, {})
        args = tuple(args) if isinstance(args, (list, tuple)) else (args,)
        self._layers = None if example is None else count_layers(model, args, kwargs, mode="eval")
        self._flops: dict[str, Counter[str]] = {}
        """FLOPs by operator of every module with everything that it calls."""
        self._first: dict[int, LayerCall] = {}
        """The first call of each module, by its identity."""
        for call in self._layers.calls if self._layers is not None else ():
            self._first.setdefault(id(call.module), call)
            flops = Counter[str]()
            for row in call.rows:
                if row.cost and row.cost.macs:
                    flops[row.op.raw.replace("::", ".")] += 2 * row.cost.macs * row.op.repeat
            for caller in call.lineage() if flops else ():
                self._flops.setdefault(caller.path, Counter()).update(flops)
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

    def summarize(self) -> dict[str, LayerSummary]:
        """A summary of every module that is shown."""
        return {name: LayerSummary(module, self._first.get(id(module))) for name, module in self.named_modules}

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

    layer_types = _of_each_layer("layer_type")
    in_sizes = _of_each_layer("in_size")
    out_sizes = _of_each_layer("out_size")
    param_nums = _of_each_layer("num_parameters")
    training_modes = _of_each_layer("training")

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
        rows = []
        for number, (name, layer) in enumerate(self._layer_summary.items()):
            flops = human_readable(sum(self._flops.get(name, Counter()).values()))
            mode, params = "train" if layer.training else "eval", human_readable(layer.num_parameters)
            rows.append([number, name, layer.layer_type, params, mode, flops, layer.in_size, layer.out_size])
        other = self.total_parameters - self.total_layer_params
        if other > 0:
            rows.append([" ", LEFTOVER_PARAMS_NAME, NOT_APPLICABLE, human_readable(other), *[NOT_APPLICABLE] * 4])
        shown = len(_TITLES) if self._layers is not None else -2
        columns = [TableColumn(title, itemgetter(at), gap=" | ") for at, title in enumerate(_TITLES[:shown])]
        header, *lines = lay_out(columns, rows)
        rule, modes = "-" * (len(header) + 6), self.total_training_modes
        totals = {
            "Trainable params": human_readable(self.trainable_parameters),
            "Non-trainable params": human_readable(self.total_parameters - self.trainable_parameters),
            "Total params": human_readable(self.total_parameters),
            "Total estimated model params size (MB)": f"{self.model_size:,.3f}",
            "Modules in train mode": str(modes["train"]),
            "Modules in eval mode": str(modes["eval"]),
            "Total Flops": human_readable(self.total_flops),
        }
        return "\n".join([header, rule, *lines, rule, *(f"{number:<10}{title}" for title, number in totals.items())])

    __repr__ = __str__


def human_readable(number: int) -> str:
    """Up to three digits and a unit: 1.2 K, 400 T; beyond trillions more digits."""
    group = min(ceil(len(str(number)) / 3), len(_UNITS)) - 1
    shown = number / 1000**group
    text = f"{int(shown):,d}" if group < 1 or shown >= 100 else f"{shown:,.1f}"
    return f"{text} {_UNITS[group]}"


def _shape(structure: Structure) -> str | list[Any]:
    if isinstance(structure, TensorSpec):
        return list(structure.dims)
    if isinstance(structure, (list, tuple)):
        return [_shape(item) for item in structure]
    return UNKNOWN_SIZE


def _params(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if not is_lazy(p) and isinstance(p, torch.Tensor))


# -- throughput: FLOPs of a step, rates over a window of steps, and a device's peak -----------------------------------


def measure_flops(model: nn.Module, forward_fn: Callable[[], Any], loss_fn: Callable[[Any], Any] | None = None) -> int:
    """The FLOPs of `forward_fn()`, and with `loss_fn` also of the loss and its `backward()`."""
    with FlopCounterMode(display=False) as counter:
        result = forward_fn()
        if loss_fn is not None:
            loss_fn(result).backward()
    return counter.get_total_flops()


def get_available_flops(device: torch.device, dtype: torch.dtype | str) -> int | None:
    """The published dense peak of a GPU for products of this type; None, with a warning, where the table has none."""
    if device.type == "cpu":
        return None
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    found = named_by_driver(name)
    if found is None:
        warnings.warn(f"FLOPs not found for {name!r}", stacklevel=2)
        return None
    tf32 = dtype == "tfloat32" or torch.get_float32_matmul_precision() != "highest"
    wanted = "float32" if dtype == "tfloat32" else str(dtype).removeprefix("torch.")
    peak = found.peak_flops(wanted, tf32=tf32)
    if peak is None:
        warnings.warn(f"{name!r} does not support {dtype}", stacklevel=2)
    return peak


class Throughput:
    """Rates per second over the last `window_size` updates, each with the totals so far: time, batches, samples, lengths.

    With `flops` (of one device, since the update before) also FLOPs per second, and with `available_flops` their share of it.
    """

    def __init__(
        self, available_flops: float | None = None, world_size: int = 1, window_size: int = 100, separator: str = "/"
    ) -> None:
        assert world_size > 0, "world_size must be positive"
        assert window_size > 1, "window_size must be larger than 1: a rate needs two updates"
        self.available_flops = available_flops
        self.separator = separator
        self.world_size = world_size
        self._time, self._batches, self._samples, self._lengths, self._flops = (
            deque[float](maxlen=window_size) for _ in range(5)
        )

    def update(
        self, *, time: float, batches: int, samples: int, lengths: int | None = None, flops: int | None = None
    ) -> None:
        """Add the totals at this moment, which grow with every call; `flops` are those since the call before."""

        def append(seen: deque[float], value: float) -> None:
            if seen and seen[-1] >= value:
                raise ValueError(f"Expected the value to increase, last: {seen[-1]}, current: {value}")
            seen.append(value)

        append(self._time, time)
        if samples < batches:
            raise ValueError(f"Expected samples ({samples}) to be greater or equal than batches ({batches})")
        append(self._batches, batches)
        append(self._samples, samples)
        if lengths is not None:
            if lengths < samples:
                raise ValueError(f"Expected lengths ({lengths}) to be greater or equal than samples ({samples})")
            append(self._lengths, lengths)
            if (given := len(self._lengths)) != (needed := len(self._samples)):
                raise RuntimeError(
                    f"If lengths are passed ({given}), there needs to be the same number of samples ({needed})"
                )
        if flops is not None:
            self._flops.append(flops * self.world_size)

    def compute(self) -> dict[str, int | float]:
        """The totals, and the rates once the window is full."""
        totals = {"time": self._time, "batches": self._batches, "samples": self._samples, "lengths": self._lengths}
        metrics: dict[str, int | float] = {name: seen[-1] for name, seen in totals.items() if seen or name != "lengths"}
        for unit, seen in (("batches", self._batches), ("samples", self._samples), ("items", self._lengths)):
            if len(seen) == seen.maxlen:
                self._add_rate(metrics, unit, self.world_size * (seen[-1] - seen[0]))
        if len(self._flops) == self._flops.maxlen:
            self._add_rate(metrics, "flops", sum(self._flops) - self._flops[0])
            if self.available_flops:
                rate = metrics[f"device{self.separator}flops_per_sec"]
                metrics[f"device{self.separator}mfu"] = rate / self.available_flops
        return metrics

    def _add_rate(self, metrics: dict[str, int | float], unit: str, elapsed: float) -> None:
        """How much all devices did each second, and one of them."""
        rate = elapsed / (self._time[-1] - self._time[0])
        metrics[f"device{self.separator}{unit}_per_sec"] = rate / self.world_size
        if self.world_size > 1:
            metrics[f"{unit}_per_sec"] = rate

    def reset(self) -> None:
        for seen in (self._time, self._batches, self._samples, self._lengths, self._flops):
            seen.clear()


class ThroughputMonitor(Throughput):
    """`Throughput` that logs to a Fabric; ranks other than the first do nothing and return an empty dictionary."""

    def __init__(self, fabric: Any, **kwargs: Any) -> None:
        fabric._validate_launched()  # noqa: SLF001 - before it, the number of devices is not known
        lightning = importlib.import_module(f"{type(fabric).__module__.rpartition('.')[0]}.utilities.throughput")
        dtype = lightning._plugin_to_compute_dtype(fabric.strategy.precision)  # noqa: SLF001 - has no public name
        peak = get_available_flops(fabric.device, dtype)
        super().__init__(available_flops=peak, world_size=fabric.world_size, **kwargs)
        self._fabric = fabric
        self.step = -1

    def update(self, **totals: Any) -> None:
        if self._fabric.is_global_zero:
            super().update(**totals)

    def compute(self) -> dict[str, int | float]:
        return super().compute() if self._fabric.is_global_zero else {}

    def compute_and_log(self, step: int | None = None, **kwargs: Any) -> dict[str, int | float]:
        """Compute, and log under this step or under the number of calls."""
        if not self._fabric.is_global_zero:
            return {}
        self.step = self.step + 1 if step is None else step
        metrics = self.compute(**kwargs)
        self._fabric.log_dict(metrics=metrics, step=self.step)
        return metrics
