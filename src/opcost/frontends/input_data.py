"""Pickles, of which every step is looked at before the first one is taken, and nothing is found by its name.

A pickle is a program. `SafeUnpickler` refuses any step that its readers do not need, and those with which few bytes would cost an
unpickler much memory or time; what then asks for something by name gets a stand-in of the reader's.
"""

import ast
import pickle
import pickletools
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

from opcost.core.files import keep_pipes, length_of, opened
from opcost.core.graph import TensorSpec
from opcost.core.parsing import Bad, BadArchive, archive_in, short
from opcost.errors import InputError, SourceError, shortened

LARGEST_TUPLE = 1 << 14  # Parts of a tuple, with those of the tuples in it
LARGEST_KEY = 64  # The same of a tuple that is a key, and hashed
_MOST_NAMES = 10_000

PLAIN_STEPS = frozenset(
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 UNICODE SHORT_BINUNICODE "
    "BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 STRING BINSTRING SHORT_BINSTRING EMPTY_TUPLE TUPLE "
    "TUPLE1 TUPLE2 TUPLE3 PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET EMPTY_DICT DICT SETITEM SETITEMS GLOBAL "
    "STACK_GLOBAL REDUCE BUILD".split()
)
"""What arrays by name are made of."""
OBJECT_STEPS = PLAIN_STEPS | frozenset(
    "FLOAT BINFLOAT EMPTY_LIST LIST APPEND APPENDS EMPTY_SET ADDITEMS FROZENSET NEWOBJ NEWOBJ_EX BINPERSID POP POP_MARK".split()
)
"""What objects with tensors in them are made of."""
_KEEPS = frozenset("SETITEM SETITEMS APPEND APPENDS ADDITEMS BUILD MEMOIZE".split())
"""Steps that fill what is there, which stays."""
_FAULT = "it is damaged or no pickle at all"
_FAULTS = (pickle.UnpicklingError, ValueError, LookupError, TypeError, AttributeError, EOFError, OverflowError)


