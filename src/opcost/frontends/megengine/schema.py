"""What MegEngine's files call things: element types, the parameters of operators, operators by name or by hash."""

import re
import struct
from functools import cache
from typing import Any, NamedTuple

from opcost.core.graph import Attr
from opcost.core.parsing import packaged_table as packaged
from opcost.frontends.flatbuffer import F32, F64, I8, I32, LONGEST_LIST, U8, U32, U64, FlatTable

# -- element types -----------------------------------------------------------------------------------------------------

FORMAT: dict[str, Any] = packaged(__package__, "format.json")
"""What MegEngine 1.13 writes: element types in their order (`Byte` is read as uint8), operators that only bring tensors of the
file into the graph and those whose results are in the memory of their first input, members of enumerations, fields of tables,
names of operators, and how many results some have."""
NAMES: list[str] = FORMAT["types"]
QUANTIZED = frozenset(name for name in NAMES if name.startswith("q"))
FLOATING = frozenset(("float32", "float16", "bfloat16", "complex64"))


class DType(NamedTuple):
    """An element type; a quantized one has the scale (and zero point) by which numbers are stored."""

    name: str
    scale: float | None = None
    zero_point: int | None = None


def read_dtype(table: FlatTable | None) -> DType | None:
    """The type that a DType table describes."""
    if table is None:
        return None
    name = name_of(table.number(0, I8), table)
    linear = table.table(2) if table.number(1, U8) == 1 else None
    if linear is None or name not in QUANTIZED:
        return DType(name)
    zero_point = linear.number(1, U8) if name.startswith("quint") else None
    return DType(name, linear.number(0, F32, 0.0), zero_point)


def name_of(number: int, table: FlatTable) -> str:
    """Our name of the type with this number."""
    if not 0 <= number < len(NAMES):
        raise table.buffer.broken(f"an element type of number {number} does not exist", table.at)
    return NAMES[number]


# -- parameters: which table holds which fields, in the order of their slots -------------------------------------------
#
# `format.json` lists the tables. A field is written `name:type=default`; types are u (uint32), i (int32), q (uint64), f, d
# (floats), b (bool), t (element type) and the name of an enumeration. Enumerations are stored as uint32 and read by name.

ENUMS: dict[str, tuple[str, ...]] = {name: tuple(members) for name, members in FORMAT["enumerations"].items()}
NO_AXIS = 2147483647  # The axis where none is given (Reduce, Cumsum)
NO_OPTIONAL_AXIS = 7  # `OptionalAxisV1` that names no axis

_TABLES: dict[int, tuple[str, list[str]]] = {
    int(tag): (name, fields) for tag, (name, *fields) in FORMAT["tables"].items()
}
"""Tables with plain fields by their tag in the union; the others have functions of their own below."""

_DIMSHUFFLE, _AXIS_ADD_REMOVE, _INDEX_MASK, _SERIALIZED_DTYPE = 64, 65, 66, 67


class ParamFields(dict[str, Attr]):
    """The parameters of an operator; one that is absent is 0, false, or empty."""

    def integer(self, name: str, default: int | None = None) -> int:
        found = self.get(name, default)
        return found if isinstance(found, int) else 0

    def integers(self, name: str, default: Any = ()) -> tuple[Any, ...]:
        """A list of any numbers or words."""
        found = self.get(name, default)
        return found if isinstance(found, tuple) else ()

    def text(self, name: str, default: str | None = None) -> str:
        found = self.get(name, default)
        return found if isinstance(found, str) else ""

    dtype = text

    def flag(self, name: str) -> bool:
        return bool(self.get(name))


_FORMS = {"u": U32, "i": I32, "q": U64, "f": F32, "d": F64, "b": U8, "t": I8}


@cache
def _fields(tag: int) -> tuple[tuple[str, str, float], ...]:
    """Name, type and default of the fields of a table."""
    found = (re.split("[:=]", text) for text in _TABLES[tag][1])
    return tuple((name, kind, float(default) if kind in ("f", "d") else int(default)) for name, kind, default in found)


def read_param(tag: int, table: FlatTable) -> ParamFields:
    """The fields of a parameter table; one that is not known has none."""
    if tag == _DIMSHUFFLE:
        return ParamFields({"pattern": table.numbers(0, "i", 4), "ndim": table.number(1, U32)})
    if tag == _AXIS_ADD_REMOVE:
        # Axes that are added or removed one after the other: structs of a method, three bytes of padding and an axis
        at, count = table.vector(0, 8) or (0, 0)
        number, places = table.buffer.number, range(at, at + 8 * count, 8)
        changes = tuple([("remove" if number(I8, place) else "add", number(I32, place + 4)) for place in places])
        return ParamFields({"desc": changes})
    if tag == _INDEX_MASK:
        # For each indexed axis: the axis, and whether begin, end, step and an index come as inputs
        at, count = table.vector(0, 5) or (0, 0)
        buffer = table.buffer
        masks = []
        for start in range(at, at + 5 * count, 5):
            axis, begin, end, step, index = buffer.data.unpack(_MASK, buffer.check(start, 5))
            masks.append((axis, begin != 0, end != 0, step != 0, index != 0))
        return ParamFields({"items": tuple(masks)})
    if tag == _SERIALIZED_DTYPE:
        found = read_dtype(table)
        return ParamFields({"dtype": found.name, "scale": found.scale} if found else {})
    if tag not in _TABLES:
        return ParamFields()
    fields = enumerate(_fields(tag))
    return ParamFields({name: _value(kind, default, slot, table) for slot, (name, kind, default) in fields})


def _value(kind: str, default: float, slot: int, table: FlatTable) -> Attr:
    if kind in ("f", "d"):
        real: float = table.number(slot, _FORMS[kind], default)
        return real
    number: int = table.number(slot, _FORMS.get(kind, U32), int(default))
    if kind in ENUMS:
        return ENUMS[kind][number] if number < len(ENUMS[kind]) else f"mode{number}"
    if kind == "b":
        return number != 0
    return name_of(number, table) if kind == "t" else number


_MASK = struct.Struct("<b4B")


# -- operators: stored by name in FBS v2, by the hash of a name in FBS v1 ----------------------------------------------
#
# A class name may end in a version and in `Forward`; both are dropped, so that one row serves all files. MegEngine hashes
# the name with its version and a closing NUL byte, the oldest files without either.

_SEED = 20160701
_VERSIONS = ("", *(f"V{number}" for number in range(10)))
_SUFFIX = re.compile(r"V\d$")

_REGISTERED: list[str] = FORMAT["operators"]  # Class names under which MegEngine 1.13 stores operators


def plain(name: str) -> str:
    """An operator's name without version and without `Forward`."""
    return _SUFFIX.sub("", name).removesuffix("Forward")


def by_hash(number: int, *, versioned: bool) -> str:
    """The name behind an operator's id; an unknown id is given as such."""
    found = (
        _names("stored").get(number) or _names("any version").get(number) if versioned else _names("bare").get(number)
    )
    return found or f"id{number:x}"


@cache
def _names(form: str) -> dict[int, str]:
    """Operators by the hash of their names: as MegEngine 1.13 stores them, as any version would, as the oldest did."""
    if form == "stored":
        return {xxh64(name.encode() + b"\0", _SEED): plain(name) for name in _REGISTERED}
    bare = {_SUFFIX.sub("", name) for name in _REGISTERED}
    if form == "bare":
        return {xxh64(name.encode(), _SEED): plain(name) for name in bare}
    return {xxh64(f"{name}{version}\0".encode(), _SEED): plain(name) for name in bare for version in _VERSIONS}


_ALL_BITS = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 of some bytes, after the public description of the algorithm."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while size - at >= 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane] & _ALL_BITS, int.from_bytes(data[at : at + 8], "little"))
                at += 8
        found = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL_BITS
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _ALL_BITS
    else:
        found = (seed + _P5) & _ALL_BITS
    found = (found + size) & _ALL_BITS
    while size - at >= 8:
        found ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        found = (_rotate(found, 27) * _P1 + _P4) & _ALL_BITS
        at += 8
    if size - at >= 4:
        found ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _ALL_BITS
        found = (_rotate(found, 23) * _P2 + _P3) & _ALL_BITS
        at += 4
    for byte in data[at:]:
        found ^= byte * _P5 & _ALL_BITS
        found = _rotate(found, 11) * _P1 & _ALL_BITS
    found = (found ^ found >> 33) * _P2 & _ALL_BITS
    found = (found ^ found >> 29) * _P3 & _ALL_BITS
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _ALL_BITS, 31) * _P1 & _ALL_BITS


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _ALL_BITS


def output_count(kind: str, inputs: int, tensors: int, param: ParamFields) -> int:
    """The number of variables that an operator of this type makes, which FBS v1 does not store.

    Workspaces and outputs that are switched off do not count. An operator that is not listed makes one.
    """
    match kind:
        case "MultipleDeviceTensorHolder" | "MultipleDeviceTensorWithFormatHolder":
            return tensors
        case "Split":
            return max(inputs - 1, 0)
        case "TopK":
            return 1 if param.get("mode") == "KTH_ONLY" else 2
        case "SVD":
            return 3 if param.get("compute_uv") else 1
        case "BatchNorm":  # running statistics only where they are updated
            return 6 if inputs == 5 and param.get("fwd_mode") == "TRAINING" else 4
        case "CheckNonFinite":
            return inputs + 1
        case "CondExecMark" | "CondExecMarkIfNeed":
            return max(inputs - 1, 1)
        case "CondExecMerge":
            merged = param.get("nr_output", 1)
            return min(merged, LONGEST_LIST) if isinstance(merged, int) else 1
        case _:
            return int(FORMAT["results"].get(kind, 1))
