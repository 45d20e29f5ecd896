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
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcost.core.steps import Pattern, PatternOp
from opcost.frontends.torch.ledger.journal import Journal
from opcost.frontends.torch.ledger.lifetimes import Held
from opcost.frontends.torch.ledger.tensor import Recorded, Signature, recorded
from opcost.frontends.torch.recording.replayed import ASKING, GETITEM, REPLAYED, answered_by, index_key
from opcost.frontends.torch.tree import tensors_passed

if TYPE_CHECKING:
    from opcost.frontends.torch.ledger.ledger import Ledger

_usual_way: Callable[..., Any] = torch._C._disabled_torch_function_impl
_gradients: Callable[[], bool] = torch.is_grad_enabled
_default_dtype: Callable[[], torch.dtype] = torch.get_default_dtype
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack  # type: ignore[attr-defined]
_autocasts: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
_transform: Callable[[], int | None] = torch._C._functorch.maybe_current_level
_PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)


class _Kept(NamedTuple):
    """What a call did, and what it handed back."""

    pattern: Pattern
    storages: tuple[int, ...]
    """The places in whose memory the values lie that it makes."""
    results: tuple[tuple[Signature | None, int], ...]
    """Signature and place of each tensor made; a tensor that was handed back as it came has no signature."""
    gone: tuple[tuple[int, int], ...]
    """The places whose memory was let go before the call was over, and after how many of its operators."""
    pack: Callable[[list[Any]], Any] | None
    """Puts several results together; None for one."""


