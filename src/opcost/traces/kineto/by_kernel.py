"""What the names of kernels tell of operators whose arguments the profiler does not write: types in lists, and texts.

`cat` copies elements as numbers of their size (`OpaqueType<2u>`), so only that is told: `bits16`. Of `gelu` the two
approximations are two functions within a function of PyTorch, the first of them with tanh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from opcost.core.names import is_copy
from opcost.traces.kineto.arguments import DTYPES

_CAT = re.compile(r"CatArrayBatchedCopy\w*<(?:[\w: ()]*OpaqueType<(\d+)u?>|([\w:]+(?: \w+)?)),")
_GELU = re.compile(r"Gelu(Backward)?CUDAKernelImpl\([^{]*\{lambda\(\)#([12])\}")
_NAMES = {"aten::cat": _CAT, "aten::gelu": _GELU, "aten::gelu_backward": _GELU}


class Hint(NamedTuple):
    """What is not written among the arguments."""

    dtype: str = ""
    """Of tensors in lists."""
    approximate: str | None = None


def hint_of(operator: str, kernels: Iterable[str]) -> Hint | None:
    """What the kernels of an operator tell; None where they tell nothing, or not the same."""
    pattern = _NAMES.get(operator)
    if pattern is None:
        return None
    found = {_told(pattern, name) for name in kernels if not is_copy(name)}
    return found.pop() if len(found) == 1 else None


def _told(pattern: re.Pattern[str], name: str) -> Hint | None:
    match = pattern.search(name)
    if match is None:
        return None
    if pattern is _GELU:
        return Hint(approximate="tanh" if match[2] == "1" else "none")
    dtype = f"bits{8 * int(match[1])}" if match[1] else DTYPES.get(match[2], "")
    return Hint(dtype=dtype) if dtype else None
