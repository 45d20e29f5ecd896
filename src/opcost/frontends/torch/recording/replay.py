"""What a long run does again and again, written down again without running it.

A model that loops in Python calls the same few functions of PyTorch with tensors of the same signatures many thousand times,
and PyTorch takes ten microseconds or more to bring every operator to a dispatch mode. So once a run is long, a function is
caught before: tensors without data get a `__torch_function__`. What a call made of tensors whose content nobody knows
depends only on the function, their signatures and the other arguments, so the operators of the first such call are kept as a
pattern, which is all that a later one writes down. Only functions that are known to be so are replayed (`REPLAYED`), and
only where nothing else is at work that could change what they do; everything else goes its usual way.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from opcost.core.graph import TensorSpec
from opcost.core.steps import PatternOp, Place, Single, Step
from opcost.frontends.torch.ledger.journal import Journal
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.recording.replayed import ASKING, GETITEM, REPLAYED, answered_by, index_key
from opcost.frontends.torch.recording.turns import MISSES, Expected, Kept, Like, Result, Turn, Turns
from opcost.frontends.torch.tree import tensors_passed

if TYPE_CHECKING:
    from opcost.frontends.torch.ledger.recorder_state import RecorderState

_usual_way: Callable[..., Any] = torch._C._disabled_torch_function_impl
_gradients: Callable[[], bool] = torch.is_grad_enabled
_default_dtype: Callable[[], torch.dtype] = torch.get_default_dtype
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack  # type: ignore[attr-defined]
_autocasts: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
_transform: Callable[[], int | None] = torch._C._functorch.maybe_current_level
_PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)


class _Function:
    """A function that is replayed, and its calls so far."""

    __slots__ = ("asking", "call", "calls")

    def __init__(self, call: Any) -> None:
        self.call = call
        self.asking = ASKING.get(call)
        self.calls: dict[tuple[Any, ...], Kept | None] = {}


class Replay:
    """Stands in the place of the ordinary way from PyTorch's functions to a ledger, from `start` to `stop`."""

    def __init__(self, ledger: RecorderState) -> None:
        self._ledger = ledger
        self._dtype = torch.get_default_dtype()
        self._functions: dict[Any, _Function] = {call: _Function(call) for call in REPLAYED}
        self._undo: Callable[[], None] = lambda: None
        self._journal = Journal(ledger.ops)
        self._turns = Turns(self._journal.steps)
        self._journal.ahead = self._ahead
        # The turn that has begun, the call of it that is to come, and what came so far.
        self._turn: Turn | None = None
        self._coming: Expected | None = None
        self._begin = 0
        self._base = ""
        self._below: str | None = None
        """Where below that path the running module is known to be."""
        self._given: list[int] = []

    def start(self) -> None:
        """From here on, functions that get a tensor without data are asked here first."""
        ledger = self._ledger
        ledger.ops = self._journal  # type: ignore[assignment]
        ledger.storages = array("i", ledger.storages)  # type: ignore[assignment]
        self._undo = answered_by(self.answer, self._method)

    def stop(self) -> None:
        self._undo()
        for function in self._functions.values():
            for kept in filter(None, function.calls.values()):
                for result in kept.results:
                    result.forget()
        self._functions.clear()

    def _method(self, call: Any) -> Callable[[Any, Any], Any]:
        """What answers a call of one function, given its arguments."""
        return partial(self._answered, self._functions[call], ())

    def answer(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a function makes of its arguments."""
        function = self._functions.get(func)
        if function is None:
            return self._unreplayed(func, types, args, kwargs)
        return self._answered(function, types, args, kwargs)

    def _answered(self, function: _Function, types: Any, args: Any, kwargs: Any) -> Any:
        # Gradients, autocast, other modes and transforms change what functions do.
        if (
            _gradients()
            or _dispatch_modes() != 1
            or _autocasts()
            or _transform() is not None
            or _default_dtype() is not self._dtype
        ):
            return self._unreplayed(function.call, types, args, kwargs)
        vids: list[int] = []
        key: list[Any] = []
        if not self._collected(function, args, kwargs, vids, key):
            return self._unreplayed(function.call, types, args, kwargs)
        coming = self._coming
        if coming is not None and coming.function is function and coming.key == key and self._goes_on(coming, vids):
            kept, first = coming.kept, self._begin + coming.first
        else:
            found = function.calls.get(hashed := tuple(key), _UNSEEN)
            if found is None:
                return self._unreplayed(function.call, types, args, kwargs)
            if found is _UNSEEN:
                return self._watched(function, hashed, vids, types, args, kwargs)
            kept, first = found, len(self._ledger.storages)
            if kept.pattern.length:
                first = self._write_or_open(kept, vids)
        if kept.only is not None:
            return kept.only.made(first + kept.only.at, self._ledger.mark)
        made = [
            result.made(first + result.at, self._ledger.mark)
            if result.sig is not None
            else _tensors(args, kwargs)[result.at]
            for result in kept.results
        ]
        return made[0] if kept.pack is None else kept.pack(made)

    def _collected(self, function: _Function, args: Any, kwargs: Any, vids: list[int], key: list[Any]) -> bool:
        """Gather the values and the key of a call; says whether a pattern can stand for it."""
        if function.call is GETITEM:
            tensor, index = args
            replayed = self._collect((tensor,), vids, key) and index_key(index, key[0].shape, key)
        else:
            replayed = self._collect(args, vids, key)
            if kwargs and replayed:
                key.append(tuple(kwargs))
                replayed = self._collect(kwargs.values(), vids, key)
            if function.asking is not None and replayed:
                key += function.asking(_tensors(args, kwargs) if kwargs else args)
        if len(vids) > 1 and (vids[0] == vids[1] if len(vids) == 2 else len(set(vids)) < len(vids)):
            key += map(vids.index, vids)  # which of equal ones an operator reads, nobody can tell
        return replayed

    def _collect(self, args: Any, vids: list[int], key: list[Any]) -> bool:
        """Gather the values and the key of some arguments; says whether a pattern can stand for the call."""
        ledger = self._ledger
        for arg in args:
            kind = type(arg)
            if kind is Recorded:
                if arg.content is not None or arg.mark is not ledger.mark:
                    return False
                vids.append(arg.vid)
                key.append(arg.sig)
            elif kind in _PLAIN:
                key.append(kind)
                key.append(arg)
            elif kind is tuple or kind is list or kind is torch.Size:
                key.append(len(arg))
                if not self._collect(arg, vids, key):
                    return False
            elif (leaf := ledger.leaf_of(arg)) is not None and leaf.content is None:
                vids.append(leaf.vid)
                key.append(leaf.sig)
            else:
                return False
        return True

    # -- turns --------------------------------------------------------------------------------------------------

    def enter(self, module: nn.Module, specs: tuple[TensorSpec, ...], path: str) -> tuple[Like, Place, str] | None:
        """A module is called with inputs of these specs: what its like did may come again."""
        self._below = None
        if self._coming is not None:
            return None
        like = self._turns.like(module, specs)
        if like.misses >= MISSES:
            return None
        steps = self._journal.steps
        begin = Place(len(steps), len(steps.arguments))
        if (turn := self._turns.expected(like)) is not None:
            self._open(turn, path)
        return like, begin, path

    def leave(self, entered: tuple[Like, Place, str] | None) -> None:
        """The call of the module has ended."""
        self._below = None
        if entered is not None and self._coming is None:
            self._turns.came(*entered)

    def _open(self, turn: Turn, base: str) -> None:
        self._turn, self._coming, self._base, self._below = turn, turn.calls[0], base, None
        self._begin = len(self._ledger.storages)

    def _ahead(self) -> int:
        """How many operators ran of the turn that has begun."""
        return self._coming.before if self._coming is not None else 0

    def _goes_on(self, call: Expected, vids: list[int]) -> bool:
        """Take a call as the one that was expected, if it reads what that one would; the last of a turn ends it."""
        if call.below is not self._below:
            if self._ledger.where() != self._base + call.below:
                return False
            self._below = call.below
        begin, given = self._begin, self._given
        for vid, place in zip(vids, call.places, strict=True):
            if place >= 0:
                if vid != begin + place:
                    return False
            elif vid >= begin:
                return False
            else:
                given.append(vid)
        self._coming = call.next
        if call.next is None:
            self._end_turn()
        return True

    def _end_turn(self) -> None:
        turn, begin, given = self._turn, self._begin, self._given
        assert turn is not None
        storages = self._ledger.storages
        storages.extend([begin + at if at >= 0 else storages[given[~at]] for at in turn.storages])
        self._ledger.specs += turn.pattern.specs
        self._journal.steps.append(turn.pattern, given, begin, self._base)
        turn.misses = 0
        given.clear()

    def settle(self) -> None:
        """Write down, one by one, the calls of a turn that has begun and does not go on."""
        if self._coming is None:
            return
        assert self._turn is not None
        self._turn.missed()
        coming, given, begin = self._coming, self._given, self._begin
        self._coming = None
        for call in self._turn.calls:
            if call is coming:
                break
            self._write(call.kept, call.part.arguments(given, begin), begin + call.first, self._base + call.below)
        given.clear()

    def _write_or_open(self, kept: Kept, vids: list[int]) -> int:
        """Write down a call that was not expected, or begin a turn with it; returns the first value that it makes."""
        self.settle()
        where = self._ledger.where()
        first = len(self._ledger.storages)
        if kept.turn is not None and (base := kept.turn.begins_in(where)) is not None:
            self._open(kept.turn, base)
            self._goes_on(kept.turn.calls[0], vids)
        else:
            self._write(kept, vids, first, where)
            self._turns.search()
        return first

    def _write(self, kept: Kept, vids: list[int], first: int, module: str) -> None:
        """Write down a call whose values begin with `first`."""
        storages = self._ledger.storages
        for at in kept.storages:
            storages.append(first + at if at >= 0 else storages[vids[~at]])
        self._ledger.specs += kept.pattern.specs
        self._journal.steps.append(kept.pattern, vids, first, module)

    # -- calls that run -----------------------------------------------------------------------------------------

    def _unreplayed(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let a call go its usual way, which may change the tensors that it gets in any way."""
        self.settle()
        for tensor in _tensors(args, kwargs):
            if type(tensor) is Recorded:
                tensor.replayed = False
        return _usual_way(func, types, args, kwargs or {})

    def _watched(
        self, function: _Function, key: tuple[Any, ...], vids: list[int], types: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run a call the usual way and keep what it did."""
        self.settle()
        ledger = self._ledger
        given = _tensors(args, kwargs)
        first, step, leaves = len(ledger.specs), len(self._journal.steps), ledger.known_leaves()
        result = _usual_way(function.call, types, args, kwargs or {})
        same = vids == [ledger.state(tensor).vid for tensor in given] and leaves == ledger.known_leaves()
        kept = self._kept(function, key, given, vids, first, step, result) if same else None
        function.calls[key] = kept
        if kept is not None and kept.pattern.length:
            self._turns.add(kept)
            self._journal.steps.replace(step, Step(kept.pattern, vids, first, ledger.where()))
        return result

    def _kept(
        self,
        function: _Function,
        key: tuple[Any, ...],
        given: list[torch.Tensor],
        vids: list[int],
        first: int,
        step: int,
        result: Any,
    ) -> Kept | None:
        """What a call did, as a pattern; None where a pattern does not say all of it."""
        ledger = self._ledger
        place = {vid: ~at for at, vid in enumerate(vids)}
        roots: dict[int, int | None] = {}
        for vid, at in place.items():  # memory of two arguments is not told apart
            storage = ledger.storages[vid]
            roots[storage] = None if storage in roots else at
        made = range(first, len(ledger.specs))
        place.update((vid, vid - first) for vid in made)
        storages = [at - first if (at := ledger.storages[vid]) >= first else roots.get(at) for vid in made]
        ops = list(_relative(self._journal, step, place))
        results = [_result(item, given, first) for item in (result if type(result) in (tuple, list) else (result,))]
        if None in storages or None in ops or None in results or (made and not ops):
            return None
        new = tuple([at for at, storage in enumerate(storages) if at == storage])
        pattern = Single(len(vids), tuple(ops), tuple(ledger.specs[first:]), new)  # type: ignore[arg-type]
        pack = type(result) if type(result) in (tuple, list) else None
        return Kept(function, list(key), pattern, tuple(storages), tuple(results), pack)  # type: ignore[arg-type]


_UNSEEN: Any = object()


def _relative(journal: Journal, step: int, place: dict[int, int]) -> Iterator[PatternOp | None]:
    """The operators written down from a step on, by places; None for one that reads what is no argument."""
    for pattern, arguments, begin, _ in journal.steps.since(step):
        for op in pattern.ops:
            ran = op.run(0, arguments, begin, "")
            inputs = tuple([place[vid] for vid in ran.inputs if vid in place])
            known = len(inputs) == len(ran.inputs)
            outputs = tuple([place[vid] for vid in ran.outputs])
            yield PatternOp(op.kind, op.raw, op.attrs, inputs, outputs) if known else None


def _result(item: Any, given: list[torch.Tensor], first: int) -> Result | None:
    for at, tensor in enumerate(given):
        if tensor is item:
            return Result(None, at)
    if type(item) is not Recorded or item.content is not None or item.vid < first or item.sig.stored is not None:
        return None
    return Result(item.sig, item.vid - first)


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    return tensors_passed((args, kwargs or {}), [])
