"""Runs with MegEngine's own Python, and opcost on its path: MegEngine's statistics and opcost's of random nets.

    python megengine_stats.py FOLDER SEED

prints JSON: for each net what either counter returned and printed (or that MegEngine's raised), and what a model looks like
after it was counted.
"""

from __future__ import annotations

import io
import json
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.utils.module_stats as their_stats
import numpy as np
from megengine.jit import trace
from megengine.quantization import disable_observer, ema_fakequant_qconfig, quantize, quantize_qat
from megengine.tools import network_visualize
from megengine.utils.naming import AutoNaming

from opcost.compat.megengine import module_stats, visualize


class Convolutional(M.Module):
    """Convolutions of all kinds, norms, pooling, and a linear layer."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        groups = draw.choice((1, 2, 4))
        a, b = 4 * draw.randint(1, 3), 4 * draw.randint(1, 3)
        self.stem = M.Conv2d(3, a, draw.choice((3, 5)), draw.choice((1, 2)), 2, bias=draw.random() < 0.5)
        self.bn = M.BatchNorm2d(a)
        self.group = M.Conv2d(a, b, 3, padding=1, groups=groups, bias=draw.random() < 0.5)
        self.norm = M.GroupNorm(4, b)
        self.pool = draw.choice((M.MaxPool2d, M.AvgPool2d))(draw.choice((2, 3)), 2)
        self.up = M.ConvTranspose2d(b, a, 2, 2, groups=groups, bias=draw.random() < 0.5)
        self.fc = M.Linear(a, draw.randint(2, 9), bias=draw.random() < 0.5)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.bn(self.stem(x)))
        x = self.up(self.pool(self.norm(self.group(x))))
        return F.softmax(self.fc(F.mean(x, axis=(2, 3))), axis=1)


class Quantizable(M.Module):
    """Fused layers that quantization turns into others."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        a = 4 * draw.randint(1, 3)
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.first = M.ConvBnRelu2d(3, a, 3, 2, 1)
        self.second = M.ConvBn2d(a, a, 3, 1, 1)
        self.add = M.Elemwise("fuse_add_relu")
        self.third = M.ConvRelu2d(a, 2 * a, 3, 2, 1, groups=2)

    def forward(self, x: Any) -> Any:
        x = self.first(self.quant(x))
        return self.dequant(self.third(self.add(x, self.second(x))))


class WithLinear(Quantizable):
    """The same with a linear layer, on which MegEngine's counter fails once it is quantized."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.fc = M.Linear(2 * self.first.conv.out_channels * 16, 7)

    def forward(self, x: Any) -> Any:
        x = self.first(self.quant(x))
        x = self.third(self.add(x, self.second(x)))
        return self.dequant(self.fc(F.flatten(x, 1)))


class Attention(M.Module):
    """Two matrix products that are functions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (M.Linear(width, width) for _ in range(3))

    def forward(self, x: Any) -> Any:
        scores = F.matmul(self.q(x), self.k(x), transpose_b=True)
        return F.matmul(F.softmax(scores, axis=-1), self.v(x))


class Words(M.Module):
    """Layers on which MegEngine's counter fails."""

    def __init__(self, words: int, width: int, hidden: int) -> None:
        super().__init__()
        self.table = M.Embedding(words, width)
        self.lstm = M.LSTM(width, hidden)
        self.act = M.PReLU(1)
        self.fc = M.Linear(hidden, 3)

    def forward(self, tokens: Any) -> Any:
        y, _ = self.lstm(self.table(tokens))
        return self.fc(self.act(y))


class Failing(M.Module):
    """A forward that raises after it has called a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bn = M.Linear(3, 3), M.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        self.bn(self.fc(x))
        raise ValueError("no")


@contextmanager
def messages(logger: logging.Logger) -> Iterator[list[str]]:
    """What a logger gets, without the heads of its lines."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    before, logger.handlers = logger.handlers, [handler]
    try:
        yield found
    finally:
        logger.handlers = before


def counted_by(call: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any]:
    """Totals and text of one of the counters, or the type of what it raised."""
    out = io.StringIO()
    try:
        with redirect_stdout(out), messages(their_stats.logger) as found:
            totals, _ = call(*args, **options)
    except Exception as exc:  # noqa: BLE001 - MegEngine's counter fails in many ways
        while AutoNaming.scopes:  # it leaves these behind
            AutoNaming.pop_scope()
        return {"error": type(exc).__name__}
    return {"totals": [int(total) for total in totals], "text": "\n".join(found) or out.getvalue().rstrip("\n")}


def both(net: M.Module, **options: Any) -> dict[str, Any]:
    """Ours first: MegEngine's counter leaves hooks behind where it fails."""
    return {
        "ours": counted_by(module_stats, net, **options),
        "theirs": counted_by(their_stats.module_stats, net, **options),
    }


def quantized(net: M.Module, x: Any) -> tuple[M.Module, M.Module]:
    """The net prepared for quantization, and quantized."""
    prepared = quantize_qat(net, inplace=False, qconfig=ema_fakequant_qconfig)
    prepared.train()
    prepared(mge.tensor(x))
    prepared.eval()
    disable_observer(prepared)
    return prepared, quantize(prepared, inplace=False)


def state(net: M.Module) -> list[Any]:
    return [
        [module.training for module in net.modules()],
        [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()],
        [float(np.abs(tensor.numpy()).sum()) for tensor in net.buffers()],
        len(AutoNaming.scopes),
    ]


def restored() -> dict[str, Any]:
    """What two models look like before and after they were counted."""
    found: dict[str, Any] = {}
    for name, net in (("fine", M.Sequential(M.Linear(3, 3), M.BatchNorm1d(3))), ("failing", Failing())):
        net.train()
        next(iter(net.children())).training = False
        before = state(net)
        counted = counted_by(module_stats, net, inputs=np.ones((2, 3), "float32"))
        found[name] = {"before": before, "after": state(net), "error": counted.get("error")}
    return found


def dumped(net: M.Module, x: Any, folder: Path) -> dict[str, Any]:
    """Both `visualize` of a dump."""
    net.eval()
    run = trace(lambda data: net(data), symbolic=True, capture_as_const=True)  # noqa: PLW0108 - it takes no module
    run(mge.tensor(x))
    path = folder / "net.mge"
    run.dump(str(path), arg_names=["data"], no_change_graph=True)
    network_visualize.tqdm = lambda items: items
    return {
        "ours": counted_by(visualize, path, None),
        "theirs": counted_by(network_visualize.visualize, str(path), None),
    }


def main(folder: str, seed: str) -> None:
    """Count everything and print what was found."""
    warnings.filterwarnings(
        "error", message="functions called outside a layer"
    )  # what opcost says where it cannot trace
    draw = random.Random(int(seed))
    image = np.random.RandomState(int(seed) % 2**32).rand(1, 3, 16, 16).astype("float32")
    width, length, words, hidden = (draw.randint(3, 12) for _ in range(4))
    plain, linear = Quantizable(draw), WithLinear(draw)
    prepared, turned = quantized(plain, image)
    prepared_linear, turned_linear = quantized(linear, image)
    sequence = M.Sequential(M.LocalConv2d(4, width, 6, 6, 3, padding=1), M.Sequential(M.Conv2d(width, 2, 3)))
    tokens = np.zeros((length, 2), "int32")
    net = Convolutional(draw)
    found = {
        "sizes": {"width": width, "length": length, "words": words, "hidden": hidden},
        "convolutional": both(net, inputs=image),
        "shapes": both(net, input_shapes=[(2, 3, 16, 16)], bar_length_max=9),
        "float": both(plain, inputs=image),
        "prepared": both(prepared, inputs=image),
        "quantized": both(turned, inputs=image),
        "linear_float": both(linear, inputs=image),
        "linear_prepared": both(prepared_linear, inputs=image),
        "linear_quantized": both(turned_linear, inputs=image),
        "sequence": both(sequence, input_shapes=[(2, 4, 6, 6)]),
        "attention": both(Attention(width), input_shapes=[(2, length, width)]),
        "words": both(Words(words, width, hidden), inputs=tokens),
        "restored": restored(),
        "dump": dumped(net, image, Path(folder)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
