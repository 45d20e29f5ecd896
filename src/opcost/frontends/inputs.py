"""A model's inputs as callers give them: texts, shapes, element types, arrays, and sizes that a file leaves open."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from opcost.core.graph import BITS, INTEGER
from opcost.core.option import Precision, Sizes
from opcost.errors import InputError, UnknownName, shortened, some
from opcost.frontends.options import FrontendOption, InputOptions

Shape: TypeAlias = "tuple[int, ...]"
Extent = TypeVar("Extent", int, "int | str | None")  # Of a shape: a size, or also the name of one that is left open
Tree: TypeAlias = "InputSpec | list[Tree] | dict[str, Tree]"  # An argument: a tensor, or lists and mappings of such

ALIASES = {
    "fp16": "float16", "half": "float16", "f16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32", "float": "float32", "f32": "float32",
    "fp64": "float64", "double": "float64", "f64": "float64",
    "long": "int64", "i64": "int64", "int": "int32", "i32": "int32", "short": "int16", "byte": "uint8", "char": "int8",
    "bool_": "bool", "chalf": "complex32", "cfloat": "complex64", "cdouble": "complex128",
    "complexfloat": "complex64", "complexdouble": "complex128",
}  # fmt: skip
"""Other names that people type for element types, and that frameworks have for them."""

GRAMMAR = "write [name:]SIZExSIZE...[:type], such as 1x3x224x224, input_ids:1x128:int64 or scalar:float32"
SHAPE_HINT = "a shape is a tuple of integers, as (1, 3, 224, 224); several are a list of shapes, or {name: shape}"
_SIZES = re.compile(r"\d+(?:[x×,]\d+)*|scalar")
_INPUT = re.compile(rf"(?:([^:]*):)??({_SIZES.pattern})(?::([^:]*))?")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_DIMENSIONS = 64  # PyTorch indexes no more of them
_DIGITS = 18  # More of them are more than a signed 64-bit number holds


class InputSpec(NamedTuple):
    """One input: a shape, and a name and an element type where they were given."""

    shape: Shape
    name: str = ""
    dtype: str = ""


# -- texts and types ---------------------------------------------------------------------------------------------------


def parse_input(text: str) -> InputSpec:
    """One input from `[name:]1x3x224x224[:float16]`; `scalar` is the empty shape."""
    found = _INPUT.fullmatch(text.strip())
    if found is None:
        raise InputError(f"the input {shortened(repr(text))} is not understood", hint=GRAMMAR)
    name, written, dtype = found.groups()
    if name is not None and not _NAME.fullmatch(name):
        fault = f"the input {shortened(repr(text))}: {shortened(repr(name))} cannot be the name of an argument"
        raise InputError(fault, hint=GRAMMAR)
    sizes = [] if written == "scalar" else re.split("[x×,]", written)
    if len(sizes) > _DIMENSIONS:
        raise InputError(f"the input {shortened(repr(text))}: no tensor has {len(sizes):,} dimensions")
    for size in sizes:
        if len(size.lstrip("0")) > _DIGITS:
            raise InputError(f"the input {shortened(repr(text))}: no tensor has a size of {len(size):,} digits")
    shape = tuple(int(size.lstrip("0") or "0") for size in sizes)
    return InputSpec(shape, name or "", "" if dtype is None else parse_dtype(dtype))


def parse_dtype(wanted: object) -> str:
    """An element type by its name or a short name, or by the object or class that a framework has for it."""
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
    several = shapes if isinstance(shapes, (list, tuple)) else [shapes]
    items = shapes.values() if isinstance(shapes, Mapping) else several
    if not any(isinstance(item, str) for item in items):
        return shapes, dtypes
    names = map(str, shapes) if isinstance(shapes, Mapping) else [""] * len(items)
    specs = [_spelled(shape, name) for name, shape in zip(names, items, strict=True)]
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


def _spelled(value: Any, name: str = "") -> InputSpec:
    if not isinstance(value, str):
        return InputSpec(value, name)
    spec = parse_input(value)
    if name and spec.name:
        fault = f"the input {name!r} is called {spec.name!r} in its text"
        raise InputError(fault, hint="leave the name out of the text")
    return spec._replace(name=name or spec.name)


def check_not_a_shape(inputs: Any) -> None:
    """Numbers in the place of inputs, or a text like 1x3x224x224, are meant as shapes, or as data that has to be a tensor."""
    meant: Any = inputs if isinstance(inputs, str) and _SIZES.fullmatch(inputs) else None
    if is_shape(inputs) and inputs:
        meant = tuple(inputs)
    elif isinstance(inputs, tuple) and all(isinstance(one, tuple) and one and is_shape(one) for one in inputs):
        meant = list(inputs)
    if meant:
        kind = "a text" if isinstance(inputs, str) else "numbers"
        hint = f"for inputs of this shape pass shapes={meant!r}; for one that holds these numbers, a tensor of them"
        raise InputError(f"the inputs are {shortened(repr(inputs))}, {kind} and not tensors", hint=hint)


# -- shapes ------------------------------------------------------------------------------------------------------------


def is_shape(value: object) -> bool:
    """Whether this is a tuple or list of integers, of whatever sign."""
    return isinstance(value, (tuple, list)) and all(isinstance(n, int) and not isinstance(n, bool) for n in value)


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
    """A name for each of `count` arguments."""
    return [*names[:count], *(f"input{place}" for place in range(len(names), count))]


def _tree(shape: Any, name: str, dtype: str) -> Tree:
    if isinstance(shape, str):
        spec = _spelled(shape, name)
        return spec._replace(dtype=spec.dtype or dtype)
    if isinstance(shape, Mapping) and shape:
        return {str(key): _tree(inner, f"{name}.{key}", dtype) for key, inner in shape.items()}
    if isinstance(shape, (list, tuple)) and shape and all(isinstance(i, (list, tuple, Mapping, str)) for i in shape):
        return [_tree(inner, f"{name}.{place}", dtype) for place, inner in enumerate(shape)]
    # The shape, if it is one that a tensor can have
    if not is_shape(shape):
        raise InputError(f"{shortened(repr(shape))} is not a shape", hint=SHAPE_HINT)
    if any(extent < 0 for extent in shape):
        raise InputError(f"the shape {tuple(shape)} of {name or 'an input'} has a negative extent")
    return InputSpec(tuple(shape), name, dtype)


def nested(named: Mapping[str, Tree]) -> dict[str, Tree]:
    """Arguments from dotted names: dots lead into mappings, and numbers into lists, as in `batch.image` and `images.0`."""
    found: dict[str, Any] = {}
    for name, tree in named.items():
        *outer, last = name.split(".")
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError(f"the input {name!r} is inside of another input, {part!r}")
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
        types = {str(name): dtype for name, dtype in dtypes.items()}
    elif isinstance(dtypes, (list, tuple)):
        if (given and len(dtypes) != given) or len(dtypes) > len(names):
            fault = f"{len(dtypes)} element types were given for {given or len(names)} inputs"
            raise InputError(fault, hint="give one for all, or name them: dtypes={name: type}")
        types = dict(zip(names, dtypes, strict=False))
    else:
        types = dict.fromkeys(names, dtypes)
    return {name: parse_dtype(dtype) for name, dtype in types.items() if dtype is not None}


# -- models whose inputs have names --------------------------------------------------------------------------------------


class RequestedInputs(NamedTuple):
    """Shapes and element types by the names of inputs: those that were given."""

    shapes: dict[str, Shape]
    dtypes: dict[str, str]


def requested_inputs(
    request: InputOptions, names: Sequence[str], known: Collection[str] | None = None, stored: Mapping[str, Shape] | None = None
) -> RequestedInputs:  # fmt: skip
    """The requested inputs of a model whose inputs have names: `names` in order, `known` all that may be given a shape.

    One element type is that of all inputs, of those without a given shape too. `stored` are the shapes that the file itself has
    for its inputs, whose sizes may be changed.
    """
    if any(request.sizes):
        return RequestedInputs(resized(request.sizes, stored or {}), _types(request.dtypes, names, 0))
    if request.inputs is not None or request.kwargs:
        ordered, named = arrays_in(request)
        specs = {}
        for name, array in {**by_place(ordered, names, "inputs"), **named}.items():
            if not hasattr(array, "shape") or not hasattr(array, "dtype"):
                fault = f"the input {name!r} is of type {type(array).__name__}, not an array"
                raise InputError(fault, hint=SHAPE_HINT)
            specs[name] = InputSpec(tuple(int(extent) for extent in array.shape), name, parse_dtype(array.dtype))
        types = _types(request.dtypes, list(specs), len(ordered))
    else:
        trees, by_name = arguments(request.shapes, request.dtypes, names)
        specs = {name: one_tensor(tree, name) for name, tree in {**by_place(trees, names, "shapes"), **by_name}.items()}
        types = {} if specs else _types(request.dtypes, names, 0)
    for name in specs:
        if name not in (names if known is None else known):
            raise UnknownName("input", name, names)
    types = {**{name: spec.dtype for name, spec in specs.items() if spec.dtype}, **types}
    if request.dtypes is not None and not isinstance(request.dtypes, (Mapping, list, tuple)):
        types = {**dict.fromkeys(names, parse_dtype(request.dtypes)), **types}
    return RequestedInputs({name: spec.shape for name, spec in specs.items()}, types)


def resized(sizes: Sizes, stored: Mapping[str, tuple[Extent, ...]]) -> dict[str, tuple[Extent, ...]]:
    """The file's own shapes with other sizes."""
    if not stored:
        fault = "the file does not say which shapes its inputs have, so that no size of them can be changed"
        hint = "give the whole shape: shapes={name: shape} (on the command line --input name:1x3x224x224)"
        raise InputError(fault, hint=hint)
    extents = {name: list(shape) for name, shape in stored.items()}
    for name_of_size, size in sizes._asdict().items():
        if size is None:
            continue
        rank, places = PLACES[name_of_size]
        changed = [shape for shape in extents.values() if len(shape) == rank or (shape and not rank)]
        for shape in changed:
            for place in places:
                shape[place] = size
        if not changed:
            shapes = ", ".join(f"{name} {list(shape)}" for name, shape in stored.items())
            fault = f"no input of the file has a size for {name_of_size}: {shapes}"
            raise InputError(fault, hint="give the whole shape: --input")
    return {name: tuple(shape) for name, shape in extents.items()}


