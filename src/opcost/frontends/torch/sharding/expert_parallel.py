"""Expert parallelism: each rank has some of the experts of a mixture, and tokens are sent to the ranks of their experts and back.

The experts of a model of transformers are spread by its own plan: most send tokens; in some every rank has all tokens and its own
experts, and partial results are summed. Experts of other models are a list of equal modules, each of which is called with the
rows of its tokens, or one module with stacked weights that is called with rows sorted by expert and how many there are of each.
These send the rows that a balanced routing has.

With `tp`, transformers spreads experts over its ranks too, which have the same tokens and send a part of them each. Other experts
are in parts like all layers that the plan of tensor parallelism names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn

from opcost.core.graph import Note
from opcost.distributed.sharding import Sharding, path_pattern
from opcost.errors import InputError, some
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.restore.process import replaced
from opcost.frontends.torch.sharding.ranks import RankMesh
from opcost.frontends.torch.tree import tensors_in

_USUAL_NAME = "experts"
_SENDS, _STACKED = "ep_dispatch_experts", "grouped_gemm"
"""Styles of transformers: of experts that send tokens, and of a weight whose first axis is that of experts."""
_HOLDERS = (_SENDS, "moe_tp_experts")
_HINT = "name the modules that hold experts: experts='layers.*.moe.experts'"


@dataclass(frozen=True, slots=True)
class SpreadExperts:
    """The modules of a model that hold experts, and how they are spread."""

    modules: tuple[str, ...] = ()
    plan: dict[str, str] = field(default_factory=dict)
    """Of transformers, where that spreads them."""

    @property
    def sums(self) -> bool:
        """Whether all ranks have the same tokens, and partial results are summed."""
        return bool(self.plan) and _SENDS not in self.plan.values()

    def has(self, model: nn.Module, key: str) -> bool:
        """Whether a pattern of paths is about experts, or parameters of theirs, that transformers spreads."""
        own = (
            (path, *(f"{path}.{name}" for name, _ in model.get_submodule(path).named_parameters()))
            for path in self.modules
        )
        return bool(self.plan) and any(path_pattern(key).fullmatch(each) for paths in own for each in paths)


def experts_of(model: nn.Module, sharding: Sharding) -> SpreadExperts:
    """The experts of a model, where the mesh spreads them."""
    ep, name = sharding.mesh.ep, type_name(model)
    if ep == 1:
        return SpreadExperts()
    plan = {} if sharding.experts else dict(getattr(model, "ep_plan", None) or {})
    keys = sharding.experts or tuple(key for key, style in plan.items() if style in _HOLDERS)
    if plan and not keys:
        raise InputError(
            f"the plan of expert parallelism of {name} does not say which modules hold experts", hint=_HINT
        )
    if keys:
        patterns = [path_pattern(key) for key in keys]
        found = [path for path, _ in model.named_modules() if any(pattern.fullmatch(path) for pattern in patterns)]
    else:
        found = [
            path for path, module in model.named_modules() if path.rpartition(".")[2] == _USUAL_NAME and _number(module)
        ]
    if not found or not all(_number(model.get_submodule(path)) for path in found):
        which = ", ".join(some([*keys])) or f"a list of modules or stacked weights with the name {_USUAL_NAME}"
        raise InputError(f"{name} has no experts to spread: {which}", hint=_HINT)
    if not plan and all(
        hasattr(model.get_submodule(path), "_is_expert_parallel") for path in found
    ):  # as transformers has them
        plan = {each: style for path in found for each, style in _sending(model, path).items()}
    experts = SpreadExperts(tuple(found), plan)
    if experts.sums and sharding.mesh.tp > 1:
        fault = f"the plan of {name} sums what its experts make over ranks with the same tokens, so ep and tp are one"
        raise InputError(fault, hint=f"leave one of them out, or let tokens be sent: experts='{_wildcard(found[0])}'")
    among, ranks = ("ep x tp", ep * sharding.mesh.tp) if plan and sharding.mesh.tp > 1 else ("ep", ep)
    for path in found:
        if (number := _number(model.get_submodule(path))) % ranks:
            fits = ", ".join(some([str(n) for n in range(1, number + 1) if number % n == 0]))
            raise InputError(
                f"{among}={ranks} does not divide the {number} experts of {path}", hint=f"sizes that do: {fits}"
            )
    return experts


def _sending(model: nn.Module, path: str) -> dict[str, str]:
    """The plan of transformers by which experts send tokens."""
    key, parameters = _wildcard(path), model.get_submodule(path).named_parameters(recurse=False)
    return {key: _SENDS, **{f"{key}.{name}": _STACKED for name, _ in parameters}}


def _wildcard(path: str) -> str:
    """The pattern of a path with any number of a layer."""
    return ".".join("*" if name.isdecimal() else name for name in path.split("."))


def _number(module: nn.Module) -> int:
    """How many experts a module holds: equal modules, or the first axis of all of its weights; 0 if it does neither."""
    children = [child for child in module.children() if any(True for _ in child.parameters())]
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        return len(children) if len({*map(type, children)}) == 1 else 0
    sizes = {parameter.shape[0] if parameter.dim() > 1 else 0 for parameter in module.parameters(recurse=False)}
    return sizes.pop() if len(sizes) == 1 and not children else 0


def routing_is_forced(sharding: Sharding | None) -> bool:
    """Whether the same share of tokens for each expert is no assumption about the model, but how it is counted."""
    return sharding is not None and sharding.mesh.ep > 1


def notes_of_experts(model: nn.Module, sharding: Sharding) -> tuple[Note, ...]:
    """What a report says of the experts of a rank."""
    if not routing_is_forced(sharding):
        return ()
    if experts_of(model, sharding).sums:
        said = "every rank of ep has the same tokens and runs its own experts, and partial results are summed, by the plan of "
        return (Note("expert-parallel", f"{said}transformers; --experts sends tokens instead"),)
    return (Note("expert-parallel", "routing is balanced by force: every rank sends as many tokens to each expert"),)


# -- how they are spread ---------------------------------------------------------------------------------------------------


def spread_experts(
    copy: nn.Module, experts: SpreadExperts, ranks: RankMesh, mesh: Any, sharding: Sharding
) -> list[tuple[list[nn.Module], Any]]:
    """Leave each rank its experts; says which modules gather their parameters together, over a mesh of their own."""
    if not experts.modules:
        return []
    if experts.sums:
        of_transformers("tensor_parallel.apply_tensor_parallelism")(copy, mesh["ep"], experts.plan)
        return []
    if not sharding.gathers and sharding.along("replicate", "cp"):
        fault = "gradients of experts are averaged over other ranks than those of the rest, which DistributedDataParallel cannot"
        raise InputError(fault, hint="shard parameters, if only over the ranks of cp and ep: fsdp=1")
    among = sharding.along("ep", "tp") if experts.plan else "ep"
    data = [axis for axis in (sharding.along("replicate"), sharding.along("fsdp", "cp") or "fsdp") if axis]
    own = ranks.along(*data, among)
    if experts.plan:
        tp = ranks.along("tp") if sharding.mesh.tp > 1 else None
        of_transformers("expert_parallel.apply_expert_parallelism")(copy, own[among], tp, experts.plan)
        holders = [[copy.get_submodule(path)] for path in experts.modules]
    else:
        holders = [_send_tokens(copy, path, own[among].get_group()) for path in experts.modules]
    return [(modules, own[tuple(data)]) for modules in holders]


def of_transformers(function: str) -> Callable[..., Any]:
    """A function of `transformers.distributed`, which newer versions have."""
    module, _, name = function.partition(".")
    try:
        found: Callable[..., Any] = getattr(import_module(f"transformers.distributed.{module}"), name)
    except (ImportError, AttributeError) as exc:
        hint = "install a newer version of transformers"
        raise InputError(f"transformers has no {name}, by which it spreads its models over ranks", hint=hint) from exc
    return found


def average_gradients(copy: nn.Module, group: Any, experts: SpreadExperts) -> nn.Module:
    """The model in DistributedDataParallel, which leaves out experts that no other rank has."""
    if not experts.sums:
        own = ((path, copy.get_submodule(path).named_parameters()) for path in experts.modules)
        alone = [f"{path}.{name}" for path, parameters in own for name, _ in parameters]
        copy._ddp_params_and_buffers_to_ignore = alone  # type: ignore[assignment]
    wrapper = nn.parallel.DistributedDataParallel
    with replaced(wrapper, "_ddp_init_helper", lambda *_, **__: None):  # which makes buckets as large as the model
        return wrapper(copy, process_group=group)


# -- experts that no library spreads ---------------------------------------------------------------------------------------


class _Owners:
    """Which rank has which of some experts, and the exchange of tokens with them."""

    def __init__(self, experts: int, group: Any) -> None:
        self.experts, self.group = experts, group
        self.ranks, self.rank = group.size(), group.rank()
        self.each = experts // self.ranks

    @property
    def local(self) -> range:
        """The experts of this rank."""
        return range(self.rank * self.each, (self.rank + 1) * self.each)

    def counts(self, rows: int) -> list[int]:
        """How many rows each expert gets if all get equally many, the first ones one more."""
        return [rows // self.experts + (expert < rows % self.experts) for expert in range(self.experts)]

    def exchange(self, rows: torch.Tensor, run: Callable[[torch.Tensor, list[int]], torch.Tensor]) -> torch.Tensor:
        """Send rows, sorted by expert, to the ranks of their experts, `run` those that come, and get the results back.

        Every rank sends as many to each expert. What comes is sorted by rank, and is sorted by expert for the run.
        """
        counts = self.counts(len(rows))
        sent = [sum(counts[rank * self.each : (rank + 1) * self.each]) for rank in range(self.ranks)]
        own = [counts[expert] for expert in self.local]
        received = [sent[self.rank]] * self.ranks
        send = import_module("torch.distributed._functional_collectives").all_to_all_single_autograd
        # No name keeps what is sent or comes for longer than it is needed.
        come = [self.ranks * count for count in own]
        made = run(_transposed(send(rows, received, sent, self.group), own * self.ranks, self.each), come)
        made = _transposed(made, [count for count in own for _ in range(self.ranks)], self.ranks)
        return send(made, sent, received, self.group)  # type: ignore[no-any-return]


def _transposed(rows: torch.Tensor, sizes: list[int], inner: int) -> torch.Tensor:
    """Groups of rows of these sizes, of which `inner` follow one another, with the others following instead."""
    if inner in (1, len(sizes)):
        return rows
    groups = rows.split(sizes)
    return torch.cat([groups[at] for first in range(inner) for at in range(first, len(sizes), inner)])


def _send_tokens(copy: nn.Module, path: str, group: Any) -> list[nn.Module]:
    """Leave a rank its experts of one module, and let them get the rows of all ranks; says which modules have them."""
    module = copy.get_submodule(path)
    owners = _Owners(_number(module), group)
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        parent, _, name = path.rpartition(".")
        return _Called(module, owners).installed(copy.get_submodule(parent), name)
    for name, parameter in [*module.named_parameters(recurse=False)]:
        part = parameter.detach().narrow(0, owners.local.start, owners.each).clone()
        module._parameters[name] = nn.Parameter(part, requires_grad=parameter.requires_grad)
    for name, value in vars(module).items():
        if type(value) is int and value == owners.experts:
            setattr(module, name, owners.each)
    original = module.forward

    def forward(rows: torch.Tensor, counts: Any = None, *rest: Any, **kwargs: Any) -> torch.Tensor:
        if not isinstance(counts, torch.Tensor) or counts.shape != (owners.experts,):
            fault = f"{path} is not called with rows of tokens sorted by expert and how many there are of each"
            raise InputError(fault, hint="send the tokens in the model itself, shard it yourself, and leave mesh out")

        def run(there: torch.Tensor, own: list[int]) -> torch.Tensor:
            even = len({*own}) == 1
            return original(
                there, counts.new_full((len(own),), own[0]) if even else counts.new_tensor(own), *rest, **kwargs
            )  # type: ignore[no-any-return]

        return owners.exchange(rows, run)

    module.forward = forward  # type: ignore[method-assign]
    return [module]


class _Called:
    """A list of experts, in whose place their block calls this list with the rows of tokens of each.

    The first call sends the rows of all experts, which are those of a balanced routing of the block's input; each call gets its
    part of what comes back.
    """

    def __init__(self, experts: nn.ModuleList | nn.Sequential, owners: _Owners) -> None:
        self._owners, self._list = owners, experts
        self._all = [*experts.children()]
        self._tokens = torch.empty(0)
        self._results: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> Callable[..., torch.Tensor]:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return partial(self._of_expert, number % len(self))

    def installed(self, block: nn.Module, name: str) -> list[nn.Module]:
        """Take the place of the list while the block runs; says which experts this rank has."""
        block.register_forward_pre_hook(partial(self._begin, name), with_kwargs=True)
        block.register_forward_hook(partial(self._end, name), always_call=True)
        for number, at in enumerate(self._list._modules):
            if number not in self._owners.local:
                self._list._modules[at] = nn.Identity()
        return [self._all[number] for number in self._owners.local]

    def _begin(self, name: str, block: nn.Module, args: Any, kwargs: Any) -> None:
        vars(block)[name] = self
        given = [tensor for tensor in tensors_in((args, kwargs)) if tensor.is_floating_point()]
        self._tokens, self._results = given[0].flatten(0, -2), {}

    def _end(self, name: str, block: nn.Module, *_: Any) -> None:
        del vars(block)[name]

    def _of_expert(self, number: int, rows: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not self._results:
            self._exchange(rows.flatten(0, -2).shape[0], args, kwargs)
        result = self._results.pop(number)
        if result.shape[0] != rows.flatten(0, -2).shape[0]:
            fault = f"expert {number} is called with {rows.shape[0]} rows, and a balanced routing has {result.shape[0]}"
            raise InputError(fault, hint="count without ep")
        return result.view(rows.shape)

    def _exchange(self, rows: int, args: Any, kwargs: Any) -> None:
        """Send the rows of all experts; the first has as many as any."""
        owners, tokens = self._owners, self._tokens
        self._tokens = torch.empty(0)
        uses = max(1, rows * owners.experts // len(tokens))  # experts of each token
        results = owners.exchange(tokens.repeat_interleave(uses, 0), partial(self._run, args, kwargs))
        self._results = dict(enumerate(results.split(owners.counts(uses * len(tokens)))))

    def _run(self, args: Any, kwargs: Any, rows: torch.Tensor, counts: list[int]) -> torch.Tensor:
        parts = zip(self._owners.local, rows.split(counts), strict=True)
        return torch.cat([self._all[number](part, *args, **kwargs) for number, part in parts])
