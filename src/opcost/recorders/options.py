"""What `opcost.profile` was told, as one value that travels to the recorder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opcost.core.option import Mode, Sizes, check_mode
from opcost.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """Inputs, what to run, and how often. The inputs mean what they mean for `opcost.count`."""

    inputs: Any = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shapes: Any = None
    dtypes: Any = None
    sizes: Sizes = field(default_factory=Sizes)
    dtype: str | None = None
    """To run the model, and inputs that are made for it, in this floating element type."""
    backward: bool = False
    mode: Mode | None = None
    host_only: bool = False
    """Record nothing of the device: MegEngine's `--profile-host`."""
    warmup: int = 3
    repeat: int = 10
    """Runs that are timed without a profiler, and as many that are recorded with one."""
    seconds: float | None = None
    """Instead of a number of runs: for how long each of the two goes on."""
    cold_l2: bool = False
    """Before every run, push the model's data out of the device's last cache."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Options that only this recorder has, by name: those that it declares."""

    def __post_init__(self) -> None:
        check_mode(self.mode)
        self.sizes.check()
        if self.repeat < 1:
            raise InputError(f"repeat is {self.repeat}; at least one run is needed")
        if self.warmup < 0:
            raise InputError(f"warmup is {self.warmup}; it cannot be negative")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds is {self.seconds}; it must be above zero")
