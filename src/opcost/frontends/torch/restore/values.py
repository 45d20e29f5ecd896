"""Objects that are no containers and still change: random generators, arrays, buffers, streams, queues, iterators.

Methods are those of Python's own classes, because those of a user's subclass may raise, or change something.
"""

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

LARGE_BYTES = 1 << 28  # A larger array is taken to be data: copying it would take longer than the count


Keeper = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]
"""How objects of one class are restored: what reads the state, None where it is not kept, and what writes it."""

_ALL = slice(None)
_RANDOM: Any = random.Random.__base__  # the half of the state that is no attribute
_CTYPES: Any = ctypes.Array.__base__


def _buffers(base: Any) -> Keeper:
    def write(buffer: Any, content: Any) -> None:
        if base.__ne__(buffer, content):
            base.__setitem__(buffer, _ALL, content)

    return lambda buffer: base.__getitem__(buffer, _ALL), write


def _streams(base: Any) -> Keeper:
    def read(stream: Any) -> Any:
        """All that `pickle` keeps of a stream, but for the attributes of a user's class."""
        return None if base.closed.__get__(stream) else base.__getstate__(stream)[:-1]

    def write(stream: Any, state: Any) -> None:
        if read(stream) not in (None, state):
            base.__setstate__(stream, (*state, None))

    return read, write


def _read_memory(data: Any) -> tuple[bytes, dict[Any, Any]] | None:
    """Memory of ctypes, and the objects that it keeps alive."""
    size, alive = ctypes.sizeof(data), _CTYPES._objects.__get__(data)
    if not size or size > LARGE_BYTES:
        return None
    return ctypes.string_at(ctypes.addressof(data), size), dict(alive) if type(alive) is dict else {}


def _write_memory(data: Any, state: tuple[bytes, dict[Any, Any]]) -> None:
    content, alive = state
    at = ctypes.addressof(data)
    if ctypes.string_at(at, len(content)) != content:
        ctypes.memmove(at, content, len(content))
        if alive and type(now := _CTYPES._objects.__get__(data)) is dict:
            now.update(alive)


def _drain(queue: SimpleQueue[Any]) -> list[Any]:
    return [SimpleQueue.get_nowait(queue) for _ in range(SimpleQueue.qsize(queue))]


def _fill(queue: SimpleQueue[Any], content: list[Any]) -> None:
    _drain(queue)
    for item in content:
        SimpleQueue.put(queue, item)


def _read_queue(queue: SimpleQueue[Any]) -> list[Any] | None:
    if not is_only_thread():
        return None  # other threads may read from it
    content = _drain(queue)
    _fill(queue, content)
    return content


def _read_array(content: Any) -> tuple[bytes, Any] | None:
    plain = _plain(content)
    if plain.nbytes > LARGE_BYTES or not plain.flags.writeable or "memmap" in type(content).__name__:
        return None
    return plain.tobytes(), plain.copy()


def _write_array(content: Any, state: tuple[bytes, Any]) -> None:
    plain = _plain(content)
    if plain.tobytes() != state[0]:
        plain[...] = state[1]


def _plain(content: Any) -> Any:
    base = sys.modules["numpy"].ndarray
    return base.view(content, base)


_KEEPERS: dict[type, Keeper] = {
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
    random.Random: (_RANDOM.getstate, _RANDOM.setstate),
    bytearray: _buffers(bytearray),
    array: _buffers(array),
    io.BytesIO: _streams(io.BytesIO),
    io.StringIO: _streams(io.StringIO),
    SimpleQueue: (_read_queue, _fill),
    _CTYPES: (_read_memory, _write_memory),
}


def keeper_of(cls: type) -> Keeper | None:
    """How objects of this class are kept, if they are of these."""
    known = _KEEPERS
    if (numpy := sys.modules.get("numpy")) is not None:
        randoms = numpy.random.RandomState
        known = {
            **_KEEPERS,
            numpy.ndarray: (_read_array, _write_array),
            numpy.random.Generator: (
                lambda generator: generator.bit_generator.state,
                lambda generator, state: setattr(generator.bit_generator, "state", state),
            ),
            randoms: (randoms.get_state, randoms.set_state),
        }
    return next((keeper for base, keeper in known.items() if issubclass(cls, base)), None)


# -- iterators: most cannot be rewound, so the run gets a copy ----------------------------------------------------------

SUSPENDED = (GeneratorType, CoroutineType, AsyncGeneratorType)  # What can be neither copied nor rewound

_ITERATORS = frozenset(map(id, (
    *(type(iter(some)) for some in ([1], (1,), "1", b"1", bytearray(1), range(1), range(1 << 70), {1: 1}, {1})),
    type(iter({1: 1}.values())), type(iter({1: 1}.items())), type(reversed([1])), type(reversed({1: 1})),
    enumerate, zip, map, filter, reversed, accumulate, chain, count, cycle, islice, repeat, takewhile, zip_longest,
)))  # fmt: skip
"""Types of iterators that describe themselves to `copy`, by identity."""


def copied_types() -> frozenset[int]:
    """The types, by identity, of which the run gets a copy: iterators, and numpy's sequences of seeds, which count upwards."""
    numpy = sys.modules.get("numpy.random")
    return _ITERATORS if numpy is None else _ITERATORS | {id(numpy.SeedSequence)}


def position(suspended: Any) -> tuple[Any, ...]:
    """Where a generator is suspended, to find out whether it has moved."""
    frame = getattr(suspended, "gi_frame", None) or getattr(suspended, "cr_frame", None)
    return (id(frame), frame.f_lasti, tuple(map(id, frame.f_locals.values()))) if frame is not None else (None,)


def twin(iterator: Iterator[Any]) -> Any:
    """A copy that continues at the same position, over the same items; None where it cannot be copied."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 announces that some will stop describing themselves
            description: Any = iterator.__reduce__()
            make, args, state = (*description, None)[:3]
            made: Any = make(*[twin(arg) if id(type(arg)) in _ITERATORS else arg for arg in args])
            if type(state) is tuple:  # `cycle` continues to write to the list that it describes
                state = tuple(list(part) if type(part) is list else part for part in state)
            if state is not None:
                made.__setstate__(state)
    except (TypeError, ValueError, AttributeError):
        return None
    return made
