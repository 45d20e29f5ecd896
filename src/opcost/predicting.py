"""The doors to what a model would take on a device that need not be there: predict, and calibrate the one that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from opcost.profiles import Profile

if TYPE_CHECKING:
    from opcost.analysis.prediction.predict import Foretold
    from opcost.analysis.prediction.speeds import Speeds
    from opcost.api import Dtype, Dtypes, Shapes
    from opcost.core.wishes import Causal
    from opcost.devices.calibration import Calibration
    from opcost.frontends.options import Mode
    from opcost.rules.registry import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Profile):
    """A profile of what was not run: each operator with the time it would take, and what they add up to."""

    latency_ns: int
    """Kernels and the gaps between them, replayed as one graph, so that the device never waits for its host."""
    kernel_ns: int
    """The kernels alone."""
    band_ns: tuple[int, int]
    """Four of five models that were measured lie inside such a band."""
    ideal_ns: int
    """Every operator at the peaks that the maker of the device prints."""
    bounds: Mapping[str, int]
    """The time of operators by what they wait for: compute, memory, launch."""


def predict(
    source: Any,
    inputs: Any = None,
    *,
    device: str = "h200",
    calibration: str | PathLike[str] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
    dtypes: Dtypes | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    image: int | None = None,
    dtype: Dtype | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 - as the flag is called
    backward: bool = False,
    optimizer: bool | str | Callable[[Any], Any] | None = None,
    mode: Mode | None = None,
    causal: Causal = "full",
    rules: Mapping[str, Rule] | None = None,
) -> Prediction:
    """How long a model would take on a device, operator by operator, without running it.

    The model and its inputs are given as to `opcost.count`; a report that was counted before does as well. `device` is one of
    the table of devices; `calibration` is a file that `opcost calibrate` wrote on it, in place of the one that comes with the
    package. A device that nobody calibrated is told by its printed peaks and the shares that a calibrated one reaches of its
    own, with a wider band. The time is that of one pass (or step) replayed as a graph: the host's own time is not in it.
    """
    from opcost.analysis.prediction.predict import foretell
    from opcost.api import count
    from opcost.core.report import Report
    from opcost.devices.calibration import HOST

    speeds, told, calibrated = _speeds(device, calibration)
    report = source
    if not isinstance(source, Report):
        report = count(
            source, inputs, kwargs=kwargs, shapes=shapes, dtypes=dtypes, batch=batch, tokens=tokens, image=image,
            dtype=dtype, set=set, backward=backward, optimizer=optimizer, mode=mode, causal=causal, rules=rules,
        )  # fmt: skip
    execution = _ON_A_HOST if speeds.device.name == HOST else _AS_A_GRAPH
    meta = {"device": speeds.device.name, "calibration": told, "execution": execution}
    return _held(foretell(report, speeds, meta, calibrated=calibrated))


def _held(found: Foretold) -> Prediction:
    profile = {field.name: getattr(found.profile, field.name) for field in fields(found.profile)}
    return Prediction(**profile, **{name: value for name, value in found._asdict().items() if name != "profile"})


_AS_A_GRAPH, _ON_A_HOST = "as one graph, without waiting for the host", "one operator after another"
FEWEST = 100
"""Operators that a calibration must hold: with fewer whole families are missing."""

_made: dict[tuple[str, str], Speeds] = {}


def _speeds(name: str, path: str | PathLike[str] | None) -> tuple[Speeds, str, bool]:
    """The speeds of a device, where they come from in words, and whether it was timed itself."""
    from opcost.analysis.prediction.speeds import Speeds
    from opcost.core.devices import device as find_device
    from opcost.devices.calibration import DOCUMENT, HOST, SHIPPED, shipped
    from opcost.errors import InputError
    from opcost.rules import default_rules

    device = None if name == HOST else find_device(name)
    if path is not None:
        calibration = DOCUMENT.load(path)
        if calibration.device != (device.name if device else HOST):
            raise InputError(
                f"the calibration {str(path)!r} is of {calibration.device!r}, and {name!r} was asked for",
                hint=f"say --device {calibration.device}, or calibrate on the other device",
            )
        if len(calibration.rows) < FEWEST:
            raise InputError(
                f"the calibration {str(path)!r} holds {len(calibration.rows)} operators, and {FEWEST} are needed",
                hint=f"go on with it: opcost calibrate -o {path}",
            )
        return Speeds(calibration, default_rules(), device), _told(calibration), True
    if device is None:
        raise InputError(
            "each processor is another, and none comes calibrated",
            hint="opcost calibrate --device cpu -o FILE, then opcost predict SOURCE --device cpu --calibration FILE",
        )
    calibrated = device.name in SHIPPED
    calibration = shipped(device.name if calibrated else SHIPPED[0])
    key = (device.name, calibration.device)
    if key not in _made:
        _made[key] = Speeds(calibration, default_rules(), device)
    told = _told(calibration)
    return _made[key], told if calibrated else f"none of {device.name}; shares of the peaks as of {told}", calibrated


def _told(calibration: Calibration) -> str:
    meta = calibration.meta
    torch = f", torch {meta['torch']}" if "torch" in meta else ""
    return (
        f"{meta.get('product', calibration.device)}, {len(calibration.rows):,} operators, {meta.get('made', '')}{torch}"
    )


SAVED_EVERY = 200
"""Operators between two writings of the file, so that a calibration that is broken off loses little."""


def calibrate(
    path: str | PathLike[str],
    *,
    device: str | None = None,
    name: str | None = None,
    seconds: float = 170,
    progress: Callable[[int, float], None] | None = None,
) -> Calibration:
    """Time operators on the device at hand for so many seconds, and write what was found to a file for `opcost.predict`.

    `device` is where they run ("cuda", "cpu"), `name` what the table of devices calls it, if its product does not tell. A
    file that is there already and is of the same device is gone on with: what it holds is kept. `progress` is told the
    operators timed and the share of the time that is over.
    """
    import time
    from datetime import datetime, timezone
    from pathlib import Path

    from opcost.core.devices import device as find_device
    from opcost.core.writing import check_writable, write_text
    from opcost.devices.calibration import DOCUMENT, HOST, Calibration, Measured, dumps
    from opcost.errors import InputError
    from opcost.recorders.calibration.run import device_of, machine, run

    check_writable(path)
    where = device_of(device)
    meta = {**machine(where), "made": datetime.now(timezone.utc).date().isoformat()}
    known = HOST if where.type == "cpu" else find_device(name or meta["product"]).name
    rows: list[Measured] = []
    done = 0
    if Path(path).exists():
        before = DOCUMENT.load(path)
        if before.device != known or before.meta.get("torch") != meta["torch"]:
            raise InputError(
                f"{str(path)!r} holds a calibration of {before.device!r} with torch {before.meta.get('torch')}, "
                f"and this is {known!r} with torch {meta['torch']}",
                hint="write to another file",
            )
        rows, done = list(before.rows), before.position
    began = time.monotonic()

    def found() -> Calibration:
        return Calibration(device=known, meta=meta, position=done, rows=tuple(rows))

    def keep(number: int, row: Measured) -> None:
        nonlocal done
        done = number
        rows.append(row)
        if progress is not None:
            progress(len(rows), min(1.0, (time.monotonic() - began) / seconds))
        if len(rows) % SAVED_EVERY == 0:
            write_text(path, dumps(found()))

    run(where, seconds, done, keep)
    write_text(path, dumps(found()))
    return found()
