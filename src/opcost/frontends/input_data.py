"""Arrays in a file of input data: shape and element type of each, from `.npy`, `.npz`, or a pickle of plain arrays.

Nothing is loaded or run. Of numpy's own files only the heads are read. A pickle is a program; here it is only listed
(`pickletools`), and a machine that knows the few steps by which numpy pickles an array follows it. Any other step, and any
name that no array needs, is refused with an error that names it.
"""

from __future__ import annotations

import ast
import pickletools
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from opcost.core.archives import BadArchive, archive_in
from opcost.core.reading import length_of, opened, pipes_kept
from opcost.errors import InputError, SourceError

MAGIC = b"\x93NUMPY"
LONGEST_HEAD = 1 << 16
"""Bytes of the description of one array that are believed."""
MOST_ARRAYS = 10_000
MOST_AXES = 64
LARGEST_EXTENT = 1 << 63
LARGEST_PICKLE = 64 << 20
"""Bytes of a pickle, which holds its arrays among its steps and so is read as a whole."""
MOST_STEPS = 50 * MOST_ARRAYS
"""Steps of a pickle: some twenty-five make an array."""

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
        with pipes_kept(), opened(path) as file:
            size = length_of(file)
            head = file.read(8)
            file.seek(0)
            if head.startswith(MAGIC):
                return _npy(file, size, str(path))
            if head.startswith(b"PK"):
                return _npz(file, str(path))
            if size > LARGEST_PICKLE:
                raise InputError(
                    f"{path} is not an array of numpy's, and has more than {LARGEST_PICKLE >> 20} MiB", hint=_HINT
                )
            return _Pickle(str(path), size).read(file.read(size))
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
        raise InputError(f"{what} claims a head of {length} bytes", hint=_HINT)
    try:
        head = ast.literal_eval(file.read(length).decode("latin1").strip())
        shape, descr = head["shape"], head["descr"]
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as exc:
        raise InputError(f"the head of {what} cannot be read", hint=_HINT) from exc
    array, itemsize = _array(shape, descr, what)
    if begins + length + prod(array.shape) * itemsize > size:
        raise InputError(
            f"{what} is cut short: its array of {array.shape} {array.dtype} needs more bytes than there are"
        )
    return array


def _array(shape: object, descr: object, what: str) -> tuple[InputArray, int]:
    """The array with this shape and numpy's word for its type, and the bytes of one element."""
    code = descr.lstrip("<>|=") if isinstance(descr, str) else ""
    if code not in _DTYPES:
        named = repr(descr)[:40] if isinstance(descr, str) else "that has several parts"
        raise InputError(f"{what} holds elements of a type {named}, not numbers", hint=_HINT)
    if (
        not isinstance(shape, tuple)
        or len(shape) > MOST_AXES
        or any(type(extent) is not int or not 0 <= extent < LARGEST_EXTENT for extent in shape)
    ):
        raise InputError(f"{what} holds an array whose shape is not a tuple of counts", hint=_HINT)
    return InputArray(tuple(shape), _DTYPES[code]), int(code[1:])


# -- pickles -----------------------------------------------------------------------------------------------------------


class _Name(NamedTuple):
    """Something that a pickle asks for by module and name."""

    module: str
    name: str


class _Type:
    """numpy.dtype while it is put together."""

    def __init__(self, descr: object) -> None:
        self.descr = descr


class _Plan:
    """An array while it is put together."""

    def __init__(self) -> None:
        self.array: InputArray | None = None


_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric", "numpy")
_MARK = object()


