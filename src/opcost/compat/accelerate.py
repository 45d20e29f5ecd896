"""accelerate's `estimate-memory`: how much memory a model takes to load and to train, by element type.

    python -m opcost.compat.accelerate timm:resnet50 --dtypes float32 float16

The sizes are the bytes of parameters and buffers, of the largest layer, and of a step of Adam.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.compat._tables import rule
from opcost.core.escaping import printable
from opcost.errors import UnknownSource
from opcost.frontends.torch.models.unwrap import unwrap

__all__ = ["create_ascii_table", "estimate_command", "estimate_command_parser", "estimate_memory", "gather_data"]

DTYPES = ("float32", "float16", "int8", "int4")
_SMALLER = {"float32": 1, "float16": 2, "int8": 4, "int4": 8}  # By how much a model of float32 shrinks
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
        hint = "name timm:NAME or path/to/net.py:Net"
        raise UnknownSource(f"{source} does not name code that makes a model", hint=hint)
    with named.guard():
        return unwrap(named.build(real=False))


def _sizes(model: nn.Module, dtypes: Iterable[str]) -> Iterator[tuple[str, float, float, int | None]]:
    total = _bytes(model)
    # What is never split over devices: modules without children, those that the model declares whole, bare tensors
    whole = getattr(model, "_no_split_modules", None) or ()
    layers: list[Any] = [*model.parameters(recurse=False), *model.buffers(recurse=False)]
    remaining = list(model.children())
    while remaining:
        module = remaining.pop()
        children = list(module.children())
        if children and type(module).__name__ not in whole:
            remaining += children
        else:
            layers.append(module)
    layer = max(map(_bytes, layers), default=0)
    for dtype in dtypes:
        smaller = _SMALLER[dtype]
        yield dtype, layer / smaller, total / smaller, total * _STEP[dtype] if dtype in _STEP else None


def _bytes(part: Any) -> int:
    """Bytes of a tensor, or of the distinct parameters and buffers of a module."""
    tensors = [part] if isinstance(part, torch.Tensor) else [*part.parameters(), *part.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def convert_bytes(size: float) -> str:
    """A size in the largest unit of which it has at least one."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} PB"


def create_ascii_table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> str:
    """A framed table with a title; a long title makes the last column wider."""
    rows = [[printable(cell) for cell in row] for row in rows]
    title = printable(title)
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    inside = sum(widths) + len(widths) - 1
    if len(title) > sum(widths):
        widths[-1] += max(len(title) - inside, 0)
        inside = sum(widths) + len(widths) - 1

    def line(cells: Sequence[str]) -> str:
        return "│" + "│".join(cell.center(width) for cell, width in zip(cells, widths, strict=True)) + "│"

    top, below_title, below_head, bottom = (rule(widths, look) for look in ("┌──┐", "├─┬┤", "├─┼┤", "└─┴┘"))
    head = [top, f"│{title.center(inside)}│", below_title, line(headers), below_head]
    return "\n".join([*head, *map(line, rows), bottom])


def estimate_command_parser(subparsers: Any = None) -> ArgumentParser:
    """The parser of `accelerate estimate-memory`: one of its own, or one more of these."""
    if subparsers is not None:
        parser: ArgumentParser = subparsers.add_parser("estimate-memory")
        parser.set_defaults(func=estimate_command)
    else:
        parser = ArgumentParser(prog="estimate-memory", description="How much memory a model takes.")
    parser.add_argument("model_name", help="timm:NAME, hf:config.json, path/to/net.py:Net")
    parser.add_argument("--library_name", choices=["timm", "transformers"], help="library of a name without a prefix")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--trust_remote_code", action="store_true", help="no effect: nothing is downloaded")
    return parser


def estimate_command(args: Namespace) -> None:
    """Print the table for the arguments of the command line."""
    in_timm = getattr(args, "library_name", None) == "timm" and ":" not in args.model_name
    print(estimate_memory(f"timm:{args.model_name}" if in_timm else args.model_name, args.dtypes))


if __name__ == "__main__":
    estimate_command(estimate_command_parser().parse_args())
