"""Models spread over ranks, of which the operators, shards and collectives of this rank are recorded.

PyTorch's own code takes an operator on a distributed tensor apart into this rank's operators and collectives, and those are
seen. Two things that it does beside are not: it runs operators without data on the whole tensors to find the layout of their
results, and it frees and allocates the memory of gathered weights, which tensors without data do not have.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from opcost.core.graph import TensorSpec
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import rebuilt
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.recording.recorder import DatalessRecorder
from opcost.frontends.torch.restore.process import replaced

_PROPAGATION = "torch.distributed.tensor._sharding_prop"
_FULLY_SHARDED = "torch.distributed.fsdp._fully_shard"
_GATHERED = (
    f"{_FULLY_SHARDED}._fsdp_param",
    f"{_FULLY_SHARDED}._fsdp_param_group",
    "torch.distributed.fsdp._flat_param",
)
"""Where the memory of gathered weights is allocated and freed, by functions of one name or the other."""

_FLAT_RUNTIME = "torch.distributed.fsdp._runtime_utils"


@contextmanager
def as_one_rank(recorder: DatalessRecorder) -> Iterator[None]:
    """Let distributed tensors show this rank's operators, and nothing else."""
    with ExitStack() as undo:

        def replace(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
            if hasattr(owner, name):
                undo.enter_context(replaced(owner, name, partial(wrapper, getattr(owner, name))))

        if (propagation := sys.modules.get(_PROPAGATION)) is not None:
            replace(propagation.ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen)
            replace(propagation.ShardingPropagator, "propagate_op_sharding_non_cached", once_for_equal_tensors)
        for module in filter(None, map(sys.modules.get, _GATHERED)):
            for prefix in ("", "_"):
                replace(module, f"{prefix}alloc_storage", partial(_followed, recorder, recorder.lives.allocate))
                replace(module, f"{prefix}free_storage", partial(_followed, recorder, recorder.lives.free))
            # Weights on the meta device are no reason not to count.
            replace(getattr(module, "FSDPParamGroup", None), "_validate_no_meta_params", lambda *_: None)
        replace(sys.modules.get(_FLAT_RUNTIME), "_catch_all_reshard", _reshard_rest)
        yield


def is_fully_sharded(model: nn.Module) -> bool:
    """Whether some module gathers its weights for a call and shares out their gradients afterwards."""
    found = sys.modules.get(_FULLY_SHARDED)
    if found is not None and any(isinstance(module, found.FSDPModule) for module in model.modules()):
        return True
    return next(private.flat_handles(model), None) is not None


def forget_gathered(model: nn.Module) -> None:
    """Bring a fully sharded model to its state before its first forward pass: with shards, and without gathered weights.

    What earlier runs gathered keeps its memory, or the lack of it, and is there again with all else that a run changes.
    """
    for group in private.fully_sharded_groups(model):
        for shard in group.fsdp_params:
            if not group.is_sharded:
                shard._setattr_on_modules(shard.sharded_param)
                shard.sharded_state = type(shard.sharded_state).SHARDED
            shard.all_gather_outputs, shard._unsharded_inner_tensors = [], []
            vars(shard).pop("_unsharded_param", None)
        group._sharded_state = type(group._sharded_state).SHARDED


def place_shards(model: nn.Module, recorder: DatalessRecorder) -> None:
    """Put tensors without data in the place of a fully sharded model's parameters that are on the meta device.

    PyTorch shares gradients out into `.grad`, which takes none that is on another device than the parameter.
    """
    placed: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None or parameter.device.type != "meta":
                continue
            if id(parameter) not in placed:
                stand_in: Any = rebuilt(parameter, lambda part, _: recorder.twin(part))
                stand_in._is_param = True  # it is then an nn.Parameter
                placed[id(parameter)] = stand_in.requires_grad_(parameter.requires_grad)
            module._parameters[name] = placed[id(parameter)]  # type: ignore[assignment]
    for group in private.fully_sharded_groups(model):
        for shard in group.fsdp_params:
            if id(shard.sharded_param) in placed:
                shard.sharded_param = placed[id(shard.sharded_param)]
                shard._sharded_param_data = recorder.twin(shard._sharded_param_data)
                group._reset_sharded_params = True  # as after a first forward, which looks for memory of its own


def place_flat_shards(model: nn.Module, recorder: DatalessRecorder) -> None:
    """Put tensors without data in the place of the flat parameters of FullyShardedDataParallel, as before its first forward.

    A forward pass lets them be all of the gathered parameters for a time, which a tensor of another kind cannot be.
    """
    placed: dict[int, torch.Tensor] = {}

    def place(parameter: torch.Tensor) -> Any:
        if id(parameter) not in placed:
            stand_in: Any = recorder.twin(parameter)
            vars(stand_in).update(vars(parameter), _is_param=True)
            placed[id(parameter)] = stand_in.requires_grad_(parameter.requires_grad)
        return placed[id(parameter)]

    for state, handle in private.flat_handles(model):
        state._is_root = None
        if handle is None:
            continue
        handle._skip_writeback_check = True  # which compares addresses, to find parameters that a user has replaced
        flat = handle.flat_param = place(handle.flat_param)
        for name in ("_params", "_shared_params"):
            if getattr(flat, name, None) is not None:
                setattr(flat, name, [place(parameter) for parameter in getattr(flat, name)])
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = placed.get(id(parameter), parameter)  # type: ignore[assignment]


def shared_gradients(outputs: list[torch.Tensor], leaves: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    """The gradients of a fully sharded model's parameters.

    They belong to gathered weights, which are no parameters after forward, and PyTorch shares them out into `.grad`, which
    is put back with all else that a run changes.
    """
    for leaf in leaves:
        leaf.grad = None
    torch.autograd.backward(outputs, given)
    return [leaf.grad for leaf in leaves]


@contextmanager
def earlier_gradients(recorder: DatalessRecorder) -> Iterator[set[int]]:
    """Let FSDP2 find gradients of earlier passes, to which it adds; the storages of those that it found.

    It has left those of a group of parameters as parts of one buffer.
    """
    found: set[int] = set()

    def reduce(function: Callable[..., Any], shards: list[Any], *args: Any, **kwargs: Any) -> Any:
        dtype = str(shards[0].sharded_param.dtype).removeprefix("torch.")
        whole = TensorSpec((sum(shard.padded_sharded_param_size.numel() for shard in shards),), dtype)
        buffer = recorder.value_before_run(whole, "gradients")
        found.add(buffer)
        for shard in shards:
            part_of_buffer = partial(recorder.before_run, storage=buffer)
            shard.sharded_param.grad = rebuilt(shard.sharded_param, lambda part, _, of=part_of_buffer: of(part, "grad"))  # type: ignore[misc]
        return function(shards, *args, **kwargs)

    groups = sys.modules[f"{_FULLY_SHARDED}._fsdp_param_group"]
    with replaced(groups, "foreach_reduce", partial(reduce, groups.foreach_reduce)):  # type: ignore[attr-defined]
        yield found


@contextmanager
def summed_over_ranks(weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Let gradients of weights that every rank has whole be summed, where transformers does that in hooks of `.grad`."""
    with ExitStack() as undo:
        for weight in weights.values():
            hooks = (getattr(weight, "_post_accumulate_grad_hooks", None) or {}).values()
            if own := [hook for hook in hooks if hook.__module__.startswith("transformers.")]:
                undo.callback(weight.register_hook(partial(_called_with, own)).remove)
        yield


def _called_with(hooks: list[Callable[[Any], None]], gradient: torch.Tensor) -> None:
    with torch.no_grad():
        for hook in hooks:
            hook(SimpleNamespace(grad=gradient))


def note_of(model: nn.Module) -> str | None:
    """What a report says of a model that is spread over ranks."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is None:
        return None
    sizes = [p.device_mesh.size() for p in model.parameters() if isinstance(p, distributed.DTensor)]
    sizes += [handle.world_size for _, handle in private.flat_handles(model) if handle is not None]
    if not sizes:
        return None
    rank = torch.distributed.get_rank()
    return f"the model lies on {max(sizes)} ranks: parameters, operators and memory are those of rank {rank}"


def axes_of(model: nn.Module, data_parallel: Any = None) -> dict[str, str]:
    """The dimensions of the meshes over which a model is spread, by the names of their process groups.

    `data_parallel` is the DistributedDataParallel around it, if there is one.
    """
    distributed = sys.modules.get("torch.distributed.tensor")
    meshes = [p.device_mesh for p in model.parameters() if distributed and isinstance(p, distributed.DTensor)]
    meshes += [getattr(wrapper, "_device_mesh", None) for wrapper, _ in private.flat_handles(model)]
    meshes.append(getattr(data_parallel, "device_mesh", None))
    found: dict[str, str] = {}
    for mesh in {id(mesh): mesh for mesh in meshes if mesh is not None}.values():
        found.update(zip(private.group_names(mesh), mesh.mesh_dim_names or (), strict=False))
    return found


def once_for_equal_tensors(propagate: Callable[..., Any], propagator: Any, schema: Any) -> Any:
    """Find the layout of the results of an operator on lists of tensors; of equal ones it is found once, for each by itself.

    An optimizer updates the parameters of many equal blocks in one operator, and PyTorch looks at every way to shard each.
    """
    lists = [
        arg for arg in schema.args_schema if isinstance(arg, (list, tuple)) and arg and hasattr(arg[0], "placements")
    ]
    if not lists or not schema.op.name().startswith("aten::_foreach_"):
        return propagate(propagator, schema)
    every = [*zip(*lists, strict=True)]
    places = {specs: place for place, specs in enumerate(dict.fromkeys(every))}
    if len(places) == len(every):
        return propagate(propagator, schema)
    firsts = [every.index(specs) for specs in places]

    def few(arg: Any) -> Any:
        of_each = isinstance(arg, (list, tuple)) and len(arg) == len(every)
        return type(arg)(arg[first] for first in firsts) if of_each else arg

    few_of_each = type(schema)(
        schema.op, tuple(map(few, schema.args_schema)), schema.kwargs_schema, schema_info=schema.schema_info
    )
    found = propagate(propagator, few_of_each)
    if found.needs_redistribute:
        return propagate(propagator, schema)
    specs = found.output_spec
    return found if specs is None else type(found)(type(specs)(specs[places[each]] for each in every))


def unseen(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function without its operators being recorded."""
    with private.no_modes():
        return function(*args, **kwargs)


def _reshard_rest(reshard: Callable[[Any], None], state: Any) -> None:
    """After a backward pass, free gathered parameters that it did not; without data their addresses do not say which."""
    handle = state._handle
    if handle is None or type(handle.flat_param) is not Recorded:
        reshard(state)
    elif handle.flat_param.shape != handle.flat_param._local_shard.shape or handle._skipped_use_sharded_views:
        runtime: Any = sys.modules[_FLAT_RUNTIME]
        runtime._reshard(state, handle, runtime._should_free_in_backward(state, handle))


def _followed(
    recorder: DatalessRecorder,
    note: Callable[[int], None],
    change: Callable[..., None],
    tensor: torch.Tensor,
    *size: torch.Size,
) -> None:
    """The memory of gathered parameters is freed or allocated; of tensors without data it has a size and nothing else."""
    if type(tensor) is Recorded and tensor.life is not None and tensor.life.memory is None:
        tensor.life.memory = torch.UntypedStorage(tensor.numel() * tensor.element_size(), device="meta")
    if not tensor.untyped_storage().size():  # there is nothing that could be looked at
        change(tensor, *size)
    note(recorder.storages[recorder.state(tensor).vid])
    change(tensor, *size)
