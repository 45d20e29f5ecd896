"""The common operators of PyTorch, as a trace names them, in our words: kind, tensors in the order of `core.kinds`, attributes.

A trace has the inputs' shapes and types and the values of plain arguments, but no outputs; these follow from the inputs.
"""

from __future__ import annotations

from opcost.traces import aten_arithmetic, aten_contractions, aten_moves
from opcost.traces.aten_call import Meaning, Told, arguments_of, values_of

_TABLES = (aten_contractions, aten_arithmetic, aten_moves)

USES_VALUES = frozenset(name for table in _TABLES for name in table.VALUED)
"""Operators whose meaning needs the values of plain arguments; of the others these are not kept."""

_KNOWN: dict[str, Told] = {
    name: told for table in _TABLES for name, told in (*table.VALUED.items(), *table.PLAIN.items())
}


def meaning(name: str, dims: bytes, types: bytes, concrete: bytes) -> Meaning:
    """What an operator did, as far as the trace tells."""
    arguments = arguments_of(dims, types)
    tensors = tuple(argument for argument in arguments if argument is not None)
    told = _KNOWN.get(name)
    if told is None:
        return Meaning("", tensors)
    try:
        return told.translate(arguments, values_of(concrete))
    except (
        IndexError,
        ValueError,
        TypeError,
    ):  # no shapes, or a schema of another version: the tensors are still right
        return Meaning(told.kind, tensors)
