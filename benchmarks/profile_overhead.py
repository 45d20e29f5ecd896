"""How much recording costs: the time in a profile's rows against the same model timed without a profiler.

Other work on the machine disturbs both: blocks of the two alternate from profile to profile, and the quickest runs count.

    python benchmarks/profile_overhead.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import opcost

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from resnet18 import ResNet18
from transformer import Decoder

ROUNDS = 4
REPEAT = 8


def models() -> dict[str, tuple[torch.nn.Module, torch.Tensor]]:
    found: dict[str, tuple[torch.nn.Module, torch.Tensor]] = {
        "resnet18": (ResNet18().eval(), torch.randn(1, 3, 224, 224)),
        "transformer": (
            Decoder(vocabulary=8000, width=256, layers=4, heads=4).eval(),
            torch.zeros(2, 128, dtype=torch.int64),
        ),
    }
    try:
        from opcost.frontends.zoo import declare_torchvision_operators

        declare_torchvision_operators()
        import torchvision
    except ImportError:
        return found
    return {"resnet50": (torchvision.models.resnet50().eval(), torch.randn(1, 3, 224, 224)), **found}


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'model':<14}{'unprofiled':>14}{'recorded run':>14}{'sum of rows':>14}{'rows / run':>12}")
    for name, (model, inputs) in models().items():
        alone: list[int] = []
        recorded: list[int] = []
        rows: list[int] = []
        for _ in range(ROUNDS):
            profile = opcost.profile(model, inputs, repeat=REPEAT, warmup=1)
            alone += profile.timed_ns
            recorded += profile.extra["recorded_ns"]
            rows += (sum(row.host_self_ns or 0 for row in profile.rows if row.step == step) for step in range(REPEAT))
        best = min(alone)
        times = "".join(f"{value / 1e6:>11.2f} ms" for value in (best, min(recorded), min(rows)))
        print(f"{name:<14}{times}{min(rows) / best - 1:>+12.2%}")


if __name__ == "__main__":
    main()
