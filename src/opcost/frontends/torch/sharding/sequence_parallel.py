"""Sequence parallelism beside tensor parallelism: what is not split by features has parts of the sequence.

Between the layers that a plan spreads, tensors are distributed ones in parts of their second axis, the sequence. PyTorch's own
styles gather them before a block of attention or of a feed-forward network and scatter the sums behind it; norms have a copy of
their weights on every rank. What else has parameters, as routers and experts, gets the whole sequence and runs as without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.frontends.torch.models.float8 import gathered, in_float8, scattered
from opcost.frontends.torch.tree import tensors_in

_LINEAR = frozenset({"colwise", "rowwise", "colwise_gather_output", "rowwise_split_input", "loss_parallel"})
_OUTSIDE = frozenset({"embedding_rowwise", "sequence_parallel"})
_KNOWN = _LINEAR | _OUTSIDE | {"replicate", "replicated_with_grad_allreduce"}
"""With layers of other styles a block runs as without sequence parallelism."""


RECEIVES = "receives_parts"
"""An attribute of stages of a pipeline, which are given what other stages send, with parts of the sequence."""


@dataclass(slots=True)
class Parts:
    """The modules of a model by what they have of the sequence, by path."""

    spread: dict[str, str] = field(default_factory=dict)
    """Layers and norms in one of PyTorch's styles, which know distributed tensors."""
    gathering: list[str] = field(default_factory=list)
    """Blocks and layers that gather their inputs."""
    whole: list[str] = field(default_factory=list)
    """Modules that gather their inputs and split their outputs, and know nothing of distributed tensors."""
    bare: list[str] = field(default_factory=list)
    """Modules whose own parameters meet distributed tensors."""


def parts_of(model: nn.Module, styles: Mapping[str, str]) -> Parts:
    """What each module has of the sequence, by the styles of tensor parallelism of some of them."""
    found = Parts()
    _visit(model, "", styles, found)
    return found


def _visit(module: nn.Module, path: str, styles: Mapping[str, str], found: Parts) -> None:
    style = styles.get(path)
    stem = f"{path}." if path else ""
    below = [name for name in styles if name.startswith(stem) and name != path]
    own = {name: styles.get(f"{stem}{name}") for name, child in module.named_children() if _has_parameters(child)}
    if style in _LINEAR | _OUTSIDE:
        found.spread[path] = style
        if style.startswith("colwise") or style == "loss_parallel":
            found.gathering.append(path)
    elif style is None and not below and _is_norm(module):
        found.spread[path] = "sequence_parallel"
    elif not path or _has_no_forward(module):
        _visit_children(module, stem, styles, found)
    elif not below or not {*own.values()} <= {*_KNOWN, None}:
        if _has_parameters(module):
            found.whole.append(path)
    elif not {"colwise", "rowwise"} <= {(style or "").partition("_")[0] for style in own.values()} or any(
        _is_norm(module.get_submodule(name)) and name[0] not in "qkv" for name in own
    ):
        _visit_children(module, stem, styles, found)
    elif any(style is None and not _is_norm(module.get_submodule(name)) for name, style in own.items()):
        found.whole.append(path)  # layers that the plan does not name get the block's input too
    else:
        found.gathering.append(path)
        found.spread.update((name, styles[name]) for name in below if styles[name] in _LINEAR)


def _visit_children(module: nn.Module, stem: str, styles: Mapping[str, str], found: Parts) -> None:
    if any(True for _ in module.parameters(recurse=False)):
        found.bare.append(stem.rstrip("."))
    for name, child in module.named_children():
        _visit(child, f"{stem}{name}", styles, found)


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _is_norm(module: nn.Module) -> bool:
    """Whether a module normalizes the features of each token, as its class says."""
    return type(module).__name__.endswith("Norm") and not isinstance(
        module, nn.modules.batchnorm._NormBase | nn.GroupNorm
    )


def _has_no_forward(module: nn.Module) -> bool:
    """Whether a module only holds others, or parameters."""
    return type(module).forward is nn.Module.forward


# -- what runs -------------------------------------------------------------------------------------------------------------


