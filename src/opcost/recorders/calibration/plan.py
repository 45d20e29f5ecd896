"""Which operators a calibration times: those of real models, the ones that matter most first.

`operators.json.gz` was drawn from the models of timm, torchvision and transformers by `python benchmarks/operators.py`. An entry
has the call with the shapes, strides and types of its arguments, and the operator as a count has it.
"""

import gzip
import zlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcost.core import document
from opcost.core.document import Number
from opcost.core.graph import Attrs, TensorSpec


class Case(NamedTuple):
    """One operator on one set of sizes: how it is called, and what it is."""

    call: str
    """Its overload, as `aten.mm.default`."""
    args: Any  # tensors as {"shape", "dtype", "stride", "cold", "below", "ends"}
    kwargs: Any
    kind: str
    raw: str
    attrs: Attrs
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...]
    flops: int  # of its products

    @property
    def nbytes(self) -> int:
        """Of the tensors that it reads and makes."""
        return sum(spec.nbytes for spec in (*self.ins, *self.outs))

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        own = "int8" if self.kind == "matmul" else "float32"  # where there is no other
        return next((spec.dtype for spec in (*self.ins, *self.outs) if "float" in spec.dtype), own)


_TEXTS = ("call", "kind", "raw")
_Rows: Any = document.stored_columns(
    "CaseRows", call=Number, args=Any, kwargs=Any, kind=Number, raw=Number, attrs=Number, ins=list[Number],
    outs=list[Number], flops=Number,
)  # fmt: skip


class _PlanFile(msgspec.Struct, kw_only=True):
    texts: list[str]
    specs: list[document.SpecRecord]
    attrs: list[dict[str, Any]]
    rows: _Rows


def packed(cases: list[Case]) -> bytes:
    """The content of a file of cases."""
    tables = document.RowTables()
    columns = _Rows(**tables.columns(cases, Case._fields, _TEXTS))
    made = _PlanFile(texts=tables.texts.entries, specs=tables.specs.entries, attrs=tables.attrs.entries, rows=columns)
    return gzip.compress(msgspec.json.encode(made), 9, mtime=0)


def unpacked(content: bytes) -> Iterator[Case]:
    """The cases of such a file, in its order."""
    found = msgspec.json.decode(gzip.decompress(content), type=_PlanFile)
    columns = document.read_columns(found, _TEXTS)
    return map(Case, *(columns[name] for name in Case._fields))


def _shipped() -> bytes:
    return (files(__package__) / "operators.json.gz").read_bytes()


def plan(path: Path | None = None) -> Iterator[Case]:
    """The cases of the package, or of another file."""
    return unpacked(path.read_bytes() if path else _shipped())


def plan_id() -> str:
    """What is another for every other plan of the package: a position is a number within one plan."""
    return f"{zlib.crc32(_shipped()):08x}"
