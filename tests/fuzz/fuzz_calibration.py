"""Calibrations: parts of one that comes with the package, and how `opcost predict` reads them."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any


def files() -> list[bytes]:
    from opcost.devices.calibration import DOCUMENT, dumps

    packed = Path(__file__).parents[2] / "benchmarks" / "h200_calibration.json.gz"
    whole = DOCUMENT.loads(gzip.decompress(packed.read_bytes()).decode())
    return [dumps(replace(whole, rows=whole.rows[start : start + 120])).encode() for start in (0, 3000)]


def fit(path: Path, _given: Any) -> None:
    from opcost.analysis.prediction.speeds import fit_laws
    from opcost.devices.calibration import DOCUMENT
    from opcost.rules import default_rules

    fit_laws(DOCUMENT.load(path), default_rules())
