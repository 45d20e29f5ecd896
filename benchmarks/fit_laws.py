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

from opcost.analysis.prediction.speeds import Speeds, fit_laws, measured_work
from opcost.analysis.prediction.work import LARGE, Work, kernel_of, work_of
from opcost.analysis.prediction.workspaces import fit_workspaces
from opcost.core.graph import Cost, TensorSpec
from opcost.devices import calibration
from opcost.rules import default_rules

CALIBRATIONS = Path(__file__).parent
HALF = {"float16": "bfloat16"}
COSTLY = {"erf", "exp", "tanh", "sigmoid"}


def calibrated(device: str) -> calibration.Calibration:
    """The calibration of a device."""
    packed = (CALIBRATIONS / f"{device}_calibration.json.gz").read_bytes()
    return calibration.DOCUMENT.loads(gzip.decompress(packed).decode("utf-8"))


def fitted(device: str) -> calibration.Laws:
    """The laws of a device from its calibration."""
    return fit_laws(calibrated(device), default_rules())


def taking_memory(device: str) -> list[tuple[calibration.Measured, frozenset[str]]]:
    """Operators of the calibration, convolutions of measure_workspaces.py, and the families of models that these are of."""
    file = json.loads(gzip.decompress((CALIBRATIONS / f"{device}_workspaces.json.gz").read_bytes()))
    others = [row for row in calibrated(device).rows if row.raw != "aten::convolution"]
    of = [frozenset(file["families"][number] for number in numbers) for numbers in file["of"]]
    return [(row, frozenset[str]()) for row in others] + [(convolution(row), of[row[12]]) for row in file["rows"]]


def convolution(row: list[Any]) -> calibration.Measured:
    """A convolution of measure_workspaces.py, without the copy of weights that lie otherwise than the image."""
    image, weight, _, stride, padding, dilation, transposed, more, groups, dtype, layout, _, _, workspace, _ = row
    sizes = zip(image[2:], weight[2:], stride, padding, dilation, more or [0] * len(stride), strict=True)
    places = [
        (size - 1) * step - 2 * edge + apart * (window - 1) + 1 + rest if transposed
        else (size + 2 * edge - apart * (window - 1) - 1) // step + 1
        for size, window, step, edge, apart, rest in sizes
    ]  # fmt: skip
    channels = weight[1] * groups if transposed else weight[0]
    attrs = {
        "stride": tuple(stride),
        "dilation": tuple(dilation),
        "transposed": bool(transposed),
        "channels_last": layout > 0,
    }
    ins = TensorSpec(tuple(image), dtype), TensorSpec(tuple(weight), dtype)
    outs = (TensorSpec((image[0], channels, *places), dtype),)
    copied = ins[1].nbytes if layout == 1 and prod(weight[2:]) > 1 else 0
    attrs = {name: value for name, value in attrs.items() if value}
    return calibration.Measured("conv", "aten::convolution", attrs, ins, outs, 0, 0, max(0, workspace - copied))


def compiled_models(device: str) -> list[dict[str, Any]]:
    """Models that were measured as compiled: what the compiler made of them, and each kernel that ran."""
    return json.loads(gzip.decompress((CALIBRATIONS / f"{device}_kernels.json.gz").read_bytes()))["rows"]


def parts(row: dict[str, Any]) -> Iterator[tuple[list[dict[str, Any]], float]]:
    """Nodes of a compiled model and their nanoseconds: one kernel that was written, or what libraries ran between two of them.

    What a replay of all takes longer or shorter than its kernels one by one is shared out among them.
    """
    made = row["compiled"]
    gap = 1e6 * (made["graph_ms"] - made["kernel_ms"]) / made["kernels"]
    nodes = [node for node in row["nodes"] if node["kind"] != "NopKernel"]
    libraries: list[dict[str, Any]] = []
    taken = 0.0
    for name, us in made["ran"]:
        if not made["ran_names"][name].startswith("triton_"):
            taken += 1e3 * us + gap
            continue
        while nodes[0]["kind"] == "ExternKernel":
            libraries.append(nodes.pop(0))
        yield libraries, taken
        yield [nodes.pop(0)], 1e3 * us + gap
        libraries, taken = [], 0.0
    yield nodes, taken


