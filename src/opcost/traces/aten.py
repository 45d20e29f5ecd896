"""The common operators of PyTorch, as a trace names them, in our words: kind, tensors in the order of `core.kinds`, attributes.

A trace has the inputs' shapes and types and the values of plain arguments, but no outputs; these follow from the inputs.
"""

from __future__ import annotations

from opcost.traces import aten_arithmetic, aten_contractions, aten_moves
from opcost.traces.aten_call import Meaning, Translator, arguments_of, values_of

_TABLES = (aten_contractions, aten_arithmetic, aten_moves)

USES_VALUES = frozenset(name for table in _TABLES for name in table.VALUED)
"""Operators whose meaning needs the values of plain arguments; of the others these are not kept."""

_TRANSLATORS: dict[str, Translator] = {
    name: translator for table in _TABLES for name, translator in (*table.VALUED.items(), *table.PLAIN.items())
}


def meaning(name: str, dims: bytes, types: bytes, concrete: bytes) -> Meaning:
    """What an operator did, as far as the trace tells."""
    arguments = arguments_of(dims, types)
    tensors = tuple(argument for argument in arguments if argument is not None)
    translator = _TRANSLATORS.get(name)
    if translator is not None and tensors:
        try:
            found = translator(arguments, values_of(concrete))
        except (IndexError, ValueError, TypeError):  # a schema of another version: the tensors are still right
            found = None
        if found is not None:
            return found
    return Meaning("", tensors)
