"""The functions of PyTorch that a long run replays, and how an index is known again.

Each makes new tensors (or views) and nothing else: no function that writes, draws, asks for numbers, takes a callable or chooses
its way by a switch of the process (but for those in `ASKING`) is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.private import ATTENTION_KERNELS, NoFunctionSubclass, function_modes, nn_functions

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
_PROPERTIES = ("H", "T", "mH", "mT")
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


def _functions() -> dict[Any, None]:
    found = dict.fromkeys((GETITEM, *ASKING))
    for name in (*_NAMES.split(), *[f"__{name}__" for name in _SPECIAL.split()]):
        for owner in (torch, torch.Tensor, functional, nn_functions):
            if callable(function := getattr(owner, name, None)):
                found[function] = None
    for name in _PROPERTIES:
        found[getattr(torch.Tensor, name).__get__] = None
    return found


REPLAYED = _functions()


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
    before = {name: vars(Recorded)[name] for name in changes if name in vars(Recorded)}
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
