"""Bytes, files, iterators and frames that the instance holds, and that forward changes."""

from __future__ import annotations

import array
import io
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import torch
from stateful.registry import D, stateful
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


# -- bytes and files --------------------------------------------------------------------------------------------------------


@stateful("a bytearray, a view of it, and an array.array")
class Bytes(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = bytearray(4)
        self.view = memoryview(bytearray(4))
        self.numbers = array.array("d", [1.0, 2.0])

    def forward(self, x: Tensor) -> Tensor:
        self.bytes[0] += 1
        self.bytes.append(1)
        self.view[1] += 1
        self.numbers[0] += 1
        self.numbers.append(3.0)
        return self.layer(x) * self.bytes[0] * self.view[1] + self.numbers[0] + len(self.numbers)


@stateful("a BytesIO and a StringIO with positions")
class Files(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.binary = io.BytesIO(bytes(range(8)))
        self.text = io.StringIO()

    def forward(self, x: Tensor) -> Tensor:
        self.text.write(f"{len(x)} rows\n")
        return self.layer(x) * self.binary.read(1)[0] + self.text.tell()


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@stateful("records of a log whose arguments are tensors")
class Log(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.handler = Logged()

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.handler.handle(logging.LogRecord("model", logging.INFO, "", 0, "output %s", (y,), None))
        return y * len(self.handler.records)


# -- iterators: they have no way back, so a count may refuse and say which -----------------------------------------------------


def tokens() -> Iterator[Tensor]:
    scale = torch.ones(D)
    while True:
        yield scale
        scale = scale + 1


@stateful("a suspended generator that makes tensors", holder="tokens")
class Generator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = tokens()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * next(self.tokens)


@stateful("a generator that was begun before", holder="tokens")
class BegunGenerator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = tokens()
        next(self.tokens)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * next(self.tokens)


@stateful("a generator that forward does not touch", restless=False)
class IdleGenerator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = tokens()
        next(self.tokens)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@stateful("an itertools.count", holder="steps")
class CountingIterator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.steps = itertools.count(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * next(self.steps)


@stateful("an itertools.cycle", holder="turns")
class CyclingIterator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.turns = itertools.cycle([1, 2, 3])

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * next(self.turns)


@stateful("an iterator over a list", holder="rest")
class ListIterator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.rest = iter([1, 2, 3, 4, 5, 6, 7, 8])

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * next(self.rest)


@stateful("iterators that others are made of", holder="pairs")
class NestedIterator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.pairs = enumerate(zip(range(9), map(abs, range(-9, 0)), strict=True))

    def forward(self, x: Tensor) -> Tensor:
        index, (first, second) = next(self.pairs)
        return self.layer(x) * (index + first + second)


class Countdown:
    """An iterator written as a class: it can be put back like any object."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        self.left -= 1
        return self.left


@stateful("an iterator that is an object")
class ObjectIterator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.countdown = Countdown(9)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * next(self.countdown)


# -- what frames hold ----------------------------------------------------------------------------------------------------------


@stateful("an exception that is kept, with its traceback and the tensors of its frames")
class KeptException(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        try:
            raise ValueError("too large", y)  # noqa: TRY301 - the frame is what is kept
        except ValueError as exc:
            self.errors.append(exc)
        return y * len(self.errors)


class Twice(torch.autograd.Function):
    contexts: list[Any] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.given = x
        Twice.contexts.append(ctx)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2


@stateful("contexts of an autograd function that are kept")
class KeptContext(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return Twice.apply(self.layer(x))


@stateful("a lambda that holds a tensor")
class KeptLambda(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.later: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.later.append(lambda: y)
        return y * len(self.later)
