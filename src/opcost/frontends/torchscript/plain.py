"""What the code of an archive does with plain values: numbers, texts, lists and dicts, and what it asks of a tensor."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from opcost.frontends.aten.call import Described
from opcost.frontends.aten.views import row_major
from opcost.frontends.torchscript.results import SCALAR_TYPES

LONGEST = 1 << 16
"""Parts of a value, counting what it shares each time, and letters of a text."""


class Number(NamedTuple):
    """A tensor of one number that is known: a size that the code computes with."""

    value: Any


def _put(held: Any, place: Any, value: Any) -> None:
    held[place] = value


def _removed(held: Any, place: Any = -1, *default: Any) -> Any:
    return held.pop(place, *default)


def _delete(held: Any, place: Any) -> None:
    del held[place]


def _keep(held: Any, place: Any, value: Any) -> Any:
    return held.setdefault(place, value)


def _get(held: Any, place: Any, default: Any = None) -> Any:
    return held.get(place, default)


def _cut(held: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return held[start:end:step]


def _filled(text: str, *values: Any) -> str:
    """`format` of TorchScript, which knows only `{}`."""
    parts = text.split("{}")
    words = [str(each) for each in values[: len(parts) - 1]]
    return "".join(part + word for part, word in zip(parts, [*words, *[""] * len(parts)], strict=False))


def _repeated(a: Any, b: Any) -> Any:
    """A product of numbers, or a list or a text several times."""
    held, times = (b, a) if isinstance(b, (list, str)) else (a, b)
    if isinstance(held, (list, str)) and len(held) * times > LONGEST:
        raise ValueError("it has too many parts")
    return a * b


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 64:
        raise ValueError("the number has more than 64 bits")
    return a**b


def _counted(n: int) -> list[int]:
    if n > LONGEST:
        raise ValueError("it has too many parts")
    return list(range(n))


def _divided(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "trunc":
        return int(a / b) if isinstance(a, float) or isinstance(b, float) else (abs(a) // abs(b)) * (-1) ** (a * b < 0)
    return a // b if rounding_mode == "floor" else a / b


def _changing(name: str) -> Callable[..., Any]:
    """A method that changes a list or a dict and returns it, as TorchScript does."""

    def change(held: Any, *values: Any) -> Any:
        getattr(held, name)(*values)
        return held

    return change


PLAIN: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, c=1: a + b if c == 1 else a + b * c, "sub": lambda a, b, c=1: a - b * c, "mul": _repeated,
    "div": _divided, "floordiv": operator.floordiv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "fmod": math.fmod, "neg": operator.neg, "pow": _power, "rsub": lambda a, b, c=1: b - a * c, "eq": operator.eq,
    "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__not__": operator.not_,
    "logical_not": operator.not_, "__is__": operator.is_, "__isnot__": operator.is_not, "sqrt": math.sqrt,
    "ceil": math.ceil, "floor": math.floor, "round": round, "log": math.log, "log2": math.log2, "exp": math.exp,
    "len": len, "__getitem__": operator.getitem, "__contains__": lambda held, item: item in held, "min": min, "max": max,
    "abs": abs, "list": list, "copy": lambda held: held.copy(), "sum": sum, "all": all, "any": any, "Int": int,
    "Float": float, "Bool": bool, "IntImplicit": int, "FloatImplicit": float, "ScalarImplicit": lambda x: x,
    "item": lambda x: x, "sorted": sorted, "str": str, "format": _filled, "percentFormat": lambda text, *_: text,
    "clamp": lambda x, low=None, high=None: min(max(x, x if low is None else low), math.inf if high is None else high),
    "__range_length": lambda start, end, step: len(range(start, end, step)),
    "__derive_index": lambda turn, start, step: start + turn * step, "rangelist": _counted,
    "_set_item": _put, "append": _changing("append"), "extend": _changing("extend"), "insert": _changing("insert"),
    "reverse": _changing("reverse"), "clear": _changing("clear"), "update": _changing("update"), "pop": _removed,
    "Delete": _delete, "slice": _cut, "get": _get, "setdefault": _keep, "dict": dict,
    "keys": list, "values": lambda held: list(held.values()),
    "items": lambda held: [list(pair) for pair in held.items()], "index": lambda held, item: held.index(item),
    "count": lambda held, item: held.count(item), "lower": lambda text: text.lower(), "upper": lambda text: text.upper(),
    "startswith": lambda text, head: text.startswith(head), "endswith": lambda text, tail: text.endswith(tail),
    "split": lambda text, *at: text.split(*at[:1]), "strip": lambda text, *of: text.strip(*of),
    "unchecked_unwrap_optional": lambda x: x, "type": lambda device: str(device).partition(":")[0],
}  # fmt: skip
"""What the code does with plain values; `prim::min` is `min` too."""
HOLDS = frozenset(
    "_set_item append extend insert reverse clear update pop Delete setdefault slice get dict keys values items list copy add "
    "__getitem__ __contains__ len index".split()
)
"""What may be done with a list or dict that holds tensors without looking at them."""
ANSWERS: dict[str, Any] = {
    "is_autocast_enabled": False, "is_autocast_cpu_enabled": False, "is_grad_enabled": True, "is_scripting": True,
    "_get_tracing_state": False, "warn": None, "manual_seed": None, "_assert": None, "_record_function_enter_new": None,
    "_record_function_exit": None, "Print": None, "set_grad_enabled": None, "get_default_dtype": SCALAR_TYPES.index("float32"),
    "AutogradZero": None, "AutogradAnyNonZero": False,
}  # fmt: skip
"""What the code asks of its surroundings, or says to them."""


def _element_type(x: Described) -> int:
    return SCALAR_TYPES.index(x.dtype)


QUESTIONS: dict[str, Callable[..., Any]] = {
    "size": lambda x, axis=None: list(x.shape) if axis is None else x.shape[axis], "dim": lambda x: x.dim(),
    "numel": lambda x: x.numel(), "is_floating_point": lambda x: x.dtype.startswith(("float", "bfloat")),
    "len": lambda x: x.shape[0], "stride": lambda x, axis=None: list(x.stride()) if axis is None else x.stride()[axis],
    "is_contiguous": lambda x, *_: x.stride() == row_major(x.shape),
    "_shape_as_tensor": lambda x: [Number(n) for n in x.shape], "is_complex": lambda x: x.dtype.startswith("complex"),
    "__isnot__": operator.is_not, "__is__": operator.is_, "dtype": _element_type,
    "device": lambda x: x.device, "layout": lambda _: 0, "requires_grad": lambda x: x.requires_grad,
    "is_cuda": lambda x: x.device.startswith("cuda"), "ndim": lambda x: x.dim(), "storage_offset": lambda _: 0,
    "is_signed": lambda x: not x.dtype.startswith(("uint", "bool")),
    **dict.fromkeys(
        "is_nested is_quantized is_sparse is_mkldnn is_mps is_xpu is_vulkan is_ipu is_hpu is_meta is_mtia is_conj".split(),
        lambda _: False,
    ),
}  # fmt: skip
"""What the code asks of a tensor."""


@cache
def fused() -> dict[str, ast.FunctionDef]:
    """Fused kernels of PyTorch by what they consist of; a count of the module itself sees that."""
    return {f"aten::{each.name}": each for each in ast.parse(_FUSED).body if isinstance(each, ast.FunctionDef)}


_FUSED = """
def _native_multi_head_attention(q, k, v, embed, heads, w, b, wo, bo, mask=None, need_weights=True, average=True, kind=None):
  n, t, _ = torch.size(q)
  w_q, w_k, w_v = torch.chunk(w, 3)
  b_q, b_k, b_v = torch.chunk(b, 3)
  parts = [n, -1, heads, torch.floordiv(embed, heads)]
  q = torch.transpose(torch.view(torch.linear(q, w_q, b_q), parts), 1, 2)
  k = torch.transpose(torch.view(torch.linear(k, w_k, b_k), parts), 1, 2)
  v = torch.transpose(torch.view(torch.linear(v, w_v, b_v), parts), 1, 2)
  a = torch.softmax(torch.matmul(q, torch.transpose(k, -2, -1)), -1)
  y = torch.reshape(torch.transpose(torch.matmul(a, v), 1, 2), [n, t, embed])
  if torch.__not__(need_weights):
    a = None
  else:
    if average:
      a = torch.mean(a, [1])
  return torch.linear(y, wo, bo), a
def _transformer_encoder_layer_fwd(
  x, embed, heads, w, b, wo, bo, gelu, first, eps, w1, b1, w2, b2, u1, c1, u2, c2, mask=None, kind=None
):
  h = x
  if first:
    h = torch.layer_norm(x, [embed], w1, b1, eps)
  y, _ = torch._native_multi_head_attention(h, h, h, embed, heads, w, b, wo, bo, mask, False)
  x = torch.add(x, y)
  if first:
    h = torch.layer_norm(x, [embed], w2, b2, eps)
  else:
    x = torch.layer_norm(x, [embed], w1, b1, eps)
    h = x
  h = torch.linear(h, u1, c1)
  if gelu:
    h = torch.gelu(h)
  else:
    h = torch.relu(h)
  x = torch.add(x, torch.linear(h, u2, c2))
  if torch.__not__(first):
    x = torch.layer_norm(x, [embed], w2, b2, eps)
  return x
"""
