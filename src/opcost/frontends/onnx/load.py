"""From an ONNX file to a graph."""

from __future__ import annotations

from math import prod
from pathlib import Path

from opcost.core.checked import Bad
from opcost.core.graph import Graph
from opcost.core.reading import length_of, opened
from opcost.core.shapes import Shape, complete
from opcost.errors import InputError, SourceError, UnknownName
from opcost.frontends.building import GraphBuilder
from opcost.frontends.inputs import Asked, arrays_in, asked_of, by_place
from opcost.frontends.onnx.call import Made
from opcost.frontends.onnx.model import MOST_CONTENT, Content, Declared, Model, read_model
from opcost.frontends.onnx.walk import Walk
from opcost.frontends.onnx.wire import Span
from opcost.frontends.options import CountOptions
from opcost.wording import some

OLDEST = 7
"""The first version of the operators that is read."""


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    for asked, what in (
        (options.backward or options.optimizer, "a backward pass"),
        (options.mode == "train", "a training mode"),
        (options.real, "a run on real weights"),
    ):
        if asked:
            raise InputError(f"{path} is an ONNX model, which is read and not run; {what} cannot be counted from it")
    try:
        with opened(path) as file:
            model = read_model(Span(file, 0, length_of(file)))
        return graph_of(model, options, path.name)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{path} is not an ONNX model that can be read: {exc}") from exc


def graph_of(model: Model, options: CountOptions, source: str) -> Graph:
    """The graph of a model on the inputs that were asked for."""
    version = model.opsets.get("ai.onnx", OLDEST)
    if version < OLDEST:
        raise SourceError(f"its operators are of version {version}, and versions from {OLDEST} on are read")
    inputs = [declared for declared in model.graph.inputs if declared.name not in model.graph.stored]
    asked = asked_of(options, [declared.name for declared in inputs])
    sizes = _dims(options.own.get("dim", ""), inputs)
    maker = GraphBuilder()
    trusted = True
    env: dict[str, Made] = {}
    assumed: dict[str, None] = {}
    for declared in inputs:
        if (given := asked.shapes.get(declared.name)) is not None:
            trusted &= _learn(declared, given, sizes)
    contents = _contents(options, inputs)
    for declared in inputs:
        shape = _shape(declared, asked, sizes, assumed) if declared.tensor else None
        dtype = asked.dtypes.get(declared.name, declared.dtype)
        spec = maker.spec(shape, "uint8" if dtype in ("string", "undefined") else dtype)
        value = maker.value(declared.name, spec, "input")
        env[declared.name] = Made(value, shape, spec.dtype, contents.get(declared.name))
    if assumed:
        text = f"nobody said what {', '.join(some([*assumed]))} {'is' if len(assumed) == 1 else 'are'}: taken as 1"
        maker.note("assumed-sizes", f"{text}; set it by --dim {next(iter(assumed))}=N, or give the shape of the input")
    walk = Walk(model, maker, sizes, trusted=trusted)
    outputs = walk.graph(model.graph, env)
    walk.scopes.settle(maker)
    if walk.scopes.shared:
        names = [maker.values[value].name for value in sorted(walk.scopes.shared)]
        maker.note("shared-weights", f"stored once and read by several modules: {', '.join(some(names))}")
    meta = {"version": f"opset {version}", "mode": "eval"}
    if model.producer:
        meta["producer"] = model.producer
    return maker.graph(
        source,
        "onnx",
        meta,
        modules=walk.scopes.modules(maker, model.graph.name or source),
        inputs=[env[declared.name].value for declared in inputs],
        outputs=[made.value for made in outputs],
        choices=maker.choices,
    )


def _contents(options: CountOptions, inputs: list[Declared]) -> dict[str, Content]:
    """The elements of small arrays that were given: a model may take a shape, or the number of turns of a loop, as an input."""
    ordered, named = arrays_in(options)
    found = {}
    for name, array in {**by_place(ordered, [declared.name for declared in inputs], "inputs"), **named}.items():
        if hasattr(array, "reshape") and prod(array.shape) <= MOST_CONTENT:
            items = array.reshape(-1).tolist()
            if all(isinstance(item, (int, float)) for item in items):
                found[name] = Content(tuple(array.shape), tuple(items))
    return found


def _dims(text: str, inputs: list[Declared]) -> dict[str, int]:
    """Sizes by name from `batch=1,seq=128`."""
    known = {extent for declared in inputs for extent in declared.shape or () if isinstance(extent, str)}
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, size = part.partition("=")
        if not size.isdigit() or len(size) > 18:
            raise InputError(f"{part!r} is not a size", hint="write --dim NAME=SIZE, such as --dim batch=1,seq=128")
        if name not in known:
            raise UnknownName("dimension", name, known)
        found[name] = int(size)
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
    shape = tuple(found)
    assert complete(shape)
    return shape