class StandIn:
    """What a pickle gets instead of a function, which it may call and cannot change."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function

    def __call__(self, *given: object, **named: object) -> object:
        return self.function(*given, **named)

    def __setstate__(self, state: object) -> None:
        raise Bad("it changes something that is not its own")


class SafeUnpickler(pickle.Unpickler):
    """Python's unpickler, which finds nothing of Python's; a class that derives from this one writes `stand_in`."""

    purpose: ClassVar[str]  # What does not need a step that is refused
    most_steps: ClassVar[int]
    largest_number: ClassVar[int]  # Either way
    allowed: ClassVar[frozenset[str]] = PLAIN_STEPS

    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data), encoding="latin1")
        self.left = len(data)  # Bytes that may still be made of text: no more than the file has
        self._found: dict[tuple[str, str], object] = {}

    def stand_in(self, module: str, name: str) -> object:
        """What a pickle gets for a function or class that it asks for: mostly a `StandIn`."""
        raise NotImplementedError

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self._found:
            if len(self._found) > _MOST_NAMES:
                raise Bad(f"it asks for more than {_MOST_NAMES} names")
            self._found[module, name] = self.stand_in(module, name)
        return self._found[module, name]

    @classmethod
    def read(cls, stream: BytesIO) -> object:
        """The next pickle of a stream, which is at its end afterwards."""
        begin = stream.tell()
        try:
            cls._check_steps(stream)
            end = stream.tell()
            stream.seek(begin)
            return cls(stream.read(end - begin)).load()
        except _FAULTS as exc:
            raise Bad(f"{_FAULT} ({shortened(str(exc))})") from exc

    @classmethod
    def _check_steps(cls, stream: BytesIO) -> None:
        """Look at a pickle from here to its end.

        An unpickler keeps room for every number up to the largest by which a thing is to be remembered. Large numbers as keys
        may all have one hash, and a tuple that holds another twice, which holds a third twice, and so on, takes for ever to
        hash: so a stack is kept of how many parts everything has.
        """
        remembered: dict[object, int] = {}
        stack: list[int | None] = []  # Parts of each thing; None is a mark
        for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            name = opcode.name
            if number > cls.most_steps:
                raise Bad(f"it has more than {cls.most_steps} steps")
            if name not in cls.allowed:
                raise Bad(f"it uses the step {name}, which {cls.purpose} needs")
            if isinstance(argument, int) and abs(argument) > cls.largest_number:
                raise Bad(f"it holds a number that is too large: {cls.purpose} has one")
            if name.endswith("PUT") or name == "MEMOIZE":
                place = len(remembered) if argument is None else argument
                if place > cls.most_steps:
                    raise Bad(f"it would remember {place} things")
                if (last := stack[-1]) is None:
                    raise Bad(_FAULT)
                remembered[place] = last
            elif name.endswith("GET"):
                stack.append(remembered[argument])
            elif name == "MARK":
                stack.append(None)
            else:
                _step(opcode, stack)


def _step(opcode: pickletools.OpcodeInfo, stack: list[int | None]) -> None:
    """Take the parts from the stack that a step takes, and put there what it makes of them."""
    name, before = opcode.name, opcode.stack_before
    taken: list[int] = []
    if pickletools.markobject in before:
        while (part := stack.pop()) is not None:
            taken.append(part)
        taken.reverse()
        before = before[: before.index(pickletools.markobject)]
    under: list[Any] = [stack.pop() for _ in before][::-1]
    if None in under:
        raise Bad(_FAULT)
    keys = {"SETITEM": under[1:2], "SETITEMS": taken[::2], "DICT": taken[::2], "ADDITEMS": taken, "FROZENSET": taken}
    if any(parts > LARGEST_KEY for parts in keys.get(name, ())):
        raise Bad(f"a key of it has more than {LARGEST_KEY} parts")
    made = 1
    if name in _KEEPS:
        made = under[0]
    elif name.startswith("TUPLE") or name == "FROZENSET":
        made += sum(taken) + sum(under)
        if made > LARGEST_TUPLE:
            raise Bad(f"a tuple of it unfolds into more than {LARGEST_TUPLE} parts")
    stack.extend([made] * len(opcode.stack_after))


# -- arrays in a file: shape and element type of each, from `.npy`, `.npz`, or a pickle of plain arrays --------------------
#
# Nothing of a file is run, and numpy is not needed. Of numpy's own files only the heads are read.

MAGIC = b"\x93NUMPY"
LONGEST_HEAD = 1 << 16  # Bytes of the description of one array that are believed
MOST_ARRAYS = 10_000
MOST_AXES = 64
LARGEST_EXTENT = 1 << 63
LONGEST_TYPE = 8
LARGEST_PICKLE = 64 << 20  # Bytes of a pickle, which holds its arrays among its steps and so is read as a whole

_HINT = "save the data with numpy.save or numpy.savez, or pickle a numpy array or a dict of them"
_DTYPES = {
    "f2": "float16", "f4": "float32", "f8": "float64", "b1": "bool", "c8": "complex64", "c16": "complex128",
    "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
    "b2": "bfloat16", "V2": "bfloat16",
}  # fmt: skip


def read_input_data(path: str | Path) -> TensorSpec | dict[str, TensorSpec]:
    """The one array of a file, or its arrays by name; what the file is, its content decides."""
    path = Path(path)
    try:
        with keep_pipes(), opened(path) as file:
            size = length_of(file)
            head = file.read(8)
            file.seek(0)
            if head.startswith(MAGIC):
                return _npy(file, size)
            if head.startswith(b"PK"):
                return _npz(file)
            return _unpickled(file, size)
    except Bad as exc:
        raise InputError(f"{path} is not accepted as input data: {exc}", hint=_HINT) from exc
    except SourceError as exc:
        raise InputError(f"the input data cannot be read: {exc.message}", hint=exc.hint) from exc


def _npz(file: BinaryIO) -> dict[str, TensorSpec]:
    found = {}
    try:
        with archive_in(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise Bad(f"it claims {len(members)} arrays")
            for member in members:
                with archive.open(member) as content:
                    try:
                        found[member.filename.removesuffix(".npy")] = _npy(content, member.file_size)
                    except Bad as exc:
                        raise Bad(f"{member.filename[:80]}: {exc}") from exc
    except BadArchive as exc:
        raise Bad(f"it is not an archive of arrays: {exc}") from exc
    return found


def _npy(file: Any, size: int) -> TensorSpec:
    array, begin = npy_header(file)
    if begin + array.nbytes > size:
        raise Bad(f"it is cut short: its array of {array.shape} {array.dtype} needs more bytes than there are")
    return array


def npy_header(file: Any) -> tuple[TensorSpec, int]:
    """The array that a `.npy` file describes, and where its data begins."""
    start = file.read(10)
    if not start.startswith(MAGIC) or len(start) < 10:
        raise Bad("it is not an array that numpy saved")
    length, begin = int.from_bytes(start[8:10], "little"), 10
    if start[6] > 1:
        length, begin = int.from_bytes(start[8:10] + file.read(2), "little"), 12
    if length > LONGEST_HEAD:
        raise Bad(f"it claims a header of {length} bytes")
    try:
        head = ast.literal_eval(file.read(length).decode("latin1").strip())
        shape, descr = head.get("shape"), head.get("descr")
    except (ValueError, SyntaxError, AttributeError, TypeError, RecursionError, MemoryError) as exc:
        raise Bad("its header cannot be read") from exc
    match descr:
        case [("bfloat16", word)]:  # a structure with one field of that name
            descr = word
    return _array(shape, descr), begin + length


def _array(shape: object, descr: object) -> TensorSpec:
    """The array with this shape and numpy's word for its type."""
    code = descr.lstrip("<>|=") if isinstance(descr, str) and len(descr) <= LONGEST_TYPE else ""
    if code not in _DTYPES:
        named = repr(descr)[:40] if isinstance(descr, str) else "that has several parts"
        raise Bad(f"it holds elements of a type {named}, not numbers")
    extents = shape if isinstance(shape, tuple) and len(shape) <= MOST_AXES else (None,)
    if any(type(extent) is not int or not 0 <= extent < LARGEST_EXTENT for extent in extents):
        raise Bad(f"it has the shape {short(shape)}, which is not a tuple of counts")
    return TensorSpec(tuple(extents), _DTYPES[code])


