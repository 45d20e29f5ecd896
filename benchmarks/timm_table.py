"""Count every model of timm's result tables and compare parameters and MACs with the exact integers.

    python benchmarks/timm_table.py [--only SUBSTRING] [--jobs N] [--fused]

The tables were made with attention written out as matrix products; `--fused` counts the models as timm builds them
by default. Only differential attention (vit_dlittle) then does different arithmetic: two fused attentions instead of one
product with the difference of two score matrices.
Exits with 1 if any model differs, cannot be counted, or has an operator without a price.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "tests" / "data" / "timm.csv"


@dataclass(frozen=True)
class Outcome:
    """One model counted: what differs from the table, if anything."""

    model: str
    seconds: float
    fault: str


def rows() -> list[dict[str, str]]:
    """The models of the table with their exact integers."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check(row: dict[str, str], *, fused: bool = False) -> Outcome:
    """Build one model without weights, count it, compare."""
    import opcost
    from opcost.frontends.torch import FRONTEND
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()
    import timm
    import torch
    from timm.utils import reparameterize_model

    torch.set_num_threads(1)
    timm.layers.set_fused_attn(enable=fused)
    size = int(row["img_size"])
    start = time.process_time()
    try:
        model = FRONTEND.build(lambda: reparameterize_model(timm.create_model(row["model"]).eval()), {})
        channels = model.pretrained_cfg["input_size"][0]
        counting = time.process_time()
        report = opcost.count(model, shapes=(1, channels, size, size))
    except Exception as exc:
        return Outcome(
            row["model"], time.process_time() - start, f"{type(exc).__name__}: {exc}".replace("\n", " ")[:300]
        )
    faults = []
    for name, got, expected in (
        ("params", report.totals.params, int(row["exact_params"])),
        ("MACs", report.totals.macs, int(row["exact_macs_matmul"])),
    ):
        if got != expected:
            faults.append(f"{name} {got:,} instead of {expected:,} ({got - expected:+,})")
    faults += [f"{missed.raw} has no price" for missed in report.coverage.uncounted]
    return Outcome(row["model"], time.process_time() - counting, "; ".join(faults))


def main() -> int:
    """Count them all in a pool of processes, with a bar, and say what differs."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--fused", action="store_true", help="attention as timm builds it by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    wanted = [row for row in rows() if options.only in row["model"]]
    outcomes = []
    columns = (
        TextColumn("timm"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns) as progress, ProcessPoolExecutor(options.jobs) as pool:
        task = progress.add_task("", total=len(wanted))
        for future in as_completed([pool.submit(check, row, fused=options.fused) for row in wanted]):
            outcome = future.result()
            outcomes.append(outcome)
            progress.update(task, advance=1, description=outcome.model)
            if outcome.fault:
                progress.console.print(f"{outcome.model}: {outcome.fault}", markup=False, soft_wrap=True)
    wrong = sum(bool(outcome.fault) for outcome in outcomes)
    seconds = sorted(outcome.seconds for outcome in outcomes)
    print(
        f"{len(outcomes) - wrong} of {len(outcomes)} models exact; CPU seconds for one count: "
        f"median {seconds[len(seconds) // 2]:.3f}, worst {seconds[-1]:.3f}"
    )
    return 1 if wrong or not outcomes else 0


if __name__ == "__main__":
    raise SystemExit(main())
