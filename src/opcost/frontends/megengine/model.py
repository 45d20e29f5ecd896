"""A dump as its file says it: operators, variables and tensors, of either format, before any shape is worked out.

`read_model` gives the file itself and not a `Graph`; `walk.DumpWalk` works out shapes. A dump is one of four containers,
which differ in their first bytes:

size, root, "mgv2"             FBS v2: one flatbuffer that holds the weights too
"MGBC", 8 + 4 bytes, length    FBS v1: the weights in one piece of this length, then a flatbuffer
"MGBS", 4 bytes, length        FBS v1 as old versions wrote it; operator ids do not know versions
"mgbtest0", count              a test case: one of the above, then `count` models that hold inputs and outputs
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple

from opcost.core.graph import nbytes
from opcost.errors import SourceError
from opcost.frontends.flatbuffer import U8, U32, U64, Buffer, FlatTable, Pages, pages_of
from opcost.frontends.megengine.schema import (
    FLOATING,
    FORMAT,
    DType,
    ParamFields,
    by_hash,
    output_count,
    plain,
    read_dtype,
    read_param,
)
from opcost.frontends.nodes.meaning import Content

MOST_VARIABLES = 1 << 18  # Variables of the largest model that is believed: a small file must not describe a huge one
MAX_RANK = 7  # MegEngine's tensors have at most seven axes


INPUT = "Host2DeviceCopy"
HOLDERS: list[str] = FORMAT["holders"]  # Operators that only bring tensors of the file into the graph
SOURCES = frozenset((INPUT, *HOLDERS))


class DumpedTensor(NamedTuple):
    """A tensor that is written in the file, by place: its data is never copied."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    offset: int
    nbytes: int  # 0 for an input, which has a shape and no data


class Variable(NamedTuple):
    """What the file says about a value that flows between operators; FBS v1 says no shape, and often no name."""

    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class FileOperator:
    """One operator: `type` without version, `inputs` and `outputs` as positions in `Model.variables`."""

    index: int
    type: str
    name: str
    param: ParamFields
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[DumpedTensor, ...]
    output_dtype: DType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A whole dump."""

    path: str
    format: str  # `FBS v2`, `FBS v1` or `FBS v1 (unversioned)`
    version: str  # Of the MegEngine that wrote it, such as 1.13.0
    operators: tuple[FileOperator, ...]
    variables: tuple[Variable, ...]
    outputs: tuple[int, ...]
    testcases: int = 0
    more: int = 0  # Bytes of the file after the model that is read
    numbers: dict[int, Content] = field(default_factory=dict)
    """The values of the small constants, by variable; shapes are computed from them."""

    def brought_in(self, *types: str) -> Iterator[tuple[FileOperator, int, DumpedTensor]]:
        """The tensors that operators of these types bring into the graph, with their operators and variables."""
        for op in self.operators:
            if op.type in types:
                for variable, tensor in zip(op.outputs, op.tensors, strict=True):
                    yield op, variable, tensor


def input_names(model: Model) -> dict[str, int]:
    """The model's inputs by name, in the order of the file; one without a name is called after its place."""
    names: dict[str, int] = {}
    for op, variable, tensor in model.brought_in(INPUT):
        name = tensor.name or op.name or model.variables[variable].name or f"input{len(names)}"
        names[name if name not in names else f"{name}#{len(names)}"] = variable
    return names


def read_model(path: str | Path) -> Model:
    """Read a dump; weights are listed with their place in the file and not loaded."""
    with pages_of(path) as data:
        return _read(data)


def parse_model(data: bytes, name: str) -> Model:
    """The same from bytes in memory; `name` is used in errors and in the report."""
    return _read(Pages(data, len(data), name))


# -- containers ---------------------------------------------------------------------------------------------------------

TESTCASE = b"mgbtest0"
V2 = b"mgv2"
V1 = b"MGBC"
V1_UNVERSIONED = b"MGBS"
V1_GRAPH = b"mgb1"

_TESTCASE_HEADER = len(TESTCASE) + 4
_LONGEST_HEAD = _TESTCASE_HEADER + 12


class Container(NamedTuple):
    """What the head of a dump says."""

    magic: bytes
    graph: Buffer
    weights: tuple[int, int]  # First byte and end of the weights of FBS v1; in FBS v2 they are inside the graph
    testcases: int
    more: int = 0  # Bytes after the model: further ones that were appended, or the data of test cases


def recognize(head: bytes) -> bool:
    """Whether a file that begins like this is a dump."""
    start = _TESTCASE_HEADER if head.startswith(TESTCASE) else 0
    return head[start : start + 4] in (V1, V1_UNVERSIONED) or head[start + 8 : start + 12] == V2 or start > 0