# -- pickles -----------------------------------------------------------------------------------------------------------


class _Type(NamedTuple):
    """numpy.dtype, of which only its word is wanted."""

    descr: object

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment, which change neither shape nor type."""


class _Array:
    """An array while it is put together."""

    found: TensorSpec | None = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(shape), _Type(descr), _, bytes() | bytearray() as data):
                self.found = _array(shape, descr)
                if self.found.nbytes != len(data):
                    spec = f"{shape} {self.found.dtype}"
                    raise Bad(f"an array of {spec} does not fit into {len(data)} bytes")
            case _:
                raise Bad("it holds an array of something besides numbers")


def _from_buffer(data: object, dtype: object, shape: object, _order: object) -> _Array:
    found = _Array()
    found.__setstate__((1, shape, dtype, None, data))
    return found


_FUNCTIONS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "_reconstruct"): lambda _kind, _shape, _code: _Array(),
    ("numpy", "dtype"): lambda descr, *_: _Type(descr),
    ("numpy", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): lambda: None,
    ("collections", "OrderedDict"): lambda: {},  # noqa: PIE807 - `dict` would take arguments
    **dict.fromkeys((("builtins", "bytes"), ("__builtin__", "bytes")), lambda: b""),  # of an array without elements
}
"""What arrays are made of; nothing else can be called."""
_NUMPY = tuple(f"numpy.{core}.{part}" for core in ("core", "_core") for part in ("multiarray", "numeric"))


class _ArrayUnpickler(SafeUnpickler):
    """Makes the heads of arrays."""

    purpose = "no array"
    most_steps = 50 * MOST_ARRAYS  # Some twenty-five make an array
    largest_number = LARGEST_PICKLE

    def stand_in(self, module: str, name: str) -> StandIn:
        key = (module if module not in _NUMPY else "numpy", name)
        function = self._encoded if key == ("_codecs", "encode") else _FUNCTIONS.get(key)
        if function is None:
            raise Bad(f"it asks for {f'{module}.{name}'[:80]}, which could run code; nothing of it was run")
        return StandIn(function)

    def _encoded(self, text: str, _coding: object) -> bytes:
        self.left -= len(text)
        if self.left < 0:
            raise Bad("it makes more of its text than it has")
        return text.encode("latin1")


def _unpickled(file: BinaryIO, size: int) -> TensorSpec | dict[str, TensorSpec]:
    if size > LARGEST_PICKLE:
        raise Bad(f"it is not an array of numpy's, and has more than {LARGEST_PICKLE >> 20} MiB")
    found = _ArrayUnpickler.read(BytesIO(file.read(size)))
    if isinstance(found, _Array) and found.found is not None:
        return found.found
    if not isinstance(found, dict) or not found:
        raise Bad("it holds neither an array nor a dict of arrays")
    arrays = {}
    for name, each in found.items():
        if not isinstance(name, str):
            raise Bad("it holds something besides arrays by name")
        if not isinstance(each, _Array) or each.found is None:
            raise Bad(f"its entry {name[:40]!r} is not an array")
        arrays[name] = each.found
    return arrays
