"""Graphs inside nodes: loops, branches, and operators that an optimizer has fused."""

from collections.abc import Callable
from typing import NamedTuple

from opcost.core.shapes import Extent, Mismatch, Shape
from opcost.frontends.mxnet.ops.table import FUNCTIONS, SymbolCall
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes, Symbol
from opcost.frontends.rows import Tensor, Type


class Loop(NamedTuple):
    """How the inputs of a `_foreach` reach the variables of its body."""

    sliced: tuple[int, ...]  # Variables that are one step of an input each, in the order of the node's inputs
    states: tuple[int, ...]  # Variables that the last step made, by the node's next inputs at first
    constants: tuple[int, ...]  # Variables that are the same in every step: the node's other inputs
    outputs: int  # How many of the body's heads are stacked; the others are states

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


def _body(call: SymbolCall, index: int = 0) -> Symbol:
    if index >= len(call.subgraphs):
        raise AttributeFault("its subgraph is missing")
    return call.subgraphs[index]


def _infer_body(
    call: SymbolCall,
    body: Symbol,
    shapes: dict[int, Shape],
    types: dict[int, Type],
    heads: list[Shape],
    *,
    training: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Variables and heads of a body, of which some are known, by their places."""
    assert call.infer is not None
    nodes = [node.id for node in body.variables]
    known = {nodes[place]: shape for place, shape in shapes.items()}
    typed = {nodes[place]: dtype for place, dtype in types.items()}
    found = call.infer(body, known, typed, heads=heads, training=training)
    variables, heads_found = (
        list(zip(found.shapes_of(entries), found.types_of(entries), strict=True))
        for entries in ([(node, 0) for node in nodes], body.heads)
    )
    return variables, heads_found


def _fused(call: SymbolCall) -> None:
    body, quantized = _body(call), call.attrs.flag("quantized")
    own = fused_inputs(body, len(call.ins))
    # The body computes in full precision also where bytes come in.
    types = ["float32" if quantized and dtype in ("int8", "uint8") else dtype for dtype in call.in_types[:own]]
    shapes, heads = dict(enumerate(call.ins[:own])), call.outs[: len(body.heads)]
    variables, results = _infer_body(call, body, shapes, dict(enumerate(types)), heads, training=False)
    ranges = [((1,), "float32")] * max(len(call.ins), len(call.outs))
    if quantized:
        results[:1] = [(shape, _quantized_type(call)) for shape, _ in results[:1]]
    call.learn(enumerate([*variables[:own], *ranges]), enumerate([*results, *ranges]))


def _quantized_type(call: SymbolCall) -> str:
    """A fused operator gives bytes where its range was measured, without sign after an activation that has none."""
    attrs = call.attrs
    if attrs.flag("enable_float_output"):
        return "float32"
    if "min_calib_range" not in attrs or "max_calib_range" not in attrs:
        return "int32"
    ends_in_activation = attrs.flag("with_postsum_act") or (not attrs.flag("with_sum") and attrs.flag("with_act"))
    return "uint8" if ends_in_activation or attrs.flag("with_eltwise") else "int8"


def _foreach(call: SymbolCall) -> None:
    body = _body(call)
    loop = loop_of(call.attrs, body, len(call.ins))
    trips, sliced = trips_of(loop, call.ins, call.outs), len(loop.sliced)

    def step(shape: Shape) -> Shape:
        return shape[1:] if shape else None

    def steps(shape: Shape) -> Shape:
        return None if shape is None else (trips, *shape)

    ins = [step(shape) if place < sliced else shape for place, shape in enumerate(call.ins)]
    heads = [step(shape) if place < loop.outputs else shape for place, shape in enumerate(call.outs)]
    shapes, types = (dict(zip(loop.variables, given, strict=True)) for given in (ins, call.in_types))
    variables, results = _infer_body(call, body, shapes, types, heads, training=call.training)  # type: ignore[arg-type]
    for place, variable in enumerate(loop.variables):
        shape, dtype = variables[variable]
        call.put_in(place, steps(shape) if place < sliced else shape)
        call.type_in(place, dtype)
    for place, (shape, dtype) in enumerate(results):
        call.put_out(place, steps(shape) if place < loop.outputs else shape)
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


def _branches(names: tuple[str, ...]) -> Callable[[SymbolCall], None]:
    """The parameters inside branches and bodies that may not run, and shapes that all of them agree on."""

    def refine(call: SymbolCall) -> None:
        for index, name in enumerate(names):
            body = _body(call, index)
            places = call.attrs.integers(name, ())
            if any(not 0 <= place < len(call.ins) for place in places) or len(places) > len(body.variables):
                raise AttributeFault(f"{name} does not fit the node's inputs")
            shapes = {variable: call.ins[place] for variable, place in enumerate(places)}
            types = {variable: call.in_types[place] for variable, place in enumerate(places)}
            variables, _ = _infer_body(call, body, shapes, types, [], training=call.training)
            call.learn(zip(places, variables, strict=False))

    return refine


def _nothing(call: SymbolCall) -> None:
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

_row = FUNCTIONS.row
ROWS = [
    _row(FUSED, _fused, "unknown", _nothing, "1?enable_float_output 3?quantized"),
    _row(FOREACH, _foreach, "unknown", _nothing, "@parts"),
    _row(CONDITIONAL, _branches(("cond_input_locs", "then_input_locs", "else_input_locs")), "unknown", _nothing, "@parts"),
    _row(WHILE, _branches(("cond_input_locs", "func_input_locs")), "unknown", _nothing, "@parts"),
    _row(CUSTOM, _nothing, "unknown", _nothing),
]  # fmt: skip