def spread_between(model: nn.Module, mesh: Any, parts: Parts) -> None:
    """Let all but blocks and whole modules work on distributed tensors."""
    from torch.distributed.tensor import DTensor, Replicate
    from torch.distributed.tensor.parallel import parallelize_module

    for path in parts.bare:
        module = model.get_submodule(path)
        for name, parameter in [*module.named_parameters(recurse=False)]:
            copy = DTensor.from_local(parameter.detach(), mesh, [Replicate()], run_check=False)
            module._parameters[name] = nn.Parameter(copy, requires_grad=parameter.requires_grad)
    if parts.gathering:
        model.register_forward_pre_hook(partial(_split_inputs, mesh), with_kwargs=True)
    for path in parts.gathering:
        gather = _gather_float8 if in_float8(model, path) else _gather
        model.get_submodule(path).register_forward_pre_hook(gather, with_kwargs=True)
    for path in parts.whole:
        model.get_submodule(path).register_forward_pre_hook(_gather_plain, with_kwargs=True)
        model.get_submodule(path).register_forward_hook(partial(_split_outputs, mesh), with_kwargs=True)
    float8 = [path for path, style in parts.spread.items() if style[:7] == "rowwise" and in_float8(model, path)]
    styles = {path: _style(style, sums=path in float8) for path, style in parts.spread.items()}
    parallelize_module(model, mesh, styles)
    for path in float8:
        model.get_submodule(path).register_forward_hook(_scatter_float8)


def _style(name: str, *, sums: bool = False) -> Any:
    """PyTorch's style of that name for a layer between distributed tensors; one whose `sums` are not scattered yet."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

    to_sequence: dict[str, Any] = {"output_layouts": Partial() if sums else Shard(1), "use_local_output": False}
    return {
        "colwise": ColwiseParallel,
        "rowwise": lambda: RowwiseParallel(**to_sequence),
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
        "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate(), **to_sequence),
        "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate(), **to_sequence),
        "sequence_parallel": SequenceParallel,
        "loss_parallel": lambda: ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }[name]()


def _gathered(tensor: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, Replicate

    if not isinstance(tensor, DTensor) or tensor.placements == (Replicate(),):
        return tensor
    return tensor.redistribute(placements=[Replicate()])


def _gathered_float8(tensor: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, Shard

    parts = isinstance(tensor, DTensor) and tensor.placements == (Shard(1),) and _is_of_tokens(tensor)
    return gathered(tensor) if parts else _gathered(tensor)


def _each(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Arguments or results with their tensors changed; objects that hold some, as caches, stay themselves."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if type(tree) in (tuple, list):
        return type(tree)(_each(item, change) for item in tree)
    return {name: _each(item, change) for name, item in tree.items()} if type(tree) is dict else tree


def _gather(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return _each((args, kwargs), _gathered)


def _gather_float8(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return _each((args, kwargs), _gathered_float8)


def _scatter_float8(module: nn.Module, args: Any, output: Any) -> Any:
    from torch.distributed.tensor import Shard

    return scattered(output, [Shard(1)])


def _gather_plain(module: nn.Module, args: Any, kwargs: Any) -> Any:
    from torch.distributed.tensor import DTensor

    def plain(tensor: torch.Tensor) -> torch.Tensor:
        return whole.to_local() if isinstance(whole := _gathered(tensor), DTensor) else tensor

    return _each((args, kwargs), plain)


def _is_of_tokens(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() and tensor.dim() == 3)


def _split(mesh: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Features of tokens in parts of the sequence."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    if isinstance(tensor, DTensor) or not _is_of_tokens(tensor):
        return tensor
    return DTensor.from_local(tensor, mesh, [Replicate()], run_check=False).redistribute(placements=[Shard(1)])


def _split_inputs(mesh: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
    if RECEIVES in module.__dict__:
        args = _each(args, partial(_part, mesh))
    return _each((args, kwargs), partial(_split, mesh))


def _part(mesh: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A part of the sequence that another stage of a pipeline sent."""
    from torch.distributed.tensor import DTensor, Shard

    return DTensor.from_local(tensor, mesh, [Shard(1)], run_check=False) if _is_of_tokens(tensor) else tensor


def _split_outputs(mesh: Any, module: nn.Module, args: Any, kwargs: Any, outputs: Any) -> Any:
    """But for those with other features than the inputs, as logits, which no norm or residual follows."""
    given = {tensor.shape[-1] for tensor in tensors_in((args, kwargs)) if _is_of_tokens(tensor)}
    made = {tensor.shape[-1] for tensor in tensors_in(outputs) if _is_of_tokens(tensor)}
    return outputs if given and not given & made else _each(outputs, partial(_split, mesh))
