"""Fit the laws that come with the package to the calibration of their device: python benchmarks/fit_laws.py.

Those of kernels that torch.compile writes are fitted to whole models, which measure_compiled.py measured.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from opcost.analysis.prediction.predict import GAP_NS
from opcost.analysis.prediction.speeds import Speeds, fit_laws, measured_work
from opcost.analysis.prediction.work import LARGE, Work, kernel_of, work_of
from opcost.core.graph import Cost, TensorSpec
from opcost.devices import calibration
from opcost.rules import default_rules

CALIBRATIONS = Path(__file__).parent
HALF = {"float16": "bfloat16"}
LEAST_GAP_MS = 1e-4
COSTLY = {"erf", "exp", "tanh", "sigmoid"}


def calibrated(device: str) -> calibration.Calibration:
    """The calibration of a device."""
    packed = (CALIBRATIONS / f"{device}_calibration.json.gz").read_bytes()
    return calibration.DOCUMENT.loads(gzip.decompress(packed).decode("utf-8"))


def fitted(device: str) -> calibration.Laws:
    """The laws of a device from its calibration."""
    return fit_laws(calibrated(device), default_rules())


def calibrated_convolutions(device: str) -> Iterator[tuple[Work, int]]:
    """Convolutions of the calibration."""
    for row in calibrated(device).rows:
        if row.kind == "conv":
            yield measured_work(row, default_rules()), max(1, row.device_ns)


def alone(row: dict[str, Any]) -> bool:
    """Whether nothing else ran on the GPU: between two kernels of a graph there is a gap."""
    found = row.get("compiled", {})
    return "ran" in found and found["graph_ms"] > found["kernel_ms"] + LEAST_GAP_MS * found["kernels"]


def measured_kernels(file: dict[str, Any]) -> Iterator[tuple[Work, int]]:
    """Kernels that the compiler wrote, in whole models, and their nanoseconds with the gap behind."""
    for row in filter(alone, file["rows"]):
        ran = row["compiled"]["ran"]
        written = [us for name, us in ran if row["compiled"]["ran_names"][name].startswith("triton_")]
        nodes = [node for node in row["nodes"] if node["kind"] not in ("ExternKernel", "NopKernel")]
        # A model that was compiled again for a second run has the nodes of the last one at the end.
        for node, us in zip(nodes[len(nodes) - len(written) :], written, strict=True):
            if not any(name.startswith("embedding") for name in node["ops"]):  # all of the table is in its bytes
                yield kernel(node), round(1e3 * us + GAP_NS)


def kernel(node: dict[str, Any]) -> Work:
    """A kernel as inductor describes it."""
    count, depth = node["extent"]
    large = sum(LARGE * elements >= count * depth for elements, _ in node["reads"])
    return kernel_of(
        sum(node["bytes"]), extent=(count, depth), large=large, small=len(node["reads"]) - large,
        costly=bool(COSTLY.intersection(node["ops"])),
    )  # fmt: skip


def measured_convolutions(file: dict[str, Any]) -> Iterator[tuple[Work, int]]:
    """Convolutions with channels side by side in these models."""
    for image, weight, result, dtype, us in file["convolutions"]:
        ins, outs = (
            (TensorSpec(tuple(image), dtype), TensorSpec(tuple(weight), dtype)),
            (TensorSpec(tuple(result), dtype),),
        )
        macs = prod(result) * prod(weight[1:])
        cost = Cost(macs, 2 * macs, sum(spec.nbytes for spec in ins), outs[0].nbytes)
        yield work_of("conv", "aten::convolution", {"channels_last": True}, ins, outs, cost), round(1e3 * us + GAP_NS)


def fitted_kernels(device: str) -> calibration.Laws:
    """The laws of a compiled model: of the kernels that are written, and of convolutions as they run beside them."""
    file = json.loads(gzip.decompress((CALIBRATIONS / f"{device}_kernels.json.gz").read_bytes()))
    timed: dict[tuple[str, str], list[tuple[Work, int]]] = {}
    for work, taken in (*measured_kernels(file), *measured_convolutions(file)):
        timed.setdefault((work.family, HALF.get(work.dtype, work.dtype)), []).append((work, taken))
    speeds = Speeds(calibration.shipped(device))
    for work, taken in calibrated_convolutions(device):
        if (key := (work.family, HALF.get(work.dtype, work.dtype))) in timed:
            timed[key].append((work._replace(bias=None), speeds.without_bias(work, taken)))
    laws = {key: speeds.fit(rows) for key, rows in timed.items()}
    for (family, dtype), law in list(laws.items()):
        laws |= {(family, half): law for half, same in HALF.items() if same == dtype}
    return replace(
        calibration.shipped(device), laws=laws, host_ns={}, workspaces={}, operators=sum(map(len, timed.values()))
    )


if __name__ == "__main__":
    for name in calibration.SHIPPED:
        for fit, suffix in ((fitted, "laws"), (fitted_kernels, "kernels")):
            path = Path(calibration.__file__).with_name(f"{name}.{suffix}")
            path.write_bytes(calibration.packed(fit(name)))
            calibration.shipped.cache_clear()
            print(f"{path.name}: {path.stat().st_size:,} bytes")
