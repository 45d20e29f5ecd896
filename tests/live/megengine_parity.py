"""Runs with MegEngine's own Python: dumps the nets that `tests/parity` has in PyTorch.

    python megengine_parity.py FOLDER

FOLDER gets `NAME.plain.mge`, the graph as it was recorded, `NAME.v2.mge` and `NAME.v1.mge`, as MegEngine's optimizer leaves it.
Weights are drawn at random, all of them: MegEngine stores equal constants once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.jit import trace


class Block(M.Module):
    """Two convolutions and a shortcut, as in a ResNet."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.norm1 = M.BatchNorm2d(channels)
        self.conv2 = M.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = M.BatchNorm2d(channels)
        self.shortcut = M.Conv2d(inputs, channels, 1, stride, bias=False) if stride > 1 else M.Identity()

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class Transformer(M.Module):
    """One block with the attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)
        self.qkv, self.proj = M.Linear(width, 3 * width), M.Linear(width, width)
        self.fc1, self.fc2 = M.Linear(width, 4 * width), M.Linear(4 * width, width)

    def split(self, x: Any) -> Any:
        batch, length, width = x.shape
        x = F.reshape(x, (batch, length, self.heads, width // self.heads))
        return F.reshape(F.transpose(x, (0, 2, 1, 3)), (batch * self.heads, length, width // self.heads))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = map(self.split, F.split(self.qkv(self.norm1(x)), 3, axis=2))
        scores = F.softmax(F.matmul(q * self.scale, k, transpose_b=True), axis=-1)
        y = F.reshape(F.matmul(scores, v), (batch, self.heads, length, width // self.heads))
        x = x + self.proj(F.reshape(F.transpose(y, (0, 2, 1, 3)), (batch, length, width)))
        return x + self.fc2(F.relu(self.fc1(self.norm2(x))))


class Pooled(M.Module):
    """Layers, the mean over the plane, and a linear layer."""

    def __init__(self, *layers: M.Module) -> None:
        super().__init__()
        self.layers, self.pool, self.fc = M.Sequential(*layers), M.AdaptiveAvgPool2d(1), M.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        return self.fc(F.flatten(self.pool(self.layers(x)), 1))


def nets() -> dict[str, tuple[M.Module, tuple[int, ...]]]:
    """The nets, and the shapes of their inputs."""
    resnet = Pooled(M.Conv2d(3, 8, 3, 1, 1, bias=False), M.BatchNorm2d(8), M.ReLU(), Block(8, 8, 1), Block(8, 16, 2))
    depthwise = Pooled(
        M.Conv2d(3, 8, 3, 2, 1),
        M.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
        M.BatchNorm2d(8),
        M.Conv2d(8, 16, 1, bias=False),
        M.BatchNorm2d(16),
    )
    return {
        "mlp": (M.Sequential(M.Linear(20, 32), M.ReLU(), M.Linear(32, 10)), (4, 20)),
        "resnet": (resnet, (2, 3, 16, 16)),
        "depthwise": (depthwise, (2, 3, 17, 17)),
        "transformer": (Transformer(16, 4), (2, 9, 16)),
    }


def main(folder: Path) -> None:
    """Build, fill with numbers, record, dump."""
    rng = np.random.RandomState(0)
    for name, (net, shape) in nets().items():
        net.eval()
        for tensor in (*net.parameters(), *net.buffers()):
            tensor[...] = mge.tensor(rng.rand(*tensor.shape).astype("float32") + 0.5)
        recorded = trace(net, symbolic=True, capture_as_const=True)
        recorded(mge.tensor(rng.rand(*shape).astype("float32")))
        for form, options in {
            "plain": {"optimize_for_inference": False, "no_change_graph": True},
            "v2": {},
            "v1": {"dump_format": "FBS"},
        }.items():
            recorded.dump(str(folder / f"{name}.{form}.mge"), arg_names=["data"], output_names=["y"], **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
