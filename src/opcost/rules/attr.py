"""Reading an operator's attributes and inputs: a missing or misspelt one is an error that names the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from opcost.core.dtype import COMPLEX
from opcost.core.graph import TensorSpec
from opcost.errors import RuleError, nearest
from opcost.rules.registry import OpView

T = TypeVar("T")


def integer(op: OpView, name: str, default: int | None = None) -> int:
    """A whole number; required where there is no default."""
    value = op.get(name, default)
    if not isinstance(value, int):
        raise _wrong(op, name, value, "a whole number")
    return value


def integers(op: OpView, name: str) -> tuple[int, ...]:
    """A tuple of whole numbers."""
    value = op.get(name)
    if not isinstance(value, tuple):
        raise _wrong(op, name, value, "a tuple of whole numbers")
    numbers = tuple(item for item in value if isinstance(item, int))
    if len(numbers) != len(value):
        raise _wrong(op, name, value, "a tuple of whole numbers")
    return numbers


def text(op: OpView, name: str, default: str | None = None) -> str:
    """A word; required where there is no default."""
    value = op.get(name, default)
    if not isinstance(value, str):
        raise _wrong(op, name, value, "a word")
    return value


def flag(op: OpView, name: str, *, default: bool = False) -> bool:
    """True or false."""
    return bool(op.get(name, default))


def choose(op: OpView, table: Mapping[str, T], name: str = "fn", default: str | None = None) -> T:
    """The entry of a closed table that an attribute names."""
    key = text(op, name, default)
    if key not in table:
        near = nearest(key, table)
        listed = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(sorted(table))}"
        raise RuleError(f"{op.kind} operator {op.raw or '(unnamed)'} has an unknown {name} {key!r}; {listed}")
    return table[key]


def parts(spec: TensorSpec) -> int:
    """Real numbers in one element: a complex addition is two real ones."""
    return 2 if spec.dtype in COMPLEX else 1


def rest_bytes(op: OpView) -> int:
    """Bytes of the distinct inputs but for the first."""
    return max(op.bytes_in - op.ins[0].nbytes, 0)


def _wrong(op: OpView, name: str, value: object, wanted: str) -> RuleError:
    seen = "missing" if value is None else repr(value)
    return RuleError(
        f"{op.kind} operator {op.raw or '(unnamed)'} needs {wanted} as attribute {name!r}, which is {seen}",
        hint="the attributes of each kind are listed in opcost.core.kinds",
    )
