"""What is said about a model's inputs, read in one way wherever it is said: texts, shapes, element types, arrays."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from opcost.core.dtype import BITS
from opcost.core.option import Precision, Sizes
from opcost.errors import InputError, UnknownName
from opcost.wording import shortened, some

Shape: TypeAlias = "tuple[int, ...]"
Extent = TypeVar("Extent", int, "int | str | None")
"""Of a shape: a size, or also the name of one that is left open."""
Tree: TypeAlias = "InputSpec | list[Tree] | dict[str, Tree]"
"""An argument: a tensor, or lists and mappings of such."""

ALIASES = {
    "fp16": "float16", "half": "float16", "f16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32", "float": "float32", "f32": "float32",
    "fp64": "float64", "double": "float64", "f64": "float64",
    "long": "int64", "i64": "int64", "int": "int32", "i32": "int32", "short": "int16", "byte": "uint8", "bool_": "bool",
    "chalf": "complex32", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
"""Other names that people type for element types, and that frameworks have for them."""

GRAMMAR = "write [name:]SIZExSIZE...[:type], such as 1x3x224x224, input_ids:1x128:int64 or scalar:float32"
SHAPE_HINT = "a shape is a tuple of integers, as (1, 3, 224, 224); several are a list of shapes, or {name: shape}"
_SIZES = re.compile(r"\d+(?:[x×,]\d+)*|scalar")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_DIMENSIONS = 64
"""PyTorch indexes no more of them."""
_DIGITS = 18
"""More of them are more than a signed 64-bit number holds."""


class InputSpec(NamedTuple):
    """One input: a shape, and a name and an element type where they were given."""

    shape: Shape
    name: str = ""
    dtype: str = ""


class Asks(Protocol):
    """What a caller says of inputs: arrays to be called with, or the shapes and types of such."""

    @property
    def inputs(self) -> Any: ...
    @property
    def kwargs(self) -> Mapping[str, Any]: ...
    @property
    def shapes(self) -> Any: ...
    @property
    def dtypes(self) -> Any: ...
    @property
    def sizes(self) -> Sizes: ...


# -- texts and types ---------------------------------------------------------------------------------------------------


def parse_input(text: str) -> InputSpec:
    """One input from `[name:]1x3x224x224[:float16]`; `scalar` stands for the empty shape."""
    fields = text.strip().split(":")
    at = next((i for i, part in enumerate(fields) if _SIZES.fullmatch(part)), None)
    if at is None or at > 1 or len(fields) - at > 2:
        raise InputError(f"the input {shortened(repr(text))} is not understood", hint=GRAMMAR)
    name = fields[0] if at else ""
    if at and not _NAME.fullmatch(name):
        told = f"the input {shortened(repr(text))}: {shortened(repr(name))} cannot be the name of an argument"
        raise InputError(told, hint=GRAMMAR)
    sizes = [] if fields[at] == "scalar" else re.split("[x×,]", fields[at])
    if len(sizes) > _DIMENSIONS:
        raise InputError(f"the input {shortened(repr(text))}: no tensor has {len(sizes):,} dimensions")
    for size in sizes:
        if len(size.lstrip("0")) > _DIGITS:
            raise InputError(f"the input {shortened(repr(text))}: no tensor has a size of {len(size):,} digits")
    shape = tuple(int(size.lstrip("0") or "0") for size in sizes)
    return InputSpec(shape, name, parse_dtype(fields[at + 1]) if len(fields) > at + 1 else "")


def parse_dtype(wanted: object) -> str:
    """An element type by its name or a short name, or by the object or class that stands for it in some framework."""
    name = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", None) or getattr(wanted, "name", None)
    name = str(name or wanted).rpartition(".")[2]
    name = ALIASES.get(name, name)
    if name not in BITS:
        raise UnknownName("element type", name, (*BITS, *ALIASES))
    return name


_WHOLE = ("float32", "bfloat16", "float16")
_MIXED = {"bf16-mixed": "bfloat16", "fp16-mixed": "float16"}


def parse_precision(wanted: object, like: str | None) -> Precision:
    """A precision by its name, mixed ones as on this type of device; one that is known already stays as it is."""
    if isinstance(wanted, Precision):
        return wanted
    if wanted is None:
        return Precision()
    if wanted in _MIXED:
        return Precision(autocast=_MIXED[str(wanted)], like=like)
    name = str(wanted).removeprefix("torch.")
    if (dtype := ALIASES.get(name, name)) not in _WHOLE:
        raise UnknownName("precision", name, (*_WHOLE, *_MIXED))
    return Precision(dtype=dtype)


def spelled_out(shapes: Any, dtypes: Any) -> tuple[Any, Any]:
    """Shapes and types in which what was written as text is data; all inputs have a name in their texts, or none."""
    if not isinstance(shapes, str) and not any(isinstance(item, str) for item in _items(shapes)):
        return shapes, dtypes
    if isinstance(shapes, Mapping):
        specs = [_spelled(shape, str(name)) for name, shape in shapes.items()]
    else:
        specs = [_spelled(shape) for shape in ([shapes] if isinstance(shapes, str) else shapes)]
    named = [spec.name for spec in specs if spec.name]
    if named and len(named) != len(specs):
        raise InputError("some inputs have a name and some have none", hint="name all of them, or none")
    if len(set(named)) != len(named):
        raise InputError("two inputs have the same name")
    if any(spec.dtype for spec in specs):
        if dtypes is not None:
            raise InputError("element types were given with the shapes and in dtypes too", hint="give them once")
        dtypes = {s.name: s.dtype for s in specs if s.dtype} if named else [s.dtype or None for s in specs]
    return {spec.name: spec.shape for spec in specs} if named else [spec.shape for spec in specs], dtypes


def _items(shapes: Any) -> Collection[Any]:
    return shapes.values() if isinstance(shapes, Mapping) else shapes if isinstance(shapes, (list, tuple)) else ()


def _spelled(value: Any, name: str = "") -> InputSpec:
    if not isinstance(value, str):
        return InputSpec(value, name)
    spec = parse_input(value)
    if name and spec.name:
        raise InputError(
            f"the input {name!r} is called {spec.name!r} in its text", hint="leave the name out of the text"
        )
    return spec._replace(name=name or spec.name)


def check_not_a_shape(inputs: Any) -> None:
    """Numbers in the place of inputs, or a text like 1x3x224x224, are meant as shapes, or as data that has to be a tensor."""
    meant: Any = None
    if isinstance(inputs, (list, tuple)) and inputs and is_shape(inputs):
        meant = tuple(inputs)
    elif (
        isinstance(inputs, tuple) and inputs and all(isinstance(one, tuple) and one and is_shape(one) for one in inputs)
    ):
        meant = list(inputs)
    elif isinstance(inputs, str) and _SIZES.fullmatch(inputs):
        meant = inputs
    if meant is not None:
        raise InputError(
            f"the inputs are {shortened(repr(inputs))}, {'a text' if isinstance(inputs, str) else 'numbers'} and not tensors",
            hint=f"for inputs of this shape pass shapes={meant!r}; for one that holds these numbers, a tensor of them",
        )


# -- shapes ------------------------------------------------------------------------------------------------------------


def is_shape(value: object) -> bool:
    """Whether this is a tuple or list of integers, of whatever sign."""
    return isinstance(value, (tuple, list)) and all(isinstance(n, int) and not isinstance(n, bool) for n in value)


def checked_shape(value: Any, name: str = "") -> Shape:
    """The shape, if it is one that a tensor can have."""
    if not is_shape(value):
        raise InputError(f"{shortened(repr(value))} is not a shape", hint=SHAPE_HINT)
    if any(extent < 0 for extent in value):
        raise InputError(f"the shape {tuple(value)} of {name or 'an input'} has a negative extent")
    return tuple(value)


def arguments(shapes: Any, dtypes: Any, names: Sequence[str]) -> tuple[list[Tree], dict[str, Tree]]:
    """Arguments in order, and by name, from shapes and types in any of their forms; `names` are the model's, in order."""
    shapes, dtypes = spelled_out(shapes, dtypes)
    if isinstance(shapes, Mapping):
        named = {str(name): shape for name, shape in shapes.items()}
        types = _types(dtypes, list(named), given=len(named))
        return [], {name: _tree(shape, name, types.get(name, "")) for name, shape in named.items()}
    several = [] if shapes is None else [shapes] if is_shape(shapes) else shapes
    if not isinstance(several, (list, tuple)) or any(isinstance(item, (int, float)) for item in several):
        raise InputError(f"{shortened(repr(shapes))} is not a shape", hint=SHAPE_HINT)
    called = padded(names, len(several))
    types = _types(dtypes, called if several else names, given=len(several))
    return [_tree(shape, name, types.get(name, "")) for name, shape in zip(called, several, strict=True)], {}


