"""What fvcore counts for an operator: one flop for each multiply-add, and its own constants for norms, pooling and resizing.

The names are fvcore's, which handles of others import. A contraction takes its number from the rows of the report, which are
right also where broadcasting, many operands or a fused kernel hide the products from the shapes of the arguments.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import torch

from opcost.api import count
from opcost.compat._operators import OperatorCall

Handle: TypeAlias = Callable[[list[Any], list[Any]], "Counter[str] | float"]

AFFINE_NORM_FLOPS, PLAIN_NORM_FLOPS = 5, 4  # Per element, where the statistics are computed
AFFINE_SCALE_FLOPS, PLAIN_SCALE_FLOPS = 2, 1  # Per element, where the statistics are stored (batch norm in use)


def get_shape(val: Any) -> list[int] | None:
    """The shape of a tensor; None for anything else."""
    return val.type().sizes() if val.isCompleteTensor() else None


def _elements(val: Any) -> int:
    """Elements of a tensor; 0 for anything else."""
    return prod(get_shape(val) or [0])


def macs(inputs: list[Any], outputs: list[Any]) -> int:
    """The multiply-adds of everything that ran for the operator."""
    node = outputs[0].node()
    if isinstance(node, OperatorCall):
        return node.macs
    # In a graph that torch's jit traced: counted with tensors of the shapes in the graph
    library, _, name = node.kind().partition("::")
    operator = getattr(getattr(torch.ops, library), name)
    places = torch._C.parse_schema(node.schema()).arguments  # noqa: SLF001 - torch has no public way to it
    given = [(place, _argument(value)) for place, value in zip(places, node.inputs(), strict=True)]
    args = [argument for place, argument in given if not place.kwarg_only]
    kwargs = {place.name: argument for place, argument in given if place.kwarg_only}
    return int(count(lambda: operator(*args, **kwargs), ()).totals.macs)


def _argument(value: Any) -> Any:
    if value.isCompleteTensor():
        return torch.empty(value.type().sizes(), dtype=value.type().dtype(), device="meta")
    if value.node().kind() == "prim::ListConstruct":
        return [_argument(item) for item in value.node().inputs()]
    return value.toIValue()


addmm_flop_jit = linear_flop_jit = bmm_flop_jit = einsum_flop_jit = matmul_flop_jit = macs


def conv_flop_jit(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """The multiply-adds of a convolution, under the name of fvcore."""
    return Counter({"conv": macs(inputs, outputs)})


def conv_flop_count(
    x_shape: Sequence[int], w_shape: Sequence[int], out_shape: Sequence[int], transposed: bool = False
) -> int:
    """The multiply-adds of a convolution from its shapes: every weight at every position, of the input where it is transposed."""
    positions = (x_shape if transposed else out_shape)[2:]
    return x_shape[0] * prod(w_shape) * prod(positions)


def norm_flop_counter(affine_arg_index: int) -> Handle:
    """A norm that computes its statistics, with the position of the affine weight among the arguments."""

    def flops(inputs: list[Any], outputs: list[Any]) -> int:
        affine = inputs[affine_arg_index].isCompleteTensor()
        return _elements(inputs[0]) * (AFFINE_NORM_FLOPS if affine else PLAIN_NORM_FLOPS)

    return flops


def batchnorm_flop_jit(inputs: list[Any], outputs: list[Any]) -> float | Counter[str]:
    """Batch norm: in training as any norm, in use a scale and a shift."""
    if inputs[5].toIValue():
        return norm_flop_counter(1)(inputs, outputs)
    return _elements(inputs[0]) * (AFFINE_SCALE_FLOPS if inputs[1].isCompleteTensor() else PLAIN_SCALE_FLOPS)


def elementwise_flop_counter(input_scale: float = 1, output_scale: float = 0) -> Handle:
    """`input_scale` for each element of the first argument, and `output_scale` for each of the first result."""

    def flops(inputs: list[Any], outputs: list[Any]) -> float:
        read = input_scale * _elements(inputs[0]) if input_scale else 0
        return read + (output_scale * _elements(outputs[0]) if output_scale else 0)

    return flops


FLOP_HANDLES: dict[str, Handle] = {
    **{f"aten::{name}": macs for name in ("addmm", "bmm", "einsum", "matmul", "mm", "linear")},
    "aten::_convolution": conv_flop_jit,
    "aten::batch_norm": batchnorm_flop_jit,
    "aten::group_norm": norm_flop_counter(2),
    "aten::layer_norm": norm_flop_counter(2),
    "aten::instance_norm": norm_flop_counter(1),
    "aten::upsample_nearest2d": elementwise_flop_counter(0, 1),
    "aten::upsample_bilinear2d": elementwise_flop_counter(0, 4),
    "aten::adaptive_avg_pool2d": elementwise_flop_counter(1, 0),
    "aten::grid_sampler": elementwise_flop_counter(0, 4),
}


def generic_activation_jit(op_name: str | None = None) -> Handle:
    """The elements of the first result, under the operator's own name or the given one."""

    def elements(inputs: list[Any], outputs: list[Any]) -> int | Counter[str]:
        number = _elements(outputs[0])
        return number if op_name is None else Counter({op_name: number})

    return elements


def product_elements(inputs: list[Any], outputs: list[Any]) -> int:
    """What every product inside an operator writes: an attention writes its scores, then its output."""
    written = 0
    for row in outputs[0].node().rows:
        if row.cost is None or not row.cost.macs:
            continue
        written += row.outs[0].numel * row.op.repeat
        if row.op.kind == "attention":
            q, _, v = row.ins[:3]
            written += row.cost.macs // (q.dims[-1] + v.dims[-1]) * row.op.repeat
    return written


ACTIVATION_HANDLES: dict[str, Handle] = {
    "aten::_convolution": generic_activation_jit("conv"),
    **{f"aten::{name}": generic_activation_jit() for name in ("addmm", "bmm", "einsum", "matmul", "linear")},
}
