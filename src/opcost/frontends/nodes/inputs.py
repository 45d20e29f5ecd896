"""The inputs of a model whose file declares them: what was asked for, and what is assumed where nobody said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from opcost.core.shapes import Shape
from opcost.errors import InputError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.inputs import Asked, arrays_in, asked_of, by_place, check_one
from opcost.frontends.nodes.call import Made
from opcost.frontends.nodes.model import MOST_CONTENT, Content, Declared, plain
from opcost.frontends.open_sizes import filled, parse_dims
from opcost.frontends.options import CountOptions, Sizes
from opcost.wording import some


class Given(NamedTuple):
    """The inputs in their order, the sizes that names in declared shapes stand for, and whether declared shapes hold."""

    made: list[Made]
    sizes: dict[str, int]
    trusted: bool


def given_inputs(inputs: Sequence[Declared], options: CountOptions, maker: GraphBuilder) -> Given:
    """Make the values of a model's inputs."""
    asked = asked_of(replace(options, sizes=Sizes()), [declared.name for declared in inputs])
    check_one(options)
    shapes = {declared.name: declared.shape or () for declared in inputs}
    sizes = parse_dims(options.own.get("dim"), shapes)
    wanted = filled(shapes, options.sizes, sizes)
    # What the file says of values inside holds for the shapes that it declares.
    trusted = all(
        type(old) is not int or old == new
        for name in shapes
        for old, new in zip(shapes[name], wanted[name], strict=True)
    )
    inputs = [declared._replace(shape=declared.shape and wanted[declared.name]) for declared in inputs]
    for declared in inputs:
        if (given := asked.shapes.get(declared.name)) is not None:
            trusted &= _learn(declared, given, sizes)
    contents = _contents(options, inputs)
    made, assumed = [], dict[str, None]()
    for declared in inputs:
        shape = _shape(declared, asked, sizes, assumed) if declared.tensor else None
        dtype = asked.dtypes.get(declared.name, declared.dtype)
        spec = maker.spec(shape, plain(dtype))
        value = maker.value(declared.name, spec, "input")
        made.append(Made(value, shape, spec.dtype, contents.get(declared.name)))
    if assumed:
        text = f"nobody said what {', '.join(some([*assumed]))} {'is' if len(assumed) == 1 else 'are'}: taken as 1"
        maker.note("assumed-sizes", f"{text}; set it by --dim {next(iter(assumed))}=N, or give the shape of the input")
    return Given(made, sizes, trusted)


def _contents(options: CountOptions, inputs: Sequence[Declared]) -> dict[str, Content]:
    """The elements of small arrays that were given: a model may take a shape, or the number of turns of a loop, as an input."""
    ordered, named = arrays_in(options)
    found = {}
    for name, array in {**by_place(ordered, [declared.name for declared in inputs], "inputs"), **named}.items():
        if hasattr(array, "reshape") and not getattr(array, "is_meta", False) and prod(array.shape) <= MOST_CONTENT:
            items = array.reshape(-1).tolist()
            if all(isinstance(item, (int, float)) for item in items):
                found[name] = Content(tuple(array.shape), tuple(items))
    return found


def _learn(declared: Declared, given: tuple[int, ...], sizes: dict[str, int]) -> bool:
    """Take the sizes of names from a shape that was given; whether that shape is as declared."""
    if declared.shape is None:
        return True
    if len(given) != len(declared.shape):
        stated = "x".join("?" if extent is None else str(extent) for extent in declared.shape)
        raise InputError(f"the input {declared.name!r} has {len(declared.shape)} axes ({stated}), not {len(given)}")
    fits = True
    for extent, size in zip(declared.shape, given, strict=True):
        if isinstance(extent, str):
            sizes.setdefault(extent, size)
        elif extent is not None:
            fits &= extent == size
    return fits


def _shape(declared: Declared, asked: Asked, sizes: dict[str, int], assumed: dict[str, None]) -> Shape:
    given = asked.shapes.get(declared.name)
    if given is not None:
        return given
    if declared.shape is None:
        raise InputError(
            f"no shape was given for the model's input {declared.name!r}",
            hint=f"give it: --input {declared.name}:1x3x224x224, or shapes={{{declared.name!r}: (1, 3, 224, 224)}}",
        )
    found = []
    for axis, extent in enumerate(declared.shape):
        if isinstance(extent, int):
            found.append(extent)
            continue
        name = extent or f"{declared.name}[{axis}]"
        if extent is None or extent not in sizes:
            assumed[name] = None
        found.append(sizes.setdefault(extent, 1) if extent else 1)
    return tuple(found)
