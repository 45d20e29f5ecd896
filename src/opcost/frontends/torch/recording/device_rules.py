"""Autocast and kernel selection by the rules of the target device.

PyTorch's own autocast casts tensors of one device, by the rules of that device. A model that is counted is on a processor or on
no device, and may be counted as on a GPU, whose rules are others. So the rules are here, registered for a key of the dispatcher
that no tensor has: a run includes that key for its thread alone. Whether autocast is on, and in which type, PyTorch itself keeps.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch.nn import functional

from opcost.core.parsing import packaged_table
from opcost.frontends.torch import private
from opcost.frontends.torch.restore.process import replaced
from opcost.frontends.torch.tree import tensors_passed

RULES: dict[str, dict[str, list[str]]] = packaged_table(__package__, "autocast.json")
"""PyTorch's rules by the type of a device: the names of operators of aten, with their overloads, by what becomes of their
arguments: all in the `lower` type; all in `float32`; the `float32 result`, where they request no other (a `float32 norm` by
another overload); all in float32 where one is (`widest`); an error (`refused`)."""

aten: Any = torch.ops.aten
_KEY = private.DispatchKey.AutocastIPU
_KEY_OF = "ipu"
_KEYS = private.DispatchKeySet(_KEY) | private.DispatchKeySet(private.DispatchKey.AutocastCPU)
_here = threading.local()


class _Casting:
    """What casts in one run: the rules of a device, and the casts that are kept until the region ends."""

    def __init__(self, like: str) -> None:
        self.on_gpu = like == "cuda"
        self.rules = {name: how for how, lines in RULES[like].items() for line in lines for name in line.split()}
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def cast(self, tree: Any, to: torch.dtype, lower: torch.dtype) -> Any:
        """Arguments with their floats in this type; of weights the cast to the lower type is kept, for other uses."""
        if isinstance(tree, (list, tuple)):
            return [self.cast(item, to, lower) for item in tree]
        if not _is_castable(tree) or tree.dtype is to:
            return tree
        if not (
            to is lower
            and tree.dtype is torch.float32
            and tree.requires_grad
            and tree.is_leaf
            and not tree._is_view()
            and torch.is_autocast_cache_enabled()
        ):
            return tree.to(to)
        if id(tree) not in self.kept:
            with torch.enable_grad():  # it may be used again where gradients are needed
                self.kept[id(tree)] = tree, tree.to(to)
        return self.kept[id(tree)][1]

    def __call__(self, op: Any, name: str, keys: Any, args: Any, kwargs: Any) -> Any:
        how = self.rules.get(name, "as it is")
        if how == "as it is" or not torch.is_autocast_enabled("cpu"):
            return op.redispatch(keys - _KEYS, *args, **kwargs)  # the rule of what it calls is looked up again
        lower = torch.get_autocast_dtype("cpu")
        with private.ExcludeKeys(_KEYS):
            if how == "refused":
                raise RuntimeError(f"{name} is unsafe to autocast, and PyTorch refuses it on this device")
            if how == "float32 result":
                return self._in_float32(op, args, kwargs)
            if how == "float32 norm":
                return _norm(*args)
            to = lower if how == "lower" else torch.float32
            if how == "widest" and all(t.dtype is not to for t in tensors_passed((args, kwargs), [])):
                to = lower
            # Cast the last argument first, as PyTorch built for x86-64 does, so that every machine gives the same rows.
            # C++ leaves the order of arguments to the compiler, and the builds for ARM cast from left to right
            cast = {key: self.cast(arg, to, lower) for key, arg in reversed(kwargs.items())}
            return op(*reversed([self.cast(arg, to, lower) for arg in reversed(args)]), **cast)

    def _in_float32(self, op: Any, args: Any, kwargs: Any) -> Any:
        names = [argument.name for argument in op._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if given.get("dtype") is None and _is_castable(args[0]):
            given["dtype"] = torch.float32
            halves = {"softmax": aten._softmax, "log_softmax": aten._log_softmax}
            kernel = halves.get(op._schema.name.removeprefix("aten::"))
            without_data = type(args[0]) not in (torch.Tensor, torch.nn.Parameter) or args[0].device.type == "meta"
            if self.on_gpu and kernel is not None and args[0].dtype is torch.float16 and without_data:
                return kernel(args[0], given["dim"], True)  # noqa: FBT003 - a GPU reads halves and writes float32 at once
        return op(**given)


def _norm(x: torch.Tensor, p: Any = None, dim: Any = (), *keepdim: bool) -> Any:
    dtype = torch.float32 if _is_castable(x) else x.dtype
    if dim == ():
        return aten.norm.ScalarOpt_dtype(x, p, dtype=dtype)
    return aten.norm.ScalarOpt_dim_dtype(x, p, dim, any(keepdim), dtype=dtype)


def _is_castable(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point() and item.dtype is not torch.float64


def lowered(*tensors: torch.Tensor | None) -> tuple[Any, ...]:
    """Arguments of an operator of the lower type, where rules of a device are at work and autocast is on."""
    casting: _Casting | None = getattr(_here, "casting", None)
    if casting is None or not torch.is_autocast_enabled("cpu"):
        return tensors
    lower = torch.get_autocast_dtype("cpu")
    with private.ExcludeKeys(_KEYS):
        return tuple(casting.cast(tensor, lower, lower) for tensor in tensors)


@cache
def _enter_rules() -> tuple[torch.library.Library, ...]:
    """Enter every operator that some device has a rule for; they stay, since no other tensors have that key."""
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, _KEY.name)
    library = torch.library.Library("aten", "IMPL")
    for name in sorted({name for like in RULES for name in _Casting(like).rules}):
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet, None), overload or "default", None)
        if op is not None:  # another version may lack it

            def cast(keys: Any, *args: Any, op: Any = op, name: str = name, **kwargs: Any) -> Any:
                return _here.casting(op, name, keys, args, kwargs)

            library.impl(name, cast, _KEY.name, with_keyset=True)
    return others, library


@contextmanager
def autocast_as(like: str) -> Iterator[None]:
    """In this thread, regions of autocast cast as on a device of this type; those of a GPU are heeded too."""
    _enter_rules()
    casting = _Casting(like)
    clear = torch.clear_autocast_cache
    begin = torch.autocast.__init__

    def forget() -> None:
        casting.kept.clear()
        clear()

    def on_the_processor(region: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(region, "cpu" if device_type == like else device_type, *args, **kwargs)

    with ExitStack() as undo:
        undo.callback(setattr, _here, "casting", getattr(_here, "casting", None))
        _here.casting = casting
        undo.callback(casting.kept.clear)
        undo.enter_context(replaced(torch, "clear_autocast_cache", forget))
        undo.enter_context(replaced(torch.autocast, "__init__", on_the_processor))
        undo.callback(torch.set_autocast_enabled, _KEY_OF, torch.is_autocast_enabled(_KEY_OF))
        torch.set_autocast_enabled(_KEY_OF, True)  # noqa: FBT003 - a switch
        undo.enter_context(private.IncludeKey(_KEY))
        yield


# -- gpu: What PyTorch decides by the device, decided as on a GPU: the kernel of attention, its heads, dropout in one kernel, the
# layout of group norms.
#
# A model that is counted is on a processor or nowhere, where attention with dropout goes by products and keeps the whole square
# of queries and keys, and dropout keeps its noise in the type of its input: twice the memory that a GPU holds. So these
# functions are exchanged for the time of a run, for the thread that runs it.

_HALF = (torch.bfloat16, torch.float16)
_WIDEST = 256  # Features of a head that kernels of attention take
_ALIGNED = 8  # Elements at whose multiples rows of a mask begin


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: Any = False,  # noqa: FBT002
    scale: float | None = None, enable_gqa: Any = False,  # noqa: FBT002 - the function that it replaces takes both by position
) -> Any:  # fmt: skip
    """Attention by the kernel that a GPU takes: flash, the one that saves memory, or by products."""
    if not all(map(_is_plain, (query, key, value))):
        return NotImplemented
    query, key, value, attn_mask = lowered(query, key, value, attn_mask)
    # Whether the elements of a row are side by side, as kernels of attention need them
    if all(part.dim() == 4 and bool(part.stride(-1) == 1 or part.shape[-1] == 1) for part in (query, key, value)):
        square = query.shape[-2] == key.shape[-2] or not is_causal
        heads_fit = query.shape[-1] == value.shape[-1] and query.shape[-1] <= _WIDEST
        if query.dtype in _HALF and attn_mask is None and heads_fit and square:
            flash, debug = aten._scaled_dot_product_flash_attention, False
            return flash(query, key, value, dropout_p, is_causal, debug, scale=scale)[0]
        # Whether the kernel that saves memory takes these: whole vectors of 16 bytes, as many heads, a mask row by row
        whole = 16 // query.dtype.itemsize
        if (
            query.dtype in (*_HALF, torch.float32)
            and query.shape[:2] == key.shape[:2]
            and not (query.shape[-1] % whole or value.shape[-1] % whole)
            and (attn_mask is None or attn_mask.stride(-1) == 1)
        ):
            graded = torch.is_grad_enabled() and any(part.requires_grad for part in (query, key, value))
            efficient, bias = aten._scaled_dot_product_efficient_attention, _as_numbers(attn_mask, query)
            return efficient(query, key, value, bias, graded, dropout_p, is_causal, scale=scale)[0]
    math = aten._scaled_dot_product_attention_math
    return math(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]


def _as_numbers(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """A mask of truths as what is added to scores, for every head of every text."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, -torch.inf).to(query.dtype)
    # Rows that begin anywhere are copied with a rest behind.
    if any(stride % _ALIGNED for stride in mask.stride()[:-1]):
        length = mask.shape[-1]
        mask = functional.pad(mask, (0, -length % _ALIGNED))[..., :length]
    return mask.expand(*query.shape[:2], query.shape[-2], mask.shape[-1])


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:  # noqa: A002, FBT001, FBT002 - as the function that it replaces
    if training and 0.0 < p < 1.0 and not inplace and _is_plain(input):
        return torch.native_dropout(input, p, True)[0]  # noqa: FBT003
    return NotImplemented


