"""Measure eager runs on the GPU at hand beside a calibration of its host: `predict_host.py --measured OUT.json` compares them.

    python benchmarks/measure_host.py OUT.json [--rows FILE] [--seconds 120]

The host is calibrated first; then a pass and a training step with Adam of each row (--rows: those of h200_blind.json), medians of
9 runs after 3. Nothing is captured or profiled in this process, as was done between the models of h200_blind.json, whose steps
were further above the predicted ones from model to model; why is not known. The first row is measured again at the end, which
shows whether a process gets slower. With `--device cpu --quick` it can be tried without a GPU.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import opcost
from gpu_models import inputs, made
from harness import HERE, arguments, load_torchvision, write
from opcost.calibrating import HOST_SECONDS
from opcost.recorders.calibration.run import machine

WARM, RUNS = 3, 9


def eager_ms(call: Callable[[], object], wait: Callable[[], None]) -> float:
    """The median of several runs, each of which begins when the device has nothing to do."""
    taken = []
    for number in range(WARM + RUNS):
        wait()
        start = time.perf_counter()
        call()
        wait()
        if number >= WARM:
            taken.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(taken), 4)


def both(row: dict[str, Any], device: torch.device, wait: Callable[[], None]) -> dict[str, Any]:
    """A row with the time of a pass and of a step."""
    dtype = getattr(torch, row["dtype"])
    with device:
        model = made(row["name"])
    model = model.to(device, dtype).eval()
    args, kwargs = inputs(row, dtype, device)
    with torch.no_grad():
        eager = eager_ms(lambda: model(*args, **kwargs), wait)
    optimizer = torch.optim.Adam(model.train().parameters())

    def step() -> None:
        found = [t for t in tree_leaves(model(*args, **kwargs)) if isinstance(t, Tensor) and t.requires_grad]
        torch.autograd.backward(found, [torch.ones_like(t) for t in found])
        del found
        optimizer.step()
        optimizer.zero_grad()

    return {**row, "eager_ms": eager, "train_ms": eager_ms(step, wait)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=Path, default=HERE / "h200_blind.json", help="a JSON file of rows")
    parser.add_argument("--seconds", type=float, default=120, help="when to stop")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    load_torchvision()
    torch.backends.cudnn.benchmark = True
    on_gpu = options.device.type == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    with TemporaryDirectory() as folder:
        opcost.calibrate(
            Path(folder) / "host.json", host=True, seconds=1 if options.quick else HOST_SECONDS, force=True
        )
        host = json.loads((Path(folder) / "host.json").read_text())
    rows = json.loads(options.rows.read_text())["rows"]
    given = [{key: row[key] for key in ("name", "batch", "dtype", "image", "tokens") if key in row} for row in rows]
    random.Random(0).shuffle(given)
    measured: list[dict[str, Any]] = []
    for row in given[:1] if options.quick else [*given, given[0]]:
        if time.monotonic() > end:
            break
        measured.append(both(row, options.device, wait))
        print(json.dumps(measured[-1]), flush=True)
        if on_gpu:
            torch.cuda.empty_cache()
        write(options.out, {"machine": machine(options.device), "host": host, "rows": measured})


if __name__ == "__main__":
    main()
