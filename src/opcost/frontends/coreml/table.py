"""The table of what Core ML's operators mean, which the families of operators fill, and how handlers ask for arguments."""

from __future__ import annotations

from opcost.core.shapes import Unknown
from opcost.frontends.nodes.call import Call, Made, Table, entering
from opcost.frontends.nodes.model import Number

TABLE: Table = {}
handles = entering(TABLE)


def args(call: Call, name: str) -> list[Made]:
    """The tensors of an argument that may be several."""
    return [made for place in call.attrs["@"].get(name, ()) if (made := call.ins[place]) is not None]


def arg(call: Call, name: str) -> Made | None:
    """A tensor that may be left out."""
    return next(iter(args(call, name)), None)


def need(call: Call, name: str) -> Made:
    """A tensor that must be there."""
    found = arg(call, name)
    if found is None:
        raise IndexError(f"the argument {name!r} is missing")
    return found


def numbers(call: Call, name: str) -> tuple[Number, ...] | None:
    """Numbers that are written out or known, with None where one is not; None: the argument is left out."""
    if name in call.attrs:
        found = call.attrs[name]
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)
    given = arg(call, name)
    return None if given is None else given.numbers


def integers(call: Call, name: str) -> tuple[int, ...] | None:
    """Whole numbers that must all be known; None: the argument is left out."""
    found = numbers(call, name)
    if found is None:
        return None
    if None in found:
        raise Unknown
    return tuple(int(number) for number in found)  # type: ignore[arg-type]


def integer(call: Call, name: str, default: int = 0) -> int:
    """One whole number."""
    found = integers(call, name)
    return default if not found else found[0]


def flag(call: Call, name: str, *, default: bool = False) -> bool:
    """Yes or no."""
    found = numbers(call, name)
    return default if not found else bool(found[0])


def word(call: Call, name: str, default: str = "") -> str:
    """A text."""
    return str(call.attrs.get(name, default))
