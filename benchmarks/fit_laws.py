"""Fit the laws that come with the package to the calibration of their device: python benchmarks/fit_laws.py."""

from __future__ import annotations

import gzip
from pathlib import Path

from opcost.analysis.prediction.speeds import fit_laws
from opcost.devices import calibration
from opcost.rules import default_rules

CALIBRATIONS = Path(__file__).parent


def fitted(device: str) -> calibration.Laws:
    """The laws of a device from its calibration."""
    packed = (CALIBRATIONS / f"{device}_calibration.json.gz").read_bytes()
    return fit_laws(calibration.DOCUMENT.loads(gzip.decompress(packed).decode("utf-8")), default_rules())


if __name__ == "__main__":
    for name in calibration.SHIPPED:
        path = Path(calibration.__file__).with_name(f"{name}.laws")
        path.write_bytes(calibration.packed(fitted(name)))
        print(f"{path.name}: {path.stat().st_size:,} bytes")
