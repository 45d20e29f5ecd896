"""Clocks and temperature of a GPU, with a fake driver; and module calls on the threads of the autograd engine."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from opcost.frontends.torch.recording.module_calls import intercept_calls
from opcost.recorders.torch.record import gpu_state

CLOCKS = {1: 1755, 2: 3201}


class Driver:
    """NVML as far as it is used; it does not know the power."""

    def __init__(self) -> None:
        self.open = 0
        self.names: list[bytes] = []

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:
        self.names.append(name)
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, which: int, value: Any) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = CLOCKS[which]
        return 0

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, which: int, value: Any) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = 1980
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, which: int, value: Any) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = 43
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:
        return 3  # not supported

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: None) -> int:
        ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = 2
        return 7  # no room for them

    def nvmlSystemGetDriverVersion(self, text: Any, length: int) -> int:
        text.value = b"580.65"
        return 0


def test_clocks_come_from_the_driver_and_what_it_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="12-34"))
    assert gpu_state(torch.device("cuda")) == {
        "gpu_clock_mhz": "1755", "gpu_clock_max_mhz": "1980", "gpu_memory_clock_mhz": "3201", "gpu_temperature_c": "43",
        "gpu_processes": "2", "driver": "580.65",
    }  # fmt: skip
    assert (driver.names, driver.open) == ([b"GPU-12-34"], 0)


def test_without_a_driver_the_clock_comes_from_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    def refuse(device: torch.device) -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda device: 1200)
    monkeypatch.setattr(torch.cuda, "temperature", refuse)
    assert gpu_state(torch.device("cuda")) == {"gpu_clock_mhz": "1200"}


@pytest.mark.parametrize("engine", [True, False])
def test_modules_called_by_the_engine_on_another_thread_are_seen_on_demand(*, engine: bool) -> None:
    inner = nn.Identity()

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return inner(gradient)

    seen: list[nn.Module] = []

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(module)
        return module._wrapped_call_impl(*args, **kwargs)

    def work() -> None:
        nn.ReLU()(torch.ones(1))  # not of the engine: never seen
        x = torch.ones(1, requires_grad=True)
        torch.autograd.grad(Again.apply(x), x)

    call = nn.Module.__call__
    with intercept_calls(enter, engine=engine):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == ([inner] if engine else [])
    assert nn.Module.__call__ is call
