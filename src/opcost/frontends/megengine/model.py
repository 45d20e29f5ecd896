"""A dump as its file says it: operators, variables and tensors, of either format, before any shape is inferred.

`read_model` is the door for everybody who wants the file itself and not a `Graph`; see `infer` for shapes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple

from opcost.core.dtype import nbytes
from opcost.core.graph import Attr
from opcost.frontends.flatbuffer import U8, U32, U64, Buffer, Pages, Table, pages_of
from opcost.frontends.megengine.container import V1, V1_GRAPH, V2, Container, locate
from opcost.frontends.megengine.dtypes import DType, read_dtype
from opcost.frontends.megengine.names import by_hash, plain
from opcost.frontends.megengine.outputs import output_count
from opcost.frontends.megengine.params import Param, read_param

MOST_VARIABLES = 1 << 18
"""Variables of the largest model that is believed: a small file must not stand for a large one."""
MAX_RANK = 7
"""MegEngine's tensors have at most seven axes."""


INPUT = "Host2DeviceCopy"
HOLDERS = (
    "ImmutableTensor", "SharedDeviceTensor", "SharedDeviceTensorWithFormat", "VolatileSharedDeviceTensor",
    "MultipleDeviceTensorHolder", "MultipleDeviceTensorWithFormatHolder",
)  # fmt: skip
"""Operators that only bring tensors of the file into the graph."""
SOURCES = (INPUT, *HOLDERS)


