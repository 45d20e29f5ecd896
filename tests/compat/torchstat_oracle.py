"""What torchstat itself prints, for the nets of test_torchstat.py.

torchstat patches the classes of torch.nn for good and needs names that numpy and pandas have since removed, so it runs in a
process of its own, with these names put back: python torchstat_oracle.py prints {net: text} as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable

from torch import nn

SIZE = (3, 16, 16)


def plain() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, (3, 1), groups=2),
        nn.ReLU6(), nn.AvgPool2d((2, 3), stride=1), nn.Conv2d(16, 10, (5, 6), bias=False),
    )  # fmt: skip


def named() -> nn.Module:
    body = nn.Sequential()
    body.add_module("a_layer_with_a_long_name", nn.Conv2d(3, 4, 1))
    body.add_module("norm", nn.BatchNorm2d(4, affine=False))
    return nn.Sequential(nn.Sequential(body, nn.ReLU()), nn.Conv2d(4, 1200, 1))


def one_layer() -> nn.Module:
    return nn.Conv2d(3, 7, 3)


NETS: dict[str, Callable[[], nn.Module]] = {"plain": plain, "named": named, "one layer": one_layer}


def main() -> None:
    import numpy as np
    import pandas as pd

    np.long = np.int64  # type: ignore[attr-defined]
    pd.DataFrame.append = lambda self, row: pd.concat([self, row.to_frame().T])  # type: ignore[operator]
    import torchstat

    texts = {}
    for name, make in NETS.items():
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            torchstat.stat(make(), SIZE)
        texts[name] = out.getvalue()
    print(json.dumps(texts))


if __name__ == "__main__":
    main()
