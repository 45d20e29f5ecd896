"""Arrays of numpy (`.npy`, `.npz`) and of MXNet (`.params`): their heads, by the readers that MXNet's front end has."""

from __future__ import annotations

from math import prod
from pathlib import Path

from opcost.core.graph import nbytes
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, Raw, first_member
from opcost.frontends.input_data import MAGIC
from opcost.frontends.mxnet.params import LIST_MAGIC, read_params

_PREFIXES = ("arg:", "aux:")


class ArraysReader(CheckpointReader):
    """A list of arrays with names, or one without."""

    name = "arrays"
    suffixes = (".params", ".npz", ".npy")

    def sniff(self, head: bytes, path: Path) -> bool:
        return head.startswith((LIST_MAGIC, MAGIC)) or first_member(head).endswith(".npy")

    def read(self, path: Path) -> Contents:
        found = []
        for place, array in enumerate(read_params(path)):
            if array.shape is None:
                continue
            name = array.name
            for prefix in _PREFIXES:
                name = name.removeprefix(prefix)
            stored = nbytes(prod(array.shape), array.dtype) if array.stored is None else array.stored
            found.append(Raw(name or (f"array{place}" if place else "array"), array.shape, array.dtype, stored))
        return Contents(found)


READER: CheckpointReader = ArraysReader()
