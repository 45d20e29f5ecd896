"""A Core ML model as data: what it declares of its inputs and outputs, and which kind of model it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opcost.core.checked import Bad
from opcost.errors import SourceError
from opcost.frontends.nodes.model import Declared, NodeGraph
from opcost.frontends.protobuf import Parts, Piece, piece

PROGRAM, NETWORKS = 502, {500: "neuralNetwork", 403: "neuralNetworkClassifier", 303: "neuralNetworkRegressor"}
_OTHERS = {
    200: "a pipeline with a classifier", 201: "a pipeline with a regressor", 202: "a pipeline of models",
    300: "a linear regressor",
    301: "a support vector regressor", 302: "an ensemble of trees", 304: "a Bayesian regressor", 400: "a linear classifier",
    401: "a support vector classifier", 402: "an ensemble of trees", 404: "a nearest-neighbour classifier", 501: "a recommender",
    555: "a custom model", 556: "a link to another model", 600: "an encoder", 604: "a scaler",
    2000: "a text classifier",
    2002: "Apple's own vision features", 2006: "Apple's own audio features",
    3000: "a model that is serialized in a way of its own",
}  # fmt: skip
_ARRAYS = {65568: "float32", 65600: "float64", 131104: "int32", 65552: "float16", 131080: "int8"}
"""Element types of arrays by Core ML's numbers."""


class Model(NamedTuple):
    """Inputs as the model declares them, and its graphs by the names of functions."""

    inputs: Mapping[str, Declared]
    graphs: Mapping[str, NodeGraph]
    main: str
    version: int


def read_model(message: Piece) -> Model:
    """The model in these bytes."""
    from opcost.frontends.coreml.network import network_graph
    from opcost.frontends.coreml.program import program_graphs

    parts = Parts.of(message)
    version = parts.whole(1)
    described = parts.messages(2)
    description = described[-1] if described else Parts()
    inputs = {each.name: each for each in map(_feature, description.messages(1))}
    for function in description.messages(20):
        inputs.update({each.name: each for each in map(_feature, function.messages(2))})
    if PROGRAM in parts.found:
        graphs = program_graphs(piece(parts.all(PROGRAM)[-1]))
        main = description.text(21) or ("main" if "main" in graphs else next(iter(graphs)))
        if main not in graphs:
            raise Bad(f"its main function {main!r} is not there")
        return Model(inputs, graphs, main, version)
    for number in NETWORKS:
        if number in parts.found:
            outputs = [each.text(1) for each in description.messages(10)]
            images = {
                each.text(1) for each in description.messages(1) if any(4 in kind.found for kind in each.messages(3))
            }
            graph = network_graph(piece(parts.all(number)[-1]), list(inputs.values()), images, outputs)
            return Model(inputs, {"": graph}, "", version)
    for number, words in _OTHERS.items():
        if number in parts.found:
            raise SourceError(
                f"it is {words}, and only programs and neural networks are counted",
                hint="count the parts of a pipeline one by one",
            )
    raise Bad("there is neither a program nor a neural network in it")


def _feature(parts: Parts) -> Declared:
    """What a model declares of an input: an array, or an image as (channels, height, width)."""
    name = parts.text(1)
    for kind in parts.messages(3):
        for image in kind.messages(4):
            channels = 1 if image.whole(3) in (10, 40) else 3
            return Declared(name, "float32", (channels, *_sizes(image.whole(2), image.whole(1))))
        for array in (*kind.messages(5), *(inner for state in kind.messages(8) for inner in state.messages(1))):
            shape = tuple(array.integers(1)) or _first_shape(array)
            return Declared(name, _ARRAYS.get(array.whole(2), "float32"), _sizes(*shape) if shape else None)
        if 1 in kind.found or 2 in kind.found:
            return Declared(name, "int64" if 1 in kind.found else "float64", (1,))
    return Declared(name, "float32", None)


def _first_shape(array: Parts) -> tuple[int, ...]:
    """Of shapes that are listed, the first; of ranges, their lower ends."""
    for several in array.messages(21):
        for shape in several.messages(1):
            return tuple(shape.integers(1))
    for ranges in array.messages(31):
        return tuple(max(each.whole(1), 1) for each in ranges.messages(1))
    return ()


def _sizes(*extents: int) -> tuple[int, ...]:
    if len(extents) > 64 or any(not 0 <= extent < 1 << 40 for extent in extents):
        raise Bad(f"an input has the shape {extents[:64]}")
    return extents
