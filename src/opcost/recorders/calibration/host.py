"""What the host needs for each part of running a model eagerly: to start an operator, to call a module, to record for autograd.

Everything is timed on the smallest tensors and in turn, as a model runs it, and not again and again: what the processor did for
one operator is no longer in its nearest caches when the same operator comes next. No GPU takes part.
"""

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from opcost.devices.calibration import HOST_CALLS

Call = Callable[[], Any]

WARM = 2  # rounds that are not counted
CHAIN = 16  # modules in one another, and operators one after another, of which one is a share
PARAMETERS = 48  # that an optimizer updates
UPDATES = 8  # operators over all parameters in a step of Adam


def _operators() -> dict[str, Call]:
    """Calls of operators on the smallest tensors, by what they run."""
    x, y = torch.ones(4, 8), torch.ones(4, 8)
    weight, bias = torch.ones(8, 8), torch.ones(8)
    image, kernel = torch.ones(1, 8, 4, 4), torch.ones(8, 8, 1, 1)
    mean, variance = torch.zeros(8), torch.ones(8)
    heads = torch.ones(1, 2, 4, 8)
    batch = torch.ones(2, 4, 8)
    ids = torch.zeros(1, 4, dtype=torch.int64)
    half = torch.ones(4, 8, dtype=torch.bfloat16)
    return {
        "aten::add": lambda: x + y,
        "aten::mul": lambda: x * 2.0,
        "aten::relu": lambda: F.relu(x),
        "aten::silu": lambda: F.silu(x),
        "aten::pow": lambda: x.pow(2),
        "aten::mean": lambda: x.mean(-1, keepdim=True),
        "aten::rsqrt": lambda: torch.rsqrt(x),
        "aten::_to_copy": lambda: half.to(torch.float32),
        "aten::clone": lambda: x.t().contiguous(),
        "aten::cat": lambda: torch.cat((x, y), -1),
        "aten::addmm": lambda: F.linear(x, weight, bias),
        "aten::mm": lambda: F.linear(x, weight),
        "aten::bmm": lambda: torch.bmm(batch, batch.transpose(1, 2)),
        "aten::convolution": lambda: F.conv2d(image, kernel),
        "aten::batch_norm": lambda: F.batch_norm(image, mean, variance, bias, bias),
        "aten::native_layer_norm": lambda: F.layer_norm(x, (8,), bias, bias),
        "aten::_softmax": lambda: F.softmax(x, -1),
        "aten::scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(heads, heads, heads),
        "aten::embedding": lambda: F.embedding(ids, weight),
        "view": lambda: batch.view(2, 32),
        "transpose": lambda: batch.transpose(0, 1),
    }


def _chain(x: Tensor) -> Tensor:
    for _ in range(CHAIN):
        x = x * 2.0
    return x


def _steps() -> dict[str, Call]:
    """Calls of what is around operators."""
    x = torch.ones(4, 8)
    modules: nn.Module = nn.Identity()
    for _ in range(CHAIN):
        modules = nn.Sequential(modules)
    parameters = [nn.Parameter(torch.ones(8)) for _ in range(PARAMETERS)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    adam = torch.optim.Adam(parameters, foreach=True)
    return {"modules": lambda: modules(x), "chain": lambda: _chain(x), "adam": adam.step}


def time_host(seconds: float) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Nanoseconds of each part: of operators by name, a view, a module, a record for autograd, an update of one parameter.

    Each is the median of many rounds in which every call comes once, in an order that changes. Beside them the time of a whole
    round in each third of the rounds, which is the same if nothing else runs.
    """
    free, leaf = {**_operators(), **_steps()}, torch.ones(4, 8, requires_grad=True)
    taken: dict[str, list[int]] = {name: [] for name in (*free, "recorded")}
    rng, names = random.Random(0), list(free)  # noqa: S311 - an order, no secret
    now = time.perf_counter_ns

    def one(name: str, call: Call) -> None:
        began = now()
        call()
        taken[name].append(now() - began)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        end = time.monotonic() + seconds
        while len(taken["recorded"]) < WARM + 3 or time.monotonic() < end:
            rng.shuffle(names)
            with torch.no_grad():
                for name in names:
                    one(name, free[name])
            with torch.enable_grad():
                one("recorded", lambda: _chain(leaf))
    finally:
        torch.set_num_threads(threads)
    steady = {name: found[WARM:] for name, found in taken.items()}
    rounds = len(steady["recorded"])
    thirds = [slice(rounds * third // 3, rounds * (third + 1) // 3) for third in range(3)]
    repeats = [round(sum(median(found[third]) for found in steady.values())) for third in thirds]
    of = {name: median(found) for name, found in steady.items()}
    parts = {
        **{name: of[name] for name in _operators() if "::" in name},
        "view": (of["view"] + of["transpose"]) / 2,
        "module": of["modules"] / (CHAIN + 1),
        "record": max(0, of["recorded"] - of["chain"]) / CHAIN,
        "update": of["adam"] / PARAMETERS / UPDATES,
    }
    return {name: round(part) for name, part in parts.items()}, {HOST_CALLS: repeats}
