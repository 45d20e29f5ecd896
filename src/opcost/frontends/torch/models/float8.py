"""Linear layers that train in float8, as torchao's do: what a product reads is converted before, forward and backward.

There is one scale for a whole tensor, or one for each row (fp8-rows). Fully sharded weights with one scale may be converted
before they are gathered, so that a byte of each element is sent (fp8-gather).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from opcost.core.graph import Note
from opcost.core.option import Quantize
from opcost.errors import InputError, counted
from opcost.frontends.torch.models.quantizing import FewBits, is_fit, linear_layers
from opcost.frontends.torch.models.unwrap import lists_of_blocks, type_name
from opcost.frontends.torch.models.weights import copied

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2  # of activations and weights, and of gradients


class Float8Linear(nn.Linear):
    """A linear layer whose three products read float8."""

    scheme: Quantize

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as nn.Linear has it
        input = _as_autocast(input)  # noqa: A001
        rows = input.reshape(-1, self.in_features)
        made: Tensor = _Product.apply(rows, self.weight, self.scheme == "fp8-rows")
        made = made.view(*input.shape[:-1], self.out_features)
        return made if self.bias is None else made + self.bias.to(made.dtype)


def training_in_float8(model: nn.Module, scheme: Quantize) -> nn.Module:
    """A copy of a model whose layers compute in float8, but for those outside of its repeated blocks (the logits)."""
    blocks = [inside for _, found in lists_of_blocks(model) for inside in found.modules()]
    inside = {id(module) for module in blocks or model.modules()}
    layers = [
        layer
        for layer in linear_layers(model)
        if id(layer) in inside and layer.weight.requires_grad and is_fit(layer.weight, "fp8")
    ]
    if not layers:
        hint = "rows and columns of its weight are multiples of 16, and no other layer reads it"
        raise InputError(f"{type_name(model)} has no linear layer that could compute in float8", hint=hint)
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copy = copied(model, memo, "with layers in float8", "convert the model itself")
    paths = {id(module): path for path, module in model.named_modules()}
    for layer in layers:
        made: Any = copy.get_submodule(paths[id(layer)])
        made.__class__, made.scheme = Float8Linear, scheme
    return copy


_WORDS = {
    "fp8": "one scale for each tensor",
    "fp8-gather": "one scale for each tensor, and weights are gathered so",
    "fp8-rows": "a scale for each row",
}


def note_of_training(model: nn.Module) -> Note:
    """Which layers compute in float8."""
    found = [module for module in model.modules() if isinstance(module, Float8Linear)]
    how = _WORDS[found[0].scheme]
    said = f"{counted(len(found), 'linear layer')} multiply in float8, {how}, as torchao trains them"
    return Note("quantized", f"{said}; optimizer and gradients of weights are as without")


def _as_autocast(tensor: Tensor) -> Tensor:
    device = tensor.device.type
    return tensor.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else tensor


def _scale(tensor: Tensor, dtype: torch.dtype, dim: int | None = None) -> Tensor:
    """By what a tensor is multiplied before it is converted: its largest value, or that of each row, becomes the type's."""
    largest: Any = tensor.abs().amax() if dim is None else tensor.abs().amax(dim, keepdim=True)
    if any(placement.is_partial() for placement in getattr(largest, "placements", ())):  # of parts on several ranks
        from torch.distributed.tensor import Replicate

        largest = largest.redistribute(placements=[Replicate()])
    return torch.finfo(dtype).max / largest.float()


def _converted(tensor: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    most = torch.finfo(dtype).max
    return (tensor.float() * scale).clamp(-most, most).to(dtype)


def _multiplied(
    left: Tensor, right: Tensor, scales: tuple[Tensor, Tensor], dtype: torch.dtype, *, fast: bool
) -> Tensor:
    """The product of a matrix in rows and one in columns."""
    a, b = (each.reciprocal() for each in scales)
    return torch._scaled_mm(left, right, scale_a=a, scale_b=b, out_dtype=dtype, use_fast_accum=fast)


def _in_columns(tensor: Tensor) -> Tensor:
    return tensor.t().contiguous().t()


def _in_float8(tensor: Any, dtype: torch.dtype, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """A matrix in float8 and its scale; what was gathered in float8 is so already."""
    local = getattr(tensor, "_local_tensor", tensor)
    if type(local) is not FewBits:
        scale = _scale(tensor, dtype, dim)
        return _converted(tensor, scale, dtype), scale
    if local is tensor:
        return local.values, local.scales
    from torch.distributed.tensor import Replicate

    mesh, kind = tensor.device_mesh, type(tensor)
    values = kind.from_local(local.values, mesh, tensor.placements, run_check=False)
    return values, kind.from_local(local.scales, mesh, [Replicate()], run_check=False)  # of the whole tensor


class _Product(torch.autograd.Function):
    """`rows @ weight.T`, and the products of the gradients of both."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, by_rows: bool) -> Tensor:  # noqa: FBT001 - as apply passes it
        ctx.by_rows, ctx.dtype, ctx.of_weight = by_rows, rows.dtype, weight.dtype
        along = -1 if by_rows else None
        given, scale = _in_float8(rows, E4M3, along)
        values, of_weight = _in_float8(weight, E4M3, along)
        made = _multiplied(given, values.t(), (scale, of_weight.t() if by_rows else of_weight), rows.dtype, fast=True)
        # What has one scale is kept as it was converted; of rows, others are read in the backward pass.
        ctx.save_for_backward(*((rows, weight) if by_rows else (given, scale, values, of_weight)))
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # type: ignore[override]
        of_rows = of_weight = None
        if ctx.by_rows:
            rows, weight = ctx.saved_tensors
            if ctx.needs_input_grad[0]:
                scales = _scale(gradient, E5M2, -1), _scale(weight, E4M3, 0)
                left, right = _converted(gradient, scales[0], E5M2), _converted(weight, scales[1], E4M3)
                of_rows = _multiplied(left, _in_columns(right), scales, ctx.dtype, fast=False)
            if ctx.needs_input_grad[1]:
                scales = _scale(gradient, E5M2, 0), _scale(rows, E4M3, 0)
                left, right = _converted(gradient, scales[0], E5M2), _converted(rows, scales[1], E4M3)
                scales = scales[0].t(), scales[1]
                of_weight = _multiplied(left.t().contiguous(), _in_columns(right), scales, ctx.dtype, fast=False)
        else:
            given, scale, values, its_scale = ctx.saved_tensors
            left, own = _in_float8(gradient, E5M2)
            if ctx.needs_input_grad[0]:
                of_rows = _multiplied(left, _in_columns(values), (own, its_scale), ctx.dtype, fast=False)
            if ctx.needs_input_grad[1]:
                of_weight = _multiplied(left.t().contiguous(), _in_columns(given), (own, scale), ctx.dtype, fast=False)
        return of_rows, None if of_weight is None else of_weight.to(ctx.of_weight), None


# -- parts of the sequence that are converted before tensor parallelism gathers them


def in_float8(model: nn.Module, path: str) -> bool:
    """Whether what ranks send to a block or layer is in float8: to layers with one scale."""
    layers = [each for each in model.get_submodule(path).modules() if isinstance(each, nn.Linear)]
    return bool(layers) and all(isinstance(each, Float8Linear) and each.scheme != "fp8-rows" for each in layers)


def gathered(tensor: Tensor) -> Tensor:
    """A distributed tensor of which every rank gets the whole in float8; its gradient is scattered as it is."""
    made: Tensor = _Gathered.apply(_as_autocast(tensor))
    return made


def scattered(tensor: Tensor, placements: Any) -> Tensor:
    """A sum over ranks of which each gets a part; its gradient is gathered in float8."""
    made: Tensor = _Scattered.apply(tensor, placements)
    return made


def _sent(tensor: Any, dtype: torch.dtype) -> Any:
    from torch.distributed.tensor import DTensor, Replicate

    whole = [Replicate()]
    scale = _scale(tensor, dtype).redistribute(placements=whole)
    values = _converted(tensor, scale, dtype).redistribute(placements=whole).to_local()
    few = FewBits.of(values, scale.to_local(), "fp8", tensor.shape, tensor.dtype)
    return DTensor.from_local(few, tensor.device_mesh, whole, run_check=False)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        ctx.placements = tensor.placements
        return _sent(tensor, E4M3)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient.redistribute(placements=ctx.placements)


class _Scattered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, placements: Any) -> Any:
        return tensor.redistribute(placements=placements)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return _sent(gradient, E5M2), None


# -- weights that are converted before FSDP gathers them


def gather_in_float8(shard: Any) -> None:
    """Let FSDP send a shard in float8, if its layer is trained so; it has hooks for that."""
    module = shard._module_info.module
    if isinstance(module, Float8Linear) and module.scheme == "fp8-gather" and shard._module_info.param_name == "weight":
        local = shard._sharded_local_tensor
        local.fsdp_pre_all_gather = partial(_before_gathering, local)
        local.fsdp_post_all_gather = partial(_after_gathering, local)
        shard._init_extensions()


def _before_gathering(local: Tensor, mesh: Any) -> tuple[tuple[Tensor], tuple[Tensor]]:
    """The shard in float8. Scales of all weights are found together after the update, from the largest value of all ranks."""
    scale = local.new_empty(())
    values = _converted(local, scale, E4M3)
    return (values,), (scale,)


def _after_gathering(
    local: Tensor, gathered: tuple[Tensor], metadata: tuple[Tensor], dtype: torch.dtype, *, out: Any = None
) -> Any:
    """The weight that the layer reads: of its shape and type, with the values that were gathered."""
    (values,), (scale,) = gathered, metadata
    if out is not None:
        return None
    return FewBits.of(values, scale, "fp8", values.shape, dtype), (values,)
