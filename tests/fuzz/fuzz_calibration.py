"""Calibrations: parts of one that comes with the package, and the door that `opcost predict` reads them by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any


def files() -> list[bytes]:
    from opcost.devices.calibration import dumps, shipped

    whole = shipped("h200")
    return [dumps(replace(whole, rows=whole.rows[start : start + 120])).encode() for start in (0, 3000)]


def door(path: Path, _given: Any) -> None:
    from opcost.analysis.prediction.speeds import Speeds
    from opcost.core.devices import device
    from opcost.devices.calibration import DOCUMENT
    from opcost.rules import default_rules

    Speeds(DOCUMENT.load(path), default_rules(), device("h200"))
