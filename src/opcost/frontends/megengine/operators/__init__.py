"""What is known about each type of operators: rows of `operators.json`, and in each module functions that they name."""

from opcost.frontends.megengine.operators import convolution, elements, layers, vision
from opcost.frontends.megengine.operators.table import DATA, FUNCTIONS
from opcost.frontends.rows import RowOperator

FUNCTIONS.enter(convolution, elements, layers, vision)

_OPERATORS = [FUNCTIONS.row(**words) for family in DATA["rows"].values() for words in family]
ROWS: dict[str, RowOperator] = {name: operator for operator in _OPERATORS for name in operator.names}
"""The row of every type of operators that is known."""