PLACES: dict[str, tuple[int, tuple[int, ...]]] = {"batch": (0, (0,)), "tokens": (2, (1,)), "image": (4, (2, 3))}
"""The number of extents that a shape must have for this size, 0 for any, and the places of the size in it."""


def leaves(tree: Any, kind: type = object) -> Iterator[Any]:
    """What is in nested lists, tuples and mappings, in order, as far as it is of this type."""
    if isinstance(tree, (tuple, list, Mapping)):
        for item in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(item, kind)
    elif isinstance(tree, kind):
        yield tree


def arrays_in(request: InputOptions) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arrays that were given, in order and by name: a tuple or a list of arrays holds them in order, a mapping by name."""
    given = request.inputs
    if isinstance(given, Mapping):
        return (), {**given, **request.kwargs}
    if given is None:
        return (), dict(request.kwargs)
    several = isinstance(given, tuple) or (isinstance(given, list) and all(hasattr(item, "shape") for item in given))
    return tuple(given) if several else (given,), dict(request.kwargs)


def by_place(given: Sequence[Any], names: Sequence[str], what: str) -> dict[str, Any]:
    """The given by the names of inputs, in order."""
    if len(given) > len(names):
        own = ", ".join(some(names)) or "none"
        fault = f"{len(given)} {what} were given, and the model has {len(names)} inputs: {own}"
        raise InputError(fault, hint="name them: shapes={name: shape}, or --input name:1x3x224x224")
    return dict(zip(names, given, strict=False))


def one_tensor(tree: Tree, name: str) -> InputSpec:
    """The tensor, where a list or a mapping of such is nothing that the model takes."""
    if not isinstance(tree, InputSpec):
        raise InputError(f"the input {name!r} is one tensor, and several shapes were given for it", hint=SHAPE_HINT)
    return tree


# -- sizes that a model's file leaves open, by a name or without one -------------------------------------------------------

Open: TypeAlias = "tuple[int | str | None, ...]"
"""The extents of a shape: a size, the name of one that is left open, or nothing at all."""

_DIM_HELP = "A size that a model's file leaves open, by name: --dim batch=1 --dim seq=128, or batch=1,seq=128."
DIM = FrontendOption("dim", str, _DIM_HELP, "NAME=SIZE", repeated=True)


def parse_dims(given: str | Sequence[str] | None, declared: Mapping[str, Open]) -> dict[str, int]:
    """Sizes by name from `batch=1` and `seq=128`, or from `batch=1,seq=128`."""
    texts = (given,) if isinstance(given, str) else given or ()
    known = {extent for shape in declared.values() for extent in shape if isinstance(extent, str)}
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for text in texts for part in text.split(","))):
        name, _, size = part.partition("=")
        if not size.isdecimal() or len(size) > 18:
            fault = f"{shortened(repr(part))} is not a size"
            raise InputError(fault, hint="write --dim NAME=SIZE, such as --dim batch=1 --dim seq=128")
        if name not in known:
            raise UnknownName("dimension", name, known)
        if found.setdefault(name, int(size)) != int(size):
            raise InputError(f"the dimension {shortened(name)} is given as {found[name]} and as {int(size)}")
    return found


def filled(declared: Mapping[str, Open], sizes: Sizes, dims: dict[str, int]) -> dict[str, Open]:
    """The shapes with another batch, length or image; a name in such a place has that size everywhere."""
    if not any(sizes):
        return dict(declared)
    changed = resized(sizes, {name: shape for name, shape in declared.items() if shape})
    if any(shape and isinstance(shape[0], str) for shape in declared.values()):  # the batch; what is fixed there is not
        fixed = {name: shape[0] for name, shape in declared.items() if shape and not isinstance(shape[0], str)}
        changed = {name: (fixed.get(name, shape[0]), *shape[1:]) for name, shape in changed.items()}
    for name, shape in changed.items():
        for before, after in zip(declared[name], shape, strict=True):
            if isinstance(before, str) and isinstance(after, int) and dims.setdefault(before, after) != after:
                raise InputError(f"{before} is given as {dims[before]} and as {after}", hint="give one of them")
    return {**declared, **changed}


# -- sizes that the caller does not give -----------------------------------------------------------------------------------


class Usual(NamedTuple):
    """The sizes that models of a kind mostly get, and where they are known from."""

    image: tuple[int, int] = (224, 224)
    why: str = "the usual size of images"
    samples: int = 16_000  # One second of speech
    tokens: int = 128

    @classmethod
    def of(cls, metadata: Mapping[str, str], *, detector: bool) -> Usual:
        """The size of images in a file's metadata, else the usual one: larger ones for a model that finds objects."""
        for key in ("imgsz", "image_size", "img_size", "input_size"):
            numbers = [int(number) for number in re.findall(r"\b[1-9]\d{0,4}\b", metadata.get(key, "")[:100])]
            if numbers:
                height, width = (numbers * 2)[-2:] if len(numbers) > 1 else numbers * 2
                return cls((height, width), f"{key} in the model's metadata")
        if detector or metadata.get("task") in ("detect", "segment", "pose", "obb"):
            return cls((640, 640), "the usual size of images for detectors")
        return cls()

    def sizes(self, shape: Open, dtype: str) -> dict[int, tuple[int, str]]:
        """Sizes of open dimensions, and why, for an input that looks like an image, a sound or a text."""
        whole = dtype in INTEGER and dtype != "uint8"
        if len(shape) == 4 and not whole:
            last = isinstance(shape[3], int) and shape[3] in (1, 3, 4) and not isinstance(shape[1], int)
            return {axis: (size, self.why) for axis, size in zip((1, 2) if last else (2, 3), self.image, strict=True)}
        if not whole and (len(shape) == 2 or (len(shape) == 3 and shape[1] == 1)):
            return {len(shape) - 1: (self.samples, "one second of sound at 16 kHz")}
        return {1: (self.tokens, "a text of that many tokens")} if whole and self.tokens and len(shape) == 2 else {}


_BATCH, _LENGTH = re.compile("batch", re.IGNORECASE), re.compile("seq|len|time|frame|token|step", re.IGNORECASE)


def is_batch(extent: int | str | None, axis: int) -> bool:
    """Whether an open dimension is a batch, which is 1 unless given: by its name, or because it is the first."""
    named = isinstance(extent, str) and not extent.endswith("]")
    return bool(named and _BATCH.search(extent)) or (axis == 0 and not (named and _LENGTH.search(extent)))  # type: ignore[arg-type]
