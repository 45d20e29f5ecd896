"""Graphs inside nodes: loops, branches, and operators that an optimizer has fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from opcost.core.shapes import Extent, Mismatch, Shape
from opcost.frontends.mxnet.ops.table import Call, Type, row
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes, Symbol


class Loop(NamedTuple):
    """How the inputs of a `_foreach` reach the variables of its body."""

    sliced: tuple[int, ...]
    """Variables that are one step of an input each, in the order of the node's inputs."""
    states: tuple[int, ...]
    """Variables that the last step made, by the node's next inputs at first."""
    constants: tuple[int, ...]
    """Variables that are the same in every step: the node's other inputs."""
    outputs: int
    """How many of the body's heads are stacked; the others are states."""

    @property
    def variables(self) -> tuple[int, ...]:
        """The variable of each input of the node."""
        return (*self.sliced, *self.states, *self.constants)


def loop_of(attrs: Attributes, body: Symbol, inputs: int) -> Loop:
    """The wiring of a `_foreach`."""
    found = Loop(
        attrs.integers("in_data_locs", ()),
        attrs.integers("in_state_locs", ()),
        attrs.integers("remain_locs", ()),
        attrs.integer("num_out_data"),
    )
    variables = len(body.variables)
    if len(found.variables) != inputs or any(not 0 <= place < variables for place in found.variables):
        raise AttributeFault("the locations of a loop's inputs do not fit its body")
    if not found.sliced or not 0 <= found.outputs <= len(body.heads):
        raise AttributeFault("a loop has no input to step through, or more outputs than its body")
    return found


def fused_inputs(body: Symbol, inputs: int) -> int:
    """How many inputs of a fused operator are the body's own; ranges of quantized tensors are behind them."""
    return min(len(body.variables), inputs)


def _body(call: Call, index: int = 0) -> Symbol:
    if index >= len(call.subgraphs):
        raise AttributeFault("its subgraph is missing")
    return call.subgraphs[index]


class _Inside(NamedTuple):
    """What was worked out of a body: its variables and heads."""

    variables: list[tuple[Shape, Type]]
    heads: list[tuple[Shape, Type]]


def _infer_body(
    call: Call, body: Symbol, shapes: dict[int, Shape], types: dict[int, Type], heads: list[Shape], *, training: bool
) -> _Inside:
    """Work out a body whose variables and heads are known in part, by their places."""
    assert call.infer is not None
    nodes = [node.id for node in body.variables]
    known = {nodes[place]: shape for place, shape in shapes.items()}
    typed = {nodes[place]: dtype for place, dtype in types.items()}
    found = call.infer(body, known, typed, heads=heads, training=training)
    return _Inside(
        [(found.shapes[node][0], found.types[node][0]) for node in nodes],
        [(found.shapes[node][output], found.types[node][output]) for node, output in body.heads],
    )


def _fused(call: Call) -> None:
    body = _body(call)
    own = fused_inputs(body, len(call.ins))
    inside = _infer_body(
        call,
        body,
        dict(enumerate(call.ins[:own])),
        _body_types(call, own),
        call.outs[: len(body.heads)],
        training=False,
    )
    for place, (shape, dtype) in enumerate(inside.variables[:own]):
        call.put_in(place, shape)
        call.type_in(place, dtype)
    for place in range(own, len(call.ins)):
        call.put_in(place, (1,))
        call.type_in(place, "float32")
    for place, (shape, dtype) in enumerate(inside.heads):
        call.put_out(place, shape)
        call.type_out(place, dtype if not _is_quantized(call.attrs) or place else _quantized_type(call))
    for place in range(len(inside.heads), len(call.outs)):
        call.put_out(place, (1,))
        call.type_out(place, "float32")


def _is_quantized(attrs: Attributes) -> bool:
    return attrs.flag("quantized")


def _body_types(call: Call, own: int) -> dict[int, Type]:
    """The body computes in full precision also where bytes come in."""
    if not _is_quantized(call.attrs):
        return dict(enumerate(call.in_types[:own]))
    return {
        place: "float32" if dtype in ("int8", "uint8") else dtype for place, dtype in enumerate(call.in_types[:own])
    }


def _quantized_type(call: Call) -> str:
    """A fused operator gives bytes where its range was measured, without sign after an activation that has none."""
    attrs = call.attrs
    if attrs.flag("enable_float_output"):
        return "float32"
    if "min_calib_range" not in attrs or "max_calib_range" not in attrs:
        return "int32"
    ends_in_activation = attrs.flag("with_postsum_act") or (not attrs.flag("with_sum") and attrs.flag("with_act"))
    return "uint8" if ends_in_activation or attrs.flag("with_eltwise") else "int8"


