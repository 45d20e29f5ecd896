"""Keras: HDF5 (`.h5`, `.weights.h5`) and archives with one in them (`.keras`), listed by h5py where it is installed.

No dataset is read, and links that lead to other places or files are not followed.
"""

import io
import struct
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile

from opcost.core.files import PositionedFile, opened
from opcost.core.graph import BITS
from opcost.core.parsing import Bad, archive_in
from opcost.errors import MissingFramework, OpcostError
from opcost.frontends.checkpoint import MOST_TENSORS
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, Raw, first_member

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_WEIGHTS = "model.weights.h5"
_OPTIMIZERS = ("optimizer", "optimizer_weights", "training_config")


class KerasReader(CheckpointReader):
    """Datasets by their paths, with dots between the groups."""

    name = "keras"
    what = "a Keras checkpoint"
    suffixes = (".keras", ".h5", ".hdf5")

    def sniff(self, head: bytes, path: Path) -> bool:
        return head.startswith(_SIGNATURE) or first_member(head) in ("metadata.json", "config.json", _WEIGHTS)

    def read(self, path: Path) -> Contents:
        try:
            import h5py
        except ImportError as exc:
            hint = "pip install h5py"
            raise MissingFramework(f"{path} is an HDF5 file, and listing it needs h5py", hint=hint) from exc
        try:
            with ExitStack() as stack:
                file: Any = stack.enter_context(opened(path))
                if file.read(2) == b"PK":
                    file = _inside(stack.enter_context(archive_in(file)), file)
                return Contents(_datasets(stack.enter_context(h5py.File(file, "r"))))
        except (OpcostError, Bad):
            raise
        except Exception as exc:
            raise Bad(str(exc) or type(exc).__name__) from exc


def _inside(archive: ZipFile, file: BinaryIO) -> Any:
    """The file of weights in an archive, read in place if it is stored uncompressed."""
    try:
        info = archive.getinfo(_WEIGHTS)
    except KeyError:
        raise Bad(f"it holds no {_WEIGHTS}") from None
    if info.compress_type != ZIP_STORED:
        return archive.open(info)
    file.seek(info.header_offset + 26)
    begin = info.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))  # behind its name and what else is noted

    def read(at: int, size: int) -> bytes:
        file.seek(begin + at)
        return file.read(max(0, min(size, info.file_size - at)))

    return io.BufferedReader(PositionedFile(read, lambda: info.file_size))


def _datasets(root: Any) -> list[Raw]:
    found: list[Raw] = []

    def visit(name: str, item: Any) -> None:
        shape, dtype = getattr(item, "shape", None), str(getattr(item, "dtype", ""))
        if shape is None or dtype not in BITS:
            return  # a group, or texts
        if len(found) >= MOST_TENSORS:
            raise ValueError(f"it holds more than {MOST_TENSORS:,} datasets")
        words = name.removesuffix(":0").split("/")
        role = "optimizer" if words[0] in _OPTIMIZERS else "weight"
        stored = item.id.get_storage_size() if prod(shape) else 0
        found.append(Raw(".".join(words), tuple(shape), dtype, int(stored), role))  # type: ignore[arg-type]

    root.visititems(visit)
    return found


READER: CheckpointReader = KerasReader()
