"""A calibration as it goes: cases of the plan, each described and timed, until the time is up."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from itertools import islice

import torch

from opcost.devices.calibration import Measured
from opcost.errors import InputError
from opcost.recorders.calibration.clock import CudaClock, HostClock
from opcost.recorders.calibration.describe import describe
from opcost.recorders.calibration.plan import GPU, PROCESSOR, plan
from opcost.recorders.torch.clocks import gpu_state

DTYPES = {"cuda": (torch.bfloat16, torch.float32), "cpu": (torch.float32,)}
"""What models run in on such a device."""

Keep = Callable[[int, Measured], None]
"""Takes what was measured, and how many cases of the plan are done with it."""


def run(device: torch.device, seconds: float, done: int, keep: Keep) -> None:
    """Time cases from the first that is not done, and hand each to `keep`, for about so many seconds."""
    clock = CudaClock(device) if device.type == "cuda" else HostClock(device)
    cases = plan(DTYPES[device.type], GPU if device.type == "cuda" else PROCESSOR)
    end = time.monotonic() + seconds
    cudnn = torch.backends.cudnn
    fastest = {"benchmark": True, "deterministic": False, "allow_tf32": cudnn.allow_tf32}
    with cudnn.flags(enabled=cudnn.enabled, **fastest), torch.no_grad():
        for number, case in enumerate(islice(cases, done, None), done + 1):
            found = describe(case)
            if found is not None:
                op, ins, outs = found
                keep(number, Measured(op.kind, op.raw, op.attrs, ins, outs, *clock.time(case)))
            if time.monotonic() >= end:
                return


def device_of(name: str | None) -> torch.device:
    """The device to calibrate: the one that is named, else the GPU where there is one."""
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "there is no CUDA device here", hint="calibrate where the device is; opcost doctor tells what there is"
        )
    if device.type not in DTYPES:
        raise InputError(f"{device.type!r} cannot be calibrated", hint="cuda and cpu can")
    return device


def machine(device: torch.device) -> dict[str, str]:
    """What the times depend on: the product, versions, clocks, switches."""
    told = {"torch": torch.__version__, "cudnn_benchmark": "on"}
    told["tf32_convolutions"] = "on" if torch.backends.cudnn.allow_tf32 else "off"
    told["tf32_products"] = "off" if torch.get_float32_matmul_precision() == "highest" else "on"
    if device.type == "cpu":
        return {"product": platform.processor() or platform.machine(), "threads": str(torch.get_num_threads()), **told}
    version = torch.backends.cudnn.version()
    told |= {"cuda": str(torch.version.cuda), "cudnn": str(version)}
    return {"product": torch.cuda.get_device_name(device), **told, **gpu_state(device)}
