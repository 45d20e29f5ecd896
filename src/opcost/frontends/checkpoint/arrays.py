"""Arrays by name: of numpy (`.npy`, `.npz`), MXNet (`.params`) and MegEngine, by the readers that their front ends have."""

from math import prod
from pathlib import Path

from opcost.core.graph import nbytes
from opcost.core.scan import Role
from opcost.errors import InputError, SourceError
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, Raw, first_member
from opcost.frontends.input_data import MAGIC, read_input_data
from opcost.frontends.megengine.model import HOLDERS, read_model, recognize
from opcost.frontends.megengine.scopes import role_of
from opcost.frontends.mxnet.params import LIST_MAGIC, read_params

_PREFIXES = ("arg:", "aux:")


class ArraysReader(CheckpointReader):
    """Of numpy and MXNet: a list of arrays with names, or one without; only their heads are read."""

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


class DumpReader(CheckpointReader):
    """Of MegEngine: the tensors that a dump (`.mge`) brings into its graph, each once."""

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
    """A dict of arrays as `megengine.save` writes it; they are in the pickle itself, so that all of it is read."""

    name = "pickle"
    suffixes = (".pkl", ".pickle")

    def sniff(self, head: bytes, path: Path) -> bool:
        return head[:1] == b"\x80" and head[2:4] != b"\x8a\x0a" and path.name.lower().endswith(self.suffixes)

    def read(self, path: Path) -> Contents:
        try:
            arrays = read_input_data(path)
        except InputError as exc:
            raise SourceError(exc.message.replace("as input data", "as a checkpoint"), hint=exc.hint) from exc
        named = arrays if isinstance(arrays, dict) else {"array": arrays}
        return Contents([Raw(name, each.dims, each.dtype, each.nbytes) for name, each in named.items()])


READER: CheckpointReader = ArraysReader()
DUMP: CheckpointReader = DumpReader()
PICKLE: CheckpointReader = PickleReader()
