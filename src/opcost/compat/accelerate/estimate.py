"""The estimate: bytes of parameters and buffers, of the largest layer, and of a step of Adam."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.compat.accelerate.table import convert_bytes, create_ascii_table
from opcost.errors import UnknownSource
from opcost.frontends.torch.models.unwrap import unwrap

DTYPES = ("float32", "float16", "int8", "int4")
_SMALLER = {"float32": 1, "float16": 2, "int8": 4, "int4": 8}
"""By how much a model of float32 shrinks."""
_STEP = {"float32": 4, "float16": 2}
"""The most of weights, gradients and the states of Adam that lives at once, in sizes of the model; others do not train."""
_HEADERS = ("dtype", "Largest Layer", "Total Size", "Training using Adam")


def estimate_memory(model: Any, dtypes: Sequence[str] = DTYPES) -> str:
    """The table for a model, or for anything that names one to `opcost.count`: `timm:NAME`, `hf:config.json`, `net.py:Net`."""
    name = model if isinstance(model, (str, Path)) else type(model).__name__
    rows = [
        [dtype, convert_bytes(layer), convert_bytes(total), "N/A" if step is None else convert_bytes(step)]
        for dtype, layer, total, step in _sizes(built(model), dtypes)
    ]
    return create_ascii_table(list(_HEADERS), rows, f"Memory Usage for loading `{name}`")


def estimate_command_parser(subparsers: Any = None) -> ArgumentParser:
    """The parser of `accelerate estimate-memory`: one of its own, or one more of these."""
    if subparsers is not None:
        parser: ArgumentParser = subparsers.add_parser("estimate-memory")
        parser.set_defaults(func=estimate_command)
    else:
        parser = ArgumentParser(prog="estimate-memory", description="How much memory a model takes.")
    parser.add_argument("model_name", help="timm:NAME, hf:config.json, path/to/net.py:Net")
    parser.add_argument("--library_name", choices=["timm", "transformers"], help="where a bare name is looked for")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--trust_remote_code", action="store_true", help="of no effect: nothing is fetched")
    return parser


def estimate_command(args: Namespace) -> None:
    """Print the table for the arguments of the command line."""
    in_timm = getattr(args, "library_name", None) == "timm" and ":" not in args.model_name
    print(estimate_memory(f"timm:{args.model_name}" if in_timm else args.model_name, args.dtypes))


def gather_data(args: Namespace) -> list[list[Any]]:
    """Element type, bytes of the largest layer, bytes of all, bytes of a step (None where there is no training)."""
    return [list(row) for row in _sizes(built(args.model_name), args.dtypes)]


def built(source: Any) -> nn.Module:
    """The model that a text names, without memory for its weights."""
    if not isinstance(source, (str, Path)):
        return unwrap(source)
    from opcost.frontends.source import PythonModel, resolve

    named = resolve(str(source))
    if not isinstance(named, PythonModel):
        raise UnknownSource(
            f"{source} does not name code that makes a model", hint="name timm:NAME or path/to/net.py:Net"
        )
    with named.guard():
        return unwrap(named.build(real=False))


def _sizes(model: nn.Module, dtypes: Iterable[str]) -> Iterator[tuple[str, float, float, int | None]]:
    total = _bytes(model)
    layer = max((_bytes(part) for part in _layers(model)), default=0)
    for dtype in dtypes:
        smaller = _SMALLER[dtype]
        yield dtype, layer / smaller, total / smaller, total * _STEP[dtype] if dtype in _STEP else None


def _layers(model: nn.Module) -> Iterator[Any]:
    """What is never split over devices: modules without children, those that the model says not to split, bare tensors."""
    whole = getattr(model, "_no_split_modules", None) or ()
    yield from model.parameters(recurse=False)
    yield from model.buffers(recurse=False)
    waiting = list(model.children())
    while waiting:
        module = waiting.pop()
        children = list(module.children())
        if not children or type(module).__name__ in whole:
            yield module
        else:
            waiting += children


def _bytes(part: Any) -> int:
    """Of a tensor, or of the distinct parameters and buffers of a module."""
    tensors = [part] if isinstance(part, torch.Tensor) else [*part.parameters(), *part.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