def locate(data: Pages) -> Container:
    """Find the graph and the weights in a file."""
    size, what, head = data.size, data.what, data.beginning(_LONGEST_HEAD)
    start = testcases = 0
    if head.startswith(TESTCASE):
        start, testcases = _TESTCASE_HEADER, _number(data, len(TESTCASE), 4)
    magic = head[start : start + 4]
    if magic in (V1, V1_UNVERSIONED):
        length_at = start + (16 if magic == V1 else 8)
        first = length_at + 8
        length = _number(data, length_at, 8)
        if length > size - first:
            raise _cut(what, f"it claims {length} bytes of weights and has {max(size - first, 0)}", length_at)
        graph = _graph(data, first + length)
        return Container(magic, graph, (first, first + length), testcases, size - graph.end)
    if head[start + 8 : start + 12] != V2:
        hint = "opcost reads what megengine.jit.trace.dump writes, in FBS v1 and v2"
        raise SourceError(f"{what} is not a MegEngine dump: it begins with {head[:12]!r}", hint=hint)
    graph = _graph(data, start)
    return Container(V2, graph, (0, 0), testcases, size - graph.end)


def _graph(data: Pages, at: int) -> Buffer:
    """A flatbuffer that begins with its own length."""
    length = _number(data, at, 4)
    if length > data.size - at - 4:
        raise _cut(data.what, f"its graph claims {length} bytes and {max(data.size - at - 4, 0)} are left", at)
    return Buffer(data, at + 4, at + 4 + length, data.what)


def _number(data: Pages, at: int, width: int) -> int:
    if at + width > data.size:
        raise _cut(data.what, f"it ends after {data.size} bytes, inside its header", at)
    found: int = data.unpack(U32 if width == 4 else U64, at)[0]
    return found


def _cut(what: str, fault: str, at: int) -> SourceError:
    return SourceError(f"{what} is cut short: {fault}, at byte {at}", hint="fetch or dump it again")


# -- the operators of a graph ------------------------------------------------------------------------------------------

SMALL = 64
"""Whole numbers up to this many are read, since shapes and indices are computed from them; others only one by one."""


class _ModelReader:
    """What both formats have in common."""

    def __init__(self, container: Container, identifier: bytes) -> None:
        self.container = container
        self.buffer: Buffer = container.graph
        self.root = self.buffer.root(identifier)
        self.operators: list[FileOperator] = []
        self.variables: list[Variable] = []
        self.numbers: dict[int, Content] = {}

    def model(self, path: str, form: str, outputs: tuple[int, ...]) -> Model:
        number = self.root.number(0, U32)
        version = f"{number // 100000}.{number // 100 % 1000}.{number % 100}"
        return Model(
            path=path, format=form, version=version, operators=tuple(self.operators), variables=tuple(self.variables),
            outputs=outputs, testcases=self.container.testcases, more=self.container.more, numbers=self.numbers,
        )  # fmt: skip

    def add(
        self, table: FlatTable, made: Sequence[Variable], kind: str, name: str, param: ParamFields, inputs: tuple[int, ...],
        tensors: tuple[DumpedTensor, ...], output_dtype: DType | None,
    ) -> None:  # fmt: skip
        """Make an operator with the variables that it makes, and keep the numbers of small constants."""
        first = len(self.variables)
        if first + len(made) > MOST_VARIABLES:
            raise self.buffer.broken(f"more than {MOST_VARIABLES} variables are not plausible", table.at)
        self.variables += made
        outputs = tuple(range(first, len(self.variables)))
        op = FileOperator(len(self.operators), kind, name, param, inputs, outputs, tensors, output_dtype)
        self.operators.append(op)
        if op.type not in SOURCES:
            return
        if not op.outputs or len(op.outputs) != len(op.tensors):
            found = f"{len(op.tensors)} tensors for {len(op.outputs)} outputs"
            raise self.buffer.broken(f"operator {op.index} ({op.type}) has {found}", table.at)
        for variable, tensor in zip(op.outputs, op.tensors, strict=True):
            dtype, count = tensor.dtype.name, prod(tensor.shape)
            if op.type == INPUT or not tensor.nbytes or count > (1 if dtype in FLOATING else SMALL):
                continue
            (raw,) = self.buffer.data.unpack(struct.Struct(f"{nbytes(count, dtype)}s"), tensor.offset)
            if (content := Content.stored(tensor.shape, dtype, raw)) is not None:
                self.numbers[variable] = content

    def param(self, table: FlatTable, slot: int) -> ParamFields:
        """The main parameter, a union of tag and table; no shape and no cost depends on those after it."""
        tag, found = table.number(slot, U8), table.table(slot + 1)
        return read_param(tag, found) if found is not None else ParamFields()

    def shape(self, table: FlatTable) -> tuple[int, ...]:
        shape = table.numbers(1, "I", 4)
        if len(shape) > MAX_RANK:
            raise self.buffer.broken(f"a tensor of {len(shape)} axes is claimed", table.at)
        return shape

    def tensor(self, table: FlatTable, offset: int, stored: int) -> DumpedTensor:
        """A tensor whose claimed shape fits its data."""
        shape, dtype = self.shape(table), read_dtype(table.table(3)) or DType("float32")
        needed = nbytes(prod(shape), dtype.name)
        if stored and stored < needed:
            claimed = f"a tensor of {'x'.join(map(str, shape)) or 'scalar'} {dtype.name}"
            raise self.buffer.broken(f"{claimed} needs {needed} bytes and has {stored}", table.at)
        return DumpedTensor(table.text(0), shape, dtype, offset, stored)


