"""The largest batch that is told to fit against the largest with which a GPU really runs.

    python benchmarks/fit.py measure FILE    on a machine with CUDA and torchvision: the largest batches, found by trying
    python benchmarks/fit.py                 what opcost tells of those in h200_fit.json; nothing here needs a GPU

A GPU is held to 24 GiB by PyTorch's own allocator. A batch runs if three passes or steps do; a step is the backward pass of the
sum of the outputs and an update by AdamW.
"""

import json
import sys
from pathlib import Path
from typing import Any

LIMIT = 24 << 30
NETS = {
    ("resnet50", True): 290,
    ("vit_b_16", True): 190,
    ("convnext_tiny", True): 228,
    ("efficientnet_b0", True): 281,
    ("resnet50", False): 2300,
    ("vit_b_16", False): 2950,
}
"""Nets, whether they train, and the batch that is tried first."""
MEASURED = Path(__file__).with_name("h200_fit.json")


def measure(path: str) -> None:
    import torch
    import torchvision

    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    rows = []
    for (name, training), first in NETS.items():
        model = torchvision.models.get_model(name).cuda().train(training)
        row = {"net": name, "training": training, **largest(model, training=training, first=first)}
        print(row, flush=True)
        rows.append(row)
    device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "limit": LIMIT, "rows": rows}
    Path(path).write_text(json.dumps(device, indent=1) + "\n")


def largest(model: Any, *, training: bool, first: int) -> dict[str, int]:
    """The largest batch that runs, such that the next one does not, and what was held with it."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters()) if training else None
    held: dict[int, tuple[int, int]] = {}

    def runs(batch: int) -> bool:
        torch.cuda.empty_cache()
        try:
            for _ in range(3):
                torch.cuda.reset_peak_memory_stats()
                step(model, optimizer, torch.randn(batch, 3, 224, 224, device="cuda"))
        except torch.OutOfMemoryError:
            model.zero_grad(set_to_none=True)
            return False
        held[batch] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return True

    stride = max(1, first // 32)
    low = high = first
    while not runs(low):
        high, low, stride = low, max(1, low - stride), 2 * stride
    while high == low:
        high, stride = low + stride, 2 * stride
        if runs(high):
            low = high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return {"largest": low, "allocated": held[low][0], "reserved": held[low][1]}


def step(model: Any, optimizer: Any, images: Any) -> None:
    import torch

    if optimizer is None:
        with torch.no_grad():
            model(images)
        return
    model(images).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def compare() -> None:
    import opcost

    measured = json.loads(MEASURED.read_text())
    print(f"{'net':<16} {'what':<6} {'runs':>6} {'told':>6} {'ratio':>6} {'peak GiB':>9} {'told':>6} {'counts':>7}")
    for row in measured["rows"]:
        asked: dict[str, Any] = {"backward": True, "optimizer": "adamw"} if row["training"] else {}
        source = f"torchvision:{row['net']}"
        found = opcost.fit(source, memory=measured["limit"], device="h200", advise=False, **asked)
        peak = opcost.count(source, batch=row["largest"], device="h200", **asked).memory.peak_bytes
        peaks = f"{row['allocated'] / 2**30:9.2f} {peak / 2**30:6.2f}"
        told = f"{row['largest']:>6,} {found.largest:>6,} {found.largest / row['largest']:6.3f}"
        what = "train" if row["training"] else "infer"
        print(f"{row['net']:<16} {what:<6} {told} {peaks} {len(found.counted):>7}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2])
    else:
        compare()
