"""Objects that are no containers and still change: random generators, arrays, buffers, streams, iterators.

Each function keeps what such an object is now and returns how to put it back. Methods are those of Python's own classes: what a
subclass of a user's makes of them may raise, or change something.
"""

from __future__ import annotations

import ctypes
import io
import random
import sys
import warnings
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate, chain, count, cycle, islice, repeat, takewhile, zip_longest
from queue import SimpleQueue
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import torch

from opcost.core.progress import is_only_thread

PutBack = Callable[[], Any]

LARGE_BYTES = 1 << 28
"""An array of numpy's that is larger is taken to be data: copying it would cost more than the count."""


def _torch_generator(generator: torch.Generator) -> PutBack:
    state = generator.get_state()
    return lambda: generator.set_state(state)


def _random(generator: random.Random) -> PutBack:
    base: Any = random.Random.__base__  # the half of the state that is no attribute
    state = base.getstate(generator)
    return lambda: base.setstate(generator, state)


def _buffer(buffer: Any) -> PutBack:
    base: Any = bytearray if issubclass(type(buffer), bytearray) else array
    content = base.__getitem__(buffer, slice(None))

    def put_back() -> None:
        if base.__ne__(buffer, content):
            base.__setitem__(buffer, slice(None), content)

    return put_back


def _stream(stream: Any) -> PutBack | None:
    base: Any = io.BytesIO if issubclass(type(stream), io.BytesIO) else io.StringIO
    if base.closed.__get__(stream):
        return None
    content, position = base.getvalue(stream), base.tell(stream)

    def put_back() -> None:
        if base.closed.__get__(stream):
            return
        if base.getvalue(stream) != content:
            base.seek(stream, 0)
            base.truncate(stream)
            base.write(stream, content)
        base.seek(stream, position)

    return put_back


def _array(content: Any) -> PutBack | None:
    base = sys.modules["numpy"].ndarray
    plain = base.view(content, base)
    if plain.nbytes > LARGE_BYTES or not plain.flags.writeable or "memmap" in type(content).__name__:
        return None
    kept, raw = plain.copy(), plain.tobytes()

    def put_back() -> None:
        if plain.tobytes() != raw:
            plain[...] = kept

    return put_back


def _ctypes(data: Any) -> PutBack | None:
    """Memory of ctypes; the objects that it keeps alive are kept alive here too."""
    size = ctypes.sizeof(data)
    if not size or size > LARGE_BYTES:
        return None
    at, alive = ctypes.addressof(data), _alive(data)
    content = ctypes.string_at(at, size)

    def put_back() -> None:
        if ctypes.string_at(at, size) != content:
            ctypes.memmove(at, content, size)
            if alive and type(now := _OBJECTS(data)) is dict:
                now.update(alive)

    return put_back


_CTYPES: Any = ctypes.Array.__base__
_OBJECTS: Callable[[Any], Any] = _CTYPES._objects.__get__


def _alive(data: Any) -> dict[Any, Any]:
    found = _OBJECTS(data)
    return dict(found) if type(found) is dict else {}


def _numpy_generator(generator: Any) -> PutBack:
    bits = generator.bit_generator
    state = bits.state
    return lambda: setattr(bits, "state", state)


def _numpy_random_state(generator: Any) -> PutBack:
    state = generator.get_state()
    return lambda: generator.set_state(state)


def _queue(queue: SimpleQueue[Any]) -> PutBack | None:
    if not is_only_thread():
        return None  # others may be waiting for what is in it
    content = _drained(queue)
    _fill(queue, content)

    def put_back() -> None:
        _drained(queue)
        _fill(queue, content)

    return put_back


def _drained(queue: SimpleQueue[Any]) -> list[Any]:
    return [SimpleQueue.get_nowait(queue) for _ in range(SimpleQueue.qsize(queue))]


def _fill(queue: SimpleQueue[Any], content: list[Any]) -> None:
    for item in content:
        SimpleQueue.put(queue, item)


_KEEPERS: dict[type, Callable[[Any], PutBack | None]] = {
    torch.Generator: _torch_generator,
    random.Random: _random,
    bytearray: _buffer,
    array: _buffer,
    io.BytesIO: _stream,
    io.StringIO: _stream,
    SimpleQueue: _queue,
    _CTYPES: _ctypes,
}


def keeper_of(cls: type) -> Callable[[Any], PutBack | None] | None:
    """How objects of this class are kept, if they are of these."""
    for known, keep in _KEEPERS.items():
        if issubclass(cls, known):
            return keep
    if (numpy := sys.modules.get("numpy")) is not None:
        if issubclass(cls, numpy.ndarray):
            return _array
        if issubclass(cls, numpy.random.Generator):
            return _numpy_generator
        if issubclass(cls, numpy.random.RandomState):
            return _numpy_random_state
    return None


# -- iterators: most cannot be wound back, so the run gets a copy ---------------------------------------------------

SUSPENDED = (GeneratorType, CoroutineType, AsyncGeneratorType)
"""What nobody can copy or wind back."""

ITERATORS = frozenset(
    {
        *(type(iter(some)) for some in ([1], (1,), "1", b"1", bytearray(1), range(1), range(1 << 70), {1: 1}, {1})),
        type(iter({1: 1}.values())), type(iter({1: 1}.items())), type(reversed([1])), type(reversed({1: 1})),
        enumerate, zip, map, filter, reversed, accumulate, chain, count, cycle, islice, repeat, takewhile, zip_longest,
    }
)  # fmt: skip
"""Iterators that describe themselves to `copy`."""


def copied_types() -> frozenset[int]:
    """The types, by identity, of which the run gets a copy: iterators, and numpy's sequences of seeds, which count upwards."""
    numpy = sys.modules.get("numpy.random")
    return _ITERATOR_IDS if numpy is None else _ITERATOR_IDS | {id(numpy.SeedSequence)}


_ITERATOR_IDS = frozenset(map(id, ITERATORS))


def position(suspended: Any) -> tuple[Any, ...]:
    """Where a generator stands, so that one can tell whether it has moved."""
    frame = getattr(suspended, "gi_frame", None) or getattr(suspended, "cr_frame", None)
    return (id(frame), frame.f_lasti, tuple(map(id, frame.f_locals.values()))) if frame is not None else (None,)


def _own(state: Any) -> Any:
    """The state of an iterator, with lists of its own: `cycle` goes on writing to the one it describes."""
    return tuple(list(part) if type(part) is list else part for part in state) if type(state) is tuple else state


def twin(iterator: Iterator[Any]) -> Iterator[Any] | None:
    """A copy that goes on from where this one stands, over the same items; None where it cannot be copied."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 announces that some will stop describing themselves
            description: Any = iterator.__reduce__()
            make, args, *state = description
            made: Any = make(*[twin(arg) if id(type(arg)) in _ITERATOR_IDS else arg for arg in args])
            if state and state[0] is not None:
                made.__setstate__(_own(state[0]))
    except (TypeError, ValueError, AttributeError):
        return None
    return made  # type: ignore[no-any-return]