def _group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:  # noqa: A002 - as the function that it replaces
    """With the pixels of a channel side by side: where they are not, a GPU copies them first, and leaves them so."""
    if not _is_plain(input) or input.is_contiguous():
        return NotImplemented
    return torch.group_norm(input.contiguous(), num_groups, weight, bias, eps, torch.backends.cudnn.enabled)


def _heads(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: Any, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
    training: Any = True, **other: Any,  # noqa: FBT002 - the function that it replaces takes it by position
) -> Any:  # fmt: skip
    """`nn.MultiheadAttention` of a text with itself as it runs without gradients: text by text, and nothing is copied."""
    given = (query, in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias)
    graded = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    masked = any(other.get(name) is not None for name in ("key_padding_mask", "attn_mask", "static_k", "static_v"))
    if training or graded or masked or other.get("need_weights", True) or query is not key or key is not value:
        return NotImplemented
    if in_proj_weight is None or in_proj_bias is None or num_heads % 2 or bias_k is not None or add_zero_attn:
        return NotImplemented
    texts = query.transpose(0, 1)
    if query.dim() != 3 or not texts.is_contiguous() or torch.is_autocast_enabled() or not _is_plain(query):
        return NotImplemented
    parts = functional.linear(texts, in_proj_weight, in_proj_bias).unflatten(-1, (3, num_heads, -1))
    found = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4))
    return functional.linear(found.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias).transpose(0, 1), None


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


_EXCHANGED: dict[str, Any] = {
    "scaled_dot_product_attention": _attention,
    "dropout": _dropout,
    "group_norm": _group_norm,
    "multi_head_attention_forward": _heads,
}
"""By the names of the functions in `torch.nn.functional`; what they do not know is left to the function itself."""


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Exchange the functions for this thread; others call the plain ones."""
    with ExitStack() as undo:
        for name, own in _EXCHANGED.items():
            undo.enter_context(replaced(functional, name, partial(_or_plain, own, getattr(functional, name))))
        yield


def _or_plain(own: Callable[..., Any], plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = own(*args, **kwargs)
    return plain(*args, **kwargs) if result is NotImplemented else result