class _Pickle:
    """Follows a pickle step by step, on a stack of plain values."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        self.left = size
        """Bytes that may still be made of text: no more than the file has."""
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self, data: bytes) -> InputArray | dict[str, InputArray]:
        try:
            for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
                if number > MOST_STEPS:
                    raise self._refuse(f"it has more than {MOST_STEPS} steps")
                if opcode.name == "STOP":
                    return self._result(self.stack.pop())
                self._step(opcode.name, argument)
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, AttributeError) as exc:
            raise self._refuse(f"it is damaged or no pickle at all ({exc})") from exc
        raise self._refuse("it has no end")

    def _refuse(self, why: str) -> InputError:
        return InputError(f"{self.what} is not accepted as input data: {why}", hint=_HINT)

    def _result(self, found: object) -> InputArray | dict[str, InputArray]:
        if isinstance(found, _Plan) and found.array is not None:
            return found.array
        if isinstance(found, dict) and found:
            arrays = {}
            for name, plan in found.items():
                if not isinstance(plan, _Plan) or plan.array is None:
                    raise self._refuse(f"its entry {name[:40]!r} is not an array")
                arrays[name] = plan.array
            return arrays
        raise self._refuse("it holds neither an array nor a dict of arrays")

    def _step(self, name: str, argument: Any) -> None:
        if name in _NOTHING:
            return
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _PUSHED:
            self.stack.append(argument)
        elif name in _MADE:
            self.stack.append(_MADE[name]())
        elif (step := _STEPS.get(name)) is not None:
            step(self, argument)
        else:
            raise self._refuse(f"it uses the step {name}, which no array needs")

    # -- the stack -------------------------------------------------------------------------------------------------

    def _since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _tuple(self, argument: Any) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _short_tuple(self, count: int) -> None:
        items = tuple(self.stack[len(self.stack) - count :])
        if len(items) < count:
            raise self._refuse("it is damaged")
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def _put(self, argument: Any) -> None:
        self.memo[int(argument)] = self.stack[-1]

    def _memoize(self, argument: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _get(self, argument: Any) -> None:
        self.stack.append(self.memo[int(argument)])

    def _set_item(self, argument: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill(self.stack[-1], [key, value])

    def _set_items(self, argument: Any) -> None:
        items = self._since_mark()
        self._fill(self.stack[-1], items)

    def _dict(self, argument: Any) -> None:
        items = self._since_mark()
        self.stack.append({})
        self._fill(self.stack[-1], items)

    def _fill(self, target: object, items: list[Any]) -> None:
        if not isinstance(target, dict) or any(not isinstance(key, str) for key in items[::2]):
            raise self._refuse("it holds something besides arrays by name")
        target.update(zip(items[::2], items[1::2], strict=True))

    # -- names and what is made of them ------------------------------------------------------------------------------

    def _global(self, argument: Any) -> None:
        module, _, name = str(argument).partition(" ")
        self.stack.append(self._allowed(module, name))

    def _stack_global(self, argument: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._allowed(module, name))

    def _allowed(self, module: object, name: object) -> _Name:
        if isinstance(module, str) and isinstance(name, str):
            if module in _NUMPY and name in ("_reconstruct", "_frombuffer", "ndarray", "dtype"):
                return _Name("numpy", name)
            if (module, name) in (("_codecs", "encode"), ("collections", "OrderedDict")):
                return _Name(module, name)
            if module in ("builtins", "__builtin__") and name == "bytes":
                return _Name("builtins", "bytes")
            asked = f"{module}.{name}"[:80]
            raise self._refuse(f"it asks for {asked}, which could run code; nothing of it was run")
        raise self._refuse("it is damaged: a name is expected")

    def _reduce(self, argument: Any) -> None:
        given, wanted = self.stack.pop(), self.stack.pop()
        self.stack.append(self._called(wanted, given))

    def _called(self, wanted: object, given: object) -> object:
        match wanted, given:
            case (_Name("numpy", "_reconstruct"), (_Name("numpy", "ndarray"), _, _)):
                return _Plan()
            case (_Name("numpy", "dtype"), (str(descr), *_)):
                return _Type(descr)
            case (
                _Name("numpy", "_frombuffer"),
                (bytes() | bytearray() as data, _Type() as dtype, tuple(shape), str()),
            ):
                return self._planned(_Plan(), shape, dtype, data)
            case (_Name("_codecs", "encode"), (str(text), "latin1" | "latin-1")):
                self.left -= len(text)
                if self.left < 0:
                    raise self._refuse("it makes more of its text than it has")
                return text.encode("latin1")
            case (_Name("builtins", "bytes"), ()):  # an array without elements
                return b""
            case (_Name("collections", "OrderedDict"), ()):
                return {}
            case _:
                raise self._refuse("it calls something that no array needs; nothing of it was run")

    def _build(self, argument: Any) -> None:
        state = self.stack.pop()
        match self.stack[-1], state:
            case (_Plan() as plan, (int(), tuple(shape), _Type() as dtype, _, bytes(data))):
                self._planned(plan, shape, dtype, data)
            case (_Type(), tuple()):
                pass  # byte order and alignment change neither shape nor type
            case _:
                raise self._refuse("it holds an array of something besides numbers")

    def _planned(self, plan: _Plan, shape: tuple[Any, ...], dtype: _Type, data: bytes | bytearray) -> _Plan:
        plan.array, itemsize = _array(shape, dtype.descr, self.what)
        if prod(plan.array.shape) * itemsize != len(data):
            raise self._refuse(f"an array of {plan.array.shape} {plan.array.dtype} cannot lie in {len(data)} bytes")
        return plan


_NOTHING = ("PROTO", "FRAME")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK, "EMPTY_TUPLE": ()}
_PUSHED = (
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "STRING", "BINSTRING", "SHORT_BINSTRING",
)  # fmt: skip
_MADE: dict[str, Callable[[], object]] = {"EMPTY_DICT": dict}
_STEPS: dict[str, Callable[[_Pickle, Any], None]] = {
    "TUPLE": _Pickle._tuple,
    "TUPLE1": lambda machine, _: machine._short_tuple(1),
    "TUPLE2": lambda machine, _: machine._short_tuple(2),
    "TUPLE3": lambda machine, _: machine._short_tuple(3),
    "PUT": _Pickle._put,
    "BINPUT": _Pickle._put,
    "LONG_BINPUT": _Pickle._put,
    "MEMOIZE": _Pickle._memoize,
    "GET": _Pickle._get,
    "BINGET": _Pickle._get,
    "LONG_BINGET": _Pickle._get,
    "SETITEM": _Pickle._set_item,
    "SETITEMS": _Pickle._set_items,
    "DICT": _Pickle._dict,
    "GLOBAL": _Pickle._global,
    "STACK_GLOBAL": _Pickle._stack_global,
    "REDUCE": _Pickle._reduce,
    "BUILD": _Pickle._build,
}
