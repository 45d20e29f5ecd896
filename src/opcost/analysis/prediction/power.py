"""What a run of hours takes longer than operators that were timed for milliseconds: a device under load lowers its clocks.

It may draw a number of watts, and its clocks are such that it draws no more. Voltage goes with the clock, and so power with the
cube of it. `draw` in the table of devices is what training would draw at the clocks of a calibration. It was found from tables of
MosaicML (llm-foundry, scripts/train/benchmarking, 2024): models of 7 to 70 billion parameters on 8 to 512 H100 of 700 W took 1.17
times as long as their operators and what collectives add, on A100 of 400 W as long (`benchmarks/ranks.py`).
"""

from __future__ import annotations

import re

from opcost.core.devices import Device
from opcost.errors import InputError


def watts(text: str) -> int:
    """The watts in `500W`."""
    found = re.fullmatch(r"(\d+)\s*W?", text.strip(), re.IGNORECASE)
    if found is None or not int(found[1]):
        raise InputError(f"power is {text!r}, which is no number of watts", hint="500W")
    return int(found[1])


def in_a_long_run(device: Device, power: int | None) -> float:
    """How many times longer operators take in a long run, with a limit of its power or that of the device."""
    limit = power or device.power
    if device.draw is None or limit is None:
        if power is not None:
            raise InputError(f"what {device.name} does with a limit of its power is not known", hint="leave power out")
        return 1.0
    return max(1.0, float((device.draw / limit) ** (1 / 3)))
