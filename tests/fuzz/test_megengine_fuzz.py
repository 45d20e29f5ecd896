"""Dumps changed at random: each one is either read, or refused with one clear error, quickly and in little memory.

A few hundred changes of each format run with the tests; `make fuzz` runs OPCOST_FUZZ of them.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from opcost.analysis.price import price
from opcost.errors import OpcostError
from opcost.frontends.megengine.graph import build_graph
from opcost.frontends.megengine.model import parse_model
from opcost.frontends.options import CountOptions
from opcost.rules import default_rules

DATA = Path(__file__).parents[1] / "data" / "megengine"
CHANGES = int(os.environ.get("OPCOST_FUZZ", "300"))
SECONDS = 1.0
HANGS_AFTER = 20
"""Seconds after which a change is given up by the system's clock, so that an endless loop fails and does not hang."""
MEMORY = 100 << 20

INTERESTING = (0, 1, 2, 3, 4, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFC, 1 << 24)

SMALL = 32_000
"""Bytes of the largest dump that is changed: more would only be more weights."""


def dumps(version: str) -> list[bytes]:
    """Whole nets and single operators in one format."""
    nets = [path.read_bytes() for path in sorted((DATA / "mge").glob(f"*.{version}*.mge"))]
    with zipfile.ZipFile(DATA / "operators.zip") as archive:
        operators = [archive.read(name) for name in sorted(archive.namelist()) if f".{version}" in name]
    return [data for data in (*nets, *operators) if len(data) < SMALL]


FORMATS = {"v2": dumps("v2"), "v1": dumps("v1")}
FORMATS["testcase"] = [b"mgbtest0\x01\0\0\0" + first + first for first in FORMATS["v2"][::20]]


def changed(dumps: list[bytes], rng: random.Random) -> bytes:
    """One dump with one to eight changes, more often in the graph than in the weights."""
    data = bytearray(rng.choice(dumps))
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        if len(data) < 16:
            break
        at = rng.randrange(len(data)) if rng.random() < 0.5 else _place_in_the_graph(data, rng)
        match rng.randrange(8):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2 | 3:
                at &= ~3
                data[at : at + 4] = struct.pack("<I", rng.choice(INTERESTING))
            case 4:
                at &= ~3
                (old,) = struct.unpack_from("<I", data.ljust(at + 4, b"\0"), at)
                data[at : at + 4] = struct.pack("<I", (old + rng.choice((-8, -4, -1, 1, 4, 8, 64))) % (1 << 32))
            case 5:
                del data[at:]
            case 6:
                length = rng.randrange(1, 64)
                other = rng.randrange(len(data))
                data[at : at + length] = data[other : other + length]
            case _:
                length = rng.randrange(1, 16)
                if rng.random() < 0.5:
                    del data[at : at + length]
                else:
                    data[at:at] = rng.randbytes(length)
    return bytes(data)


def _place_in_the_graph(data: bytearray, rng: random.Random) -> int:
    """FBS v1 has its graph at the end; in FBS v2 tables lie between the weights, and the root comes first."""
    return (
        rng.randrange(max(len(data) - 4096, 0), len(data)) if data[:3] == b"MGB" else rng.randrange(min(len(data), 512))
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_changed_dump_is_counted_or_refused_with_a_clear_error(form: str) -> None:
    rng = random.Random(f"{form}-{CHANGES}")
    options, rules = CountOptions(), default_rules()
    counted = refused = 0
    tracemalloc.start()
    try:
        for number in range(CHANGES):
            data = changed(FORMATS[form], rng)
            tracemalloc.reset_peak()
            before, start = tracemalloc.get_traced_memory()[0], time.process_time()
            signal.alarm(HANGS_AFTER)
            try:
                price(build_graph(parse_model(data, "changed.mge"), options), rules)
                counted += 1
            except OpcostError:
                refused += 1
            signal.alarm(0)
            spent, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1] - before
            assert spent < SECONDS, f"change {number} took {spent:.2f} s"
            assert peak < MEMORY, f"change {number} took {peak >> 20} MB"
    finally:
        signal.alarm(0)
        tracemalloc.stop()
    assert counted + refused == CHANGES
    assert refused > CHANGES // 10
    assert counted > CHANGES // 10
