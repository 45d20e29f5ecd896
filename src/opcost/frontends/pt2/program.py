"""The archive: which of its files hold the program, and how much of them is believed. Weights are never opened."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from opcost.core.files import opened
from opcost.core.parsing import Bad, archive_in, get, instance, read_member, short
from opcost.errors import SourceError
from opcost.frontends.aten.tensor import Described
from opcost.frontends.building import check_extents
from opcost.frontends.programs import MOST_AXES
from opcost.frontends.pt2.sizes import UnknownSymbol, evaluate

LARGEST_TEXT = 64 << 20  # No program's description comes near this; the largest language models take a fifth of it
MOST_PARTS = 3_000_000  # Numbers, texts and brackets of a description; each takes far more memory than its letters
_OLD = "serialized_exported_program.json"
"""What the description was called up to torch 2.7, when weights lay beside it in files of their own."""
_CONFIGURATIONS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The program of an archive, and where each weight lies, by which equal ones are known; old archives do not say that."""
    weights: dict[str, Any] = {}
    with opened(path) as file, archive_in(file) as archive:
        names = archive.namelist()
        program = _json(archive, _program_name(path, names))
        for name in names:
            if name.endswith(_CONFIGURATIONS):
                weights |= instance(_json(archive, name).get("config"), dict)
    return program, weights


def _program_name(path: Path, names: list[str]) -> str:
    if len(set(names)) != len(names):
        raise SourceError(f"{path} holds two files of the same name")
    if any("data/aotinductor/" in name for name in names):
        fault = f"{path} holds compiled code, which is not counted"
        raise SourceError(fault, hint="save the exported program with torch.export.save")
    found = [name for name in names if name.rpartition("/")[0].endswith("models") and name.endswith(".json")]
    found = found or [name for name in names if name.rpartition("/")[2] == _OLD]
    if not found:
        raise Bad("it holds no models/*.json")
    if len(found) > 1:
        listed = ", ".join(short(name) for name in found[:4])
        fault = f"{path} holds {len(found)} programs: {listed}"
        raise SourceError(fault, hint="save each with torch.export.save and count it alone")
    return found[0]


def _json(archive: ZipFile, name: str) -> dict[str, Any]:
    """A member as JSON."""
    content = read_member(archive, name, LARGEST_TEXT)
    if sum(content.count(mark) for mark in (b"[", b"{", b",")) > MOST_PARTS:
        raise Bad(f"{short(name)} has more than {MOST_PARTS} parts")
    text = content.decode("utf-8")
    del content
    try:
        return instance(json.loads(text, parse_int=_checked_integer), dict)
    except RecursionError as exc:
        raise Bad(f"{short(name)} is nested too deeply") from exc


def _checked_integer(text: str) -> int:
    if len(text) > 40:
        raise Bad(f"a number has {len(text)} digits")
    return int(text)


# -- program: The schema of `model.json`: tensors, arguments and graphs, each field checked to be what it must be.

TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 9: "complex32",
    10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2",
    31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
LAYOUTS = {
    1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc", 6: "_mkldnn", 7: "strided",
}  # fmt: skip
_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}

LARGEST_EXTENT = 1 << 63


class Subgraph(NamedTuple):
    """A graph that is given to an operator as an argument."""

    content: dict[str, Any]


def one(data: object, known: str = "") -> tuple[str, Any]:
    """The one field of a union, by name."""
    entries = instance(data, dict)
    if len(entries) != 1:
        raise Bad(f"{short(data)} is found where one of several things belongs")
    name, value = next(iter(entries.items()))
    if known and name != known:
        raise Bad(f"{short(name)} is found where {known!r} belongs")
    return name, value


def name_of(data: object) -> str:
    """The name in a reference to a tensor."""
    return get(data, "name", str)


