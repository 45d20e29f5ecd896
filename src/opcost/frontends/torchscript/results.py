"""Which operator a call of the code means, its results, and plain Python of the code."""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from opcost.frontends.aten.call import AtenCall
from opcost.frontends.aten.results import WHOLE_OUTPUTS, made_by, outputs_of
from opcost.frontends.aten.schema import Argument, Plan, Schema, is_view, overloads
from opcost.frontends.aten.tensor import AtenTensor, Described, NotKnown, look, row_major
from opcost.frontends.aten.views import VIEWS

SCALAR_TYPES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16"
).split()
"""Element types by the numbers that the code has for them."""


def matched(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Schema, dict[str, Any]] | None:
    """The overload of an operator that takes these arguments, and the arguments by its names; None: there is none."""
    for schema in sorted(overloads(name), key=lambda each: any(argument.out for argument in each.arguments)):
        bound = _bound(schema, args, named)
        if bound is not None:
            return schema, bound
    return None


def _bound(schema: Schema, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any] | None:
    if len(args) > len(schema.arguments) or any(name not in {a.name for a in schema.arguments} for name in named):
        return None
    found: dict[str, Any] = {}
    for place, argument in enumerate(schema.arguments):
        if place >= len(args) and argument.name not in named:
            if argument.out or (argument.default is None and "?" not in argument.type):
                return None
            found[argument.name] = argument.default
            continue
        value = args[place] if place < len(args) else named[argument.name]
        if (place < len(args) and argument.keyword) or not _fits(argument, value):
            return None
        if argument.type.startswith("ScalarType") and isinstance(value, int) and 0 <= value < len(SCALAR_TYPES):
            value = SCALAR_TYPES[value]
        found[argument.name] = list(value) if isinstance(value, tuple) else value
    return found


def _fits(argument: Argument, value: Any) -> bool:
    kind = argument.type
    if value is None:
        return kind.endswith("?")
    if "[" in kind:
        if isinstance(value, (list, tuple)):
            tensors = "Tensor" in kind
            return all(isinstance(each, AtenTensor) == tensors or each is None for each in value)
        # One number may stand for all axes.
        return isinstance(value, (int, float)) and "Tensor" not in kind and kind[kind.index("[") + 1].isdigit()
    if "Tensor" in kind:
        return isinstance(value, AtenTensor)
    if isinstance(value, (AtenTensor, list, tuple, dict)):
        return False
    if kind.startswith(("str", "Device")):
        return isinstance(value, (str, int))
    if kind.startswith("int"):
        return isinstance(value, int) and not isinstance(value, bool)
    if kind.startswith("bool"):
        return isinstance(value, bool)
    return isinstance(value, (int, float, bool, complex)) or not kind.startswith(("Scalar", "float", "SymInt"))


def results_of(plan: Plan, call: AtenCall) -> tuple[Described, ...]:
    """The tensors that come out of a call; `NotKnown` where they do not follow from the arguments."""
    schema = plan.schema
    if schema is None:
        raise NotKnown(f"results of {plan.operator}")
    found: Any = made_by(WHOLE_OUTPUTS, call)
    if found is None and (is_view(schema) or not schema.writes):
        found = made_by(VIEWS, call)
    if found is None:
        found = outputs_of(plan, call)
        if not found and schema.returns_tensor:
            raise NotKnown(f"views of {plan.operator}")
    # What was written to is the same tensor, and another value.
    return tuple(look(x, x.shape, x.stride()) if x.value >= 0 else x for x in found)


# -- what the code of an archive does with plain values: numbers, texts, lists and dicts, and what it asks of a tensor

LONGEST = 1 << 16  # Parts of a value, counting what it shares each time, and letters of a text


class Number(NamedTuple):
    """A tensor of one number that is known: a size that the code computes with."""

    value: Any


def _filled(text: str, *values: Any) -> str:
    """`format` of TorchScript, which knows only `{}`."""
    parts = text.split("{}")
    words = [str(each) for each in values[: len(parts) - 1]]
    return "".join(part + word for part, word in zip(parts, [*words, *[""] * len(parts)], strict=False))


def _repeated(a: Any, b: Any) -> Any:
    """A product of numbers, or a list or a text several times."""
    items, times = (b, a) if isinstance(b, (list, str)) else (a, b)
    if isinstance(items, (list, str)) and len(items) * times > LONGEST:
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


def _method(name: str, *, changes: bool = False) -> Callable[..., Any]:
    """A method by its name; one that changes a list or a dict returns it, as TorchScript does."""

    def call(owner: Any, *values: Any) -> Any:
        found = getattr(owner, name)(*values)
        return owner if changes else found

    return call


PLAIN: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, c=1: a + b if c == 1 else a + b * c, "sub": lambda a, b, c=1: a - b * c, "mul": _repeated,
    "div": _divided, "floordiv": operator.floordiv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "fmod": math.fmod, "neg": operator.neg, "pow": _power, "rsub": lambda a, b, c=1: b - a * c, "eq": operator.eq,
    "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__not__": operator.not_,
    "logical_not": operator.not_, "__is__": operator.is_, "__isnot__": operator.is_not, "sqrt": math.sqrt,
    "ceil": math.ceil, "floor": math.floor, "round": round, "log": math.log, "log2": math.log2, "exp": math.exp,
    "len": len, "__getitem__": operator.getitem, "__contains__": lambda owner, item: item in owner, "min": min, "max": max,
    "abs": abs, "list": list, "copy": lambda owner: owner.copy(), "sum": sum, "all": all, "any": any, "Int": int,
    "Float": float, "Bool": bool, "IntImplicit": int, "FloatImplicit": float, "ScalarImplicit": lambda x: x,
    "item": lambda x: x, "sorted": sorted, "str": str, "format": _filled, "percentFormat": lambda text, *_: text,
    "clamp": lambda x, low=None, high=None: min(max(x, x if low is None else low), math.inf if high is None else high),
    "__range_length": lambda start, end, step: len(range(start, end, step)),
    "__derive_index": lambda turn, start, step: start + turn * step, "rangelist": _counted,
    "_set_item": operator.setitem, "Delete": operator.delitem, "dict": dict, "keys": list,
    **{name: _method(name, changes=True) for name in ("append", "extend", "insert", "reverse", "clear", "update")},
    **{name: _method(name) for name in
       ("pop", "get", "setdefault", "index", "count", "lower", "upper", "startswith", "endswith", "strip")},
    "slice": lambda items, start=None, end=None, step=1: items[start:end:step],
    "values": lambda entries: list(entries.values()), "items": lambda entries: [list(pair) for pair in entries.items()],
    "split": lambda text, *at: text.split(*at[:1]),
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


QUESTIONS: dict[str, Callable[..., Any]] = {
    "size": lambda x, axis=None: list(x.shape) if axis is None else x.shape[axis], "dim": lambda x: x.dim(),
    "numel": lambda x: x.numel(), "is_floating_point": lambda x: x.dtype.startswith(("float", "bfloat")),
    "len": lambda x: x.shape[0], "stride": lambda x, axis=None: list(x.stride()) if axis is None else x.stride()[axis],
    "is_contiguous": lambda x, *_: x.stride() == row_major(x.shape),
    "_shape_as_tensor": lambda x: [Number(n) for n in x.shape], "is_complex": lambda x: x.dtype.startswith("complex"),
    "__isnot__": operator.is_not, "__is__": operator.is_, "dtype": lambda x: SCALAR_TYPES.index(x.dtype),
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
