"""Predictions of eager runs against an H200 and its host, by the law of the host fitted without the model's family.

    python benchmarks/predict_host.py [WORD]     WORD: only names that contain it
    python benchmarks/predict_host.py --measured FILE     what measure_host.py measured, by the law as it is

h200_host.json has models that were measured beside a calibration of their host. Those of QUIET and of h200_blind.json, which a
seed chose, were measured on other days with the same host, as far as is known; of the other days of h200_models.json it is known
that the host was busy: the same model takes 0.9 times as long as predicted, or three times.

The law is one number, by how much the parts of a run take longer in a model than on their own: the median over the runs that wait
for the host, in which each family weighs as much with its passes as with its training steps.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import left_out
import opcost
from gpu_models import eager_inputs, eager_model
from harness import ERRORS, HERE, Table, arguments, error_row
from opcost.analysis.prediction import host
from opcost.devices.hosts import shipped_host
from predict import counted, eager_prediction

QUIET = frozenset(
    "fastvit_ma36 coatnet_4_224 efficientformer_l7 resnetaa34d vit_base_patch32_224 convnext_nano xcit_medium_24_p8_384 "
    "tresnet_m resnet101_clip poolformerv2_m36 hardcorenas_f".split()
)
"""Models of timm in h200_models.json that were measured while nothing else ran."""
WAITS = 0.6  # the share of a run that its kernels take at most where it waits for the host
STEP = "training step"


@dataclass
class Run:
    """A measured run."""

    name: str
    batch: int
    what: str
    by_seed: bool  # chosen by a seed when a law was fixed
    ms: float
    host: dict[str, Any]  # a calibration of it
    report: opcost.Report

    @property
    def family(self) -> str:
        return left_out.group({"name": self.name})

    @cached_property
    def kernels_ms(self) -> float:
        """What its kernels are predicted to take."""
        return opcost.predict(self.report, device="h200").kernel_ns / 1e6

    @cached_property
    def parts_ms(self) -> float:
        """What the host takes for all parts on their own."""
        shipped = shipped_host()
        one = host.Host(shipped.starts, shipped.host, self.host["host"], spread=0)
        return host.hosted(self.report, (), one)[1] / host.IN_A_MODEL / 1e6


def runs() -> Iterator[Run]:
    """All of them, counted without a GPU."""
    file = json.loads((HERE / "h200_host.json").read_text())
    for row in file["rows"]:
        what = STEP if row["pass"] == "step" else row["pass"]
        beside, by_seed = file["hosts"][row["set"]], row["set"] == "blind"
        yield Run(row["name"], row["batch"], what, by_seed, row["eager_ms"], beside, passed(row))
    for name in ("h200_models.json", "h200_blind.json"):
        later = json.loads((HERE / name).read_text())
        if name == "h200_models.json":
            later["rows"] = [row for row in later["rows"] if row["name"].removeprefix("timm/") in QUIET]
        yield from pairs(later["rows"], later.get("host", file["hosts"]["blind"]))


def pairs(rows: list[dict[str, Any]], beside: dict[str, Any]) -> Iterator[Run]:
    """Passes and steps with Adam."""
    for row in rows:
        for what, taken in (("inference", "eager_ms"), (STEP, "train_ms")):
            if taken in row:
                report = counted(row, training=what == STEP)
                yield Run(row["name"], row["batch"], what, True, row[taken], beside, report)  # noqa: FBT003


def passed(row: dict[str, Any]) -> opcost.Report:
    """A pass of a model of h200_host.json, or a step with AdamW."""
    training = row["pass"] == "step"
    model = eager_model(row["name"], "meta").train(training)
    options: dict[str, Any] = {"optimizer": "AdamW"} if training else {}
    if row["pass"] == "decode":
        options |= {"batch": row["batch"], "decode": 1, "cache": row["cache"]}
    else:
        args, kwargs = eager_inputs(row["name"], model, row["batch"], "meta", training=training)
        options |= {"inputs": args or None, "kwargs": kwargs or None}
    with torch.set_grad_enabled(training):
        return opcost.count(model, device="h200", **options)


def law(given: Sequence[Run]) -> float:
    """By how much parts take longer in these models."""
    waiting = [run for run in given if run.kernels_ms < WAITS * run.ms]
    times = Counter((run.family, run.what == STEP) for run in waiting)
    ratios = sorted((run.ms / run.parts_ms, 1 / times[run.family, run.what == STEP]) for run in waiting)
    below, half = 0.0, sum(weight for _, weight in ratios) / 2
    for ratio, weight in ratios:
        below += weight
        if below >= half:
            return ratio
    raise ValueError("no run waits for the host")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("word", nargs="?", default="", help="only names that contain this")
    parser.add_argument("--measured", type=Path, help="a file of measure_host.py")
    options = parser.parse_args()
    options.save = options.save and not options.word and options.measured is None
    torch.set_num_threads(1)
    columns = ("model", "batch", "what", "measured ms", "predicted ms", "error", "in interval")
    table = Table("eager", ERRORS, columns, machine="NVIDIA H200 and its host, torch 2.11.0+cu130 (measured)")
    if options.measured is None:
        every = list(runs())
        print(f"fitted to all: {law(every):.3f}")
    else:
        file = json.loads(options.measured.read_text())
        every = list(pairs(file["rows"], file["host"]))
        print(f"fitted to these: {law(every):.3f}")
    errors: dict[str, list[float]] = {}
    inside: dict[str, list[bool]] = {}
    chosen = sorted((run for run in every if options.word in run.name), key=lambda run: run.family)
    laws: dict[str, float] = {}
    for run in chosen[:2] if options.quick else chosen:
        if options.measured is None:
            if run.family not in laws:
                laws[run.family] = law([other for other in every if other.family != run.family])
            host.IN_A_MODEL = laws[run.family]
        found = eager_prediction(run.report, run.host)
        error = found.latency_ns / 1e6 / run.ms - 1
        hit = found.band_ns[0] <= run.ms * 1e6 <= found.band_ns[1]
        for what in (run.what, f"{run.what}, chosen by a seed") if run.by_seed else (run.what,):
            errors.setdefault(what, []).append(error)
        inside.setdefault("steps" if run.what == STEP else "passes", []).append(hit)
        times = (round(run.ms, 3), round(found.latency_ns / 1e6, 3))
        table.detail(run.name, run.batch, run.what, *times, f"{error:+.1%}", "yes" if hit else "no")
    for what in sorted(errors):
        table.add(*error_row(what, errors[what]))
    for what, hits in sorted(inside.items()):
        table.add(f"80 % interval, {what}", len(hits), f"{sum(hits) / len(hits):.0%} inside", "", "", "")
    table.finish(options)


if __name__ == "__main__":
    main()
