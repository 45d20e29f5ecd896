"""Pickles, of which every step is looked at before the first one is taken, and nothing is found by its name.

A pickle is a program. `check_steps` refuses any step that its readers do not need, and those with which few bytes would cost an
unpickler much memory or time; what then asks for something by name gets a stand-in of the reader's.
"""

from __future__ import annotations

import pickletools
from io import BytesIO
from typing import NamedTuple

LARGEST_TUPLE = 1 << 14
"""Parts of a tuple, with those of the tuples in it."""
LARGEST_KEY = 64
"""The same of a tuple that is a key, and hashed."""

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
    number: int
    """The largest, either way."""
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
            remembered[place] = _top(stack)
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
    under = [part if (part := _popped(stack)) is not None else _broken() for _ in before][::-1]
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


def _top(stack: list[int | None]) -> int:
    top = stack[-1] if stack else None
    return _broken() if top is None else top


def _popped(stack: list[int | None]) -> int | None:
    return stack.pop() if stack else _broken()


def _broken() -> int:
    raise BadPickle(_FAULT)
