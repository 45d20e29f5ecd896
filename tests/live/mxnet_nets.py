"""The nets of the parity test in gluon: `python tests/live/mxnet_nets.py FOLDER` writes them as symbols."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet.gluon import nn


class Block(nn.HybridBlock):
    """Two convolutions and a shortcut, as in a ResNet."""

    def __init__(self, channels: int, stride: int, **words: Any) -> None:
        super().__init__(**words)
        with self.name_scope():
            self.conv1 = nn.Conv2D(channels, 3, stride, 1, use_bias=False)
            self.norm1 = nn.BatchNorm()
            self.conv2 = nn.Conv2D(channels, 3, 1, 1, use_bias=False)
            self.norm2 = nn.BatchNorm()
            self.shortcut = nn.Conv2D(channels, 1, stride, use_bias=False) if stride > 1 else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Transformer(nn.HybridBlock):
    """One block with the attention written out."""

    def __init__(self, width: int, heads: int, **words: Any) -> None:
        super().__init__(**words)
        self.heads, self.scale = heads, (width // heads) ** -0.5
        with self.name_scope():
            self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
            self.qkv = nn.Dense(3 * width, flatten=False)
            self.proj = nn.Dense(width, flatten=False)
            self.fc1 = nn.Dense(4 * width, flatten=False)
            self.fc2 = nn.Dense(width, flatten=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        q, k, v = F.split(self.qkv(self.norm1(x)), num_outputs=3, axis=2)
        q, k, v = (self._split(part) for part in (q, k, v))
        scores = F.softmax(F.batch_dot(q * self.scale, k, transpose_b=True))
        x = x + self.proj(self._join(F.batch_dot(scores, v)))
        return x + self.fc2(F.relu(self.fc1(self.norm2(x))))

    def _split(self, x: Any) -> Any:
        return x.reshape((0, 0, self.heads, -1)).transpose((0, 2, 1, 3)).reshape((-3, 0, 0))

    def _join(self, x: Any) -> Any:
        return x.reshape((-4, -1, self.heads, 0, 0)).transpose((0, 2, 1, 3)).reshape((0, 0, -3))


def sequential(prefix: str, *layers: Any) -> Any:
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(*(layer() for layer in layers))
    return net


def nets() -> dict[str, Any]:
    """The nets by their names."""
    return {
        "mlp": sequential("mlp_", lambda: nn.Dense(32, activation="relu"), lambda: nn.Dense(10)),
        "resnet": sequential(
            "resnet_",
            lambda: nn.Conv2D(8, 3, 1, 1, use_bias=False),
            nn.BatchNorm,
            lambda: nn.Activation("relu"),
            lambda: Block(8, 1),
            lambda: Block(16, 2),
            nn.GlobalAvgPool2D,
            nn.Flatten,
            lambda: nn.Dense(10),
        ),
        "depthwise": sequential(
            "depthwise_",
            lambda: nn.Conv2D(8, 3, 2, 1),
            lambda: nn.Conv2D(8, 3, 1, 1, groups=8, use_bias=False),
            nn.BatchNorm,
            lambda: nn.Conv2D(16, 1, use_bias=False),
            nn.BatchNorm,
            nn.GlobalAvgPool2D,
            nn.Flatten,
            lambda: nn.Dense(10),
        ),
        "transformer": Transformer(16, 4, prefix="transformer_"),
    }


if __name__ == "__main__":
    for name, net in nets().items():
        net(mx.sym.var("data")).save(str(Path(sys.argv[1]) / f"{name}-symbol.json"))
