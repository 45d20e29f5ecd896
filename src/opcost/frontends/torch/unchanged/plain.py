"""Objects that are no containers and still change: random generators, arrays, buffers, streams, iterators.

Each function keeps what such an object is now and returns how to put it back.
"""

from __future__ import annotations

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

from opcost.core.progress import alone

PutBack = Callable[[], Any]

LARGE_BYTES = 1 << 28
"""An array of numpy's that is larger is taken to be data: copying it would cost more than the count."""


def _torch_generator(generator: torch.Generator) -> PutBack:
    state = generator.get_state()
    return lambda: generator.set_state(state)


def _random(generator: random.Random) -> PutBack:
    state = generator.getstate()
    return lambda: generator.setstate(state)


def _buffer(buffer: Any) -> PutBack:
    content = buffer[:]

    def put_back() -> None:
        if buffer != content:
            buffer[:] = content

    return put_back


def _stream(stream: Any) -> PutBack:
    content, position = stream.getvalue(), stream.tell()

    def put_back() -> None:
        if stream.closed:
            return
        if stream.getvalue() != content:
            stream.seek(0)
            stream.truncate()
            stream.write(content)
        stream.seek(position)

    return put_back


def _array(content: Any) -> PutBack | None:
    if content.nbytes > LARGE_BYTES or not content.flags.writeable or "memmap" in type(content).__name__:
        return None
    kept, raw = content.copy(), content.tobytes()

    def put_back() -> None:
        if content.tobytes() != raw:
            content[...] = kept

    return put_back


def _numpy_generator(generator: Any) -> PutBack:
    bits = generator.bit_generator
    state = bits.state
    return lambda: setattr(bits, "state", state)


def _numpy_random_state(generator: Any) -> PutBack:
    state = generator.get_state()
    return lambda: generator.set_state(state)


def _queue(queue: SimpleQueue[Any]) -> PutBack | None:
    if not alone():
        return None  # others may be waiting for what is in it
    content = _drained(queue)
    _fill(queue, content)

    def put_back() -> None:
        _drained(queue)
        _fill(queue, content)

    return put_back


def _drained(queue: SimpleQueue[Any]) -> list[Any]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


def _fill(queue: SimpleQueue[Any], content: list[Any]) -> None:
    for item in content:
        queue.put(item)


_KEEPERS: dict[type, Callable[[Any], PutBack | None]] = {
    torch.Generator: _torch_generator,
    random.Random: _random,
    bytearray: _buffer,
    array: _buffer,
    io.BytesIO: _stream,
    io.StringIO: _stream,
    SimpleQueue: _queue,
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
            made: Any = make(*[twin(arg) if type(arg) in ITERATORS else arg for arg in args])
            if state and state[0] is not None:
                made.__setstate__(_own(state[0]))
    except (TypeError, ValueError, AttributeError):
        return None
    return made  # type: ignore[no-any-return]