def padded(names: Sequence[str], count: int) -> list[str]:
    """A name for each of so many arguments."""
    return [*names[:count], *(f"input{place}" for place in range(len(names), count))]


def _tree(shape: Any, name: str, dtype: str) -> Tree:
    if isinstance(shape, str):
        spec = _spelled(shape, name)
        return spec._replace(dtype=spec.dtype or dtype)
    if isinstance(shape, Mapping) and shape:
        return {str(key): _tree(inner, f"{name}.{key}", dtype) for key, inner in shape.items()}
    if isinstance(shape, (list, tuple)) and shape and all(isinstance(i, (list, tuple, Mapping, str)) for i in shape):
        return [_tree(inner, f"{name}.{place}", dtype) for place, inner in enumerate(shape)]
    return InputSpec(checked_shape(shape, name), name, dtype)


def nested(named: Mapping[str, Tree]) -> dict[str, Tree]:
    """Arguments from dotted names: dots lead into mappings, and numbers into lists, as in `batch.image` and `images.0`."""
    found: dict[str, Any] = {}
    for name, tree in named.items():
        *outer, last = name.split(".")
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError(f"the input {name!r} lies inside of another input, {part!r}")
        if last in inner:
            raise InputError(f"the input {name!r} is given twice")
        inner[last] = tree
    return {name: _listed(tree, name) for name, tree in found.items()}


