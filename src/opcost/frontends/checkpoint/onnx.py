"""ONNX: the initializers of a graph, whose data may be in files beside it; of those only the size is read."""

import os
from collections.abc import Iterator
from math import prod
from pathlib import Path

from opcost.core.files import length_of, opened
from opcost.core.graph import nbytes
from opcost.core.parsing import Bad
from opcost.errors import shortened
from opcost.frontends.checkpoint import MOST_TENSORS, is_possible
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, Raw
from opcost.frontends.nodes.meaning import plain
from opcost.frontends.onnx.model import DTYPES
from opcost.frontends.protobuf import FilePiece, MessageFields, Piece, fields, piece, size_of

_GRAPH, _INITIALIZER, _SPARSE = 7, 5, 15
_DATA, _RAW, _EXTERNAL = (4, 5, 6, 7, 9, 10, 11), 9, 1
MOST_FIELDS = 4 * MOST_TENSORS


class OnnxReader(CheckpointReader):
    """Initializers only: constants among the nodes are no weights of the model."""

    name = "onnx"
    what = "an ONNX model"
    suffixes = (".onnx",)

    def sniff(self, head: bytes, path: Path) -> bool:
        return path.name.lower().endswith(self.suffixes) and head[:1] in (b"\x08", b"\x12", b"\x1a", b"\x3a")

    def read(self, path: Path) -> Contents:
        files: dict[str, int] = {}
        with opened(path) as file:
            model = FilePiece(file, 0, length_of(file))
            found = [_raw(tensor, path, files) for tensor in _initializers(model)]
        return Contents(found, parts=(path, *(path.parent / name for name in files)))


def _initializers(model: Piece) -> Iterator[MessageFields]:
    """The fields of each; of a sparse one, those of its values with the shape of the whole."""
    graphs = [piece(value) for number, value in fields(model) if number == _GRAPH]
    if not graphs:
        raise Bad("there is no graph in it")
    for place, (number, value) in enumerate(fields(graphs[-1])):
        if place > MOST_FIELDS:
            raise Bad(f"its graph has more than {MOST_FIELDS:,} nodes, values and initializers")
        if number == _INITIALIZER:
            yield MessageFields.of(piece(value))
        elif number == _SPARSE:
            sparse = MessageFields.of(piece(value))
            for values in sparse.messages(1)[-1:]:
                yield MessageFields(values.found | {1: sparse.all(3)})


def _raw(parts: MessageFields, path: Path, files: dict[str, int]) -> Raw:
    name, shape, number = parts.text(8), tuple(parts.integers(1)), parts.whole(2)
    if not is_possible(shape):
        raise Bad(f"{shortened(name)} has the shape {shortened(str(shape))}")
    if number not in DTYPES:
        raise Bad(f"{shortened(name)} has the element type {number}")
    dtype = plain(DTYPES[number])
    elements: int = prod(shape)
    if parts.whole(14) == _EXTERNAL:
        return Raw(name, shape, dtype, _outside(parts, name, nbytes(elements, dtype), path, files))
    if elements and not any(number in parts.found for number in _DATA):
        raise Bad(f"{shortened(name)} of {shape} has no data")
    return Raw(name, shape, dtype, sum(size_of(piece(value)) for value in parts.all(_RAW)) or nbytes(elements, dtype))


def _outside(parts: MessageFields, name: str, needed: int, path: Path, files: dict[str, int]) -> int:
    """The bytes of data in another file, which must be in the folder of the model and be long enough."""
    entries = {entry.text(1): entry.text(2) for entry in parts.messages(13)}
    place = entries.get("location", "")
    if place not in files:
        target = Path(place)
        if not place or "\0" in place or target.is_absolute() or ".." in target.parts or "\\" in place:
            raise Bad(f"the data of {shortened(name)} is declared outside of the folder, at {shortened(place)!r}")
        found = path.parent / target
        if not os.path.isfile(found):  # noqa: PTH113 - a name that cannot be is not there
            raise Bad(f"there is no file {shortened(place)} beside it, where the data of {shortened(name)} should be")
        real = found.resolve()  # a link may lead elsewhere; the cache of a hub links model and data to one folder
        if not any(real.is_relative_to(folder) for folder in (path.parent.resolve(), path.resolve().parent)):
            raise Bad(f"the data of {shortened(name)} at {shortened(place)!r} is a link that leads out of the folder")
        files[place] = real.stat().st_size
    numbers = {key: entries.get(key, "") for key in ("offset", "length")}
    if any(value and not (value.isdecimal() and len(value) < 20) for value in numbers.values()):
        raise Bad(f"the place of {shortened(name)} in {shortened(place)} is declared as {shortened(str(numbers))}")
    length = int(numbers["length"] or needed)
    if int(numbers["offset"] or 0) + length > files[place] or length < needed:
        raise Bad(f"{shortened(name)} needs {needed:,} bytes, and {shortened(place)} has {files[place]:,}")
    return length


READER: CheckpointReader = OnnxReader()
