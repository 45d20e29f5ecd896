"""The result of `summary`: the lines, the totals, and the table as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from opcost.compat._layers.calls import LayerCall
from opcost.compat.torchinfo.layer_info import LayerInfo
from opcost.core.harmless import printable

HEADER_TITLES = {
    "kernel_size": "Kernel Shape",
    "input_size": "Input Shape",
    "output_size": "Output Shape",
    "num_params": "Param #",
    "mult_adds": "Mult-Adds",
}
_INDENT = 5
_NARROWEST_NAME = 40
_FLOAT_MIB = 4 / 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """How the table is laid out."""

    branching: bool
    depth: int
    verbose: int
    columns: tuple[str, ...]
    width: int


@dataclass(slots=True)
class Line:
    """One call of a layer, or a container above those that it holds."""

    info: LayerInfo
    mult_adds: int
    """Of its own forward, for one sample and without biases."""
    input_size: list[Any]
    output_size: list[Any]
    number: int | None = None
    """Among the calls of its depth; None for a container that is not called."""

    @classmethod
    def of(cls, info: LayerInfo, call: LayerCall | None, batch_dim: int | None) -> Line:
        """The line of a call; the batch is shown as -1."""
        given, made = (_without_batch(size, batch_dim) for size in (info.input_size, info.output_size))
        return cls(info, _mult_adds(call, batch_dim), given, made)

    @property
    def is_leaf(self) -> bool:
        return self.info.is_leaf_layer

    @property
    def name(self) -> str:
        number = "" if self.number is None else f"-{self.number}"
        return f"{self.info.class_name}: {self.info.depth}{number}"


class ModelStatistics:
    """The lines of a summary and their totals; `print` shows the table."""

    def __init__(self, summary_list: list[Line], input_size: list[tuple[int, ...]], formatting: Format) -> None:
        self.summary_list = summary_list
        self.input_size = input_size
        self.formatting = formatting
        self.total_input = sum(map(prod, input_size))
        root = summary_list[0].info
        while root.parent_info is not None:
            root = root.parent_info
        self.total_params = root.num_params
        self.trainable_params = root.trainable_params
        self.total_mult_adds = sum(line.mult_adds for line in summary_list)
        # Once for the values and once for their gradients, of the layers that have something to learn.
        self.total_output = sum(
            2 * abs(prod(line.output_size))
            for line in summary_list
            if line.is_leaf and line.info.num_params and not line.info.is_recursive
        )
        counts: dict[int, int] = {}
        for line in summary_list:
            if line.info.executed or not input_size:
                counts[line.info.depth] = line.number = counts.get(line.info.depth, 0) + 1

    def __repr__(self) -> str:
        return "\n".join(self._text())

    def _text(self) -> Iterator[str]:
        names = [len(line.name) + line.info.depth * _INDENT + 1 for line in self.summary_list]
        longest = max(names, default=0)
        name_width = ceil(longest / _INDENT) * _INDENT if longest >= _NARROWEST_NAME else _NARROWEST_NAME
        rule = "=" * (name_width + len(self.formatting.columns) * self.formatting.width)
        yield rule
        yield self._row(name_width, "Layer (type:depth-idx)", HEADER_TITLES)
        yield rule
        for line in self.summary_list:
            if line.info.depth <= self.formatting.depth or not self.formatting.branching:
                yield from self._line(name_width, line)
        yield rule
        yield f"Total params: {self.total_params:,}"
        yield f"Trainable params: {self.trainable_params:,}"
        yield f"Non-trainable params: {self.total_params - self.trainable_params:,}"
        if self.input_size:
            unit, size = ("G", 1e9) if self.total_mult_adds >= 1e9 else ("M", 1e6)
            whole = self.total_input + self.total_output + self.total_params
            yield f"Total mult-adds ({unit}): {self.total_mult_adds / size:0.2f}"
            yield rule
            yield f"Input size (MB): {self.total_input * _FLOAT_MIB:0.2f}"
            yield f"Forward/backward pass size (MB): {self.total_output * _FLOAT_MIB:0.2f}"
            yield f"Params size (MB): {self.total_params * _FLOAT_MIB:0.2f}"
            yield f"Estimated Total Size (MB): {whole * _FLOAT_MIB:0.2f}"
        yield rule

    def _row(self, name_width: int, name: str, values: dict[str, str]) -> str:
        width = self.formatting.width
        cells = [
            f"{printable(name):<{name_width}}",
            *(f"{values.get(c, ''):<{width}}" for c in self.formatting.columns),
        ]
        return " ".join(cells).rstrip()

    def _line(self, name_width: int, line: Line) -> Iterator[str]:
        last = self.formatting.branching and line.info.depth == self.formatting.depth
        below = [
            other for other in self.summary_list if last and any(other.info is child for child in line.info.children)
        ]
        mult_adds = line.mult_adds + sum(other.mult_adds for other in below)
        values = {
            "kernel_size": str(_kernel(line.info) or "--"),
            "input_size": str(line.input_size),
            "output_size": str(line.output_size),
            "num_params": _params(line, last=last),
            "mult_adds": f"{mult_adds:,}" if line.info.num_params and (last or line.is_leaf) else "--",
        }
        yield self._row(name_width, f"{self._guide(line.info.depth)}{line.name}", values)
        if self.formatting.verbose > 1:
            start = self._guide(line.info.depth + 1) or "  "
            for parameter in line.info.parameters:
                if "weight" in parameter.name and parameter.name != "weight":
                    yield self._row(name_width, f"{start}{parameter.name}", {"kernel_size": str(list(parameter.shape))})

    def _guide(self, depth: int) -> str:
        if not self.formatting.branching:
            return ""
        return "├─" if depth <= 1 else "|    " * (depth - 1) + "└─"


def _params(line: Line, *, last: bool) -> str:
    info = line.info
    if info.is_recursive:
        return "(recursive)"
    if not info.num_params or not (last or line.is_leaf):
        return "--"
    return f"{info.num_params:,}" if info.trainable == "True" else f"({info.num_params:,})"


def _kernel(info: LayerInfo) -> list[int]:
    """The shape of a weight, inputs first."""
    shape = next((list(p.shape) for p in info.parameters if p.name == "weight"), [])
    return [shape[1], shape[0], *shape[2:]] if len(shape) > 1 else shape


def _mult_adds(call: LayerCall | None, batch_dim: int | None) -> int:
    """Multiply-adds of one sample; a layer that has none counts its weights once."""
    if call is None:
        return 0
    if call.macs:
        outputs = call.outputs
        batch = outputs[0].dims[batch_dim or 0] if outputs and len(outputs[0].dims) > (batch_dim or 0) else 1
        return call.macs // (batch or 1)
    if any(call.module.children()):
        return 0
    return sum(p.numel() for name, p in call.module.named_parameters() if "weight" in name)


def _without_batch(size: list[Any], batch_dim: int | None) -> list[Any]:
    if batch_dim is None or batch_dim >= len(size):
        return size
    return [*size[:batch_dim], -1, *size[batch_dim + 1 :]]
