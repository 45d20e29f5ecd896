"""Who runs what: the recorders are asked in turn whose model this is."""

from __future__ import annotations

import sys
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from opcost.core.plugin import RECORDERS, usable
from opcost.errors import AmbiguousSource, UnknownSource

if TYPE_CHECKING:
    from opcost.core.profile import Profile
    from opcost.core.report import Report
    from opcost.frontends.options import Option
    from opcost.recorders.options import ProfileOptions


class Recorder(Protocol):
    """One way to run a model and measure it. Importing a recorder must not import its framework; `record` may.

    A class that derives from this one writes only what it does otherwise, which is `record` at the least.
    """

    name: str
    framework: str
    """The module whose presence in `sys.modules` means that objects of this recorder may exist."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of files that it runs by itself, with the dot; empty for live objects only."""
    options: tuple[Option, ...] = ()
    """What it can be told and others cannot; on the command line these are flags."""
    understands: frozenset[str] = frozenset()
    """Which of `sizes` and `dtype` of the options it heeds; others are refused before it is asked."""
    wants_report: bool = False
    """Whether `record` takes a count of the same model, which says what each operator is and costs."""

    def owns(self, obj: object) -> bool:
        """Whether it runs this live object; asked only if the framework is in `sys.modules`."""
        return False

    @abstractmethod
    def record(self, source: Any, options: ProfileOptions, report: Report | None) -> Profile:
        """What running the model showed. `source` is the path of a file or an object; `report` is None where none is wanted."""


def recorders() -> tuple[Recorder, ...]:
    """All recorders, in the order of their names."""
    return tuple(recorder for _, recorder in sorted(usable(RECORDERS).items()))


def recorder_of_file(path: str | Path) -> Recorder | None:
    """The recorder that runs files of this suffix; None where it takes code to make a model."""
    suffix = Path(path).suffix.lower()
    return _only([recorder for recorder in recorders() if suffix in recorder.suffixes], f"the file {path}")


def recorder_of(obj: object) -> Recorder:
    """The one recorder that runs this object."""
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    asked = [recorder for recorder in recorders() if recorder.framework in sys.modules]
    found = _only([recorder for recorder in asked if recorder.owns(obj)], f"an object of type {kind}")
    if found is None:
        names = ", ".join(recorder.name for recorder in recorders())
        raise UnknownSource(
            f"an object of type {kind} is not a model that opcost can run",
            hint=f"pass a model of one of the recorders: {names}",
        )
    return found


def _only(claims: list[Recorder], what: str) -> Recorder | None:
    if len(claims) > 1:
        raise AmbiguousSource(f"{' and '.join(recorder.name for recorder in claims)} both claim {what}")
    return claims[0] if claims else None
