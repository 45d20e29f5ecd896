"""What is decoded of a Kineto event; msgspec skips everything else without making an object of it."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias

import msgspec
from msgspec import Raw

Number: TypeAlias = int | str | float | None
"""Old writers put some identifiers between quotes, and re-written files may have them as floats."""

NOTHING = Raw()


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "external": "External id",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "dims": "Input Dims",
        "old_dims": "Input dims",
        "types": "Input type",
        "concrete": "Concrete Inputs",
        "collective": "Collective name",
        "group_name": "Process Group Name",
    },
):
    """Of an event's arguments, those that tie it to others or say what it worked on."""

    external: Number = None
    correlation: Number = None
    device: Number = None
    stream: Number = None
    sequence: Number = None
    forward_thread: Number = None
    dims: Raw = NOTHING
    old_dims: Raw = NOTHING
    types: Raw = NOTHING
    concrete: Raw = NOTHING
    collective: str | None = None
    group_name: str | None = None


class Event(msgspec.Struct, gc=False):
    """One event; only those with a duration are work that was done."""

    cat: str | None = None
    name: str | None = None
    ts: int | float = 0
    dur: int | float | None = None
    pid: Number = 0
    tid: Number = 0
    args: Args | None = None


class DecimalEvent(msgspec.Struct, gc=False):
    """The same with times that keep every decimal."""

    cat: str | None = None
    name: str | None = None
    ts: Decimal = Decimal(0)
    dur: Decimal | None = None
    pid: Number = 0
    tid: Number = 0
    args: Args | None = None


NO_ARGS = Args()
