"""Symbols and parameter files changed at random: each one is counted, or refused with one clear error, quickly.

A few hundred changes of each format run with the tests; `make fuzz` runs OPCOST_FUZZ of them.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opcost.analysis.price import price
from opcost.errors import OpcostError
from opcost.frontends.mxnet.load import load_graph, open_file
from opcost.frontends.mxnet.params import read_params
from opcost.frontends.options import CountOptions
from opcost.rules import default_rules

DATA = Path(__file__).parents[1] / "data" / "mxnet"
CHANGES = int(os.environ.get("OPCOST_FUZZ", "300"))
SECONDS = 1.0
MEMORY = 100 << 20

SMALL = 40_000
"""Larger symbols only make the fuzz slow."""

WORDS = (
    "", "0", "1", "-1", "2", "-3", "7", "1000000007", "9223372036854775807", "99999999999999999999", "1e308", "nan", "inf",
    "0.5", "None", "True", "()", "(0,)", "(1,)", "(-1,)", "(0,-1)", "(-4,-1,0)", "(2,2)", "(3,3,3)", "(0,0)", "[]", "[2,2]",
    "(None,)", "(None,1)", "(((", "lstm", "max", "both", "NHWC", "float16", "int8", "bilinear", "like", "prelu", "affine",
)  # fmt: skip
"""What an attribute may become."""

NUMBERS = (0, 1, -1, 2, 3, 5, 1 << 31, 1 << 63, -(1 << 63), 1.5, True, None, "0", [], {})


def cases() -> list[tuple[str, dict[str, tuple[int, ...]]]]:
    """The text of every small symbol, with its inputs."""
    found = []
    for path in sorted(DATA.glob("*/*/expected.json")):
        text = (path.parent / "model-symbol.json").read_text()
        expected = json.loads(path.read_text())
        if len(text) <= SMALL and "inputs" in expected:
            found.append((text, {name: tuple(shape) for name, shape in expected["inputs"].items()}))
    return found


def changed_structure(text: str, rng: random.Random) -> str:
    """A symbol in which one to four attributes, numbers, names or parts are others."""
    symbol = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(_places(symbol))
        if not places:
            break
        holder, key = rng.choice(places)
        old = holder[key]
        match rng.randrange(4):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(old, list) and old:
                old.insert(rng.randrange(len(old)), copy.deepcopy(rng.choice((rng.choice(old), rng.choice(NUMBERS)))))
            case 2:
                others = [other[name] for other, name in places if type(other[name]) is type(old)]
                holder[key] = copy.deepcopy(rng.choice(others))
            case _:
                holder[key] = rng.choice(WORDS) if isinstance(old, str) else rng.choice(NUMBERS)
    return json.dumps(symbol)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from _places(inner)


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """A file with one to eight changes of bits, bytes, numbers, or cut short."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        if len(found) < 8:
            break
        at = rng.randrange(len(found))
        match rng.randrange(7):
            case 0:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                found[at] = rng.choice((0, 1, 0x22, 0x5B, 0x7B, 0x7F, 0x80, 0xFF))
            case 2:
                found[at : at + 4] = struct.pack(
                    "<I", rng.choice((0, 1, 2, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
                )
            case 3:
                found[at : at + 8] = struct.pack(
                    "<Q", rng.choice((0, 1, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63))
                )
            case 4:
                del found[at:]
            case 5:
                length, other = rng.randrange(1, 64), rng.randrange(len(found))
                found[at : at + length] = found[other : other + length]
            case _:
                found[at:at] = rng.randbytes(rng.randrange(1, 16))
    return bytes(found)


def run(attempt: Callable[[random.Random], None], name: str) -> tuple[int, int]:
    """How many changes were read and how many were refused; none may take long or much memory."""
    rng = random.Random(f"{name}-{CHANGES}")
    read = refused = 0
    tracemalloc.start()
    try:
        for number in range(CHANGES):
            tracemalloc.reset_peak()
            before, start = tracemalloc.get_traced_memory()[0], time.process_time()
            try:
                attempt(rng)
                read += 1
            except OpcostError:
                refused += 1
            spent, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1] - before
            assert spent < SECONDS, f"change {number} took {spent:.2f} s"
            assert peak < MEMORY, f"change {number} took {peak >> 20} MB"
    finally:
        tracemalloc.stop()
    return read, refused


@pytest.mark.parametrize("form", ["structure", "bytes"])
def test_a_changed_symbol_is_counted_or_refused_with_a_clear_error(form: str, tmp_path: Path) -> None:
    symbols = cases()
    path = tmp_path / "changed-symbol.json"

    def attempt(rng: random.Random) -> None:
        text, shapes = rng.choice(symbols)
        if form == "structure":
            path.write_text(changed_structure(text, rng))
        else:
            path.write_bytes(changed_bytes(text.encode(), rng))
        price(load_graph(open_file(path, CountOptions(shapes=shapes))), default_rules())

    read, refused = run(attempt, form)
    assert read > CHANGES // 100
    assert refused > CHANGES // 10


def archives() -> list[bytes]:
    """Archives as MXNet 2.0 writes them, also one with a sparse array."""
    found = [path.read_bytes() for path in sorted(DATA.glob("versions/v2*/*.params")) if path.stat().st_size < 10_000]
    sparse = io.BytesIO()
    with zipfile.ZipFile(sparse, "w") as archive:
        for name, descr, shape, content in (
            ("w/data", "<f4", "(2, 4)", bytes(32)), ("w/indices", "<i8", "(2,)", bytes(16)),
            ("w/shape", "<i8", "(2,)", struct.pack("<2q", 6, 4)), ("w/format", "|u1", "(10,)", b"row_sparse"),
        ):  # fmt: skip
            header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content
            archive.writestr(f"{name}.npy", npy)
    return [*found, sparse.getvalue()]


def parameter_files() -> dict[str, list[bytes]]:
    binary = [path.read_bytes() for path in sorted(DATA.glob("params_formats/v*.params"))]
    return {"binary": binary, "archive": archives()}


@pytest.mark.parametrize("form", ["binary", "archive"])
def test_a_changed_parameter_file_is_listed_or_refused_with_a_clear_error(form: str, tmp_path: Path) -> None:
    files = parameter_files()[form]
    path = tmp_path / "changed.params"

    def attempt(rng: random.Random) -> None:
        path.write_bytes(changed_bytes(rng.choice(files), rng))
        read_params(path)

    read, refused = run(attempt, form)
    assert read > CHANGES // 20
    assert refused > CHANGES // 10
