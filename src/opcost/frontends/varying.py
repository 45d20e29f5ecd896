"""What a model is counted on at other sizes: by options of the count, or by other shapes of the inputs that were given."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import TensorSpec
from opcost.core.limits import check_sizes, parse_sizes
from opcost.core.option import Sizes, Text
from opcost.errors import InputError, UnknownName, shortened, some
from opcost.frontends.input_data import InputArray
from opcost.frontends.inputs import PLACES, is_shape, spelled_out

CountArguments: TypeAlias = "dict[str, Any]"
"""Arguments of `opcost.count` by name, with the positional ones as `inputs`."""
Named: TypeAlias = "Sequence[tuple[str, TensorSpec]]"  # The inputs of a model as a report names them

OPTIONS = (*Sizes._fields, *Text._fields[:4])  # Sizes that a count has an option for
GRAMMAR = f"write one of {', '.join(OPTIONS)}, or NAME=DIMENSION of an input, several with commas: x=2,x=3"
MOST_VARIABLES = 2
_PLACE = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=\s*(-?\d{1,2})\s*")


class InputExtent(NamedTuple):
    """One extent of an input."""

    name: str
    dim: int


def parse_vary(text: str) -> tuple[InputExtent, ...]:
    """What varies: nothing for a size that a count has an option for, else extents of inputs by their names."""
    if text in OPTIONS:
        return ()
    found = [_PLACE.fullmatch(part) for part in text.split(",")]
    places = tuple(InputExtent(match[1], int(match[2])) for match in found if match is not None)
    if "=" not in text:
        raise UnknownName("size to vary", text, OPTIONS, hint=GRAMMAR)
    if len(places) != len(found):
        raise InputError(f"{shortened(repr(text))} does not say what varies", hint=GRAMMAR)
    return places


def parse_variables(vary: str | Sequence[str] | Mapping[str, str | Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """What varies, with its sizes, from any of its forms."""
    texts = [vary] if isinstance(vary, str) else vary
    pairs = vary.items() if isinstance(vary, Mapping) else [text.rpartition("=")[::2] for text in texts]
    found: dict[str, tuple[int, ...]] = {}
    for name, sizes in pairs:
        if not name:
            raise InputError(f"{sizes!r} does not say what varies", hint="batch=1,2,4..256, or input_ids=1=128..8192")
        if name in found:
            raise InputError(f"{name} varies twice")
        parse_vary(name)
        found[name] = parse_sizes(sizes) if isinstance(sizes, str) else check_sizes(tuple(sizes), sizes)
    if not 0 < len(found) <= MOST_VARIABLES:
        fault = f"{len(found)} sizes vary, and one or two can"
        raise InputError(fault, hint='vary={"batch": "1..64"} (on the command line --vary batch=1..64)')
    return found


class Varied:
    """The arguments of a count at other sizes of what varies."""

    def __init__(self, arguments: CountArguments, names: Sequence[str], probe: Callable[[Any], Named]) -> None:
        """`probe` gives the inputs of the model where their names are needed, or none were given."""
        self._arguments, self._names, self._probe = arguments, names, probe
        places = [parse_vary(name) for name in names]
        given = _leaves(arguments)
        if not any(places) and not (given and "batch" in names):
            self._extents: list[list[tuple[int, int]]] = [[] for _ in names]
            _check_free(given, names)
            return
        called: list[str] = []
        if any(places):
            inputs = probe(arguments)
            if not given:
                self._arguments = {
                    **{name: value for name, value in arguments.items() if name not in Sizes._fields},
                    "shapes": {name: list(spec.shape or ()) for name, spec in inputs},
                    "dtypes": {name: spec.dtype for name, spec in inputs},
                }
                given = _leaves(self._arguments)
            called = [name for name, _ in inputs]
            if len(called) != len(given):
                raise InputError(
                    f"the model has the inputs {', '.join(some(called))}, and {len(given)} tensors were given, so that none of "
                    "them is known by its name",
                    hint="give inputs by their names: shapes={name: shape}",
                )
        if "labels" in called and not _leaves(arguments):  # labels that are made with the inputs grow with them
            alike = {name for name, shape in zip(called, given, strict=True) if shape == given[called.index("labels")]}
            places = [
                (*wanted, *(InputExtent("labels", place.dim) for place in wanted if place.name in alike - {"labels"}))
                for wanted in places
            ]
        self._extents = [
            _named_extents(wanted, called, given) if wanted else _batch_extents(name, given)
            for name, wanted in zip(names, places, strict=True)
        ]
        self._given = given

    def usual(self, place: int = 0) -> int | None:
        """The size that the inputs have which were given, or which the model gets by itself."""
        if self._extents[place]:
            leaf, dim = self._extents[place][0]
            return self._given[leaf][dim]
        name = self._names[place]
        if name not in PLACES:
            return None
        rank, places = PLACES[name]
        shapes = [spec.shape for _, spec in self._probe(self._arguments)]
        return next((shape[places[0]] for shape in shapes if shape and len(shape) == (rank or len(shape))), None)

    def arguments(self, sizes: Sequence[int]) -> CountArguments:
        """The arguments of the count at these sizes."""
        arguments = dict(self._arguments)
        wanted: dict[int, dict[int, int]] = {}
        for name, extents, size in zip(self._names, self._extents, sizes, strict=True):
            if not extents:
                arguments[name] = size
            for leaf, dim in extents:
                wanted.setdefault(leaf, {})[dim] = size
        return _resized(arguments, wanted) if wanted else arguments


def _check_free(given: Sequence[Sequence[int]], names: Iterable[str]) -> None:
    """Tokens and image sizes are those of default inputs."""
    for name in names:
        if given and name in Sizes._fields:
            fault = f"{name} is a size of inputs that the model itself names, and inputs were given"
            raise InputError(fault, hint="say which of their dimensions varies: NAME=DIMENSION, such as input_ids=1")


def _batch_extents(name: str, given: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The first extent of every input that has as many there as the first one."""
    if name != "batch":
        _check_free(given, [name])
        raise InputError(f"{name} cannot be varied together with dimensions of inputs", hint=GRAMMAR)
    first = next((shape[0] for shape in given if len(shape)), None)
    if first is None:
        raise InputError("no input has a dimension that could be a batch")
    return [(leaf, 0) for leaf, shape in enumerate(given) if len(shape) and shape[0] == first]


