"""Results that are like arguments, row by row: `results.json` names those for each list of operators, as `self self:int64`."""

from __future__ import annotations

from opcost.core.parsing import packaged_table
from opcost.frontends.aten.outputs.table import Outputs, first, like, on

_FIRST = "(first)"
"""The first argument, whatever it is called."""


def _like(words: str) -> Outputs:
    """Results like the arguments of these names, of their types or of those behind the colon."""
    wanted = [word.partition(":") for word in words.split()]
    return lambda call: [like(first(call) if name == _FIRST else call[name], dtype) for name, _, dtype in wanted]


for _words, _names in packaged_table(__package__, "results.json").items():
    on(*_names)(_like(_words))
