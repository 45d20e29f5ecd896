"""Ways to change a file: of any bytes, of JSON, of gzip files, of archives and of pickles.

Each takes the bytes of a good file and a source of chance, and gives the bytes of one that is mostly not.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import pickletools
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

Change: TypeAlias = Callable[[bytes, random.Random], bytes]

NUMBERS = (
    0, 1, 2, 3, 4, 7, 8, 32, 33, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 20, 1 << 24, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF,
    1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
"""Lengths, counts and offsets at which readers go wrong."""

ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, 2**70, -(2**70), 10**400, -(10**400), 1e300, -1e300, 1e-300, -0.5, 0.5,
    float("nan"), float("inf"), float("-inf"), "", "x", "0", "-1", "1e400", "nan", "9" * 5000, "{1,2}", "a.b.c", "\ud800", "\0",
    "\x1b[31m", "x" * 10_000, "." * 3000, "_" * 3000, [], {}, [[]], [["x"]], [None], [-1], {"a": 1}, [[2**70]], [[[[[1]]]]],
    {"": {"": {"": []}}},
)  # fmt: skip
"""What any value of a JSON file may become."""

WORDS = (
    "", "0", "1", "-1", "2", "-3", "7", "1000000007", "9223372036854775807", "99999999999999999999", "1e308", "nan", "inf",
    "0.5", "None", "True", "()", "(0,)", "(1,)", "(-1,)", "(0,-1)", "(-4,-1,0)", "(2,2)", "(3,3,3)", "(0,0)", "[]", "[2,2]",
    "(None,)", "(None,1)", "(((", "lstm", "max", "both", "NHWC", "float16", "int8", "bilinear", "like", "prelu", "affine",
)  # fmt: skip
"""What a text that holds a number, a tuple or an option may become."""


# -- any bytes ---------------------------------------------------------------------------------------------------------


def some_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to eight changes of bits, bytes, lengths, offsets and pieces, more often near the beginning or the end."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        if len(found) < 16:
            break
        at = _place(len(found), rng)
        match rng.randrange(10):
            case 0:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                found[at] = rng.choice((0, 1, 0x22, 0x2C, 0x5B, 0x7B, 0x7F, 0x80, 0xFF))
            case 2 | 3:
                at &= ~3
                found[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS) % (1 << 32))
            case 4:
                found[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS))
            case 5:
                at &= ~3
                (old,) = struct.unpack_from("<I", found.ljust(at + 4, b"\0"), at)
                found[at : at + 4] = struct.pack("<I", (old + rng.choice((-8, -4, -1, 1, 4, 8, 64))) % (1 << 32))
            case 6:
                del found[at:]
            case 7:
                length, other = rng.randrange(1, 64), rng.randrange(len(found))
                found[at : at + length] = found[other : other + length]
            case 8:
                del found[at : at + rng.randrange(1, 16)]
            case _:
                found[at:at] = rng.randbytes(rng.randrange(1, 16))
    return bytes(found)


def _place(size: int, rng: random.Random) -> int:
    """Tables are at the beginning or at the end; between them are weights."""
    where = rng.randrange(4)
    if where == 0:
        return rng.randrange(min(size, 512))
    return rng.randrange(max(size - 4096, 0), size) if where == 1 else rng.randrange(size)


# -- JSON --------------------------------------------------------------------------------------------------------------


@cache
def _parsed(data: bytes) -> Any:
    return json.loads(data)


def json_structure(data: bytes, rng: random.Random) -> bytes:
    """Values become others, go, are repeated, or change places."""
    document = copy.deepcopy(_parsed(data))
    for _ in range(rng.choice((1, 1, 2, 4))):
        spot = _spot(document, rng)
        if spot is None:
            break
        holder, key = spot
        old = holder[key]
        match rng.randrange(7):
            case 0:
                del holder[key]
            case 1 if isinstance(old, list) and old:
                old.insert(rng.randrange(len(old)), copy.deepcopy(rng.choice((rng.choice(old), rng.choice(ODD)))))
            case 2:
                other = _spot(document, rng)
                holder[key] = copy.deepcopy(other[0][other[1]]) if other else None
            case 3 if isinstance(old, str):
                holder[key] = rng.choice(WORDS)
            case 4 if isinstance(old, str):
                place = rng.randrange(len(old) + 1)
                holder[key] = (
                    old[:place] + rng.choice(("\ud800", ".", "/", "_", ",", "}", '"', "\\", "9" * 400)) + old[place:]
                )
            case 5 if type(old) is int:
                holder[key] = old + rng.choice((-1, 1, 1000, -(10**6), 10**18, 2**64)) * rng.choice((1, 1, old))
            case _:
                holder[key] = copy.deepcopy(rng.choice(ODD))
    return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _spot(document: Any, rng: random.Random) -> tuple[Any, Any] | None:
    """A holder and a key in it, found by walking down."""
    holder = document
    if not isinstance(holder, (dict, list)) or not holder:
        return None
    while True:
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        inner = holder[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.85:
            holder = inner
            continue
        return holder, key


def json_text(data: bytes, rng: random.Random) -> bytes:
    """What a parser of JSON meets: repeated keys, numbers that are none, cut and doubled documents, other letters."""
    text = json.dumps(_parsed(data))
    at = _mark(text, rng)
    match rng.randrange(6):
        case 0:
            pairs = ('"ts":[1],', '"name":{},', '"traceEvents":[],', '"nodes":0,', '"schema":"x",', '"args":1,')
            at = text.find("{", at)
            return (text[: at + 1] + rng.choice(pairs) + text[at + 1 :]).encode()
        case 1:
            odd = ("NaN", "-Infinity", "1e999", "-0", "1" * 6000, "1." + "0" * 6000, "1e-9999", "-" + "9" * 400)
            return f"{text[: at + 1]}{rng.choice(odd)},{text[at + 1 :]}".encode()
        case 2:
            return text[: rng.randrange(len(text))].encode()
        case 3:
            return (text + rng.choice((text, "]", "}", "\0", " " * 1000))).encode()
        case 4:
            return text.encode(rng.choice(("utf-16", "utf-32", "utf-8-sig")))
        case _:
            return some_bytes(text.encode(), rng)


def json_large(data: bytes, rng: random.Random) -> bytes:
    """Nested a hundred thousand deep, a list of as many, or a text of half a megabyte."""
    text = json.dumps(_parsed(data))
    at = _mark(text, rng)
    much = rng.choice((
        "[" * 100_000, '{"a":' * 100_000, '[{"":' * 100_000, "[]," * 200_000, "{}," * 200_000, '"x",' * 200_000, "1," * 200_000,
        *(f'"{letter * 500_000}",' for letter in ("x", r"\u0000", r"\ud800", ".")),
    ))  # fmt: skip
    return (text[: at + 1] + much + text[at + 1 :]).encode()


def _mark(text: str, rng: random.Random) -> int:
    """Where a value may begin."""
    return rng.choice([place for place, mark in enumerate(text[:20_000]) if mark in "{[,:"])


# -- gzip --------------------------------------------------------------------------------------------------------------


def packed(inner: Change) -> Change:
    """The content changed and packed, or the packed bytes changed."""

    def change(data: bytes, rng: random.Random) -> bytes:
        if rng.random() < 0.3:
            return some_bytes(_gzipped(data), rng)
        found = gzip.compress(inner(data, rng), 1, mtime=0)
        return found + rng.choice((b"", b"", b"", b"\0" * 100, b"rubbish", found))

    return change


@cache
def _gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def bomb(head: bytes, filling: bytes) -> Change:
    """A gzip file of a megabyte that unpacks to one gigabyte: a good beginning, and then the same for ever."""

    def change(_data: bytes, rng: random.Random) -> bytes:
        return gzip.compress(head, 1, mtime=0) + _member(filling) * (1024 if rng.random() < 0.5 else 90)

    return change


@cache
def _member(filling: bytes) -> bytes:
    return gzip.compress(filling * ((1 << 20) // len(filling)), mtime=0)


# -- archives of arrays ------------------------------------------------------------------------------------------------


def archive(data: bytes, rng: random.Random) -> bytes:
    """Members changed, renamed, twice, packed in every way there is, or with a head that claims another array."""
    if rng.random() < 0.4:
        return some_bytes(data, rng)
    found = io.BytesIO()
    packings = (*(zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) * 20, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(found, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if rng.random() < 0.5:
                content = array(content, rng)
            for _ in range(rng.choice((1, 1, 1, 1, 0, 50))):
                other = rng.choice((name, name, name, "../" + name, name * 50, "\x1b" + name, name + "\ufffd"))
                entry = zipfile.ZipInfo(other[:60_000])
                entry.compress_type = rng.choice(packings)
                try:
                    new.writestr(entry, content)
                except UserWarning:
                    continue
    content = found.getvalue()
    return some_bytes(content, rng) if rng.random() < 0.2 else content


HEADS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, %s), }",
    "{'descr': %s, 'fortran_order': False, 'shape': (3,), }", "{'shape': (1,), 'descr': [('a', %s)]}", "%s", "{%s: 1}",
)  # fmt: skip
FIELDS = (
    "9" * 5000, "1,", "-1,", "1 << 63,", "2**2**2**30", "10**400,", "1e9,", "None,", "'x'", "'<f4'", "[" * 300, "(" * 5000,
    "9223372036854775807, 9223372036854775807,", "1, " * 10_000, "__import__('os').system('true')", "-" * 9000 + "1",
    "'\\ud800'", "b'x'", "...", "0x7fffffff,", "1_0,", "'" + "x" * 60_000 + "'", "lambda: 0", "\0", "set()", "1j,", "True,",
)  # fmt: skip


def array(data: bytes, rng: random.Random) -> bytes:
    """A numpy array with another head."""
    if rng.random() < 0.4 or not data.startswith(b"\x93NUMPY"):
        return some_bytes(data, rng)
    head = (rng.choice(HEADS).replace("%s", rng.choice(FIELDS)) + "\n").encode("utf-8", "replace")
    version = rng.choice((1, 1, 2, 3, 0, 255))
    size = (
        struct.pack("<H", len(head) % 65536)
        if version == 1
        else struct.pack("<I", rng.choice((len(head), *NUMBERS)) % (1 << 32))
    )
    return b"\x93NUMPY" + bytes((version, 0)) + size + head + data[128:]


# -- pickles -----------------------------------------------------------------------------------------------------------


LONGEST = 8 << 20
"""Bytes that a step of a pickle, repeated, may come to."""


def pickle_steps(data: bytes, rng: random.Random) -> bytes:
    """Steps of the pickle are left out, repeated, moved, or replaced by others, such as those that call things."""
    if rng.random() < 0.3:
        return some_bytes(data, rng)
    steps = list(_steps(data))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(steps))
        match rng.randrange(5):
            case 0:
                del steps[at]
            case 1:
                steps.insert(at, rng.choice(steps))
            case 2:
                steps[at] = rng.choice(STEPS)
            case 3:
                step = rng.choice(STEPS)  # some are long, and the case that is made of them must fit into memory
                steps[at:at] = [step] * min(rng.choice((1, 1, 1, 3, 50_000)), LONGEST // len(step))
            case _:
                steps.insert(at, rng.choice(STEPS))
        steps = steps or [b"."]
    return b"".join(steps)


@cache
def _places(data: bytes) -> tuple[int, ...]:
    return (*(place for _, _, place in pickletools.genops(data) if place is not None), len(data))


def _steps(data: bytes) -> Iterator[bytes]:
    places = _places(data)
    for begin, end in pairwise(places):
        yield data[begin:end]


STEPS = (
    b"cos\nsystem\n", b"cbuiltins\neval\n", b"cnumpy\nload\n", b"(S'true'\ntR.", b"R", b"b", b"(", b"t", b"}", b"]", b"N", b".",
    b"0", b"2", b"h\0", b"q\0", b"\x94", b"\x93", b"\x85", b"\x86", b"\x87", b"e", b"u", b"s", b"d", b"l", b"I9999\n",
    b"I" + b"9" * 5000 + b"\n", b"\x8a\xff" + b"\x7f" * 255, b"\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000,
    b"J\xff\xff\xff\x7f", b"K\0", b"X\x02\0\0\0ab", b"\x8c\x06latin1", b"\x8d" + struct.pack("<Q", 1 << 60),
    b"B" + struct.pack("<I", 0xFFFFFFFF), b"\x8f", b"\x90", b"\x91", b"\x97", b"\x98", b"P1\n", b"Q", b"\x82\x01",
    b"G" + b"\xff" * 8, b"F1e999\n", b"\x81", b"\x92", b"c_codecs\nencode\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n",
    b"ccollections\nOrderedDict\n", b"U\x03abc", b"C\x03abc", b"\x88", b"\x89",
)  # fmt: skip