class Tensor(NamedTuple):
    """A tensor that is written in the file, by place: its data is never copied."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    offset: int
    nbytes: int
    """0 for an input, which has a shape and no data."""


class Variable(NamedTuple):
    """What the file says about a value that flows between operators; FBS v1 says no shape, and often no name."""

    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: `type` without version, `inputs` and `outputs` as positions in `Model.variables`."""

    index: int
    type: str
    name: str
    param: Param
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    output_dtype: DType | None = None

    def get(self, field_name: str, default: Attr = None) -> Attr:
        """A field of the main parameter."""
        return self.param.fields.get(field_name, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A whole dump."""

    path: str
    format: str
    """`FBS v2`, `FBS v1` or `FBS v1 (unversioned)`."""
    version: str
    """Of the MegEngine that wrote it, such as 1.13.0."""
    operators: tuple[Operator, ...]
    variables: tuple[Variable, ...]
    outputs: tuple[int, ...]
    testcases: int = 0
    more: int = 0
    """Bytes of the file after the model that is read."""
    numbers: dict[int, tuple[int | float, ...]] = field(default_factory=dict)
    """The values of the small constants, by variable; shapes are computed from them."""


def read_model(path: str | Path) -> Model:
    """Read a dump; weights are listed with their place in the file and not loaded."""
    with pages_of(path) as data:
        return _read(data)


def parse_model(data: bytes, name: str) -> Model:
    """The same from bytes in memory; `name` stands in errors and in the report."""
    return _read(Pages(data, len(data), name))


def _read(data: Pages) -> Model:
    container = locate(data)
    reader = _V2(container) if container.magic == V2 else _V1(container)
    return reader.read(data.what)


SMALL = 64
"""Whole numbers up to this many are read, since shapes and indices are computed from them; others only one by one."""
_CODES = {
    "float32": "f", "float16": "e", "int32": "i", "int16": "h", "int8": "b", "uint8": "B", "uint16": "H", "bool": "B",
}  # fmt: skip


class _Reader:
    """What both formats have in common."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.buffer: Buffer = container.graph
        self.numbers: dict[int, tuple[int | float, ...]] = {}

    def shape(self, table: Table) -> tuple[int, ...]:
        shape = table.numbers(1, "I", 4)
        if len(shape) > MAX_RANK:
            raise self.buffer.broken(f"a tensor of {len(shape)} axes is claimed", table.at)
        return shape

    def param(self, table: Table, slot: int) -> Param:
        """The main parameter, a union of tag and table; no shape and no price depends on those after it."""
        tag, found = table.number(slot, U8), table.table(slot + 1)
        return read_param(tag, found) if found is not None else Param("Empty", {})

    def tensor(self, table: Table, dtype: DType | None, offset: int, stored: int, shape: tuple[int, ...]) -> Tensor:
        """A tensor whose claimed shape fits its data."""
        dtype = dtype or DType("float32")
        needed = nbytes(prod(shape), dtype.name)
        if stored and stored < needed:
            claimed = "x".join(map(str, shape)) or "scalar"
            raise self.buffer.broken(
                f"a tensor of {claimed} {dtype.name} needs {needed} bytes and has {stored}", table.at
            )
        return Tensor(table.text(0), shape, dtype, offset, stored)

    def keep(self, operator: Operator, table: Table) -> None:
        """Check that an operator which brings in tensors has one for each output, and keep the numbers of small ones."""
        if operator.type not in SOURCES:
            return
        if not operator.outputs or len(operator.outputs) != len(operator.tensors):
            held = f"{len(operator.tensors)} tensors for {len(operator.outputs)} outputs"
            raise self.buffer.broken(f"operator {operator.index} ({operator.type}) has {held}", table.at)
        for variable, tensor in zip(operator.outputs, operator.tensors, strict=True):
            code = _CODES.get(tensor.dtype.name)
            if code is None:
                continue
            count = prod(tensor.shape)
            limit = SMALL if code in "bBhHi" else 1
            if operator.type != INPUT and tensor.nbytes and count <= limit:
                form = struct.Struct(f"<{count}{code}")
                self.numbers[variable] = self.buffer.data.unpack(form, tensor.offset)

    @staticmethod
    def version(number: int) -> str:
        return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"


class _V2(_Reader):
    """FBS v2: names, ids of outputs and most shapes are stored."""

    def read(self, path: str) -> Model:
        root = self.buffer.root(V2)
        stored = [
            Variable(name=table.text(0), shape=self.shape(table) or None, dtype=read_dtype(table.table(3)))
            for table in root.tables(3)
        ]
        variables: list[Variable] = []
        position: dict[int, int] = {}
        operators = []
        for index, table in enumerate(root.tables(2)):
            made = table.numbers(8, "I", 4)
            inputs = self._made(table.numbers(7, "I", 4), position, table)
            if len(variables) + len(made) > MOST_VARIABLES:
                raise self.buffer.broken(f"more than {MOST_VARIABLES} variables are not plausible", table.at)
            for variable in made:
                if variable in position:
                    raise self.buffer.broken(f"variable {variable} is made twice", table.at)
                position[variable] = len(variables)
                variables.append(stored[variable] if variable < len(stored) else Variable())
            operator = Operator(
                index=index,
                type=plain(table.text(0)) or by_hash(table.number(1, U64), versioned=False),
                name=table.text(2),
                param=self.param(table, 3),
                inputs=inputs,
                outputs=tuple(range(len(variables) - len(made), len(variables))),
                tensors=tuple(self._tensor(tensor) for tensor in table.tables(11)),
                output_dtype=read_dtype(table.table(10)),
            )
            self.keep(operator, table)
            operators.append(operator)
        return Model(
            path=path,
            format="FBS v2",
            version=self.version(root.number(0, U32)),
            operators=tuple(operators),
            variables=tuple(variables),
            outputs=self._made(tuple(table.number(0, U32) for table in root.tables(4)), position, root),
            testcases=self.container.testcases,
            more=self.container.more,
            numbers=self.numbers,
        )

    def _made(self, wanted: tuple[int, ...], position: dict[int, int], table: Table) -> tuple[int, ...]:
        """Where the variables with these ids stand; each must have been made before."""
        try:
            return tuple([position[variable] for variable in wanted])
        except KeyError as missing:
            raise self.buffer.broken(f"variable {missing} is read and nobody made it before", table.at) from None

    def _tensor(self, table: Table) -> Tensor:
        offset, stored = table.data(6)
        return self.tensor(table, read_dtype(table.table(3)), offset, stored, self.shape(table))


class _V1(_Reader):
    """FBS v1: ids are counted up over the outputs, the weights lie before the graph in the order of the operators."""

    def read(self, path: str) -> Model:
        root = self.buffer.root(V1_GRAPH)
        versioned = self.container.magic == V1
        self._next = self.container.weights[0]
        variables: list[Variable] = []
        operators = []
        for index, table in enumerate(root.tables(3)):
            kind = by_hash(table.number(0, U64), versioned=versioned)
            param = self.param(table, 1)
            inputs = table.numbers(3, "I", 4)
            for variable in inputs:
                if variable >= len(variables):
                    raise self.buffer.broken(
                        f"operator {index} ({kind}) reads variable {variable}, of which only {len(variables)} are made",
                        table.at,
                    )
            tensors = tuple(self._tensor(tensor) for tensor in table.tables(7))
            names = table.texts(5)
            count = len(names) or output_count(kind, len(inputs), len(tensors), param)
            if len(variables) + count > MOST_VARIABLES:
                raise self.buffer.broken(f"more than {MOST_VARIABLES} variables are not plausible", table.at)
            outputs = tuple(range(len(variables), len(variables) + count))
            variables.extend(Variable(name=names[i] if i < len(names) else "") for i in range(count))
            operator = Operator(
                index=index,
                type=kind,
                name=table.text(12),
                param=param,
                inputs=inputs,
                outputs=outputs,
                tensors=tensors,
                output_dtype=read_dtype(table.table(6)),
            )
            self.keep(operator, table)
            operators.append(operator)
        return Model(
            path=path,
            format="FBS v1" if versioned else "FBS v1 (unversioned)",
            version=self.version(root.number(0, U32)),
            operators=tuple(operators),
            variables=tuple(variables),
            outputs=self._outputs(root, len(variables)),
            testcases=self.container.testcases,
            more=self.container.more,
            numbers=self.numbers,
        )

    def _tensor(self, table: Table) -> Tensor:
        stored = table.number(4, U32)
        skipped = table.number(5, U32)
        offset = self._next
        self._next += stored
        if self._next > self.container.weights[1] or skipped > stored:
            raise self.buffer.broken(f"a tensor of {stored} bytes is claimed, more than are left", table.at)
        return self.tensor(table, read_dtype(table.table(3)), offset + skipped, stored - skipped, self.shape(table))

    def _outputs(self, root: Table, count: int) -> tuple[int, ...]:
        """The model's outputs, structs of two numbers of which the first is the variable."""
        found = root.vector(4, 8)
        if found is None:
            return ()
        at, length = found
        outputs = tuple(self.buffer.number(U32, at + 8 * i) for i in range(length))
        for variable in outputs:
            if variable >= count:
                raise self.buffer.broken(f"the model's output {variable} is made by nobody", root.at)
        return outputs
