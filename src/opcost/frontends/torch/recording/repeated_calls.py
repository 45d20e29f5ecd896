"""Function calls that a long run makes again, written down without running them.

A model that loops in Python calls the same few functions of PyTorch with tensors of the same signatures many thousand times,
and PyTorch takes ten microseconds or more to bring every operator to a dispatch mode. So once a run is long, functions are
caught before the dispatcher: tensors without data get a `__torch_function__`. What a call makes of tensors whose content is not
known depends only on the function, their signatures and the other arguments, so the operators of the first such call are kept
as a pattern, and a later call is one more step with that pattern. Only functions that are known to be so are repeated
(`REPLAYED`), and only where nothing else is active that could change what they do; all others run as in a short run.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount, ref

import torch
from torch.nn import functional

from opcost.core.graph import Op
from opcost.core.steps import Pattern, PatternOp, PatternRun, Steps
from opcost.frontends.torch.ledger.tensors import Recorded, Signature, recorded
from opcost.frontends.torch.private import (
    ATTENTION_KERNELS,
    NoFunctionSubclass,
    any_autocast,
    function_modes,
    mode_count,
    nn_functions,
    plain_function,
    transform_level,
    use_count,
)
from opcost.frontends.torch.tree import PLAIN, tensors_passed

if TYPE_CHECKING:
    from opcost.frontends.torch.ledger.recorder_state import RecorderState

_gradients: Callable[[], bool] = torch.is_grad_enabled
_default_dtype: Callable[[], torch.dtype] = torch.get_default_dtype


# -- functions that are repeated
#
# Each makes new tensors (or views) and nothing else: no function that writes, draws, reads numbers, takes a callable or chooses
# its way by a switch of the process (but for those in `ASKING`) is among them.

_NAMES = """
    abs add addcdiv addcmul addmm all amax amin any atan2 baddbmm bfloat16 bitwise_and bitwise_not bitwise_or bmm broadcast_to
    cat ceil chunk clamp clamp_max clamp_min clone concat concatenate contiguous cos cosh cumprod cumsum detach diff div divide
    double elu eq erf exp expand expand_as expm1 flatten flip float floor floor_divide fmod ge gelu glu gru_cell gt half
    hardsigmoid hardswish hardtanh index_select layer_norm le leaky_relu lerp linear log log1p log2 log_softmax logical_and
    logical_not logical_or logsigmoid logsumexp lstm_cell lt masked_fill matmul maximum mean minimum mish mm moveaxis movedim
    mul multiply mv narrow ne neg normalize outer pad permute pow prod reciprocal relu relu6 remainder repeat
    repeat_interleave reshape rms_norm rnn_relu_cell rnn_tanh_cell roll rsqrt rsub select selu sigmoid sign silu sin sinh
    softmax softplus softsign split split_with_sizes sqrt square squeeze stack std sub subtract sum swapaxes swapdims t tan
    tanh tile to transpose tril triu true_divide trunc type_as unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze
    var view view_as where
"""
_SPECIAL = """
    add and eq floordiv ge gt le lt matmul mod mul ne neg or pow radd rdiv rmatmul rmul rpow rsub rtruediv sub truediv
