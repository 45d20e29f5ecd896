"""Models spread over ranks, of which the operators, shards and collectives of this rank are recorded.

PyTorch's own code takes an operator on a distributed tensor apart into this rank's operators and collectives, and those are
seen. Two things that it does beside are not: it runs operators without data on the whole tensors to find the layout of their
results, and it frees and allocates the memory of gathered weights, which tensors without data do not have.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.restore.process import replaced

_PROPAGATION = "torch.distributed.tensor._sharding_prop"
_FULLY_SHARDED = "torch.distributed.fsdp._fully_shard"
_GATHERED = (f"{_FULLY_SHARDED}._fsdp_param", f"{_FULLY_SHARDED}._fsdp_param_group")
"""Where the memory of gathered weights is given and taken."""


@contextmanager
def as_one_rank() -> Iterator[None]:
    """Let distributed tensors show this rank's operators, and nothing else."""
    with ExitStack() as undo:

        def replace(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
            if hasattr(owner, name):
                undo.enter_context(replaced(owner, name, partial(wrapper, getattr(owner, name))))

        if (propagation := sys.modules.get(_PROPAGATION)) is not None:
            replace(propagation.ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen)
        for module in filter(None, map(sys.modules.get, _GATHERED)):
            replace(module, "alloc_storage", _with_memory)
            replace(module, "free_storage", _with_memory)
            # Weights on the meta device are no reason not to count.
            replace(getattr(module, "FSDPParamGroup", None), "_validate_no_meta_params", lambda *_: None)
        yield


def is_fully_sharded(model: nn.Module) -> bool:
    """Whether some module gathers its weights for a call and shares out their gradients afterwards."""
    found = sys.modules.get(_FULLY_SHARDED)
    return found is not None and any(isinstance(module, found.FSDPModule) for module in model.modules())


def shared_gradients(outputs: list[torch.Tensor], leaves: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    """The gradients of a fully sharded model's parameters.

    They belong to gathered weights, which are no parameters after forward, and PyTorch shares them out into `.grad`, which
    is put back with all else that a run changes.
    """
    if any(leaf.device.type == "meta" for leaf in leaves):
        raise InputError(
            "the gradients of a fully sharded model are handed to its parameters, and some of these lie on the meta device",
            hint='give it memory with model.to_empty(device="cpu"), or count without backward',
        )
    for leaf in leaves:
        leaf.grad = None
    torch.autograd.backward(outputs, given)
    return [leaf.grad for leaf in leaves]


def note_of(model: nn.Module) -> str | None:
    """What a report says of a model that is spread over ranks."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is None:
        return None
    sizes = [p.device_mesh.size() for p in model.parameters() if isinstance(p, distributed.DTensor)]
    if not sizes:
        return None
    rank = torch.distributed.get_rank()
    return f"the model lies on {max(sizes)} ranks: parameters, operators and memory are those of rank {rank}"


def unseen(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function without its operators being recorded."""
    with private.no_modes():
        return function(*args, **kwargs)


def _with_memory(function: Callable[[torch.Tensor], None], tensor: torch.Tensor) -> None:
    if type(tensor) is not Recorded:
        function(tensor)
