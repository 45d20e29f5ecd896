"""What comes again in a long run as a whole: a turn of a loop, a call of a module that is like an earlier one.

Calls of functions that came one after another, reading one another's results, are a turn, and a turn is one pattern. When it
begins again, each call is only compared with the one that is expected; the last of them writes all down at once. A call that
was not expected ends this, and what came so far is written down call by call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from weakref import getweakrefcount

import torch

from opcost.core.graph import TensorSpec
from opcost.core.steps import Joined, Part, Place, Single, Steps
from opcost.frontends.torch.ledger.tensors import Mark, Recorded, Signature, recorded

WINDOW = 384
"""So many steps are looked at together for a loop; a turn that comes again is at most a third of them."""
LONGEST = 256
"""A module that runs more operators is not one turn; those that it calls may be."""
MISSES = 8
"""So much more often than right an expectation may be wrong before it is given up."""


class Result:
    """A tensor that a call hands back: one that it made, or, without a signature, an argument as it came."""

    __slots__ = ("at", "latest", "sig", "spare")

    def __init__(self, sig: Signature | None, at: int) -> None:
        self.sig = sig
        self.at = at
        """Its place among the values made, or among the tensors passed."""
        self.latest: Recorded | None = None
        self.spare: Recorded | None = None
        """The tensor of the call before the latest, to be handed out again once nobody has it any more."""

    def made(self, vid: int, mark: Mark) -> Recorded:
        """A tensor that stands for a value.

        One that nobody else can reach, and that was not changed, is as good as a new one, which takes PyTorch longer to make
        than all the rest of a call.
        """
        tensor = self.spare
        if (
            tensor is not None
            and _references(tensor) == _OURS
            and tensor.replayed
            and _uses(tensor) == 1
            and not getweakrefcount(tensor)
            and not tensor.__dict__
        ):
            tensor.vid = vid
        else:
            assert self.sig is not None
            tensor = recorded(self.sig, vid, mark, None)
            tensor.replayed = True
        self.spare, self.latest = self.latest, tensor
        return tensor

    def forget(self) -> None:
        self.spare = self.latest = None


_references = sys.getrefcount
_OURS = 3
"""The references of a result, of the one who asks for their number, and of the question."""
_uses: Callable[[Any], int] = getattr(torch.Tensor, "_use_count", lambda _: 0)


class Kept:
    """What a call of a function did, and what it handed back."""

    __slots__ = ("function", "key", "only", "pack", "pattern", "results", "storages", "turn")

    def __init__(
        self,
        function: Any,
        key: list[Any],
        pattern: Single,
        storages: tuple[int, ...],
        results: tuple[Result, ...],
        pack: Callable[[list[Any]], Any] | None,
    ) -> None:
        self.function = function
        self.key = key
        self.pattern = pattern
        self.storages = storages
        """The places in whose memory the values lie that it makes."""
        self.results = results
        self.only = results[0] if pack is None and results[0].sig is not None else None
        """The one tensor that it makes, if it is one."""
        self.pack = pack
        """Puts several results together; None for one."""
        self.turn: Turn | None = None
        """The turn of a loop that begins with it."""


class Expected:
    """One call of a turn that has begun."""

    __slots__ = ("before", "below", "first", "function", "kept", "key", "next", "part", "places")

    def __init__(self, kept: Kept, part: Part, before: int) -> None:
        self.part = part
        self.kept = kept
        self.function = kept.function
        self.key = kept.key
        self.first = part.first
        self.places = part.places
        self.below = part.below
        self.before = before
        """How many operators of the turn run before it."""
        self.next: Expected | None = None


class Turn:
    """Calls as one pattern."""

    __slots__ = ("calls", "misses", "pattern", "storages")

    def __init__(self, pattern: Joined, storages: list[int], calls: list[Expected]) -> None:
        self.pattern = pattern
        self.storages = storages
        """The places in whose memory its values lie."""
        self.calls = calls
        self.misses = 0

    def missed(self) -> None:
        """It began and did not go on; a loop that does so again and again is another one."""
        self.misses += 1
        first = self.calls[0].kept
        if self.misses > MISSES and first.turn is self:
            first.turn = None

    def begins_in(self, path: str) -> str | None:
        """The path of its module, where its first call is made in the module of this path."""
        below = self.calls[0].below
        return path.removesuffix(below) if path.endswith(below) else None

    def is_like(self, other: Turn) -> bool:
        """Whether the same calls read one another's results in the same way."""
        mine, theirs = [
            [(part.pattern, part.places, part.below) for part in turn.pattern.parts] for turn in (self, other)
        ]
        return mine == theirs


class Like:
    """The calls of modules of one class whose first inputs have the same shape and type."""

    __slots__ = ("latest", "misses", "turn")

    def __init__(self) -> None:
        self.turn: Turn | None = None
        self.latest: tuple[Place, int, str] | None = None
        """Which steps the latest call made that did not come as expected, and the path of its module."""
        self.misses = 0


