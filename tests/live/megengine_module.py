"""Runs with MegEngine's own Python, and opcost on its path: counts a live module and prints what was found as JSON."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import megengine.module as M
from megengine_nets import Attention, Silent

import opcost


class Plain(M.Module):
    """The block as a user would write it: it takes the input alone."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Any) -> Any:
        return self.block(x, Silent())


def main(seed: int, *shape: int) -> None:
    """Count the attention block of this seed on an input of this shape."""
    net = Plain(Attention(random.Random(seed)))
    net.train()
    report = opcost.count(net, shapes={"x": shape})
    found = {
        "macs": report.totals.macs,
        # MegEngine stores equal constants once, and all biases begin as zeros; matrices are drawn at random.
        "matrices": sum(p.spec.numel for p in report.parameters if len(p.spec.dims) == 2),
        "matrices_of_the_module": sum(p.numpy().size for p in net.parameters() if p.ndim == 2),
        "modules": [module.path for module in report.modules],
        "still_training": all(part.training for part in net.modules()),
        "uncounted": [u.raw for u in report.coverage.uncounted],
    }
    print(json.dumps(found, default=int))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
