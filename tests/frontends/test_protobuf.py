"""Protocol buffers read field by field: in memory and in a file, where large fields are only found."""

from __future__ import annotations

import random
from io import BytesIO

import pytest

from opcost.core.parsing import Bad
from opcost.frontends.protobuf import SMALL, FilePiece, fields

BLOCK = 1 << 13  # Bytes that a file reads at once


def number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(place: int, value: int | bytes, way: int | None = None) -> bytes:
    if way is not None:
        return number(place << 3 | way) + bytes(value)  # type: ignore[arg-type]
    if isinstance(value, int):
        return number(place << 3) + number(value)
    return number(place << 3 | 2) + number(len(value)) + value


def seen(message: bytes) -> list[tuple[int, object]]:
    """What is found of a message in a file, with large fields read."""
    file = BytesIO(b"before" + message + b"behind")
    found = []
    for place, value in fields(FilePiece(file, 6, 6 + len(message))):
        found.append((place, value.read(len(message)) if isinstance(value, FilePiece) else value))
        file.seek(3)  # who reads a large field moves the file
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_file_reads_as_the_same_bytes_do(seed: int) -> None:
    """Fields of all lengths, so that some end at, before and behind the end of every block that is read."""
    dice = random.Random(seed)
    expected: list[tuple[int, object]] = []
    message = b""
    while len(message) < SMALL + 3 * BLOCK:
        place = dice.choice([1, 2, 15, 16, 2000])
        match dice.randrange(5):
            case 0:
                value: int | bytes = dice.choice([0, 1, 127, 128, 2**32, 2**64 - 1])
                message += field(place, value)
            case 1:
                width = dice.choice([1, 5])
                value = dice.randbytes(8 if width == 1 else 4)
                message += field(place, value, width)
            case 2:
                value = dice.randbytes(dice.choice([BLOCK - 1, BLOCK, BLOCK + 1, SMALL, SMALL + 1]))
                message += field(place, value)
            case _:
                value = dice.randbytes(dice.randrange(300))
                message += field(place, value)
        expected.append((place, value))
    assert seen(message) == expected
    assert list(fields(message)) == expected


def test_what_is_large_is_found_and_not_read() -> None:
    class Watched(BytesIO):
        taken = 0

        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            self.taken += len(found)
            return found

    large = bytes(50 * SMALL)
    message = field(1, b"small") + field(2, large) + field(3, 7) + field(4, large) + field(5, b"end")
    file = Watched(message)
    found = list(fields(FilePiece(file, 0, len(message))))
    assert [(place, type(value).__name__) for place, value in found] == [
        (1, "bytes"), (2, "FilePiece"), (3, "int"), (4, "FilePiece"), (5, "bytes"),
    ]  # fmt: skip
    assert file.taken <= 3 * BLOCK


@pytest.mark.parametrize("room", [0, SMALL + 100])
@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"\x80", "ends inside of a number"),
        (b"\x08", "ends inside of a number"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (b"\x0a\x05abc", "a field has 5 bytes, and 3 are left"),
        (b"\x09abc", "bytes|inside of a number"),
        (b"\x0b", "in the way 3"),
        (b"\x0f", "in the way 7"),
    ],
)
def test_damage_is_one_clear_error(room: int, tail: bytes, said: str) -> None:
    message = field(1, bytes(room)) + tail
    with pytest.raises(Bad, match=said):
        list(fields(message))
    with pytest.raises(Bad, match=said):
        list(fields(FilePiece(BytesIO(message), 0, len(message))))


def test_a_file_that_is_shorter_than_it_says_is_damage() -> None:
    message = field(1, bytes(SMALL + 1)) + field(2, bytes(BLOCK * 2))
    with pytest.raises(Bad, match="the file ends at byte"):
        list(fields(FilePiece(BytesIO(message[:-10]), 0, len(message))))
