"""What the host needs to run a model eagerly: to start operators, to call modules, to record for and to run the backward pass.

Everything is timed on the smallest tensors and in turn, as a model runs it, and not again and again: what the processor did for
one operator is no longer in its nearest caches when the same operator comes next.
"""

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from opcost.devices.calibration import HOST_CALLS

Call = Callable[[], Any]

CHAIN = 16  # modules in one another, and operators one after another, of which one is a share
WARM = 2  # rounds that are not counted
PARAMETERS = 48  # that an optimizer updates


def _operators(device: torch.device) -> dict[str, Call]:
    """Calls of operators on the smallest tensors, by what they run."""
    x, y, tokens = torch.ones(4, 8, device=device), torch.ones(4, 8, device=device), torch.zeros(4, 8, device=device)
    weight, bias = torch.ones(8, 8, device=device), torch.ones(8, device=device)
    image, kernel = torch.ones(1, 8, 4, 4, device=device), torch.ones(8, 8, 1, 1, device=device)
    mean, variance = torch.zeros(8, device=device), torch.ones(8, device=device)
    heads = torch.ones(1, 2, 4, 8, device=device)
    batch = torch.ones(2, 4, 8, device=device)
    ids = torch.zeros(1, 4, dtype=torch.int64, device=device)
    half = torch.ones(4, 8, dtype=torch.bfloat16, device=device)
    return {
        "aten::add": lambda: x + y,
        "aten::mul": lambda: x * 2.0,
        "aten::relu": lambda: F.relu(x),
        "aten::gelu": lambda: F.gelu(x),
        "aten::silu": lambda: F.silu(x),
        "aten::pow": lambda: x.pow(2),
        "aten::mean": lambda: x.mean(-1, keepdim=True),
        "aten::rsqrt": lambda: torch.rsqrt(x),
        "aten::_to_copy": lambda: half.to(torch.float32),
        "aten::clone": lambda: x.t().contiguous(),
        "aten::cat": lambda: torch.cat((x, tokens), -1),
        "aten::addmm": lambda: F.linear(x, weight, bias),
        "aten::mm": lambda: F.linear(x, weight),
        "aten::bmm": lambda: torch.bmm(batch, batch.transpose(1, 2)),
        "aten::convolution": lambda: F.conv2d(image, kernel),
        "aten::batch_norm": lambda: F.batch_norm(image, mean, variance, bias, bias),
        "aten::native_layer_norm": lambda: F.layer_norm(x, (8,), bias, bias),
        "aten::_softmax": lambda: F.softmax(x, -1),
        "aten::scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(heads, heads, heads),
        "aten::embedding": lambda: F.embedding(ids, weight),
        "aten::arange": lambda: torch.arange(4, device=device),
        "view": lambda: batch.view(2, 32),
        "transpose": lambda: batch.transpose(0, 1),
        "getitem": lambda: batch[:, 1:],
    }


def _through(x: Tensor) -> Tensor:
    for _ in range(CHAIN):
        x = x * 2.0
    return x


def _steps(device: torch.device) -> dict[str, Call]:
    """Calls of what is around operators."""
    x = torch.ones(4, 8, device=device)
    modules: nn.Module = nn.Identity()
    for _ in range(CHAIN):
        modules = nn.Sequential(modules)
    leaf = torch.ones(4, 8, device=device, requires_grad=True)
    parameters = [nn.Parameter(torch.ones(8, device=device)) for _ in range(PARAMETERS)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    adam = torch.optim.Adam(parameters, foreach=True)
    sgd = torch.optim.SGD(parameters, momentum=0.9, foreach=True)
    linear, norm = nn.Linear(8, 8, device=device), nn.LayerNorm(8, device=device)
    graph: list[Tensor] = []

    def recorded() -> None:
        graph[:] = [_through(leaf)]

    def backward() -> None:
        graph.pop().sum().backward()
        leaf.grad = None

    return {
        "modules": lambda: modules(x),
        "linear": lambda: linear(x),
        "norm": lambda: norm(x),
        "chain": lambda: _through(x),
        "recorded": recorded,
        "backward": backward,
        "adam": adam.step,
        "sgd": sgd.step,
    }


def _python() -> int:
    """A calculation in Python alone."""
    found, table = 0, {"a": 1, "b": 2}
    for number in range(64):
        found += len((number, table["a"])) + isinstance(number, int)
    return found


def time_host(seconds: float) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Nanoseconds of each call: the median of many rounds in which each comes once, in an order that changes.

    Beside them the time of a whole round in each third of the rounds, which is the same if nothing else runs.
    """
    device = torch.device("cpu")
    free, others = {**_operators(device), "python": _python}, _steps(device)
    recording = {name: others.pop(name) for name in ("recorded", "backward")}
    taken: dict[str, list[int]] = {name: [] for name in (*free, *others, *recording)}
    rng, names = random.Random(0), [*free, *others]  # noqa: S311 - an order, no secret
    now = time.perf_counter_ns

    def one(name: str, call: Call) -> None:
        began = now()
        call()
        taken[name].append(now() - began)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        end = time.monotonic() + seconds
        while len(taken["python"]) < WARM + 3 or time.monotonic() < end:
            rng.shuffle(names)
            with torch.no_grad():
                for name in names:
                    one(name, free.get(name) or others[name])
            for name, call in recording.items():
                one(name, call)
    finally:
        torch.set_num_threads(threads)
    steady = {name: found[WARM:] for name, found in taken.items()}
    rounds = len(steady["python"])
    thirds = [slice(rounds * third // 3, rounds * (third + 1) // 3) for third in range(3)]
    repeats = [round(sum(statistics.median(found[third]) for found in steady.values())) for third in thirds]
    return {name: round(statistics.median(found)) for name, found in steady.items()}, {HOST_CALLS: repeats}