"""
GETITEM: Any = torch.Tensor.__getitem__


def _gradients_needed(args: Sequence[Any]) -> list[bool]:
    found = []
    for arg in args:
        if type(arg) is Recorded and getattr(arg, "replayed", False):
            found.append(False)  # it came from a function that ran without gradients
        elif isinstance(arg, torch.Tensor):
            with NoFunctionSubclass():
                found.append(arg.requires_grad)
    return found


def _kernels_of_attention(args: Sequence[Any]) -> list[bool]:
    return [*[enabled() for enabled in ATTENTION_KERNELS], *_gradients_needed(args)]


_PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__)
ASKING: dict[Any, Callable[[Sequence[Any]], list[bool]]] = {
    **dict.fromkeys(_PRODUCTS, _gradients_needed),
    functional.scaled_dot_product_attention: _kernels_of_attention,
}
"""Functions that go another way where an argument asks for a gradient, or by a switch: what is known of that."""


REPLAYED = {GETITEM, *ASKING, *[getattr(torch.Tensor, name).__get__ for name in ("H", "T", "mH", "mT")]}
for _name in (*_NAMES.split(), *[f"__{name}__" for name in _SPECIAL.split()]):
    _found = [getattr(owner, _name, None) for owner in (torch, torch.Tensor, functional, nn_functions)]
    REPLAYED.update(filter(callable, _found))

Answers = Callable[[Any, Any], Any]  # Answers calls of one function, given args and kwargs


def answered_by(answer: Callable[..., Any], of_function: Callable[[Any], Answers]) -> Callable[[], None]:
    """Let calls on tensors without data be answered by `answer(function, types, args, kwargs)`; returns what ends that.

    Methods and operators are called directly, by what `of_function` gives for each, which is quicker than PyTorch's own way to a
    `__torch_function__`, unless a mode for functions is on, which must see them.
    """
    changes: dict[str, Any] = {name: _asking(function, of_function(function)) for name, function in _METHODS.items()}
    for name in _OPERATORS:
        changes[f"__r{name}__"] = _reflected(name, of_function)
    changes |= {name: property(_fact(name, value)) for name, value in _FACTS.items()}
    changes["__torch_function__"] = answer
    before = {
        name: vars(Recorded)[name] for name in changes if name in vars(Recorded)
    }  # those of a count around this one
    for name, value in changes.items():
        setattr(Recorded, name, value)

    def undo() -> None:
        for name in changes:
            if name in before:
                setattr(Recorded, name, before[name])
            else:
                delattr(Recorded, name)

    return undo


_OPERATORS = ("add", "sub", "mul", "truediv", "matmul", "pow")
_METHODS = {
    name: function
    for name in ("__getitem__", "__neg__", *[f"__{name}__" for name in _OPERATORS], *_NAMES.split())
    if callable(function := getattr(torch.Tensor, name, None)) and function in REPLAYED
}
_FACTS: dict[str, Callable[[Recorded], Any]] = {
    "shape": lambda tensor: torch.Size(tensor.sig.shape),
    "dtype": lambda tensor: tensor.sig.dtype,
    "device": lambda tensor: tensor.sig.device,
    "ndim": lambda tensor: len(tensor.sig.shape),
}
"""What a tensor without data knows of itself."""


def _asking(function: Any, answer: Answers) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if function_modes() else answer(args, kwargs)

    return method


def _reflected(name: str, of_function: Callable[[Any], Answers]) -> Callable[..., Any]:
    """The operator with the tensor on its right. Python asks a subclass first there, whose answer must keep the order."""
    straight, reflected = getattr(torch.Tensor, f"__{name}__"), getattr(torch.Tensor, f"__r{name}__")
    ask, ask_reflected = _asking(straight, of_function(straight)), _asking(reflected, of_function(reflected))
    return lambda self, other: ask(other, self) if isinstance(other, torch.Tensor) else ask_reflected(self, other)


def _fact(name: str, value: Callable[[Recorded], Any]) -> Callable[[Any], Any]:
    usual = getattr(torch.Tensor, name).__get__
    return lambda tensor: usual(tensor) if function_modes() else value(tensor)


_NUMBERS = frozenset({int, type(None)})


def index_key(index: Any, shape: tuple[int, ...], key: list[Any]) -> bool:
    """What an index of numbers and slices makes of a shape: all that matters is how many rows it takes of each axis."""
    items = index if type(index) is tuple else (index,)
    axis = 0
    for item in items:
        kind = type(item)
        if kind is int:
            if axis >= len(shape) or not -shape[axis] <= item < shape[axis]:
                return False  # an error, which is raised the usual way
            key.append(int)
            axis += 1
        elif kind is slice:
            if axis >= len(shape):
                return False
            start, stop, step = item.start, item.stop, item.step
            if start is stop is step is None:
                key.append(slice)
            elif _NUMBERS.issuperset((type(start), type(stop), type(step))) and (step is None or step > 0):
                extent = shape[axis]
                end = None if stop is None else (stop > extent) - (stop < extent)
                # How many rows, and whether it says that these are all: PyTorch runs no operator for those that do
                key += (len(range(*item.indices(extent))), step, not start, end)
            else:
                return False
            axis += 1
        elif item is None:
            key.append(None)
        elif item is Ellipsis:
            key.append(Ellipsis)
            axis = len(shape) - sum(type(other) in (int, slice) for other in items) + axis
            if axis < 0 or sum(other is Ellipsis for other in items) > 1:
                return False
        else:
            return False
    return True


# -- operators as steps


class StepRecords:
    """The operators of a long run as steps, in the place of the list of records of a short one. All run forward."""

    def __init__(self, ledger: RecorderState) -> None:
        self.steps = Steps()
        self._ledger = ledger
        self._of_attrs: dict[
            int, Pattern
        ] = {}  # An operator with given signatures and arguments has attributes of its own
        for op in ledger.ops:
            self.append(op)

    def append(self, op: Op) -> None:
        """Add an operator that ran by itself."""
        pattern = self._of_attrs.get(id(op.attrs))
        if pattern is None:
            places = tuple([~at for at in range(len(op.inputs))])
            made, (specs, storages) = op.outputs, (self._ledger.specs, self._ledger.storages)
            alone = PatternOp(op.kind, op.raw, op.attrs, places, tuple(range(len(made))))
            new = tuple([at for at, vid in enumerate(made) if storages[vid] == vid])
            pattern = Pattern(len(op.inputs), (alone,), tuple([specs[vid] for vid in made]), new)
            self._of_attrs[id(op.attrs)] = pattern
        self.steps.append(pattern, op.inputs, op.outputs[0] if op.outputs else 0, op.module)

    def __len__(self) -> int:
        return self.steps.operators

    def __getitem__(self, index: int) -> Op:
        if index != -1:
            raise IndexError("of a long run only the latest operator is looked at")
        return next(reversed(self))

    def __reversed__(self) -> Iterator[Op]:
        return self.steps.latest_first()


# -- calls


@dataclass(slots=True, eq=False)
class _Result:
    """A tensor that a call returns: one that it made, or, without a signature, an argument as it was given."""

    sig: Signature | None
    at: int  # Its position among the values made, or among the tensors passed
    latest: Recorded | None = None
    spare: Recorded | None = None
    """The tensor of the call before the latest, to be returned again once nothing else refers to it."""

    def made(self, vid: int, mark: ref[Any]) -> Recorded:
        """A tensor for a value.

        One that nothing else refers to, and that was not changed, is as good as a new one, which takes PyTorch longer to make
        than all the rest of a call.
        """
        tensor = self.spare
        if (
            tensor is not None
            and _references(tensor) == _OWN_REFERENCES
            and tensor.replayed
            and use_count(tensor) == 1
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


_references = sys.getrefcount
_OWN_REFERENCES = 3  # Those of `spare`, of the local name, and of the argument of `getrefcount`


@dataclass(slots=True, eq=False)
class SeenCall:
    """What a call of a function did, and what it returned."""

    function: _RepeatedFunction
    key: list[Any]
    pattern: Pattern
    storages: tuple[int, ...]  # The positions of the values in whose memory the values are that it makes
    results: tuple[_Result, ...]
    pack: Callable[[list[Any]], Any] | None = None  # Puts several results together; None for one
    only: _Result | None = None  # The one tensor that it makes, if it is one
    module: str | None = None
    number: int = 0  # Of the pattern in the module that ran it last, among the kinds of steps
    following: SeenCall | None = None  # The call that came next the last time: in a loop it mostly comes again


class _RepeatedFunction:
    """A function that is repeated, and its calls so far; None for a call that must run each time."""

    __slots__ = ("asking", "call", "calls")

    def __init__(self, call: Any) -> None:
        self.call, self.asking = call, ASKING.get(call)
        self.calls: dict[tuple[Any, ...], SeenCall | None] = {}


_UNSEEN: Any = object()


def _function_of(kind: Any) -> Any:
    return getattr(kind.__torch_function__, "__func__", _USUAL)


_USUAL: Any = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


class RepeatedCalls:
    """Catches calls of PyTorch's functions for a recorder, from `start` to `stop`."""

    def __init__(self, ledger: RecorderState) -> None:
        self._ledger = ledger
        self._mark = ledger.mark
        self._dtype = torch.get_default_dtype()
        self._functions: dict[Any, _RepeatedFunction] = {call: _RepeatedFunction(call) for call in REPLAYED}
        self._undo: Callable[[], None] = lambda: None
        self._records = StepRecords(ledger)
        self._steps = self._records.steps
        self._specs = ledger.specs
        self._latest = SeenCall(_RepeatedFunction(None), [], Pattern(0, (), (), ()), (), ())

    def start(self) -> None:
        """From here on, functions that get a tensor without data are caught."""
        ledger = self._ledger
        ledger.ops = self._records  # type: ignore[assignment]
        ledger.storages = array("i", ledger.storages)  # type: ignore[assignment]
        self._undo = answered_by(self.answer, lambda call: partial(self._answered, self._functions[call], ()))

    def stop(self) -> None:
        self._undo()
        for function in self._functions.values():
            for seen in filter(None, function.calls.values()):
                for result in seen.results:
                    result.spare = result.latest = None
        self._functions.clear()
        del self._mark  # each reference to it counts as a tensor that is still alive

    def answer(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a function makes of its arguments; NotImplemented where one is of a class that answers functions itself."""
        if len(types) > 1 and any(kind is not Recorded and _function_of(kind) is not _USUAL for kind in types):
            return NotImplemented
        function = self._functions.get(func)
        if function is None:
            return self._run(func, types, args, kwargs)
        return self._answered(function, types, args, kwargs)

    def _answered(self, function: _RepeatedFunction, types: Any, args: Any, kwargs: Any) -> Any:
        vids: list[int] = []
        key: list[Any] = []
        # Gradients, autocast, other modes and transforms change what functions do.
        if (
            _gradients()
            or mode_count() != 1
            or any_autocast()
            or transform_level() is not None
            or _default_dtype() is not self._dtype
        ):
            return self._run(function.call, types, args, kwargs)
        if function.call is GETITEM:
            repeated = self._collect(args[:1], vids, key) and index_key(args[1], key[0].shape, key)
        else:
            repeated = self._collect(args, vids, key)
            if kwargs and repeated:
                key.append(tuple(kwargs))
                repeated = self._collect(kwargs.values(), vids, key)
            if function.asking is not None and repeated:
                key += function.asking(_tensors(args, kwargs) if kwargs else args)
        if not repeated:
            return self._run(function.call, types, args, kwargs)
        if len(vids) > 1 and (vids[0] == vids[1] if len(vids) == 2 else len(set(vids)) < len(vids)):
            key += map(vids.index, vids)  # which of equal ones an operator reads cannot be seen
        seen = self._latest.following
        if seen is None or seen.function is not function or seen.key != key:
            seen = function.calls.get(tuple(key), _UNSEEN)
            if seen is None:
                return self._run(function.call, types, args, kwargs)
            if seen is _UNSEEN:
                return self._run_first(function, key, vids, types, args, kwargs)
            self._latest.following = seen
        self._latest = seen
        storages = self._ledger.storages
        first = len(storages)
        if seen.storages:
            for at in seen.storages:
                storages.append(first + at if at >= 0 else storages[vids[~at]])
            self._specs += seen.pattern.specs
            steps, module = self._steps, self._ledger.where()
            if module is not seen.module:
                seen.module, seen.number = module, steps.number(seen.pattern, module)
            steps.numbers.append(seen.number)
            steps.firsts.append(first)
            steps.arguments.extend(vids)
            steps.operators += seen.pattern.length
        if seen.only is not None:
            return seen.only.made(first + seen.only.at, self._mark)
        made = [
            result.made(first + result.at, self._mark) if result.sig is not None else _tensors(args, kwargs)[result.at]
            for result in seen.results
        ]
        return made[0] if seen.pack is None else seen.pack(made)

    def _collect(self, args: Any, vids: list[int], key: list[Any]) -> bool:
        """Gather the values and the key of some arguments; returns whether a pattern can replace the call."""
        for arg in args:
            kind = type(arg)
            if kind is Recorded:
                if arg.content is not None or arg.mark is not self._mark:
                    return False
                vids.append(arg.vid)
                key.append(arg.sig)
            elif kind in PLAIN:
                key.append(kind)
                key.append(arg)
            elif kind is tuple or kind is list or kind is torch.Size:
                key.append(len(arg))
                if not self._collect(arg, vids, key):
                    return False
            elif (leaf := self._ledger.leaf_of.get(id(arg))) is not None and leaf.content is None:
                vids.append(leaf.vid)
                key.append(leaf.sig)
            else:
                return False
        return True

    def _run(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run a call through the dispatcher, which may change the tensors that it gets in any way."""
        for tensor in _tensors(args, kwargs):
            if type(tensor) is Recorded:
                tensor.replayed = False
        return plain_function(func, types, args, kwargs or {})

    def _run_first(
        self, function: _RepeatedFunction, key: list[Any], vids: list[int], types: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run a call through the dispatcher, and keep what it did where a pattern says all of it."""
        ledger, steps = self._ledger, self._steps
        given = _tensors(args, kwargs)
        first, step, leaves = len(ledger.specs), len(steps), len(ledger.leaf_of)
        result = plain_function(function.call, types, args, kwargs or {})
        function.calls[tuple(key)] = None
        if vids != [ledger.state(tensor).vid for tensor in given] or leaves != len(ledger.leaf_of):
            return result
        position: dict[int, int] = {vid: ~at for at, vid in enumerate(vids)}
        roots: dict[int, int | None] = {}
        for vid, at in position.items():  # None: memory that two arguments share
            storage = ledger.storages[vid]
            roots[storage] = None if storage in roots else at
        made = range(first, len(ledger.specs))
        position.update((vid, vid - first) for vid in made)
        storages: Any = [at - first if (at := ledger.storages[vid]) >= first else roots.get(at) for vid in made]
        ops = []
        for pattern, arguments, begin, _ in steps.since(step):
            for op in pattern.ops:
                ran = op.run(0, arguments, begin, "")
                inputs: Any = tuple([position.get(vid) for vid in ran.inputs])
                if None in inputs:
                    return result  # it reads what is no argument
                ops.append(PatternOp(op.kind, op.raw, op.attrs, inputs, tuple([position[vid] for vid in ran.outputs])))
        several = type(result) in (tuple, list)
        results: Any = tuple([_result(item, given, first) for item in (result if several else (result,))])
        if None in storages or None in results or (made and not ops):
            return result
        new = tuple([at for at, storage in enumerate(storages) if at == storage])
        pattern = Pattern(len(vids), tuple(ops), tuple(ledger.specs[first:]), new)
        seen = function.calls[tuple(key)] = SeenCall(function, key, pattern, tuple(storages), results)
        if several:
            seen.pack = type(result)
        elif results[0].sig is not None:
            seen.only = results[0]
        if pattern.length:
            steps.replace(step, PatternRun(pattern, vids, first, ledger.where()))
        return result


def _result(item: Any, given: list[torch.Tensor], first: int) -> _Result | None:
    for at, tensor in enumerate(given):
        if tensor is item:
            return _Result(None, at)
    if type(item) is not Recorded or item.content is not None or item.vid < first or item.sig.stored is not None:
        return None
    return _Result(item.sig, item.vid - first)


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    return tensors_passed((args, kwargs or {}), [])