Called = tuple[Kept, Sequence[int], int, str]
"""A call with its arguments, the first value that it makes, and the path of the module."""


class Turns:
    """The turns that are known of a run."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._known: dict[int, Kept | Turn] = {}
        """By the pattern of each."""
        self._likes: dict[tuple[type, int], Like] = {}
        self._searched = len(steps)

    def add(self, kept: Kept) -> None:
        self._known[id(kept.pattern)] = kept

    # -- loops --------------------------------------------------------------------------------------------------

    def search(self) -> None:
        """Look, from time to time, whether the latest steps are the third turn of the same."""
        patterns = self._steps.patterns
        if len(patterns) < self._searched + WINDOW:
            return
        self._searched = len(patterns)
        latest = patterns[-WINDOW:]
        for length in range(2, WINDOW // 3 + 1):
            turn = latest[-length:]
            if latest[-2 * length : -length] == turn and latest[-3 * length : -2 * length] == turn:
                self._settle_on_loop(len(patterns), length)
                return

    def _settle_on_loop(self, end: int, length: int) -> None:
        steps = self._steps
        found, before = [
            self._turn(list(self._calls(steps.place(end - begin), end - begin + length)))
            for begin in (length, 2 * length)
        ]
        if found is not None and before is not None and found.is_like(before):
            found.calls[0].kept.turn = found

    # -- modules ------------------------------------------------------------------------------------------------

    def like(self, module: Any, specs: tuple[TensorSpec, ...]) -> Like:
        """What is known of the calls that are like this one."""
        key = (
            type(module),
            id(specs[0]) if specs else 0,
        )  # of the first only: others may be what it has seen so far, which grows
        found = self._likes.get(key)
        if found is None:
            found = self._likes[key] = Like()
        return found

    def expected(self, like: Like) -> Turn | None:
        """What such a call will do if it does what the latest did."""
        if like.turn is None and like.latest is not None:
            begin, end, path = like.latest
            like.latest = None
            if 2 <= sum([pattern.length for pattern in self._steps.patterns[begin.number : end]]) <= LONGEST:
                like.turn = self._turn(list(self._calls(begin, end)), path)
        return like.turn

    def came(self, like: Like, begin: Place, path: str) -> None:
        """A call has ended that began at this place."""
        end = len(self._steps)
        if like.turn is not None:
            if end - begin.number == 1 and self._steps.patterns[-1] is like.turn.pattern:
                like.misses = max(like.misses - 1, 0)
                return
            like.misses += 1
            like.turn = None
        if like.misses < MISSES and end - begin.number <= LONGEST:
            like.latest = begin, end, path

    # -- what a turn is -----------------------------------------------------------------------------------------

    def _calls(self, begin: Place, end: int) -> Iterator[Called | None]:
        """The calls that some steps are; None for one that cannot be told."""
        for pattern, arguments, first, module in self._steps.between(begin, end):
            known = self._known.get(id(pattern))
            if known is None:
                yield None
            elif isinstance(known, Kept):
                yield known, arguments, first, module
            else:
                for call, part in zip(known.calls, known.pattern.parts, strict=True):
                    yield call.kept, part.arguments(arguments, first), first + part.first, module + part.below

    def _turn(self, calls: list[Called | None], base: str | None = None) -> Turn | None:
        """Calls as one turn of the module with this path; None where something else ran between them.

        Without a path it is that of the calls, or of the whole model where several modules make them.
        """
        if len(calls) < 2 or None in calls:
            return None
        told: list[Called] = calls  # type: ignore[assignment]
        if base is None:
            paths = {path for _, _, _, path in told}
            base = paths.pop() if len(paths) == 1 else ""
        begin = told[0][2]
        parts: list[Part] = []
        expected: list[Expected] = []
        storages: list[int] = []
        belows: dict[str, str] = {}
        outside = ran = 0
        for kept, arguments, first, path in told:
            if first != begin + len(storages) or not kept.storages or not path.startswith(base):
                return None
            places: list[int] = []
            for value in arguments:
                if value >= begin:
                    places.append(value - begin)
                else:
                    places.append(~outside)
                    outside += 1
            shift = len(storages)
            for at in kept.storages:
                place = shift + at if at >= 0 else places[~at]
                storages.append(storages[place] if 0 <= place < shift else place)
            below = path[len(base) :]
            part = Part(kept.pattern, shift, places, belows.setdefault(below, below))
            parts.append(part)
            expected.append(Expected(kept, part, ran))
            ran += kept.pattern.length
        for call, following in pairwise(expected):
            call.next = following
        turn = Turn(Joined(outside, parts), storages, expected)
        self._known[id(turn.pattern)] = turn
        return turn
