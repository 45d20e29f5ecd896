"""The recorders and their options: which of them runs a file or an object."""

from __future__ import annotations

import sys
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from opcost.core.plugin import FRONTENDS, only, usable
from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.errors import InputError, UnknownSource
from opcost.frontends.options import FrontendOption, InputOptions


class Recorder(Protocol):
    """One way to run a model and measure it. Importing a recorder must not import its framework; `record` may.

    A class that derives from this one writes only what it does otherwise, which is `record` at the least.
    """

    name: str
    framework: str  # The module whose presence in `sys.modules` means that objects of this recorder may exist
    suffixes: tuple[str, ...] = ()
    """Suffixes of files that it runs by itself, with the dot; empty for live objects only."""
    options: tuple[FrontendOption, ...] = ()  # Options that only it has; on the command line these are flags
    understands: frozenset[str] = frozenset()
    """Which of `sizes` and `dtype` of the options it supports; others are refused before it is called."""
    wants_report: bool = False
    """Whether `record` takes a count of the same model, which has the kind and cost of each operator."""

    def owns(self, obj: object) -> bool:
        """Whether it runs this live object; called only if the framework is in `sys.modules`."""
        return False

    @abstractmethod
    def record(self, source: Any, options: ProfileOptions, report: Report | None) -> Profile:
        """What running the model showed. `source` is the path of a file or an object; `report` is None where none is wanted."""


def recorders() -> tuple[Recorder, ...]:
    """All recorders, in the order of their names."""
    return tuple(recorder for _, recorder in sorted(usable(FRONTENDS, "record").items()))


def recorder_of_file(path: str | Path) -> Recorder | None:
    """The recorder that runs files of this suffix; None where it takes code to make a model."""
    suffix = Path(path).suffix.lower()
    found = [recorder for recorder in recorders() if suffix in recorder.suffixes]
    return only(found, f"the file {path}")  # type: ignore[no-any-return]


def recorder_of(obj: object) -> Recorder:
    """The one recorder that runs this object."""
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    loaded = [recorder for recorder in recorders() if recorder.framework in sys.modules]
    found: Recorder | None = only([recorder for recorder in loaded if recorder.owns(obj)], f"an object of type {kind}")
    if found is None:
        hint = f"pass a model of one of the recorders: {', '.join(recorder.name for recorder in recorders())}"
        raise UnknownSource(f"an object of type {kind} is not a model that opcost can run", hint=hint)
    return found


# -- the options of `opcost.profile`, as one value


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions(InputOptions):
    """What to run, and how often. The inputs mean what they mean for `opcost.count`."""

    host_only: bool = False  # Record nothing of the device: MegEngine's `--profile-host`
    warmup: int = 3
    repeat: int = 10  # Runs that are timed without a profiler, and as many that are recorded with one
    seconds: float | None = None  # Instead of a number of runs: for how long each of the two goes on
    cold_l2: bool = False  # Before every run, push the model's data out of the device's last cache

    def __post_init__(self) -> None:
        InputOptions.__post_init__(self)
        if self.repeat < 1:
            raise InputError(f"repeat is {self.repeat}; at least one run is needed")
        if self.warmup < 0:
            raise InputError(f"warmup is {self.warmup}; it cannot be negative")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds is {self.seconds}; it must be above zero")