def _read(data: Pages) -> Model:
    container = locate(data)
    return (_read_v2 if container.magic == V2 else _read_v1)(container, data.what)


def _read_v2(container: Container, path: str) -> Model:
    """FBS v2: names, ids of outputs and most shapes are stored."""
    reader = _ModelReader(container, V2)
    declared = [
        Variable(name=table.text(0), shape=reader.shape(table) or None, dtype=read_dtype(table.table(3)))
        for table in reader.root.tables(3)
    ]
    position: dict[int, int] = {}

    def made_before(ids: Iterable[int], table: FlatTable) -> tuple[int, ...]:
        try:
            return tuple([position[each] for each in ids])
        except KeyError as missing:
            fault = f"variable {missing} is read before any operator makes it"
            raise reader.buffer.broken(fault, table.at) from None

    for table in reader.root.tables(2):
        inputs = made_before(table.numbers(7, "I", 4), table)
        made = table.numbers(8, "I", 4)
        for place, each in enumerate(made, len(reader.variables)):
            if each in position:
                raise reader.buffer.broken(f"variable {each} is made twice", table.at)
            position[each] = place
        variables = [declared[each] if each < len(declared) else Variable() for each in made]
        kind, param = plain(table.text(0)) or by_hash(table.number(1, U64), versioned=False), reader.param(table, 3)
        tensors = tuple(reader.tensor(tensor, *tensor.data(6)) for tensor in table.tables(11))
        reader.add(table, variables, kind, table.text(2), param, inputs, tensors, read_dtype(table.table(10)))
    outputs = made_before([table.number(0, U32) for table in reader.root.tables(4)], reader.root)
    return reader.model(path, "FBS v2", outputs)


def _read_v1(container: Container, path: str) -> Model:
    """FBS v1: ids are counted up over the outputs, the weights are before the graph in the order of the operators."""
    reader = _ModelReader(container, V1_GRAPH)
    versioned = container.magic == V1
    at, end = container.weights

    def tensor(table: FlatTable) -> DumpedTensor:
        nonlocal at
        stored, skipped = table.number(4, U32), table.number(5, U32)
        begin, at = at, at + stored
        if at > end or skipped > stored:
            raise reader.buffer.broken(f"a tensor of {stored} bytes is claimed, more than are left", table.at)
        return reader.tensor(table, begin + skipped, stored - skipped)

    for index, table in enumerate(reader.root.tables(3)):
        kind, param = by_hash(table.number(0, U64), versioned=versioned), reader.param(table, 1)
        inputs, count = table.numbers(3, "I", 4), len(reader.variables)
        for variable in inputs:
            if variable >= count:
                fault = f"operator {index} ({kind}) reads variable {variable}, of which only {count} are made"
                raise reader.buffer.broken(fault, table.at)
        tensors = tuple([tensor(each) for each in table.tables(7)])
        names = table.texts(5) or [""] * output_count(kind, len(inputs), len(tensors), param)
        variables = [Variable(name) for name in names]
        reader.add(table, variables, kind, table.text(12), param, inputs, tensors, read_dtype(table.table(6)))
    # The outputs are structs of two numbers of which the first is the variable.
    place, length = reader.root.vector(4, 8) or (0, 0)
    outputs = tuple(reader.buffer.number(U32, place + 8 * each) for each in range(length))
    for variable in outputs:
        if variable >= len(reader.variables):
            raise reader.buffer.broken(f"no operator makes the model's output {variable}", reader.root.at)
    return reader.model(path, "FBS v1" if versioned else "FBS v1 (unversioned)", outputs)
