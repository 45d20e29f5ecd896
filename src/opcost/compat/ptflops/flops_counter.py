"""`get_model_complexity_info`: the arguments, the count, what is printed."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import partial
from typing import Any, TextIO

import torch
from torch import nn

from opcost.compat._layers.annotated import repr_with
from opcost.compat.ptflops.count import Hook, ModuleMacs, OperatorMacs, count_modules, count_operators
from opcost.compat.ptflops.text import flops_to_string, params_to_string
from opcost.errors import InputError, StateError


class FLOPS_BACKEND(Enum):
    """What is listed: modules (`pytorch`), or operators of the dispatcher (`aten`), which counts only contractions and biases."""

    PYTORCH = "pytorch"
    ATEN = "aten"


def get_model_complexity_info(
    model: nn.Module,
    input_res: tuple[int, ...],
    print_per_layer_stat: bool = True,
    as_strings: bool = True,
    input_constructor: Callable[[tuple[int, ...]], Any] | None = None,
    ost: TextIO | None = None,
    verbose: bool = False,
    ignore_modules: Collection[Any] = (),
    custom_modules_hooks: Mapping[Any, Hook] | None = None,
    backend: str | FLOPS_BACKEND = FLOPS_BACKEND.PYTORCH,
    flops_units: str | None = None,
    param_units: str | None = None,
    output_precision: int = 2,
    backend_specific_config: Mapping[str, Any] | None = None,
) -> tuple[str | int | None, str | int | None]:
    """Multiply-adds and trainable parameters of a model in evaluation mode, as text or as integers.

    `input_res` is the shape of the input without the batch, which is 1; `input_constructor` makes something else
    of it: a mapping becomes keyword arguments. What is printed goes to `ost`, the standard output if None. A model that
    raises is told about, and both results are None. `ignore_modules` and the keys of `custom_modules_hooks` are module
    classes, or operators such as `torch.ops.aten.mm` with the `aten` backend. The one setting of
    `backend_specific_config` is `count_functional`: False leaves out what modules outside `torch.nn` run themselves.
    """
    if type(input_res) is not tuple or not input_res:
        raise InputError(f"input_res must be a tuple of at least one extent, not {input_res!r}")
    out = sys.stdout if ost is None else ost
    hooks = custom_modules_hooks or {}
    batch = input_constructor(input_res) if input_constructor else _input_of(model, input_res)
    args, kwargs = ((), dict(batch)) if isinstance(batch, dict) else ((batch,), {})
    by_module = FLOPS_BACKEND(backend) is FLOPS_BACKEND.PYTORCH
    count: Callable[..., Any] = count_operators
    if by_module:
        count = partial(count_modules, functional=(backend_specific_config or {}).get("count_functional", True))
    try:
        found = count(model, args, kwargs, ignore_modules, hooks)
    except Exception as exc:
        cause = exc.__cause__ or exc
        if isinstance(cause, StateError):  # the model is not as it was: nobody may overlook that
            raise
        # Whatever else the model raises is told, and the answer is None.
        print(
            f"Flops estimation was not finished successfully because of the following exception: \n{type(cause)}: {cause}",
            file=out,
        )
        traceback.print_exc()
        return None, None
    as_text = partial(flops_to_string, units=flops_units, precision=output_precision)
    params = _trainable(model)
    if by_module:
        images = _images(args, out)
        macs = found.total // images
        if verbose:
            _warn_of_free_modules(found, ignore_modules, out)
        if print_per_layer_stat:
            params_text = partial(params_to_string, units=param_units, precision=output_precision)
            print(_annotated(model, found, images, params, ignore_modules, as_text, params_text), file=out)
    else:
        macs = found.total
        _list_operators(found, as_text, out, verbose=verbose, listed=print_per_layer_stat)
    if not as_strings:
        return macs, params
    return as_text(macs), params_to_string(params, units=param_units, precision=output_precision)


def _input_of(model: nn.Module, input_res: tuple[int, ...]) -> torch.Tensor:
    """A tensor without data of the type of the model's first parameter."""
    first = next(model.parameters(), None)
    return torch.empty((1, *input_res), dtype=first.dtype if first is not None else None, device="meta")


def _images(args: tuple[Any, ...], out: TextIO) -> int:
    """The batch: numbers are per image."""
    if args:
        return max(len(args[0]), 1)
    print("Warning! No positional inputs found for a module, assuming batch size is 1.", file=out)
    return 1


def _trainable(module: nn.Module, ignored: Collection[Any] = ()) -> int:
    """Elements of the distinct parameters that receive gradients, without those of ignored classes."""
    found: dict[int, int] = {}

    def collect(part: nn.Module) -> None:
        if type(part) not in ignored:
            found.update((id(p), p.numel()) for p in part.parameters(recurse=False) if p.requires_grad)
            for child in part.children():
                collect(child)

    collect(module)
    return sum(found.values())


def _annotated(
    model: nn.Module,
    found: ModuleMacs,
    images: int,
    params: int,
    ignored: Collection[Any],
    macs_text: Callable[[float], str],
    params_text: Callable[[int], str],
) -> str:
    modules = found.names.modules

    def words(name: str, own: str) -> str:
        held = _trainable(modules[name], ignored)
        macs = found.of(name) / images
        return ", ".join(
            [
                params_text(held),
                f"{held / max(params, 1):.3%} Params",
                macs_text(macs),
                f"{macs / max(found.total / images, 1):.3%} MACs",
                own,
            ]
        )

    return repr_with(model, words)


def _warn_of_free_modules(found: ModuleMacs, ignored: Collection[Any], out: TextIO) -> None:
    """Classes without children whose modules cost nothing by these rules."""
    cost: dict[type, int] = {}
    for name, module in found.names.modules.items():
        if not any(module.children()) and type(module) not in ignored:
            cost[type(module)] = cost.get(type(module), 0) + found.of(name)
    for kind, macs in cost.items():
        if not macs:
            print(f"Warning: module {kind.__name__} is treated as a zero-op.", file=out)


def _list_operators(
    found: OperatorMacs, macs_text: Callable[[float], str], out: TextIO, *, verbose: bool, listed: bool
) -> None:
    for operator in found.ignored:
        print(f"Warning: {operator} operation is ignored", file=out)
    if verbose:
        for operator in found.free:
            print(f"Warning: {operator} operation is treated as a zero-op", file=out)
    if not listed:
        return
    print(f"Total:{macs_text(found.total)}", file=out)
    for group, operators in found.by_module.items():
        print("Module: ", group, file=out)
        for operator, macs in operators.items():
            print(f"{operator}: {macs_text(macs)}", file=out)
        print(file=out)