def _listed(tree: Any, name: str) -> Tree:
    if not isinstance(tree, dict):
        return tree  # type: ignore[no-any-return]
    parts = {key: _listed(inner, f"{name}.{key}") for key, inner in tree.items()}
    if not any(key.isdigit() for key in parts):
        return parts
    if set(parts) != {str(place) for place in range(len(parts))}:
        raise InputError(f"the list {name!r} needs its entries from 0 on without gaps, not {', '.join(some([*parts]))}")
    return [parts[str(place)] for place in range(len(parts))]


def _types(dtypes: Any, names: Sequence[str], given: int) -> dict[str, str]:
    """Element types by name; `given` is the number of shapes without names."""
    if dtypes is None:
        return {}
    if isinstance(dtypes, Mapping):
        for name in dtypes:
            if name not in names:
                raise UnknownName("input to give an element type", str(name), names)
        asked = {str(name): dtype for name, dtype in dtypes.items()}
    elif isinstance(dtypes, (list, tuple)):
        if (given and len(dtypes) != given) or len(dtypes) > len(names):
            told = f"{len(dtypes)} element types were given for {given or len(names)} inputs"
            raise InputError(told, hint="give one for all, or name them: dtypes={name: type}")
        asked = dict(zip(names, dtypes, strict=False))
    else:
        asked = dict.fromkeys(names, dtypes)
    return {name: parse_dtype(dtype) for name, dtype in asked.items() if dtype is not None}


# -- models whose inputs have names --------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """Shapes and element types by the names of inputs: those that were given."""

    shapes: dict[str, Shape]
    dtypes: dict[str, str]


def check_one(told: Asks) -> None:
    """Inputs and shapes say the same thing."""
    if told.inputs is not None and told.shapes is not None:
        raise InputError("both inputs and shapes were given", hint="pass one of them; further tensors go into kwargs")
    if any(told.sizes) and (told.inputs is not None or told.shapes is not None):
        raise InputError(
            "a batch, tokens or image size was asked for, and inputs were given too", hint="give one of them"
        )