def _named_extents(
    places: Iterable[InputExtent], called: Sequence[str], given: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    found = []
    for name, dim in places:
        if name not in called:
            raise UnknownName("input to vary", name, called)
        leaf = called.index(name)
        rank = len(given[leaf])
        if not -rank <= dim < rank:
            raise InputError(
                f"the input {name} has the shape {'x'.join(map(str, given[leaf])) or 'scalar'}, and no dimension {dim}",
                hint=f"dimensions are counted from 0 to {rank - 1}" if rank else "",
            )
        found.append((leaf, dim % rank))
    return found


# -- shapes and arrays inside of what was given --------------------------------------------------------------------------


def _leaves(arguments: CountArguments) -> list[Sequence[int]]:
    """The shapes of all that was given, in order."""
    found: list[Sequence[int]] = []

    def keep(leaf: Any, shape: Sequence[int]) -> Any:
        found.append(shape)
        return leaf

    _mapped(arguments, keep)
    return found


def _resized(arguments: CountArguments, wanted: Mapping[int, Mapping[int, int]]) -> CountArguments:
    """The same with other extents, by the number of the tensor and the dimension."""
    seen = -1

    def change(leaf: Any, shape: Sequence[int]) -> Any:
        nonlocal seen
        seen += 1
        new = [wanted.get(seen, {}).get(dim, extent) for dim, extent in enumerate(shape)]
        return leaf if new == list(shape) else _like(leaf, new)

    return _mapped(arguments, change)


def _like(leaf: Any, shape: Sequence[int]) -> Any:
    if isinstance(leaf, (tuple, list)):
        return tuple(shape)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        from opcost.frontends.torch.models.inputs import resized

        return resized(leaf, shape)
    return InputArray(tuple(shape), str(leaf.dtype))


def _mapped(arguments: CountArguments, change: Callable[[Any, Sequence[int]], Any]) -> CountArguments:
    """What was given with every shape and every array changed."""
    shapes, dtypes = spelled_out(arguments.get("shapes"), arguments.get("dtypes"))
    made = dict(arguments)
    if shapes is not None:  # what is not a shape, the count reports
        plain = dict(shapes) if isinstance(shapes, Mapping) else shapes
        made |= {"shapes": _mapped_leaves(plain, is_shape, lambda shape: change(shape, shape)), "dtypes": dtypes}
    tree = (arguments.get("inputs"), dict(arguments.get("kwargs") or {}))
    if "torch" in sys.modules:
        from opcost.frontends.torch.tree import map_tensors

        tree = map_tensors(tree, lambda tensor: change(tensor, tensor.shape))
    # Arrays of other frameworks, in the plain containers that they come in
    inputs, kwargs = _mapped_leaves(tree, _is_array, lambda array: change(array, tuple(array.shape)))
    several = (inputs,) if isinstance(inputs, InputArray) else inputs  # which is a tuple, and a tuple holds arguments
    return {**made, "inputs": several, "kwargs": kwargs}


def _is_array(leaf: Any) -> bool:
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(leaf, torch.Tensor)
    return not is_tensor and hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _mapped_leaves(tree: Any, is_leaf: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    if is_leaf(tree):
        return change(tree)
    if type(tree) in (tuple, list):
        return type(tree)(_mapped_leaves(item, is_leaf, change) for item in tree)
    if type(tree) is dict:
        return {name: _mapped_leaves(item, is_leaf, change) for name, item in tree.items()}
    return tree
