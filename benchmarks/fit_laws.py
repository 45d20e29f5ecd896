"""Fit the laws that come with the package to the calibration of their device: python benchmarks/fit_laws.py."""

from __future__ import annotations

import gzip
from pathlib import Path

from opcost.analysis.prediction.speeds import fit_laws
from opcost.devices import laws
from opcost.devices.calibration import DOCUMENT
from opcost.rules import default_rules

CALIBRATIONS = Path(__file__).parent


def fitted(device: str) -> laws.Laws:
    """The laws of a device from its calibration."""
    packed = (CALIBRATIONS / f"{device}_calibration.json.gz").read_bytes()
    return fit_laws(DOCUMENT.loads(gzip.decompress(packed).decode("utf-8")), default_rules())


if __name__ == "__main__":
    for name in laws.SHIPPED:
        path = Path(laws.__file__).with_name(f"{name}.laws.json.gz")
        path.write_bytes(laws.dumps(fitted(name)))
        print(f"{path.name}: {path.stat().st_size:,} bytes")
