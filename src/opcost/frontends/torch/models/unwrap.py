"""The model inside a wrapper (data parallel, compiled, exported), and a model around a bare function."""

import sys
from collections.abc import Callable, Iterator
from inspect import getattr_static
from typing import Any

import torch
from torch import nn

from opcost.errors import UnknownSource
from opcost.frontends.torch import private
from opcost.frontends.torch.models import is_exported, is_function, is_schedule
from opcost.frontends.torch.models.absent import is_absent


class FunctionModel(nn.Module):
    """A function or a bound method as a model; modules that it calls are found when it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function
        bound = getattr(function, "__self__", None)
        self.training = getattr(bound, "training", False)  # a function by itself has no mode
        if isinstance(bound, nn.Module):
            self.add_module("self", bound)


def unwrap(source: Any) -> nn.Module:
    """The module that does the work."""
    if is_exported(source):
        # A module that runs the program, with the modules of the original if the program has their names
        try:
            with _Shared():
                return torch.export.unflatten(source)
        except Exception:  # not every program can be taken apart again; its operators are then all the root's
            return source.module()  # type: ignore[no-any-return]
    if is_schedule(source):
        return _stages(source)
    source = _wrappers(source)[-1]
    if is_function(source):
        return FunctionModel(source)
    if not isinstance(source, torch.nn.Module):
        raise UnknownSource(f"an object of type {type(source).__name__} is not a PyTorch module")
    return source


def stages_in(schedule: Any) -> list[Any]:
    """The stages of a pipeline that this rank has."""
    return list(getattr(schedule, "_stages", None) or [schedule._stage])


def _stages(schedule: Any) -> nn.Module:
    """The model of the stage that this rank has of a pipeline; of several those of each, by its number."""
    stages = stages_in(schedule)
    if len(stages) == 1:
        return stages[0].submod  # type: ignore[no-any-return]
    return nn.ModuleDict({f"stage{stage.stage_index}": stage.submod for stage in stages})


def data_parallel_around(source: Any) -> nn.parallel.DistributedDataParallel | None:
    """The wrapper that averages the gradients of a model over ranks, if there is one."""
    return next((one for one in _wrappers(source) if isinstance(one, nn.parallel.DistributedDataParallel)), None)


def _wrappers(source: Any) -> list[Any]:
    """What was given, and inside of it one wrapper after the other, down to what does the work."""
    found = [source]
    dynamo = sys.modules.get("torch._dynamo")
    while True:
        if isinstance(source, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            source = source.module
        elif dynamo is not None and isinstance(source, dynamo.OptimizedModule):
            source = source._orig_mod
        elif (
            isinstance(source, nn.Module)
            and getattr_static(source, "forward") is nn.Module.forward
            and isinstance(getattr(source, "model", None), nn.Module)
        ):  # it has no forward of its own and keeps the model that has one, as `ultralytics.YOLO` does
            source = source.model
        else:
            return found
        found.append(source)


def type_name(module: nn.Module) -> str:
    """The class that a module's author wrote, also where scripting or exporting has replaced it."""
    if isinstance(module, FunctionModel):
        function = getattr(module.forward, "func", module.forward)  # of a partial
        return str(getattr(function, "__name__", type(function).__name__))
    if isinstance(module, torch.jit.ScriptModule):
        return str(getattr(module, "original_name", "")) or type(module).__name__
    exported = vars(module).get("_ty")
    if isinstance(exported, str) and exported:
        return exported.rpartition(".")[2]
    # The class below the one that `fully_shard` makes: of its own and the author's, under a name of both
    cls = type(module)
    bases = cls.__bases__
    return (bases[1] if len(bases) == 2 and bases[0].__name__ == "FSDPModule" else cls).__name__


# -- exported programs -----------------------------------------------------------------------------------------------


def by_position(
    program: torch.export.ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that were given by name where the program takes them in order."""
    names = [str(name) for name in program.graph_signature.user_inputs]
    expected = len(program.example_inputs[0]) if program.example_inputs else len(names)
    kwargs = dict(kwargs)
    while len(args) < min(expected, len(names)) and names[len(args)] in kwargs:
        args = (*args, kwargs.pop(names[len(args)]))
    return args, kwargs


class _Shared(private.DispatchMode):
    """Lets unflattened modules share the program's weights instead of copying them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.clone.default:
            return args[0].detach()
        return func(*args, **(kwargs or {}))


def lists_of_blocks(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The outermost lists of modules of one class, which are the repeated blocks, and their paths; a model may be one itself."""
    members = [*model.children()]
    kinds = {type(member) for member in members if not is_absent(member)}
    if isinstance(model, (nn.ModuleList, nn.Sequential)) and len(members) > 1 and len(kinds) == 1:
        yield path, model
        return
    for name, child in model.named_children():
        yield from lists_of_blocks(child, f"{path}.{name}" if path else name)
