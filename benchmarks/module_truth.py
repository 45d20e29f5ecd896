"""Which module ran which operator, found by hooks: another way than the recorder's, to check it by.

Forward: every module pushes an annotation in a hook before its forward and pops it in one after; the innermost annotation
around an operator is its module. Backward: as a module ends, the autograd nodes between its outputs and its inputs that no
module inside it made are its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from opcost.core.profile import Profile

MARK = "module of "
_NODE = re.compile(r"\w+Backward\d*$")


def forward_truth(model: nn.Module, args: tuple[Any, ...]) -> list[tuple[str, str]]:
    """Module and name of every operator that the model's code calls, in order."""
    open_: list[Any] = []
    handles = []

    def enter(path: str) -> Any:
        def hook(*_: Any) -> None:
            open_.append(record_function(MARK + path))
            open_[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        open_.pop().__exit__(None, None, None)

    for path, module in model.named_modules():
        handles += [module.register_forward_pre_hook(enter(path)), module.register_forward_hook(leave)]
    try:
        with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
            model(*args)
    finally:
        for handle in handles:
            handle.remove()
    events = [event for event in profiler.events() if event.time_range.elapsed_us() >= 0]
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    return list(_outermost(events))


def _outermost(events: list[Any]) -> Iterator[tuple[str, str]]:
    marks: list[tuple[float, str]] = []
    busy_until = float("-inf")
    for event in events:
        start, end = event.time_range.start, event.time_range.end
        while marks and marks[-1][0] <= start:
            marks.pop()
        if event.name.startswith(MARK):
            marks.append((end, event.name.removeprefix(MARK)))
        elif event.name.startswith("aten::") and start >= busy_until:
            busy_until = end
            yield marks[-1][1] if marks else "", event.name


def backward_truth(model: nn.Module, args: tuple[Any, ...]) -> Counter[tuple[str, str]]:
    """How many autograd nodes of each kind each module makes."""
    made: dict[Any, str] = {}
    given: list[set[Any]] = []
    """What the inputs of the running modules were made by; taken beforehand, as an operator in place changes it."""

    def enter(_: nn.Module, args: tuple[Any, ...]) -> None:
        given.append({tensor.grad_fn for tensor in args if isinstance(tensor, torch.Tensor)})

    def leave(path: str) -> Any:
        return lambda _module, _args, result: _claim(path, given.pop(), result, made)

    handles = []
    for path, module in model.named_modules():
        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave(path))]
    try:
        with torch.enable_grad():
            model(*args)
    finally:
        for handle in handles:
            handle.remove()
    return Counter((path, node.name()) for node, path in made.items() if _NODE.match(node.name()))


def _claim(path: str, before: set[Any], result: Any, made: dict[Any, str]) -> None:
    results = result if isinstance(result, (tuple, list)) else (result,)
    waiting = [tensor.grad_fn for tensor in results if isinstance(tensor, torch.Tensor)]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in before or node in seen:
            continue
        seen.add(node)
        made.setdefault(node, path)
        waiting += [following for following, _ in node.next_functions]


def recorded_forward(profile: Profile) -> list[tuple[str, str]]:
    """What a profile says of its first step."""
    return [
        (row.module, row.type)
        for row in profile.rows
        if row.step == 0 and row.phase == "forward" and row.type.startswith("aten::")
    ]


def recorded_backward(profile: Profile) -> Counter[tuple[str, str]]:
    """Autograd nodes of the first step, by module."""
    return Counter((row.module, row.type) for row in profile.rows if row.step == 0 and _NODE.match(row.type))
