"""How much recording costs: recorded runs, and the sum of their rows, against the same model timed without a profiler.

    python benchmarks/profile_overhead.py [--rounds N] [--only NAME]

Every model runs with one thread and with all. Blocks of unprofiled and of recorded runs alternate, so that other work on the
machine meets both; the quickest run of each counts, because noise only adds, and the medians stand beside it. The last column
repeats the comparison in CPU time of the process, which other work disturbs least.
"""

# ruff: noqa: E402 - what is imported lies in folders that are named first
from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would announce every start and stop

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "examples", "benchmarks")]

from resnet18 import ResNet18
from transformer import Decoder

import opcost
from networks import ResNet50
from opcost.recorders.measure import percentile
from plugged import plug_in


class Subject(NamedTuple):
    """A model, its inputs, and how many runs make a block."""

    model: torch.nn.Module
    inputs: torch.Tensor
    runs: int


MODELS: dict[str, Callable[[], Subject]] = {
    "resnet50": lambda: Subject(ResNet50().eval(), torch.randn(1, 3, 224, 224), 5),
    "resnet18": lambda: Subject(ResNet18().eval(), torch.randn(1, 3, 224, 224), 8),
    "transformer": lambda: Subject(
        Decoder(vocabulary=8000, width=256, layers=4, heads=4).eval(), torch.zeros(2, 128, dtype=torch.int64), 10
    ),
    "encoder": lambda: Subject(
        torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 4).train(),
        torch.randn(2, 64, 256),
        10,
    ),
}


class Times(NamedTuple):
    """Nanoseconds of every run, unprofiled and recorded, and the sum of the rows of each recorded one."""

    alone: list[int]
    recorded: list[int]
    rows: list[int]


def measure(subject: Subject, rounds: int) -> Times:
    times = Times([], [], [])
    for _ in range(rounds):
        profile = opcost.profile(subject.model, subject.inputs, repeat=subject.runs, warmup=1)
        times.alone.extend(profile.timed_ns)
        times.recorded.extend(profile.extra["recorded_ns"])  # type: ignore[arg-type]
        sums = [0] * subject.runs
        for row in profile.rows:
            sums[row.step or 0] += row.host_self_ns or 0
        times.rows.extend(sums)
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    plug_in()
    everything = torch.get_num_threads()
    heads = ("unprofiled", "recorded", "rows", "recorded", "(median)", "rows", "(CPU time)")
    print(f"{'model':<12}{'threads':>8}" + "".join(f"{head:>12}" for head in heads))
    for name, make in MODELS.items():
        if given.only not in name:
            continue
        subject = make()
        for threads in sorted({1, everything}):
            torch.set_num_threads(threads)
            wall = measure(subject, given.rounds)
            with mock.patch("time.perf_counter_ns", time.process_time_ns):
                cpu = measure(subject, max(1, given.rounds // 2))
            best = min(wall.alone)
            shown = "".join(f"{min(times) / 1e6:>9.2f} ms" for times in wall)
            added = min(wall.recorded) / best - 1
            median = percentile(wall.recorded, 50) / percentile(wall.alone, 50) - 1
            ratios = (added, median, min(wall.rows) / best - 1, min(cpu.recorded) / min(cpu.alone) - 1)
            print(f"{name:<12}{threads:>8}{shown}" + "".join(f"{ratio:>+12.2%}" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
