"""Mean and deviation of stored numbers, with numpy where it is installed and without it where not."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

_CODES = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint64": "Q",
    "uint32": "I", "uint16": "H", "uint8": "B", "bool": "B",
}  # fmt: skip
_CHUNK = 1 << 16
"""Elements that are unpacked at once."""


def mean_and_std(data: memoryview | bytes, dtype: str) -> tuple[float, float] | None:
    """Of the little-endian numbers in a piece of memory; None for none, and for a type that is not stored plainly."""
    code = _CODES.get(dtype)
    if code is None or not len(data):
        return None
    try:
        import numpy as np
    except ImportError:
        return _plainly(data, code)
    found: Any = np.frombuffer(data, dtype=np.dtype(f"<{code}")).astype(np.float64)
    return float(found.mean()), float(found.std())


def _plainly(data: memoryview | bytes, code: str) -> tuple[float, float]:
    count = len(data) // struct.calcsize(f"<{code}")
    mean = sum(map(sum, _chunks(data, code))) / count
    spread = sum(sum((number - mean) ** 2 for number in chunk) for chunk in _chunks(data, code))
    return mean, math.sqrt(spread / count)


def _chunks(data: memoryview | bytes, code: str) -> Iterator[Iterable[float]]:
    size = struct.calcsize(f"<{code}")
    for start in range(0, len(data), _CHUNK * size):
        piece = data[start : start + _CHUNK * size]
        yield array("d", struct.unpack(f"<{len(piece) // size}{code}", piece))
