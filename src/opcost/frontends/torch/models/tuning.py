"""A copy of a model of which only a part is trained: the rest is frozen, or adapters stand beside frozen layers (LoRA)."""

import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from opcost.core.graph import Note
from opcost.core.names import STAR, matches, starred
from opcost.core.option import Lora, Tuning
from opcost.errors import InputError, UnknownName, counted
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.models.weights import copied, is_lazy, is_uninitialized


def tuned(model: nn.Module, tuning: Tuning, *, real: bool) -> nn.Module:
    """The model itself, or a copy that shares its weights and is trained in parts."""
    if not any(tuning):
        return model
    named = list(model.named_parameters(remove_duplicate=False))
    frozen = {id(p) for _, p in named} if tuning.lora else {id(p) for p in _frozen(named, tuning.freeze)}
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    memo |= {id(p): _without_gradient(p) for _, p in named if id(p) in frozen and p.requires_grad}
    copy = copied(model, memo, "with frozen parts", "freeze them in the model itself: parameter.requires_grad_(False)")
    trained = sum(p.requires_grad and id(p) not in frozen for p in model.parameters())
    if trained != sum(p.requires_grad for p in copy.parameters()):  # as of a scripted model, whose copy is its own
        raise InputError(
            f"the parameters of {type_name(model)} cannot be frozen from outside",
            hint="freeze them in the model itself",
        )
    if tuning.lora is not None:
        _adapt(copy, tuning.lora, real=real)
    return copy


def _frozen(named: Sequence[tuple[str, nn.Parameter]], patterns: Sequence[str]) -> Iterator[nn.Parameter]:
    """The parameters that a pattern matches, or the path of a module around them."""
    around = {name: list(accumulate(name.split("."), "{}.{}".format)) for name, _ in named}
    for pattern in patterns:
        found = [p for name, p in named if any(matches(path, pattern) for path in around[name])]
        if not found:
            paths = starred(path for paths in around.values() for path in paths)
            raise UnknownName("module or parameter", pattern, paths, hint=STAR)
        yield from found


def _without_gradient(parameter: nn.Parameter) -> nn.Parameter:
    if is_uninitialized(parameter):
        return UninitializedParameter(requires_grad=False, device=parameter.device, dtype=parameter.dtype)
    return nn.Parameter(parameter.detach(), requires_grad=False)


# -- low-rank adapters -----------------------------------------------------------------------------------------------------


def _is_linear(module: Any) -> bool:
    """Whether it is a linear layer, or one of transformers with a transposed weight, as GPT-2 has."""
    library = sys.modules.get("transformers.pytorch_utils")
    return isinstance(module, nn.Linear) or (library is not None and isinstance(module, library.Conv1D))


_NARROW = (torch.float16, torch.bfloat16)


class LoraLinear(nn.Module):
    """A linear layer W with adapters: W x + (alpha / r) B A x, in the names and the element types that peft gives them."""

    def __init__(self, base: Any, lora: Lora, *, real: bool) -> None:
        super().__init__()
        weight = base.weight
        taken, made = (base.in_features, base.out_features) if isinstance(base, nn.Linear) else (base.nx, base.nf)
        dtype = torch.float32 if weight.dtype in _NARROW or not weight.is_floating_point() else weight.dtype
        self.base_layer = base
        self.lora_A = nn.Linear(taken, lora.r, bias=False, device="meta", dtype=dtype)
        self.lora_B = nn.Linear(lora.r, made, bias=False, device="meta", dtype=dtype)
        self.scaling = lora.alpha / lora.r
        self.train(base.training)
        if real:
            for layer in (self.lora_A, self.lora_B):
                layer.weight = nn.Parameter(torch.zeros(layer.weight.shape, dtype=dtype, device=weight.device))

    @property
    def weight(self) -> torch.Tensor:
        """For a model that looks at the layer besides calling it."""
        return self.base_layer.weight  # type: ignore[no-any-return]

    @property
    def bias(self) -> torch.Tensor | None:
        """The same of the bias."""
        return self.base_layer.bias  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum, in the element type of the layer's own result."""
        result = self.base_layer(x)
        dtype = result.dtype
        x = x.to(self.lora_A.weight.dtype)  # which is kept to the end, as in peft
        result = result + self.lora_B(self.lora_A(x)) * self.scaling
        return result.to(dtype)  # type: ignore[no-any-return]


def _adapt(model: nn.Module, lora: Lora, *, real: bool) -> None:
    """Put adapters beside every linear layer whose path ends as one of the targets."""
    modules = dict(model.named_modules(remove_duplicate=False))
    wrapped: dict[int, LoraLinear] = {}
    for target in lora.targets:
        found = [path for path in modules if path and matches(path, target)]
        linear = [path for path in found if _is_linear(modules[path])]
        others = [path for path in found if path not in linear]
        if not found or (others and not linear and "*" in target):
            names = starred(path for path, module in modules.items() if _is_linear(module))
            ends = {path.rpartition(".")[2] for path in names}
            raise UnknownName(
                "linear layer", target, ends, hint="targets are what the paths of nn.Linear layers end in"
            )
        if others and "*" not in target:
            fault = f"{others[0]} is a {type_name(modules[others[0]])}, and LoRA adapts nn.Linear"
            raise InputError(fault, hint="name linear layers alone, by longer ends of their paths")
        for path in linear:
            base = modules[path]
            if is_lazy(base):
                raise InputError(f"{path} is lazy, so its adapters have no shape yet", hint="run the model once before")
            above, _, name = path.rpartition(".")
            modules[above]._modules[name] = wrapped.setdefault(id(base), LoraLinear(base, lora, real=real))


def note_of_adapters(model: nn.Module, tuning: Tuning) -> list[Note]:
    """How many layers got adapters, and what they come to."""
    if tuning.lora is None:
        return []
    layers = [module for module in model.modules() if isinstance(module, LoraLinear)]
    added = sum(layer.lora_A.weight.numel() + layer.lora_B.weight.numel() for layer in layers)
    rank = f"LoRA of rank {tuning.lora.r} beside {counted(len(layers), 'linear layer')}"
    return [Note("lora", f"{rank}: {counted(added, 'parameter')} are added and trained, and all others are frozen")]