def asked_of(
    told: Asks, names: Sequence[str], known: Collection[str] | None = None, stored: Mapping[str, Shape] | None = None
) -> Asked:
    """What is asked of inputs that have names: `names` in order, `known` all that may be given a shape.

    One element type is that of all inputs, of those without a given shape too. `stored` are the shapes that the file itself has
    for its inputs, whose sizes may be changed.
    """
    check_one(told)
    if any(told.sizes):
        return Asked(resized(told.sizes, stored or {}), _types(told.dtypes, names, 0))
    if told.inputs is not None or told.kwargs:
        ordered, named = arrays_in(told)
        placed = {**by_place(ordered, names, "inputs"), **named}
        specs = {name: array_spec(array, name) for name, array in placed.items()}
        types = _types(told.dtypes, list(specs), len(ordered))
    else:
        trees, by_name = arguments(told.shapes, told.dtypes, names)
        specs = {name: one_tensor(tree, name) for name, tree in {**by_place(trees, names, "shapes"), **by_name}.items()}
        types = {} if specs else _types(told.dtypes, names, 0)
    for name in specs:
        if name not in (names if known is None else known):
            raise UnknownName("input", name, names)
    types = {**{name: spec.dtype for name, spec in specs.items() if spec.dtype}, **types}
    if told.dtypes is not None and not isinstance(told.dtypes, (Mapping, list, tuple)):
        types = {**dict.fromkeys(names, parse_dtype(told.dtypes)), **types}
    return Asked({name: spec.shape for name, spec in specs.items()}, types)


def resized(sizes: Sizes, stored: Mapping[str, tuple[Extent, ...]]) -> dict[str, tuple[Extent, ...]]:
    """The file's own shapes with other sizes."""
    if not stored:
        raise InputError(
            "the file does not say which shapes its inputs have, so that no size of them can be changed",
            hint="give the whole shape: shapes={name: shape} (on the command line --input name:1x3x224x224)",
        )
    extents = {name: list(shape) for name, shape in stored.items()}
    for asked, size in sizes._asdict().items():
        rank, places = PLACES[asked]
        changed = [
            shape for shape in extents.values() if size is not None and (len(shape) == rank or (shape and not rank))
        ]
        for shape in changed:
            for place in places:
                shape[place] = size
        if size is not None and not changed:
            told = ", ".join(f"{name} {list(shape)}" for name, shape in stored.items())
            raise InputError(
                f"no input of the file has a size for {asked}: {told}", hint="give the whole shape: --input"
            )
    return {name: tuple(shape) for name, shape in extents.items()}


PLACES: dict[str, tuple[int, tuple[int, ...]]] = {"batch": (0, (0,)), "tokens": (2, (1,)), "image": (4, (2, 3))}
"""Where a size stands in the shapes with so many extents; 0: of any number."""


def arrays_in(told: Asks) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arrays that were given, in order and by name: a tuple or a list of arrays holds them in order, a mapping by name."""
    given = told.inputs
    if isinstance(given, Mapping):
        return (), {**given, **told.kwargs}
    if given is None:
        return (), dict(told.kwargs)
    several = isinstance(given, tuple) or (isinstance(given, list) and all(hasattr(item, "shape") for item in given))
    return tuple(given) if several else (given,), dict(told.kwargs)


def array_spec(array: Any, name: str) -> InputSpec:
    """Shape and element type of an array, of whatever framework."""
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise InputError(f"the input {name!r} is of type {type(array).__name__}, not an array", hint=SHAPE_HINT)
    return InputSpec(tuple(int(extent) for extent in array.shape), name, parse_dtype(array.dtype))


def by_place(given: Sequence[Any], names: Sequence[str], what: str) -> dict[str, Any]:
    """The given by the names of inputs, in order."""
    if len(given) > len(names):
        told = (
            f"{len(given)} {what} were given, and the model has {len(names)} inputs: {', '.join(some(names)) or 'none'}"
        )
        raise InputError(told, hint="name them: shapes={name: shape}, or --input name:1x3x224x224")
    return dict(zip(names, given, strict=False))


def one_tensor(tree: Tree, name: str) -> InputSpec:
    """The tensor, where a list or a mapping of such is nothing that the model takes."""
    if not isinstance(tree, InputSpec):
        raise InputError(f"the input {name!r} is one tensor, and several shapes were given for it", hint=SHAPE_HINT)
    return tree
