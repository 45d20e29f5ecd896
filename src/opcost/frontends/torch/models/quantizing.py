"""A copy of a model whose linear layers store their weights in few bits, and compute with them as torchao's layers do.

Int8 and int4: the weights alone. Int8 is converted before the product, where a compiler may join the two; int4 is read by a
kernel of PyTorch, in groups with a scale and a zero point each. Fp8: the activations are converted too, by their largest
value, so that the product runs on units of eight bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from opcost.core.graph import Note
from opcost.core.option import Quantize
from opcost.errors import InputError, counted
from opcost.frontends.torch import private
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.models.weights import copied, is_uninitialized

GROUP = 128  # weights in a row that have a scale and a zero point of four bits in common
TILE = 8  # rows of a weight that the kernel of four bits takes at a time
LARGEST = torch.finfo(torch.float8_e4m3fn).max


class FewBits(torch.Tensor):
    """A weight in few bits with its scales: of the layer's shape and type, as torchao's are; only F.linear reads it."""

    values: Tensor
    scales: Tensor
    scheme: Quantize

    @classmethod
    def of(cls, values: Tensor, scales: Tensor, scheme: Quantize, shape: Any, dtype: torch.dtype) -> Any:
        """The tensor, without elements of its own."""
        made: Any = private.make_wrapper(cls, shape, dtype=dtype, device=values.device)
        made.values, made.scales, made.scheme = values, scales, scheme
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["values", "scales"], (self.scheme, self.dtype)

    @classmethod
    def __tensor_unflatten__(cls, inside: dict[str, Tensor], rest: Any, shape: Any, _: Any = None) -> Any:
        return cls.of(inside["values"], inside["scales"], rest[0], shape, rest[1])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and type(args[1] if len(args) > 1 else kwargs["weight"]) is cls:
            return _linear(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        as_strided = func is torch.ops.aten.as_strided.default and (*args[0].shape,) == (
            *args[1],
        )  # what FSDP has gathered
        if as_strided or func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            one = args[0]
            return cls.of(one.values, one.scales, one.scheme, one.shape, one.dtype)
        if func in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
            one, shape = args
            values = one.values.view(shape)
            return cls.of(values, one.scales, one.scheme, values.shape, one.dtype)
        raise InputError(f"{func} reads a quantized weight, and only linear layers do", hint="leave out quantize")


def _linear(input: Tensor, weight: FewBits, bias: Tensor | None = None) -> Tensor:  # noqa: A002 - as F.linear has it
    rows = input.reshape(-1, weight.shape[1])
    result = _SCHEMES[weight.scheme].multiply(rows, weight.values, weight.scales, bias)
    return result.reshape(*input.shape[:-1], weight.shape[0])


class _Scheme(NamedTuple):
    """How weights are stored, and multiplied."""

    store: Callable[[int, int], tuple[Tensor, Tensor]]  # values and scales without data, of rows and columns
    multiply: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]  # rows by values and scales, and a bias
    of: tuple[int, int]  # what rows and columns must be multiples of
    words: str


def _empty(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _by_int8(rows: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    made = rows @ values.t().to(rows.dtype) * scales.to(rows.dtype)
    return made if bias is None else made.add_(bias)


def _by_int4(rows: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    made = torch._weight_int4pack_mm(rows.to(torch.bfloat16), values, GROUP, scales)
    return (made if bias is None else made.add_(bias)).to(rows.dtype)


def _by_fp8(rows: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    scale = (rows.abs().amax() / LARGEST).float()
    given = (rows.float() / scale).clamp(-LARGEST, LARGEST).to(values.dtype)
    return torch._scaled_mm(
        given, values.t(), scale_a=scale, scale_b=scales, bias=bias, out_dtype=rows.dtype, use_fast_accum=True
    )


_SCHEMES: dict[str, _Scheme] = {
    "int8": _Scheme(
        lambda rows, columns: (_empty(rows, columns, dtype=torch.int8), _empty(rows, dtype=torch.float32)),
        _by_int8,
        (1, 1),
        "int8, a scale for each row",
    ),
    "int4": _Scheme(
        lambda rows, columns: (
            _empty(rows // TILE, columns // GROUP, 32, 4, dtype=torch.int32),
            _empty(columns // GROUP, rows, 2, dtype=torch.bfloat16),
        ),
        _by_int4,
        (TILE, GROUP),
        f"int4, a scale and a zero point for {GROUP} in a row",
    ),
    "fp8": _Scheme(
        lambda rows, columns: (_empty(rows, columns, dtype=torch.float8_e4m3fn), _empty(dtype=torch.float32)),
        _by_fp8,
        (16, 16),
        "float8 with one scale, and activations converted before each product",
    ),
}


def quantized(model: nn.Module, scheme: Quantize, *, real: bool) -> nn.Module:
    """A copy whose linear layers have such weights, without data."""
    if real:
        hint = "leave out real (on the command line --real), or quantize the model itself"
        raise InputError("quantized weights are made without data, and cannot be run", hint=hint)
    weights = [layer.weight for layer in linear_layers(model) if is_fit(layer.weight, scheme)]
    if not weights:
        multiples = "{} x {}".format(*_SCHEMES[scheme].of)
        fault = f"{type_name(model)} has no linear layer that could store its weight as {scheme}"
        raise InputError(fault, hint=f"its extents are multiples of {multiples}, and no other layer reads it")
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    for weight in weights:
        values, scales = _SCHEMES[scheme].store(*weight.shape)
        few = FewBits.of(values, scales, scheme, weight.shape, weight.dtype)
        memo[id(weight)] = nn.Parameter(few, requires_grad=False)
    return copied(model, memo, "with quantized weights", "quantize the model itself")


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    """Linear layers but the last of a language model, as transformers leaves it, and those whose weight others read too."""
    users: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    head = getattr(model, "get_output_embeddings", lambda: None)()
    read_by_others = nn.modules.linear.NonDynamicallyQuantizableLinear  # of nn.MultiheadAttention, as in torchao
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear)
        and not isinstance(module, read_by_others)
        and module is not head
        and users.get(id(module.weight)) == 1
    ]


def is_fit(weight: Tensor, scheme: Quantize) -> bool:
    """Whether the kernels take a weight of this shape."""
    if is_uninitialized(weight) or not weight.is_floating_point():
        return False
    return not any(extent % step for extent, step in zip(weight.shape, _SCHEMES[scheme].of, strict=True))


def note_of_quantized(model: nn.Module, scheme: Quantize) -> Note:
    """Which layers have weights in few bits, and what share of the parameters they are."""
    few = [parameter.numel() for parameter in model.parameters() if isinstance(parameter, FewBits)]
    whole = sum(parameter.numel() for parameter in model.parameters())
    linear = sum(isinstance(module, nn.Linear) for module in model.modules())
    left = f"; {counted(linear - len(few), 'other linear layer')} as before" if linear > len(few) else ""
    said = f"{counted(len(few), 'linear layer')}, {sum(few) / whole:.0%} of the parameters".replace("%", " %")
    return Note(
        "quantized", f"weights of {said}: {_SCHEMES[scheme].words}, as torchao stores and multiplies them{left}"
    )