def measured_kernels(row: dict[str, Any]) -> Iterator[tuple[Work, int]]:
    """Kernels that the compiler wrote for a model, and their nanoseconds with the gap behind."""
    for nodes, taken in parts(row):
        for node in nodes:
            if node["kind"] != "ExternKernel" and not table_read(node):
                yield kernel(node), max(1, round(taken))


def table_read(node: dict[str, Any]) -> bool:
    """Whether the bytes of a node have all of a table of which a few rows are read."""
    return any(name.startswith("embedding") for name in node.get("ops", ()))


def kernel(node: dict[str, Any]) -> Work:
    """A kernel as inductor describes it."""
    count, depth = node["extent"]
    large = sum(LARGE * elements >= count * depth for elements, _ in node["reads"])
    return kernel_of(
        sum(node["bytes"]), extent=(count, depth), large=large, small=len(node["reads"]) - large,
        costly=bool(COSTLY.intersection(node["ops"])),
    )  # fmt: skip


def measured_convolutions(row: dict[str, Any]) -> Iterator[tuple[Work, int]]:
    """Convolutions of a model with channels side by side, into which order the compiler copies images and weights."""
    if not any(node.get("ops") == ["convolution"] and node["kind"] != "ExternKernel" for node in row["nodes"]):
        return
    for nodes, taken in parts(row):
        shapes = [(*node["given"], node["shape"]) for node in nodes if node.get("name") == "extern_kernels.convolution"]
        if shapes and shapes.count(shapes[0]) == len(nodes):
            ins = tuple(TensorSpec(tuple(shape), row["dtype"]) for shape in shapes[0][:2])
            out = TensorSpec(tuple(shapes[0][2]), row["dtype"])
            macs = out.numel * prod(ins[1].dims[1:])
            cost = Cost(macs, 2 * macs, sum(spec.nbytes for spec in ins), out.nbytes)
            work = work_of("conv", "aten::convolution", {"channels_last": True}, ins, (out,), cost)
            yield from [(work, max(1, round(taken / len(shapes))))] * len(shapes)


def fitted_kernels(
    laws: calibration.Laws, given: calibration.Calibration, rows: list[dict[str, Any]]
) -> calibration.Laws:
    """The laws of a compiled model: of the kernels that are written, and of convolutions as they run beside them.

    They are fitted to measured models and to the convolutions of a calibration, with the laws of that.
    """
    timed: dict[tuple[str, str], list[tuple[Work, int]]] = {}
    for row in rows:
        for work, taken in (*measured_kernels(row), *measured_convolutions(row)):
            timed.setdefault((work.family, HALF.get(work.dtype, work.dtype)), []).append((work, taken))
    speeds = Speeds(laws)
    for each in given.rows:
        if each.kind == "conv":
            work = measured_work(each, default_rules())
            if (key := (work.family, HALF.get(work.dtype, work.dtype))) in timed:
                timed[key].append((work._replace(bias=None), speeds.without_bias(work, max(1, each.device_ns))))
    fitted = {key: speeds.fit(found) for key, found in timed.items()}
    for (family, dtype), law in list(fitted.items()):
        fitted |= {(family, half): law for half, same in HALF.items() if same == dtype}
    return replace(laws, laws=fitted, host_ns={}, host={}, operators=sum(map(len, timed.values())))


if __name__ == "__main__":
    for name in calibration.SHIPPED:
        laws = fitted(name)
        beside = fitted_kernels(laws, calibrated(name), compiled_models(name))
        for suffix, found in (("laws", laws), ("kernels", beside)):
            path = Path(calibration.__file__).with_name(f"{name}.{suffix}")
            path.write_bytes(calibration.packed(found))
            print(f"{path.name}: {path.stat().st_size:,} bytes")
    taken = fit_workspaces((row for row, _ in taking_memory(calibration.SHIPPED[0])), default_rules())
    path = Path(calibration.__file__).with_name(f"{calibration.SHIPPED[0]}.workspaces")
    path.write_bytes(calibration.packed_workspaces(taken))
    print(f"{path.name}: {path.stat().st_size:,} bytes")
