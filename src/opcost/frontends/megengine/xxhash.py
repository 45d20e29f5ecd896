"""XXH64, by which FBS v1 names an operator: the file stores the hash of the class name and not the name itself."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def xxh64(data: bytes, seed: int) -> int:
    """The 64-bit hash of some bytes, after the public description of the algorithm."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while size - at >= 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane] & _MASK, int.from_bytes(data[at : at + 8], "little"))
                at += 8
        found = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + size) & _MASK
    while size - at >= 8:
        found ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        found = (_rotate(found, 27) * _P1 + _P4) & _MASK
        at += 8
    if size - at >= 4:
        found ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        found = (_rotate(found, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found ^= byte * _P5 & _MASK
        found = _rotate(found, 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK
