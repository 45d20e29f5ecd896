"""Runs with MegEngine's own Python: builds random nets, dumps them, and writes down what MegEngine says of them.

    python megengine_nets.py FOLDER SEED

For each dump FOLDER gets `NAME.mge`, and `facts.json` says for each: the MACs by hand, from the layers' own settings and the
shapes that MegEngine computed; the parameters; and the shape of every variable after MegEngine has read the dump again.
Nothing of opcost is imported here.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.jit import trace
from megengine.utils.network import Network


class Counting:
    """A module's MACs by its own settings, added up while it runs."""

    def __init__(self) -> None:
        self.macs = 0

    def conv(self, layer: Any, x: Any) -> Any:
        y = layer(x)
        kernel = int(np.prod(layer.kernel_size))
        self.macs += int(np.prod(y.numpy().shape)) * (layer.in_channels // layer.groups) * kernel
        return y

    def transposed(self, layer: Any, x: Any) -> Any:
        kernel = int(np.prod(layer.kernel_size))
        self.macs += int(np.prod(x.numpy().shape)) * (layer.out_channels // layer.groups) * kernel
        return layer(x)

    def linear(self, layer: Any, x: Any) -> Any:
        y = layer(x)
        self.macs += int(np.prod(y.numpy().shape)) * layer.in_features
        return y

    def matmul(self, a: Any, b: Any, **transposed: bool) -> Any:
        y = F.matmul(a, b, **transposed)
        depth = a.numpy().shape[-2 if transposed.get("transpose_a") else -1]
        self.macs += int(np.prod(y.numpy().shape)) * depth
        return y


class Silent:
    """The same calls without counting, for the traced run."""

    def conv(self, layer: Any, x: Any) -> Any:
        return layer(x)

    transposed = linear = conv

    def matmul(self, a: Any, b: Any, **transposed: bool) -> Any:
        return F.matmul(a, b, **transposed)


class Convolutions(M.Module):
    """Convolutions with settings drawn at random: dense, grouped, depthwise, dilated, transposed."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.layers, self.steps = [], []
        channels = 3
        for _ in range(rng.randint(4, 7)):
            kind = rng.choice(("dense", "grouped", "depthwise", "dilated", "transposed"))
            out = rng.choice((8, 12, 16))
            kernel = rng.choice((1, 3, 5))
            bias = rng.random() < 0.5
            if kind == "transposed":
                layer = M.ConvTranspose2d(channels, out, 4, 2, 1, bias=bias)
            elif kind == "depthwise":
                out = channels
                layer = M.Conv2d(channels, out, kernel, 1, kernel // 2, groups=channels, bias=bias)
            elif kind == "grouped" and channels % 4 == 0 and out % 4 == 0:
                layer = M.Conv2d(channels, out, kernel, rng.choice((1, 2)), kernel // 2, groups=4, bias=bias)
            elif kind == "dilated":
                layer = M.Conv2d(channels, out, 3, 1, 2, dilation=2, bias=bias)
            else:
                kind = "dense"
                layer = M.Conv2d(channels, out, kernel, rng.choice((1, 2)), kernel // 2, bias=bias)
            self.layers.append(layer)
            self.steps.append((kind, rng.random() < 0.5, rng.choice(("relu", "sigmoid", "none"))))
            setattr(self, f"conv{len(self.layers)}", layer)
            setattr(self, f"bn{len(self.layers)}", M.BatchNorm2d(out))
            channels = out
        self.pool = M.MaxPool2d(2, 2)
        self.fc = M.Linear(channels, rng.randint(3, 9))

    def forward(self, x: Any, by: Any) -> Any:
        for index, (kind, normalized, activation) in enumerate(self.steps):
            layer = getattr(self, f"conv{index + 1}")
            x = by.transposed(layer, x) if kind == "transposed" else by.conv(layer, x)
            if normalized:
                x = getattr(self, f"bn{index + 1}")(x)
            if activation != "none":
                x = getattr(F, activation)(x)
        x = self.pool(x)
        x = F.mean(F.reshape(x, (x.shape[0], x.shape[1], -1)), axis=2)
        return by.linear(self.fc, x)


class Attention(M.Module):
    """One block of a transformer with sizes drawn at random."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.heads = rng.choice((2, 4))
        self.size = self.heads * rng.choice((4, 8))
        self.norm = M.LayerNorm(self.size)
        self.q, self.k = M.Linear(self.size, self.size), M.Linear(self.size, self.size)
        self.v, self.o = M.Linear(self.size, self.size), M.Linear(self.size, self.size, bias=False)
        hidden = rng.choice((24, 40))
        self.up, self.down = M.Linear(self.size, hidden), M.Linear(hidden, self.size)

    def split(self, x: Any) -> Any:
        batch, length = x.shape[0], x.shape[1]
        return F.transpose(F.reshape(x, (batch, length, self.heads, self.size // self.heads)), (0, 2, 1, 3))

    def forward(self, x: Any, by: Any) -> Any:
        y = self.norm(x)
        q, k, v = (self.split(by.linear(layer, y)) for layer in (self.q, self.k, self.v))
        scores = F.softmax(by.matmul(q, k, transpose_b=True) / self.size**0.5, axis=-1)
        y = F.transpose(by.matmul(scores, v), (0, 2, 1, 3))
        x = x + by.linear(self.o, F.reshape(y, (x.shape[0], x.shape[1], self.size)))
        return x + by.linear(self.down, F.gelu(by.linear(self.up, x)))


class Block(M.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(cin, cout, 3, stride, 1, bias=False), M.BatchNorm2d(cout)
        self.conv2, self.bn2 = M.Conv2d(cout, cout, 3, 1, 1, bias=False), M.BatchNorm2d(cout)
        self.shortcut = M.Conv2d(cin, cout, 1, stride, bias=False) if stride != 1 or cin != cout else None
        self.bn3 = M.BatchNorm2d(cout) if self.shortcut is not None else None

    def forward(self, x: Any, by: Any) -> Any:
        y = F.relu(self.bn1(by.conv(self.conv1, x)))
        y = self.bn2(by.conv(self.conv2, y))
        return F.relu(y + (x if self.shortcut is None else self.bn3(by.conv(self.shortcut, x))))


class ResNet18(M.Module):
    """The full width, 45 MB of weights: what the time of reading is measured with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.maxpool = (
            M.Conv2d(3, 64, 7, 2, 3, bias=False),
            M.BatchNorm2d(64),
            M.MaxPool2d(3, 2, 1),
        )
        sizes = (
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
            (256, 512, 2),
            (512, 512, 1),
        )
        self.blocks = [Block(*size) for size in sizes]
        for index, block in enumerate(self.blocks):
            setattr(self, f"block{index}", block)
        self.fc = M.Linear(512, 1000)

    def forward(self, x: Any, by: Any) -> Any:
        x = self.maxpool(F.relu(self.bn1(by.conv(self.conv1, x))))
        for block in self.blocks:
            x = block(x, by)
        return by.linear(self.fc, F.flatten(F.avg_pool2d(x, 7), 1))


DUMPS = (
    ("v2", {}),
    ("v2_plain", {"no_change_graph": True, "optimize_for_inference": False}),
    ("v2_unnamed", {"keep_var_name": 0}),
    ("v1", {"dump_format": "FBS"}),
    ("v1_fused", {"dump_format": "FBS", "enable_fuse_conv_bias_nonlinearity": True}),
)


def variables(path: Path) -> Counter[str]:
    """Type and shape of every operator's first result, as MegEngine infers them from the dump."""
    found: Counter[str] = Counter()
    for operator in Network.load(str(path)).all_oprs:
        var = operator.outputs[-1] if operator.type.startswith("BatchNorm") else operator.outputs[0]
        found[f"{operator.type} {'x'.join(map(str, var.shape))}"] += 1
    return found


def traced(net: Any, data: Any) -> Any:
    """The net as MegEngine records it."""
    found = trace(lambda x: net(x, Silent()), symbolic=True, capture_as_const=True)
    found(data)
    return found


def main(folder: Path, seed: int) -> None:
    """Build, count by hand, dump, read again."""
    rng = random.Random(seed)
    mge.random.seed(seed)
    attention = Attention(rng)
    nets = {
        "convolutions": (Convolutions(rng), (rng.choice((1, 2)), 3, 32, 24)),
        "attention": (attention, (rng.choice((1, 3)), rng.randint(5, 9), attention.size)),
        "resnet18": (ResNet18(), (1, 3, 224, 224)),
    }
    facts: dict[str, Any] = {"seed": seed, "version": mge.__version__, "nets": {}}
    for name, (net, shape) in nets.items():
        net.eval()
        data = mge.tensor(np.random.RandomState(seed).rand(*shape).astype("float32"))
        counting = Counting()
        output = net(data, counting)
        recorded = traced(net, data)
        dumps = {}
        for form, options in DUMPS if name != "resnet18" else DUMPS[:1]:
            path = folder / f"{name}.{form}.mge"
            recorded.dump(str(path), arg_names=["data"], output_names=["y"], **options)
            dumps[form] = dict(variables(path)) if name != "resnet18" else {}
        facts["nets"][name] = {
            "input": shape,
            "output": output.numpy().shape,
            "macs": counting.macs,
            "weights": {key: list(value.shape) for key, value in net.named_parameters()},
            "dumps": dumps,
        }
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
