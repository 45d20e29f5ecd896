"""Reading an operator's attributes and inputs. They are as `core.kinds` says: a graph where they are not is never priced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from opcost.core.dtype import COMPLEX
from opcost.core.graph import TensorSpec
from opcost.rules.registry import OpView

T = TypeVar("T")


def integer(op: OpView, name: str, default: int | None = None) -> int:
    """A whole number; required where there is no default."""
    return _read(op, name, default)  # type: ignore[no-any-return]


def integers(op: OpView, name: str) -> tuple[int, ...]:
    """A tuple of whole numbers."""
    return _read(op, name)  # type: ignore[no-any-return]


def texts(op: OpView, name: str) -> tuple[str, ...]:
    """A tuple of words, empty where none are told."""
    return _read(op, name, ())  # type: ignore[no-any-return]


def text(op: OpView, name: str, default: str | None = None) -> str:
    """A word; required where there is no default."""
    return _read(op, name, default)  # type: ignore[no-any-return]


def flag(op: OpView, name: str, *, default: bool = False) -> bool:
    """True or false."""
    return bool(op.get(name, default))


def choose(op: OpView, table: Mapping[str, T], name: str = "fn", default: str | None = None) -> T:
    """The entry of a table that an attribute names."""
    return table[text(op, name, default)]


def parts(spec: TensorSpec) -> int:
    """Real numbers in one element: a complex addition is two real ones."""
    return 2 if spec.dtype in COMPLEX else 1


def rest_bytes(op: OpView) -> int:
    """Bytes of the distinct inputs but for the first."""
    return max(op.bytes_in - op.ins[0].nbytes, 0)


def _read(op: OpView, name: str, default: object = None) -> Any:
    return op.attrs[name] if default is None else op.attrs.get(name, default)
