"""Pickles, of which every step is looked at before the first one is taken, and nothing is found by its name.

A pickle is a program. `check_steps` refuses any step that its readers do not need, and those with which few bytes would cost an
unpickler much memory or time; what then asks for something by name gets a stand-in of the reader's.
"""

from __future__ import annotations

import ast
import io
import pickle
import pickletools
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from opcost.core.files import keep_pipes, length_of, opened
from opcost.core.parsing import BadArchive, archive_in
from opcost.errors import InputError, SourceError

LARGEST_TUPLE = 1 << 14  # Parts of a tuple, with those of the tuples in it
LARGEST_KEY = 64  # The same of a tuple that is a key, and hashed

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


class Limits(NamedTuple):
    """What a reader believes of a pickle."""

    steps: int
    number: int  # The largest, either way
    allowed: frozenset[str] = PLAIN_STEPS


class BadPickle(Exception):
    """The text says which step is refused and why."""


def check_steps(stream: BytesIO, limits: Limits, purpose: str) -> None:
    """Look at a pickle from here to its end; `purpose` is what does not need a step that is refused.

    An unpickler keeps room for every number up to the largest by which a thing is to be remembered. Large numbers as keys may all
    have one hash, and a tuple that holds another twice, which holds a third twice, and so on, takes for ever to hash: so a
    stack is kept of how many parts everything has.
    """
    remembered: dict[object, int] = {}
    stack: list[int | None] = []
    """Parts of each thing; None is a mark."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        name = opcode.name
        if number > limits.steps:
            raise BadPickle(f"it has more than {limits.steps} steps")
        if name not in limits.allowed:
            raise BadPickle(f"it uses the step {name}, which {purpose} needs")
        if isinstance(argument, int) and abs(argument) > limits.number:
            raise BadPickle(f"it holds a number that is too large: {purpose} has one")
        if name.endswith("PUT") or name == "MEMOIZE":
            place = len(remembered) if argument is None else argument
            if place > limits.steps:
                raise BadPickle(f"it wants to remember {place} things")
            if not stack or stack[-1] is None:
                raise BadPickle(_FAULT)
            remembered[place] = stack[-1]
        elif name.endswith("GET"):
            if argument not in remembered:
                raise BadPickle(_FAULT)
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
        while (part := _popped(stack)) is not None:
            taken.append(part)
        taken.reverse()
        before = before[: before.index(pickletools.markobject)]
    under: list[Any] = [_popped(stack) for _ in before][::-1]
    if None in under:
        raise BadPickle(_FAULT)
    keys = {"SETITEM": under[1:2], "SETITEMS": taken[::2], "DICT": taken[::2], "ADDITEMS": taken, "FROZENSET": taken}
    if any(parts > LARGEST_KEY for parts in keys.get(name, ())):
        raise BadPickle(f"a key of it has more than {LARGEST_KEY} parts")
    made = 1
    if name in _KEEPS:
        made = under[0]
    elif name.startswith("TUPLE") or name == "FROZENSET":
        made += sum(taken) + sum(under)
        if made > LARGEST_TUPLE:
            raise BadPickle(f"a tuple of it unfolds into more than {LARGEST_TUPLE} parts")
    stack.extend([made] * len(opcode.stack_after))


def _popped(stack: list[int | None]) -> int | None:
    if not stack:
        raise BadPickle(_FAULT)
    return stack.pop()


# -- arrays in a file: shape and element type of each, from `.npy`, `.npz`, or a pickle of plain arrays --------------------
#
# Nothing of a file is run, and numpy is not needed. Of numpy's own files only the heads are read. Of a pickle all steps are
# checked first; then Python's unpickler gets stand-ins, which can only note an array, for whatever it looks up by name.

MAGIC = b"\x93NUMPY"
LONGEST_HEAD = 1 << 16  # Bytes of the description of one array that are believed
MOST_ARRAYS = 10_000
MOST_AXES = 64
LARGEST_EXTENT = 1 << 63
LONGEST_TYPE = 8
LARGEST_PICKLE = 64 << 20  # Bytes of a pickle, which holds its arrays among its steps and so is read as a whole
MOST_STEPS = 50 * MOST_ARRAYS  # Steps of a pickle: some twenty-five make an array

_HINT = "save the data with numpy.save or numpy.savez, or pickle a numpy array or a dict of them"
_DTYPES = {
    "f2": "float16", "f4": "float32", "f8": "float64", "b1": "bool", "c8": "complex64", "c16": "complex128",
    "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
}  # fmt: skip


class InputArray(NamedTuple):
    """One array, without its content."""

    shape: tuple[int, ...]
    dtype: str


def read_input_data(path: str | Path) -> InputArray | dict[str, InputArray]:
    """The one array of a file, or its arrays by name; what the file is, its content decides."""
    path = Path(path)
    try:
        with keep_pipes(), opened(path) as file:
            size = length_of(file)
            head = file.read(8)
            file.seek(0)
            if head.startswith(MAGIC):
                return _npy(file, size, str(path))
            if head.startswith(b"PK"):
                return _npz(file, str(path))
            if size > LARGEST_PICKLE:
                fault = f"{path} is not an array of numpy's, and has more than {LARGEST_PICKLE >> 20} MiB"
                raise InputError(fault, hint=_HINT)
            return _unpickled(file.read(size), str(path))
    except SourceError as exc:
        raise InputError(f"the input data cannot be read: {exc.message}", hint=exc.hint) from exc


# -- numpy's own files -------------------------------------------------------------------------------------------------


def _npz(file: BinaryIO, path: str) -> dict[str, InputArray]:
    found = {}
    try:
        with archive_in(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise InputError(f"{path} claims {len(members)} arrays", hint=_HINT)
            for member in members:
                with archive.open(member) as content:
                    name = member.filename.removesuffix(".npy")
                    found[name] = _npy(content, member.file_size, f"{path}: {member.filename}")
    except BadArchive as exc:
        raise InputError(f"{path} is not an archive of arrays: {exc}", hint=_HINT) from exc
    return found


def _npy(file: BinaryIO | Any, size: int, what: str) -> InputArray:
    """The array that a `.npy` file describes, checked against the size of the file."""
    start = file.read(10)
    if not start.startswith(MAGIC) or len(start) < 10:
        raise InputError(f"{what} is not an array that numpy saved", hint=_HINT)
    length, begins = int.from_bytes(start[8:10], "little"), 10
    if start[6] > 1:
        length, begins = int.from_bytes(start[8:10] + file.read(2), "little"), 12
    if length > LONGEST_HEAD:
        raise InputError(f"{what} claims a header of {length} bytes", hint=_HINT)
    try:
        head = ast.literal_eval(file.read(length).decode("latin1").strip())
        shape, descr = head["shape"], head["descr"]
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as exc:
        raise InputError(f"the header of {what} cannot be read", hint=_HINT) from exc
    array, itemsize = _array(shape, descr, what)
    if begins + length + prod(array.shape) * itemsize > size:
        fault = f"{what} is cut short: its array of {array.shape} {array.dtype} needs more bytes than there are"
        raise InputError(fault)
    return array


def _array(shape: object, descr: object, what: str) -> tuple[InputArray, int]:
    """The array with this shape and numpy's word for its type, and the bytes of one element."""
    code = descr.lstrip("<>|=") if isinstance(descr, str) and len(descr) <= LONGEST_TYPE else ""
    if code not in _DTYPES:
        named = repr(descr)[:40] if isinstance(descr, str) else "that has several parts"
        raise InputError(f"{what} holds elements of a type {named}, not numbers", hint=_HINT)
    extents = shape if isinstance(shape, tuple) and len(shape) <= MOST_AXES else (None,)
    if any(type(extent) is not int or not 0 <= extent < LARGEST_EXTENT for extent in extents):
        raise InputError(f"{what} holds an array whose shape is not a tuple of counts", hint=_HINT)
    return InputArray(tuple(extents), _DTYPES[code]), int(code[1:])