def _foreach(call: Call) -> None:
    body = _body(call)
    loop = loop_of(call.attrs, body, len(call.ins))
    trips = trips_of(loop, call.ins, call.outs)
    shapes: dict[int, Shape] = {}
    for place, (variable, shape) in enumerate(zip(loop.variables, call.ins, strict=True)):
        shapes[variable] = (
            shape[1:] if place < len(loop.sliced) and shape else None if place < len(loop.sliced) else shape
        )
    types = dict(zip(loop.variables, call.in_types, strict=True))
    heads = [
        shape[1:] if shape and place < loop.outputs else shape if place >= loop.outputs else None
        for place, shape in enumerate(call.outs)
    ]
    inside = _infer_body(call, body, shapes, types, heads, training=call.training)
    for place, variable in enumerate(loop.variables):
        shape, dtype = inside.variables[variable]
        stepped = place < len(loop.sliced)
        call.put_in(place, shape if not stepped else None if shape is None else (trips, *shape))
        call.type_in(place, dtype)
    for place, (shape, dtype) in enumerate(inside.heads):
        stacked = place < loop.outputs
        call.put_out(place, shape if not stacked else None if shape is None else (trips, *shape))
        call.type_out(place, dtype)


def trips_of(loop: Loop, ins: list[Shape], outs: list[Shape]) -> Extent:
    """How often a loop runs: the first extent of what it steps through, and of what it stacks."""
    trips: Extent = None
    for shape in (*ins[: len(loop.sliced)], *outs[: loop.outputs]):
        if shape is None:
            continue
        if not shape:
            raise Mismatch("a loop steps through a scalar")
        if trips is not None and shape[0] is not None and shape[0] != trips:
            raise Mismatch(f"a loop would have to take both {trips} and {shape[0]} steps")
        trips = shape[0] if trips is None else trips
    return trips


def _branches(names: tuple[str, ...]) -> Callable[[Call], None]:
    """The parameters inside branches and bodies that may not run, and shapes that all of them agree on."""

    def shapes(call: Call) -> None:
        for index, name in enumerate(names):
            body = _body(call, index)
            places = call.attrs.integers(name, ())
            if any(not 0 <= place < len(call.ins) for place in places) or len(places) > len(body.variables):
                raise AttributeFault(f"{name} does not fit the node's inputs")
            inside = _infer_body(
                call,
                body,
                {variable: call.ins[place] for variable, place in enumerate(places)},
                {variable: call.in_types[place] for variable, place in enumerate(places)},
                [],
                training=call.training,
            )
            for variable, place in enumerate(places):
                shape, dtype = inside.variables[variable]
                call.put_in(place, shape)
                call.type_in(place, dtype)

    return shapes


def _count(attrs: Attributes) -> int:
    count = attrs.integer("num_outputs", 1)
    if not 1 <= count <= 4096:
        raise AttributeFault(f"{count} outputs")
    return count


def _nothing(call: Call) -> None:
    """Neither shapes nor types are known."""


FUSED = (
    "_sg_mkldnn_conv", "_sg_mkldnn_fully_connected", "_sg_mkldnn_selfatt_qk", "_sg_mkldnn_selfatt_valatt", "_sg_onednn_conv",
    "_sg_onednn_fully_connected", "_sg_onednn_selfatt_qk", "_sg_onednn_selfatt_qk_split", "_sg_onednn_selfatt_valatt",
    "_sg_onednn_batch_dot", "_sg_onednn_batch_norm", "_sg_pow_mul_scalar", "_CachedOp", "_CachedOpThreadSafe",
)  # fmt: skip
"""Operators that are nothing but the graph inside them."""

FOREACH = ("_foreach", "_npx_foreach")
CONDITIONAL = ("_cond", "_npx_cond")
WHILE = ("_while_loop", "_npx_while_loop")
CUSTOM = ("Custom", "_npi_Custom", "_Native", "_NDArray")

ROWS = [
    row(
        FUSED,
        _fused,
        "unknown",
        _nothing,
        lambda attrs: 3 if _is_quantized(attrs) and not attrs.flag("enable_float_output") else 1,
    ),
    row(FOREACH, _foreach, "unknown", _nothing, _count),
    row(CONDITIONAL, _branches(("cond_input_locs", "then_input_locs", "else_input_locs")), "unknown", _nothing, _count),
    row(WHILE, _branches(("cond_input_locs", "func_input_locs")), "unknown", _nothing, _count),
    row(CUSTOM, _nothing, "unknown", _nothing),
]