class Replay:
    """Stands in the place of the ordinary way from PyTorch's functions to a ledger, from `start` to `stop`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._dtype = torch.get_default_dtype()
        self._memo: dict[Any, dict[tuple[Any, ...], _Kept | None]] = {function: {} for function in REPLAYED}
        self._undo: Callable[[], None] = lambda: None

    def start(self) -> None:
        """From here on, functions that get a tensor without data are asked here first."""
        ledger = self._ledger
        ledger.ops = ledger.lives.ops = Journal(ledger.ops)  # type: ignore[assignment]
        ledger.storages = array("i", ledger.storages)  # type: ignore[assignment]
        self._undo = answered_by(self.answer)

    def stop(self) -> None:
        self._undo()
        self._memo.clear()

    def answer(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a function makes of its arguments."""
        memo = self._memo.get(func)
        # Gradients, autocast, other modes and transforms change what functions do.
        if (
            memo is None
            or _gradients()
            or _dispatch_modes() != 1
            or _autocasts()
            or _transform() is not None
            or _default_dtype() is not self._dtype
        ):
            return _usual_way(func, types, args, kwargs or {})
        vids: list[int] = []
        helds: list[Held | None] = []
        key: list[Any] = []
        if func is GETITEM:
            tensor, index = args
            replayed = self._collect((tensor,), vids, helds, key) and index_key(index, key[0].shape, key)
        else:
            replayed = self._collect(args, vids, helds, key)
            if kwargs and replayed:
                key.append(tuple(kwargs))
                replayed = self._collect(kwargs.values(), vids, helds, key)
            if replayed and func in ASKING:
                key += ASKING[func](_tensors(args, kwargs))
        if not replayed:
            return _usual_way(func, types, args, kwargs or {})
        if len(vids) > 1 and len(set(vids)) < len(vids):
            key += map(vids.index, vids)  # which of equal ones an operator reads, nobody can tell
        hashed = tuple(key)
        kept = memo.get(hashed, _UNSEEN)
        if kept is _UNSEEN:
            return self._watched(memo, hashed, vids, func, types, args, kwargs)
        if kept is None:
            return _usual_way(func, types, args, kwargs or {})
        pattern, places, results, gone, pack = kept
        ledger = self._ledger
        storages = ledger.storages
        first = len(storages)
        for at in places:
            storages.append(first + at if at >= 0 else storages[vids[~at]])
        lives = ledger.lives
        if pattern.ops:
            ledger.specs += pattern.specs
            if gone:
                begun = len(lives.ops)
                lives.storages.extend([first + at for at, _ in gone])
                lives.times.extend([begun + after for _, after in gone])
            ledger.ops.steps.append(pattern, vids, first, ledger.where())  # type: ignore[attr-defined]
        made: list[Any] = []
        new: dict[int, Held] = {}
        for sig, at in results:
            if sig is None:
                made.append(_tensors(args, kwargs)[at])
                continue
            place = places[at]
            if place < 0:
                held = helds[~place]
            elif (held := new.get(place)) is None:
                held = new[place] = Held(lives, first + place)
            made.append(recorded(sig, first + at, ledger.mark, held))
        return made[0] if pack is None else pack(made)

    def _collect(self, args: Any, vids: list[int], helds: list[Held | None], key: list[Any]) -> bool:
        """Gather the values and the key of some arguments; says whether a pattern can stand for the call."""
        ledger = self._ledger
        for arg in args:
            kind = type(arg)
            if kind is Recorded:
                if arg.content is not None or arg.mark is not ledger.mark:
                    return False
                vids.append(arg.vid)
                helds.append(arg.held)
                key.append(arg.sig)
            elif kind in _PLAIN:
                key.append(kind)
                key.append(arg)
            elif kind is tuple or kind is list or kind is torch.Size:
                key.append(len(arg))
                if not self._collect(arg, vids, helds, key):
                    return False
            elif (leaf := ledger.leaf_of(arg)) is not None and leaf.content is None:
                vids.append(leaf.vid)
                helds.append(None)
                key.append(leaf.sig)
            else:
                return False
        return True

    def _watched(
        self,
        memo: dict[tuple[Any, ...], _Kept | None],
        key: tuple[Any, ...],
        vids: list[int],
        func: Any,
        types: Any,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Run a call the usual way and keep what it did."""
        ledger = self._ledger
        given = _tensors(args, kwargs)
        first, step, leaves = len(ledger.specs), len(ledger.ops.steps), ledger.known_leaves()  # type: ignore[attr-defined]
        begun, deaths = len(ledger.ops), len(ledger.lives.times)
        result = _usual_way(func, types, args, kwargs or {})
        same = vids == [ledger.state(tensor).vid for tensor in given] and leaves == ledger.known_leaves()
        lives = ledger.lives
        gone = zip(lives.storages[deaths:], lives.times[deaths:], strict=True)
        ended = tuple([(storage - first, time - begun) for storage, time in gone])
        memo[key] = self._kept(given, vids, first, step, result, ended) if same else None
        return result

    def _kept(
        self,
        given: list[torch.Tensor],
        vids: list[int],
        first: int,
        step: int,
        result: Any,
        gone: tuple[tuple[int, int], ...],
    ) -> _Kept | None:
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
        ops = list(_relative(ledger.ops, step, place))  # type: ignore[arg-type]
        results = [_result(item, given, first) for item in (result if type(result) in (tuple, list) else (result,))]
        if None in storages or None in ops or None in results:
            return None
        new = tuple([at for at, storage in enumerate(storages) if at == storage])
        pattern = Pattern(len(vids), tuple(ops), tuple(ledger.specs[first:]), new)  # type: ignore[arg-type]
        pack = type(result) if type(result) in (tuple, list) else None
        return _Kept(pattern, tuple(storages), tuple(results), gone, pack)  # type: ignore[arg-type]


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


def _result(item: Any, given: list[torch.Tensor], first: int) -> tuple[Signature | None, int] | None:
    for at, tensor in enumerate(given):
        if tensor is item:
            return None, at
    if type(item) is not Recorded or item.content is not None or item.vid < first or item.sig.stored is not None:
        return None
    return item.sig, item.vid - first


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    return tensors_passed((args, kwargs or {}), [])
