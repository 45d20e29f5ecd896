"""What a layer costs in MegEngine's `module_stats`, and what listing live models of both frameworks shares.

The convention is multiply-adds and biases, and 7 for each element that is normalized; a user may register other functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

from opcost.core.kinds import CONTRACTIONS
from opcost.core.report import Row
from opcost.errors import InputError
from opcost.rules.contractions import BIASES, CELLS

NORM = 7  # For each element of a normalized input, with weights or without
SUFFIXES = {"weight": "w", "bias": "b"}  # How the names of parameters end in the table


def linear(out: Sequence[int], in_features: int, out_features: int, *, bias: bool) -> int:
    """The bias counts once, however many rows there are."""
    return prod(out) * in_features + out_features * bias


def adaptive_pool(x: Sequence[int], out: Sequence[int], axes: int) -> int:
    """Every element of a window once; the windows are as large as they have to be to cover the input."""
    return prod(out) * prod(-(-n // m) for n, m in zip(x[-axes:], out[-axes:], strict=True) if m)


def recurrent(cell: str, steps: int, layers: Iterable[tuple[int, int, int]], *, bias: bool) -> int:
    """Steps (times batch) through layers of (input, hidden, output) sizes, with two biases for each gate."""
    gates = CELLS[cell].gates
    products = (
        gates * hidden * (size + output + BIASES * bias) + (hidden * output if output != hidden else 0)
        for size, hidden, output in layers
    )
    return steps * sum(products)


def of_row(row: Row) -> int:
    """A recorded operator: its multiply-adds and its bias; what has no multiply-adds is free."""
    if row.op.kind not in CONTRACTIONS or row.cost is None:
        return 0
    attrs, once = row.op.attrs, row.cost.macs
    match row.op.kind:
        case "conv" if len(row.ins) > 2 or attrs.get("bias"):
            once += row.outs[0].numel
        case "matmul" if attrs.get("bias"):
            once += row.outs[0].dims[-1]
        case "recurrent" if attrs.get("bias"):
            gates, steps, layers = CELLS[str(attrs["cell"])].gates, attrs["steps"], attrs["layers"]
            once += steps * sum(BIASES * gates * layer[1] for layer in layers)  # type: ignore[index,operator,misc,union-attr]
    return once * row.op.repeat


# -- layers that a user has registered ---------------------------------------------------------------------------------

FlopsOf: TypeAlias = "Callable[[Any, Any, Any], Any]"  # From a module, its inputs and its outputs to a number

_flops: dict[type, FlopsOf] = {}
_hooked: set[type] = set()


def register_flops(*modules: type) -> Callable[[FlopsOf], FlopsOf]:
    """Make a function of (module, inputs, outputs) the cost of some classes and of what is built on them."""

    def register(function: FlopsOf) -> FlopsOf:
        _flops.update(dict.fromkeys(modules, function))
        return function

    return register


def register_hook_module(module: type | Iterable[type]) -> None:
    """Give classes, and what is built on them, a line of their own."""
    for kind in module if isinstance(module, (tuple, list)) else (module,):
        if not isinstance(kind, type):
            raise TypeError(f"a class of modules is registered, or a list of them, not {kind!r}")
        _hooked.add(kind)


def is_registered(module: Any) -> bool:
    """Whether a user registered the class of a module, or one that it is built on."""
    return any(kind in _hooked or kind in _flops for kind in type(module).__mro__)


def registered_flops(module: Any) -> FlopsOf | None:
    """The function that is registered for the nearest class of a module."""
    return next((_flops[kind] for kind in type(module).__mro__ if kind in _flops), None)


def as_tensors(inputs: Any, tensor: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The positional arguments in a model's inputs: one array, or a list or tuple of them, nested as they are."""

    def nested(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {key: nested(value) for key, value in item.items()}
        if isinstance(item, (list, tuple)):
            values = list(map(nested, item))
            return type(item)(*values) if hasattr(item, "_fields") else values
        try:
            return tensor(item)
        except (TypeError, ValueError, RuntimeError) as exc:
            raise InputError(f"input data of the type {type(item).__name__} is not an array") from exc

    several = isinstance(inputs, (tuple, list)) and not hasattr(inputs, "_fields")
    return tuple(map(nested, inputs if several else [inputs]))
