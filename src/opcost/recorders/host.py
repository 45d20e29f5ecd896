"""The machine that a measurement ran on: processor, system, Python. Asked the same way by every recorder."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opcost.version import __version__


def host_conditions() -> dict[str, str]:
    """What every measurement depends on, whatever the framework."""
    return answers(
        {
            "opcost": lambda: __version__,
            "python": platform.python_version,
            "system": platform.platform,
            "cpu": _cpu_name,
            "cpus": os.cpu_count,
            "cpu_clock_mhz": _cpu_clock,
            "cpu_governor": lambda: _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    )


def answers(asked: Mapping[str, Callable[[], Any]]) -> dict[str, str]:
    """What is said to each question; a condition that cannot be read is left out, whatever the reason."""
    found = {}
    for name, ask in asked.items():
        try:
            value = ask()
        except Exception:  # noqa: BLE001, S112 - clocks need a file that few systems have, and some switches refuse to be read
            continue
        if value is not None and str(value):
            found[name] = str(value)
    return found


def _line(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def _cpuinfo(field: str) -> list[str]:
    lines = _line("/proc/cpuinfo").splitlines()
    return [line.partition(":")[2].strip() for line in lines if line.startswith(field)]


def _cpu_name() -> str:
    return next(iter(_cpuinfo("model name")), platform.machine())


def _cpu_clock() -> str:
    """The clocks of all processors, or the one that all have."""
    clocks = list(dict.fromkeys(_cpuinfo("cpu MHz")))
    return ", ".join(clocks)
