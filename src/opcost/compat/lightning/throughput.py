"""Lightning Fabric's throughput: FLOPs of a step, rates over a window of steps, and a device's peak."""

from __future__ import annotations

import importlib
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcost.compat.flop_counter import FlopCounterMode
from opcost.core.devices import named_by_driver


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
        self._time: _MonotonicWindow = _MonotonicWindow(window_size)
        self._batches: _MonotonicWindow = _MonotonicWindow(window_size)
        self._samples: _MonotonicWindow = _MonotonicWindow(window_size)
        self._lengths: _MonotonicWindow = _MonotonicWindow(window_size)
        self._flops: deque[int] = deque(maxlen=window_size)

    def update(
        self, *, time: float, batches: int, samples: int, lengths: int | None = None, flops: int | None = None
    ) -> None:
        """Add the totals at this moment, which grow with every call; `flops` are those since the call before."""
        self._time.append(time)
        if samples < batches:
            raise ValueError(f"Expected samples ({samples}) to be greater or equal than batches ({batches})")
        self._batches.append(batches)
        self._samples.append(samples)
        if lengths is not None:
            if lengths < samples:
                raise ValueError(f"Expected lengths ({lengths}) to be greater or equal than samples ({samples})")
            self._lengths.append(lengths)
            if len(self._samples) != len(self._lengths):
                raise RuntimeError(
                    f"If lengths are passed ({len(self._lengths)}), there needs to be the same number of samples"
                    f" ({len(self._samples)})"
                )
        if flops is not None:
            self._flops.append(flops * self.world_size)

    def compute(self) -> dict[str, int | float]:
        """The totals, and the rates once the window is full."""
        totals = {"time": self._time, "batches": self._batches, "samples": self._samples, "lengths": self._lengths}
        metrics: dict[str, int | float] = {name: seen[-1] for name, seen in totals.items() if seen or name != "lengths"}
        for unit, seen in (("batches", self._batches), ("samples", self._samples), ("items", self._lengths)):
            if seen.full:
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


class _MonotonicWindow(list[float]):
    """The last values, of which each is larger than the one before."""

    def __init__(self, maxlen: int) -> None:
        super().__init__()
        self.maxlen = maxlen

    @property
    def full(self) -> bool:
        return len(self) == self.maxlen

    def append(self, value: float) -> None:
        if self and self[-1] >= value:
            raise ValueError(f"Expected the value to increase, last: {self[-1]}, current: {value}")
        super().append(value)
        del self[: -self.maxlen]
