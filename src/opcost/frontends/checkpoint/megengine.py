"""MegEngine: the weights of a dump (`.mge`), and a pickled dict of arrays as `megengine.save` writes it (`.pkl`)."""

from __future__ import annotations

from math import prod
from pathlib import Path

from opcost.core.graph import nbytes
from opcost.core.scan import Role
from opcost.errors import InputError, SourceError
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, Raw
from opcost.frontends.input_data import InputArray, read_input_data
from opcost.frontends.megengine.model import HOLDERS, read_model, recognize
from opcost.frontends.megengine.scopes import role_of


class DumpReader(CheckpointReader):
    """The tensors that a dump brings into its graph, each once."""

    name = "megengine"
    suffixes = (".mge", ".mgb", ".mdl")

    def sniff(self, head: bytes, path: Path) -> bool:
        return recognize(head)

    def read(self, path: Path) -> Contents:
        model = read_model(path)
        found: dict[str, Raw] = {}
        for operator, variable, tensor in model.brought_in(*HOLDERS):
            name = model.variables[variable].name or tensor.name or operator.name
            role: Role = "constant" if role_of(tensor, name) == "const" else "weight"
            name = name if name and name not in found else f"{name or 'tensor'}.{variable}"
            found[name] = Raw(name, tensor.shape, tensor.dtype.name, tensor.nbytes, role)
        return Contents(list(found.values()), {"version": model.version, "layout": model.format})


class PickleReader(CheckpointReader):
    """A dict of arrays; the arrays are in the pickle itself, so that all of it is read."""

    name = "pickle"
    suffixes = (".pkl", ".pickle")

    def sniff(self, head: bytes, path: Path) -> bool:
        return head[:1] == b"\x80" and head[2:4] != b"\x8a\x0a" and path.name.lower().endswith(self.suffixes)

    def read(self, path: Path) -> Contents:
        try:
            arrays = read_input_data(path)
        except InputError as exc:
            raise SourceError(exc.message.replace("as input data", "as a checkpoint"), hint=exc.hint) from exc
        named = {"array": arrays} if isinstance(arrays, InputArray) else arrays
        return Contents(
            [Raw(name, each.shape, each.dtype, nbytes(prod(each.shape), each.dtype)) for name, each in named.items()]
        )


READER: CheckpointReader = DumpReader()
PICKLE: CheckpointReader = PickleReader()