# -- pickles -----------------------------------------------------------------------------------------------------------


class _Type(NamedTuple):
    """numpy.dtype, of which only its word is wanted."""

    descr: str

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment, which change neither shape nor type."""


class _Array:
    """An array while it is put together."""

    __slots__ = ("array", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.array: InputArray | None = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(shape), _Type(descr), _, bytes() | bytearray() as data):
                self.array, itemsize = _array(shape, descr, self.what)
                if prod(self.array.shape) * itemsize != len(data):
                    spec = f"{self.array.shape} {self.array.dtype}"
                    raise _refused(self.what, f"an array of {spec} does not fit into {len(data)} bytes")
            case _:
                raise _refused(self.what, "it holds an array of something besides numbers")


class _Unpickler(pickle.Unpickler):
    """Python's unpickler, for which every name that a pickle can ask for is one of our `_Name`s."""

    def __init__(self, data: bytes, what: str) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self.what = what
        self.left = len(data)
        """Bytes that may still be made of text: no more than the file has."""

    def find_class(self, module: str, name: str) -> _Name:
        if (module if module not in _NUMPY else "numpy", name) not in _KNOWN:
            wanted = f"{module}.{name}"[:80]
            raise _refused(self.what, f"it asks for {wanted}, which could run code; nothing of it was run")
        return _Name(name, self)


