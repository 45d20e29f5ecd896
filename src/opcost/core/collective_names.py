"""Collectives by the many names that frameworks and libraries give them, and how much of a link each of them uses."""

from __future__ import annotations

import re

_KINDS = (
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("send", "send"),
    ("recv", "recv"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
)
"""What a name has in it, without underscores, and what it is then; the first that fits."""
_ALGORITHM = re.compile(r"(?:^|_)((?:RING|TREE|COLLNET|NVLS)(?:_[A-Z]+)*?(?:_(?:LL128|LL|SIMPLE))?)(?=_|$|\()")

_ELEMENT_BYTES = {
    "double": 8, "long": 8, "int64": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16,
    "float": 4, "int": 4, "int32": 4, "float32": 4,
    "half": 2, "bfloat16": 2, "short": 2, "float16": 2, "int16": 2,
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""By the names of PyTorch's element types, which traces write."""


def collective_kind(name: str) -> str:
    """What sort of collective this is, such as `all_reduce`; empty where the name tells nothing."""
    bare = name.lower().replace("_", "")
    return next((kind for part, kind in _KINDS if part in bare), "")


def algorithm_of(kernel: str) -> str:
    """The algorithm and the protocol that a kernel's name tells, such as `RING_LL`; newer kernels decide when they run."""
    found = _ALGORITHM.search(kernel)
    return found[1] if found else ""


def element_bytes(dtype: str) -> int | None:
    """Bytes of an element of this type."""
    return _ELEMENT_BYTES.get(dtype.lower())


def bus_factor(kind: str, ranks: int | None) -> float | None:
    """What the rate of the algorithm must be multiplied by for that of the busiest link, as nccl-tests define it."""
    if kind in ("broadcast", "reduce", "send", "recv", "send_recv"):
        return 1.0
    if not ranks or kind not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        return None
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks
