"""Context parallelism: each rank has parts of the sequence, and attention gets keys and values of the other ranks.

PyTorch's own code runs: it gives a rank two parts of the sequence, one from the beginning and one from the end, so that causal
attention is equally much for all; the others' keys and values are gathered, or passed on around a ring, and the attention of each
rank's part is merged into the result. Of causal attention only what no mask hides runs, but for the rank's own keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from opcost.core.graph import Note
from opcost.distributed.sharding import Sharding
from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.default_inputs.engine import Inputs
from opcost.frontends.torch.recording.device_rules import lowered
from opcost.frontends.torch.restore.process import replaced
from opcost.frontends.torch.sharding.ranks import RankMesh
from opcost.frontends.torch.tree import map_tensors, tensors_in

# -- the inputs of a rank --------------------------------------------------------------------------------------------------


def inputs_of_rank(inputs: Inputs, names: list[str], sharding: Sharding) -> Inputs:
    """What one rank gets of the whole sequence; `names` are the arguments of the model."""
    ranks = sharding.mesh.cp
    place = sharding.mesh.coordinates(sharding.rank)["cp"]
    tensors = tensors_in((inputs.args, inputs.kwargs))
    length = next((tensor.shape[1] for tensor in tensors if tensor.dim() > 1), 0)
    if not length or length % (2 * ranks):
        fits = f"a multiple of {2 * ranks}" if length else "inputs with a second axis, the sequence"
        raise InputError(f"cp={ranks} cuts the sequence, {length} tokens, into {2 * ranks} parts", hint=f"give {fits}")
    part = length // (2 * ranks)

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        axes = (axis for axis in (1, 0, *range(2, tensor.dim())) if axis < tensor.dim())
        along = next((axis for axis in axes if tensor.shape[axis] == length), None)
        if along is None:
            return tensor
        both = (tensor.narrow(along, at * part, part) for at in (place, 2 * ranks - 1 - place))
        return torch.cat([*both], along).requires_grad_(tensor.requires_grad)

    kwargs = dict(inputs.kwargs)
    if {"input_ids", "position_ids"} <= {*names} and "position_ids" not in kwargs:
        kwargs["position_ids"] = torch.arange(length)[None]
        if "attention_mask" in names and "attention_mask" not in kwargs:  # else a jump of positions begins another text
            kwargs["attention_mask"] = torch.ones((tensors[0].shape[0], length), dtype=torch.int64)
    args, kwargs = map_tensors((inputs.args, kwargs), cut)
    others = tuple(inputs_of_rank(each, names, sharding) for each in inputs.others)
    return inputs._replace(args=args, kwargs=kwargs, others=others)


def notes_of_parts(sharding: Sharding) -> tuple[Note, ...]:
    """What a report says of the inputs of a rank."""
    ranks = sharding.mesh.cp
    said = f"inputs are this rank's 1/{ranks} of each sequence: a part of its beginning and one of its end, so that all ranks"
    return (Note("context-parallel", f"{said} have as much of causal attention"),) if ranks > 1 else ()


# -- attention -------------------------------------------------------------------------------------------------------------

aten: Any = torch.ops.aten
_SEQUENCE = 2  # axis of queries, keys and values


class _AttentionKernel(NamedTuple):
    """An operator of attention and its gradient, and what both take besides queries, keys and values."""

    forward: Any
    backward: Any
    gradient: str  # the argument of the gradient of the result
    made: tuple[str, ...] = ()  # what forward returns after the result and its logsumexp, as backward takes it
    forward_only: Mapping[str, Any] = {}
    backward_only: Mapping[str, Any] = {}


_CPU = _AttentionKernel(
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    "grad_out",
)
_FLASH = _AttentionKernel(
    aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_flash_attention_backward.default, "grad_out",
    ("cum_seq_q", "cum_seq_k", "max_q", "max_k", "philox_seed", "philox_offset", ""),
)  # fmt: skip
_EFFICIENT = _AttentionKernel(
    aten._scaled_dot_product_efficient_attention, aten._scaled_dot_product_efficient_attention_backward.default, "grad_out_",
    ("philox_seed", "philox_offset"), {"attn_bias": None, "compute_log_sumexp": True},
    {"attn_bias": None, "grad_input_mask": (True, True, True, False)},
)  # fmt: skip


def _kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, on_gpu: bool) -> _AttentionKernel:
    """The kernel that PyTorch takes for attention without a mask."""
    alike = query.shape[-1] == value.shape[-1]
    if alike and (not on_gpu or query.dtype in (torch.bfloat16, torch.float16)):
        return _FLASH if on_gpu else _CPU
    if query.shape[1] != key.shape[1]:
        hint = "repeat keys and values for all heads, or count with precision='bf16'"
        raise InputError("no kernel of context parallelism takes fewer heads of keys than of queries here", hint=hint)
    return _EFFICIENT


class _Attention(NamedTuple):
    """One attention: what to run between which ranks."""

    group: Any
    kernel: _AttentionKernel
    options: Mapping[str, Any]
    is_causal: bool
    ring: bool

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function of PyTorch's by these options, which it has for the whole process."""
        module = private.context_parallelism()
        method = module._RotateMethod.ALL_TO_ALL if self.ring else module._RotateMethod.ALL_GATHER
        settings, before = module._cp_options, dict(vars(module._cp_options))
        settings.enable_load_balance, settings.rotate_method = self.is_causal, method
        try:
            return function(self.group, _SEQUENCE, *args, is_causal=self.is_causal, **self.options, **kwargs)
        finally:
            vars(settings).update(before)


class _Ring(torch.autograd.Function):
    """Attention of this rank's queries with the keys and values of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: _Attention
    ) -> torch.Tensor:
        ring, kernel = private.context_parallelism()._templated_ring_attention, call.kernel
        out, logsumexp, *rest = call.run(ring, kernel.forward, query=query, key=key, value=value, **kernel.forward_only)
        made = {name: each for name, each in zip(kernel.made, rest, strict=True) if name}
        ctx.numbers = {name: each for name, each in made.items() if not isinstance(each, torch.Tensor)}
        ctx.names = [name for name in made if name not in ctx.numbers]
        ctx.call = call
        ctx.save_for_backward(query, key, value, out, logsumexp, *(made[name] for name in ctx.names))
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        ring, call = private.context_parallelism()._templated_ring_attention_backward, ctx.call
        query, key, value, out, logsumexp, *made = ctx.saved_tensors
        given = {**ctx.numbers, **dict(zip(ctx.names, made, strict=True)), **call.kernel.backward_only}
        grads = call.run(
            ring, call.kernel.backward, grad, call.kernel.gradient, query, key, value, out, logsumexp, **given
        )  # fmt: skip
        return *grads[:3], None


@contextmanager
def in_parts(sharding: Sharding | None, *, on_gpu: bool) -> Iterator[None]:
    """Exchange keys and values between ranks in every attention, where this process is one rank of context parallelism."""
    if sharding is None or sharding.mesh.cp == 1 or not torch.distributed.is_initialized():
        yield
        return
    group = RankMesh(sharding.mesh, sharding.rank).along("cp").get_group()
    ran = []

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,  # noqa: FBT001, FBT002
        scale: float | None = None, enable_gqa: bool = False,  # noqa: FBT001, FBT002 - as the function that it replaces
    ) -> Any:  # fmt: skip
        if attn_mask is not None or query.dim() != 4:
            fault = "context parallelism of PyTorch takes attention of four axes without a mask"
            raise InputError(
                fault, hint="leave the mask out, of padding too: attention may be causal by is_causal=True"
            )
        query, key, value = lowered(query, key, value)
        ran.append(1)
        options = {"dropout_p": dropout_p, "scale": scale}
        kernel = _kernel(query, key, value, on_gpu=on_gpu)
        return _Ring.apply(query, key, value, _Attention(group, kernel, options, bool(is_causal), sharding.ring))

    with replaced(functional, "scaled_dot_product_attention", attention):
        yield
    if not ran:
        fault = "context parallelism needs attention by torch.nn.functional.scaled_dot_product_attention, and none ran"
        raise InputError(fault, hint="of a model of transformers, make it with attn_implementation='sdpa'")
