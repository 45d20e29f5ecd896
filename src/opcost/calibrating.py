"""The calibration of the device and the host at hand, for predictions, and of several calibrations one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.core.devices import HOST
from opcost.core.devices import device as find_device
from opcost.core.files import check_writable, write_text
from opcost.errors import InputError

if TYPE_CHECKING:
    from opcost.devices.calibration import Calibration, Measured

SAVED_EVERY = 200  # operators between two writings of the file, so that an interrupted calibration loses little
SECONDS = 170
HOST_SECONDS = 12
"""Of these, for the host, whose times repeat; a shorter calibration has less of both."""


def calibrate(
    path: str | PathLike[str], *, device: str | None = None, name: str | None = None, seconds: float | None = None,
    host: bool = False, merge: Sequence[str | PathLike[str]] = (), force: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> Calibration:  # fmt: skip
    """Time operators on the device at hand for about `seconds`, and write them to a file for `opcost.predict`.

    `device` is where they run ("cuda", "cpu"), `name` its name in the table of devices, if the product name does not match.
    An existing file of the same device is continued. `progress` is called with the operators timed and the share of the time
    that is over. With `host=True` only the host is timed, in a few seconds, for `opcost.predict(..., host=path)`; no GPU is
    needed. `merge` names calibrations of one device that become one, and nothing is timed.

    Where the same operators take different times at the start, in between and at the end, something else runs on the machine: the
    file is refused unless `force` is given.
    """
    from opcost.devices.calibration import dumps, refuse_busy

    check_writable(path)
    if merge:
        found = _merged(merge)
    elif host:
        found = _of_host(SECONDS if seconds is None else seconds)
    else:
        found = _of_device(path, device, name, SECONDS if seconds is None else seconds, progress)
    if force:
        found = replace(found, meta={**found.meta, "accepted": "busy"})
    write_text(path, dumps(found))
    refuse_busy(found, path)
    return found


def _merged(paths: Sequence[str | PathLike[str]]) -> Calibration:
    from opcost.devices.calibration import DOCUMENT, merge, refuse_busy

    every = [DOCUMENT.load(path) for path in paths]
    for found, path in zip(every, paths, strict=True):
        refuse_busy(found, path)
    return merge(every)


def _today() -> str:
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).date().isoformat()


def _of_host(seconds: float) -> Calibration:
    """The host alone, as a calibration of the processor without operators."""
    from opcost.devices.calibration import Calibration
    from opcost.recorders.calibration.host import time_host
    from opcost.recorders.calibration.run import device_of, machine

    times, repeats = time_host(min(seconds, HOST_SECONDS))
    meta = {**machine(device_of("cpu")), "made": _today()}
    return Calibration(device=HOST, meta=meta, position=0, rows=(), host=times, repeats=repeats)


def _of_device(
    path: str | PathLike[str], device: str | None, name: str | None, seconds: float,
    progress: Callable[[int, float], None] | None,
) -> Calibration:  # fmt: skip
    from opcost.devices.calibration import DOCUMENT, Calibration, dumps
    from opcost.recorders.calibration.host import time_host
    from opcost.recorders.calibration.plan import plan_id
    from opcost.recorders.calibration.run import device_of, machine, run

    where = device_of(device)
    meta = {**machine(where), "made": _today(), "plan": plan_id()}
    known = HOST if where.type == "cpu" else find_device(name or meta["product"]).name
    rows: list[Measured] = []
    left_out: Counter[str] = Counter()
    repeats: dict[str, list[int]] = {}
    done = 0
    if Path(path).exists():
        before = DOCUMENT.load(path)
        if before.device != known or before.meta.get("torch") != meta["torch"]:
            raise InputError(
                f"{str(path)!r} holds a calibration of {before.device!r} with torch {before.meta.get('torch')}, "
                f"and this is {known!r} with torch {meta['torch']}",
                hint="write to another file",
            )
        rows = list(before.rows)
        if before.meta.get("plan") == meta["plan"]:  # positions in another plan are of other operators
            done, left_out = before.position, Counter(before.left_out)
        repeats = {key: list(times) for key, times in before.repeats.items()}
    began = time.monotonic()
    of_host, its_repeats = time_host(min(HOST_SECONDS, seconds * HOST_SECONDS / SECONDS))
    for key, times in its_repeats.items():
        repeats.setdefault(key, []).extend(times)

    def found() -> Calibration:
        return Calibration(
            device=known, meta=meta, position=done, rows=tuple(rows), host=of_host, left_out=dict(left_out),
            repeats={key: tuple(times) for key, times in repeats.items()},
        )  # fmt: skip

    def keep(number: int, name: str, row: Measured | None) -> None:
        nonlocal done
        done = number
        if row is None:
            left_out[name] += 1
            return
        rows.append(row)
        if progress is not None:
            progress(len(rows), min(1.0, (time.monotonic() - began) / seconds) if seconds else 1.0)
        if len(rows) % SAVED_EVERY == 0:
            write_text(path, dumps(found()))

    def again(name: str, taken: int) -> None:
        repeats.setdefault(name, []).append(taken)

    try:
        run(where, began + seconds - time.monotonic(), done, keep, again)
    except InputError:  # the device failed
        write_text(path, dumps(found()))
        raise
    return found()
