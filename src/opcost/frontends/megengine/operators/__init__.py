"""What is known about each type of operators: rows of `operators.json`, and in each module functions that they name."""

from __future__ import annotations

from opcost.frontends.megengine.operators import convolution, elements, layers, vision
from opcost.frontends.megengine.operators.table import DATA, FUNCTIONS, MegEngineRow

FUNCTIONS.enter(convolution, elements, layers, vision)

ROWS: dict[str, MegEngineRow] = {
    name: MegEngineRow(**words)
    for family in DATA["rows"].values()
    for words in family
    for name in words.pop("ops").split()
}
"""The row of every type of operators that is known."""
