"""Operators that are only named here: their results or costs depend on data, on other runtimes or on code elsewhere.

They stay unknown, and the report says so. Where the number or the shape of the results is plain, it is told.
"""

from __future__ import annotations

from opcost.core.shapes import Shape, Unknown
from opcost.frontends.megengine.node import Node, Rule, means


def _unknown(node: Node) -> list[Shape]:
    raise Unknown


def _forwarded(node: Node) -> list[Shape]:
    """A condition first, then what goes through."""
    return [node.dims(index) for index in range(1, len(node.shapes))]


_UNKNOWN = Rule(_unknown, means("unknown"))

RULES = {
    "CondExecMark": Rule(_forwarded, means("unknown")),
    "CondExecMarkIfNeed": Rule(_forwarded, means("unknown")),
    "CondExecPred": _UNKNOWN,
    "CondExecPredLogical": _UNKNOWN,
    "CondExecMerge": _UNKNOWN,
    "Loop": _UNKNOWN,
    "ExternCOprRunner": _UNKNOWN,
    "TensorRTRuntimeOpr": _UNKNOWN,
    "AtlasRuntimeOpr": _UNKNOWN,
    "CambriconRuntimeOpr": _UNKNOWN,
    "MagicMindRuntimeOpr": _UNKNOWN,
    "NvOf": _UNKNOWN,
}