class _Name(NamedTuple):
    """What a pickle gets instead of the function or class that it asks for."""

    name: str
    reader: _Unpickler

    def __call__(self, *given: object) -> object:
        """What arrays are made of; nothing else can be called."""
        what = self.reader.what
        match self.name, given:
            case "_reconstruct", (_Name("ndarray"), _, _):
                return _Array(what)
            case "dtype", (str(descr), *_):
                return _Type(descr)
            case "_frombuffer", (bytes() | bytearray() as data, _Type() as dtype, tuple(shape), str()):
                found = _Array(what)
                found.__setstate__((1, shape, dtype, None, data))
                return found
            case "encode", (str(text), "latin1" | "latin-1"):
                self.reader.left -= len(text)
                if self.reader.left < 0:
                    raise _refused(what, "it makes more of its text than it has")
                return text.encode("latin1")
            case "bytes", ():  # an array without elements
                return b""
            case "OrderedDict", ():
                return {}
            case _:
                raise _refused(what, "it calls something that no array needs; nothing of it was run")

    def __setstate__(self, state: object) -> None:
        raise _refused(self.reader.what, "it changes something that is not an array")


def _unpickled(data: bytes, what: str) -> InputArray | dict[str, InputArray]:
    """What a pickle holds: every step is looked at before the first one is taken."""
    try:
        check_steps(io.BytesIO(data), Limits(MOST_STEPS, LARGEST_PICKLE), "no array")
        found = _Unpickler(data, what).load()
    except BadPickle as exc:
        raise _refused(what, str(exc)) from exc
    except (pickle.UnpicklingError, ValueError, LookupError, TypeError, AttributeError, EOFError, OverflowError) as exc:
        raise _refused(what, f"it is damaged or no pickle at all ({exc})") from exc
    if isinstance(found, _Array) and found.array is not None:
        return found.array
    if not isinstance(found, dict) or not found:
        raise _refused(what, "it holds neither an array nor a dict of arrays")
    arrays = {}
    for name, plan in found.items():
        if not isinstance(name, str):
            raise _refused(what, "it holds something besides arrays by name")
        if not isinstance(plan, _Array) or plan.array is None:
            raise _refused(what, f"its entry {name[:40]!r} is not an array")
        arrays[name] = plan.array
    return arrays


def _refused(what: str, why: str) -> InputError:
    return InputError(f"{what} is not accepted as input data: {why}", hint=_HINT)


_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_KNOWN = (
    *(("numpy", name) for name in ("_reconstruct", "_frombuffer", "ndarray", "dtype")),
    ("_codecs", "encode"), ("collections", "OrderedDict"), ("builtins", "bytes"), ("__builtin__", "bytes"),
)  # fmt: skip
