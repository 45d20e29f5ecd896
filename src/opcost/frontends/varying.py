"""What a model is counted on at other sizes: by options of the count, or by other shapes of the inputs that were given."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import TensorSpec
from opcost.core.limits import check_sizes, parse_sizes
from opcost.core.option import Sizes, Text
from opcost.errors import InputError, UnknownName, shortened, some
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
        given = _resized(arguments)[1]
        optional = not any(places) and not (given and "batch" in names)  # only options of the count vary
        called: list[str] = []
        if any(places):
            inputs = probe(arguments)
            called = [name for name, _ in inputs]
            if not given:
                kept = {name: value for name, value in arguments.items() if name not in Sizes._fields}
                shapes = {name: list(spec.shape or ()) for name, spec in inputs}
                self._arguments = {**kept, "shapes": shapes, "dtypes": {name: spec.dtype for name, spec in inputs}}
                given = _resized(self._arguments)[1]
                if "labels" in called:  # labels that are made with the inputs grow with them
                    pairs = zip(called, given, strict=True)
                    alike = {name for name, shape in pairs if shape == given[called.index("labels")]} - {"labels"}
                    labels = [[InputExtent("labels", at.dim) for at in wanted if at.name in alike] for wanted in places]
                    places = [(*wanted, *more) for wanted, more in zip(places, labels, strict=True)]
            if len(called) != len(given):
                text = f"the model has the inputs {', '.join(some(called))}, and {len(given)} tensors were given"
                hint = "give inputs by their names: shapes={name: shape}"
                raise InputError(f"{text}, so that none of them is known by its name", hint=hint)
        self._given = given
        self._extents: list[list[tuple[int, int]]] = []
        for name, wanted in zip(names, places, strict=True):
            if wanted:
                self._extents.append([_extent(place, called, given) for place in wanted])
                continue
            if given and name != "batch" and name in Sizes._fields:  # they are those of default inputs
                fault = f"{name} is a size of inputs that the model itself names, and inputs were given"
                raise InputError(
                    fault, hint="say which of their dimensions varies: NAME=DIMENSION, such as input_ids=1"
                )
            if name != "batch" and not optional:
                raise InputError(f"{name} cannot be varied together with dimensions of inputs", hint=GRAMMAR)
            first = next((shape[0] for shape in given if len(shape)), None)
            if first is None and not optional:
                raise InputError("no input has a dimension that could be a batch")
            # The first extent of every input that has as many there as the first one
            batches = [leaf for leaf, shape in enumerate(given) if len(shape) and shape[0] == first]
            self._extents.append([] if optional else [(leaf, 0) for leaf in batches])

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
        return _resized(arguments, wanted)[0] if wanted else arguments


def _extent(place: InputExtent, called: Sequence[str], given: Sequence[Sequence[int]]) -> tuple[int, int]:
    """The number of the tensor, and of its dimension."""
    if place.name not in called:
        raise UnknownName("input to vary", place.name, called)
    leaf = called.index(place.name)
    rank = len(given[leaf])
    if not -rank <= place.dim < rank:
        shape = "x".join(map(str, given[leaf])) or "scalar"
        fault = f"the input {place.name} has the shape {shape}, and no dimension {place.dim}"
        raise InputError(fault, hint=f"dimensions are counted from 0 to {rank - 1}" if rank else "")
    return leaf, place.dim % rank


# -- shapes and arrays inside of what was given --------------------------------------------------------------------------


def _resized(
    arguments: CountArguments, wanted: Mapping[int, Mapping[int, int]] | None = None
) -> tuple[CountArguments, list[Sequence[int]]]:
    """The same with other extents, by the number of the tensor and the dimension; and the shapes that were given, in order."""
    found: list[Sequence[int]] = []
    torch = sys.modules.get("torch")

    def change(leaf: Any, shape: Sequence[int], make: Callable[[list[int]], Any]) -> Any:
        changes = (wanted or {}).get(len(found), {})
        found.append(shape)
        new = [changes.get(dim, extent) for dim, extent in enumerate(shape)]
        return leaf if new == list(shape) else make(new)

    def is_array(leaf: Any) -> bool:
        """Arrays of other frameworks, in the plain containers that they come in."""
        is_tensor = torch is not None and isinstance(leaf, torch.Tensor)
        return not is_tensor and hasattr(leaf, "shape") and hasattr(leaf, "dtype")

    shapes, dtypes = spelled_out(arguments.get("shapes"), arguments.get("dtypes"))
    made = dict(arguments)
    if shapes is not None:  # what is not a shape, the count reports
        plain = dict(shapes) if isinstance(shapes, Mapping) else shapes
        made |= {"shapes": _mapped_leaves(plain, is_shape, lambda shape: change(shape, shape, tuple)), "dtypes": dtypes}
    tree = (arguments.get("inputs"), dict(arguments.get("kwargs") or {}))
    if torch is not None:
        from opcost.frontends.torch.models.inputs import resized
        from opcost.frontends.torch.tree import map_tensors

        tree = map_tensors(tree, lambda tensor: change(tensor, tensor.shape, partial(resized, tensor)))
    inputs, kwargs = _mapped_leaves(
        tree,
        is_array,
        lambda array: change(array, tuple(array.shape), lambda new: TensorSpec(tuple(new), str(array.dtype))),
    )
    return {**made, "inputs": inputs, "kwargs": kwargs}, found


def _mapped_leaves(tree: Any, is_leaf: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    if is_leaf(tree):
        return change(tree)
    if type(tree) in (tuple, list):
        return type(tree)(_mapped_leaves(item, is_leaf, change) for item in tree)
    if type(tree) is dict:
        return {name: _mapped_leaves(item, is_leaf, change) for name, item in tree.items()}
    return tree
