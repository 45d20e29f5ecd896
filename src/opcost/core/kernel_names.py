"""What the names of device work tell about it, as profilers and libraries write them."""

from __future__ import annotations

import re

_COPIES = ("Memcpy", "Memset", "Copy")
_COLLECTIVES = ("nccl", "rccl")
_CROSSING = re.compile(r"(?:Memcpy|Copy)\s*(?:HtoD|DtoH|PtoP|HostToDevice|DeviceToHost|PeerToPeer)", re.IGNORECASE)


def is_collective(name: str) -> bool:
    """Whether it is of a library of collectives."""
    return name[:4].lower() in _COLLECTIVES


def is_copy(name: str) -> bool:
    """Whether it moves or clears memory, and computes nothing."""
    return name.startswith(_COPIES)


def is_transfer(name: str) -> bool:
    """Whether it moves memory between a device and the host or another device."""
    return _CROSSING.match(name) is not None