class Scope:
    """The numbers of one graph: sizes that depend on symbols are worked out when they are needed."""

    def __init__(self, graph: Mapping[str, Any], symbols: Mapping[str, int]) -> None:
        self.symbols = symbols
        self.tensors = get(graph, "tensor_values", dict)
        self.numbers: dict[str, Any] = {}
        for kind in ("int", "bool", "float"):
            self.numbers |= instance(graph.get(f"sym_{kind}_values", {}), dict)

    def described(self, name: str) -> Described:
        """A tensor as the file describes it, checked; extents that depend on data are None."""
        if name not in self.tensors:
            raise Bad(f"the tensor {short(name)} is not described")
        data = self.tensors[name]
        shape = tuple(self.extent(size) for size in get(data, "sizes", list))
        strides = tuple(self.extent(size) for size in get(data, "strides", list))
        check_extents(shape, short(name), MOST_AXES)
        if len(strides) not in (0, len(shape)):
            raise Bad(f"a tensor has {len(shape)} axes and {len(strides)} strides")
        dtype = _word(TYPES, get(data, "dtype", int), "element type")
        layout = _word(LAYOUTS, get(data, "layout", int), "layout")
        trains = get(data, "requires_grad", bool)
        device = _device(get(data, "device", dict))
        return Described(shape, strides, dtype, device, layout, requires_grad=trains)  # type: ignore[arg-type]

    def extent(self, data: object) -> int | None:
        """A size or a stride."""
        value = self.number(data)
        if value is not None and (type(value) is not int or not 0 <= value <= LARGEST_EXTENT):
            raise Bad(f"{short(data)} is not a size of a tensor")
        return value

    def number(self, data: object) -> Any:
        """A number that may depend on symbols; None where only data could tell."""
        kind, value = one(data)
        if kind != "as_expr":
            return _PLAIN[kind](value) if kind in _PLAIN else _refuse(kind)
        try:
            return evaluate(get(value, "expr_str", str), self.symbols)
        except UnknownSymbol:
            hint = instance(value, dict).get("hint")
            return self.number(hint) if hint is not None else None

    def named(self, data: object) -> Any:
        """A number that is given by name, or as it is."""
        kind, value = one(data)
        if kind != "as_name":
            return self.number(data)
        if instance(value, str) not in self.numbers:
            raise Bad(f"the number {short(value)} is not described")
        return self.number(self.numbers[value])

    def argument(self, data: object, tensor: Callable[[str], Any]) -> Any:
        """An argument as a plain value; `tensor` gives the tensors by name."""
        kind, value = one(data)
        if kind == "as_none" or (kind in ("as_tensor", "as_optional_tensor") and "as_none" in instance(value, dict)):
            return None
        if kind == "as_optional_tensor":
            return tensor(name_of(one(value, "as_tensor")[1]))
        if kind == "as_optional_tensors":
            return [self.argument(item, tensor) for item in instance(value, list)]
        if kind == "as_graph":
            return Subgraph(get(value, "graph", dict))
        if kind == "as_string_to_argument":
            return {name: self.argument(item, tensor) for name, item in instance(value, dict).items()}
        known: dict[str, Callable[[Any], Any]] = {**_PLAIN, **dict.fromkeys(_NAMED, self.named)}
        known["as_tensor"] = lambda item: tensor(name_of(item))
        if kind in known:
            return known[kind](value)
        if kind.removesuffix("s") in known:
            return [known[kind.removesuffix("s")](item) for item in instance(value, list)]
        if (single := "as_tensor" if kind == "as_nested_tensors" else kind.removesuffix("_lists")) in known:
            return [[known[single](item) for item in instance(items, list)] for items in instance(value, list)]
        return _refuse(kind)


def _word(table: Mapping[int, str], number: int, what: str) -> str:
    if number not in table:
        raise Bad(f"{short(number)} is no {what} that is known")
    return table[number]


def _device(data: object) -> str:
    kind = get(data, "type", str)
    index = instance(data, dict).get("index")
    return kind if index is None else f"{kind}:{instance(index, int)}"


def _float(value: object) -> float:
    if isinstance(value, str) and value in _FLOATS:
        return _FLOATS[value]
    return float(instance(value, float if isinstance(value, float) else int))


def _complex(value: object) -> complex:
    entries = instance(value, dict)
    return complex(_float(entries.get("real")), _float(entries.get("imag")))


def _integer(value: object) -> int:
    if not -LARGEST_EXTENT <= instance(value, int) <= LARGEST_EXTENT:
        raise Bad(f"{short(value)} is not a number that a program holds")
    return value  # type: ignore[return-value]


def _refuse(kind: str) -> Any:
    raise Bad(f"{short(kind)} is not an argument that is known")


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "as_int": _integer,
    "as_float": _float,
    "as_bool": lambda value: instance(value, bool),
    "as_string": lambda value: instance(value, str),
    "as_operator": lambda value: instance(value, str),
    "as_complex": _complex,
    "as_scalar_type": lambda value: _word(TYPES, instance(value, int), "element type"),
    "as_memory_format": lambda value: _word(_FORMATS, instance(value, int), "memory format"),
    "as_layout": lambda value: _word(LAYOUTS, instance(value, int), "layout"),
    "as_device": _device,
    "as_custom_obj": lambda value: None,
}
_NAMED = ("as_sym_int", "as_sym_float", "as_sym_bool")
