"""Eight-bit arithmetic: every tensor comes with the smallest and the largest number that it represents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from opcost.core.shapes import Unknown, merge
from opcost.frontends.mxnet.ops.table import Call, Means, Operator, Row, Type, Types, like_first, row
from opcost.frontends.mxnet.symbol import Attributes

_RANGE = (1,)
"""A range is two tensors of one element."""


def _tensors(call: Call, count: int | None = None) -> int:
    """How many of the inputs are tensors: a third of them unless given; the rest are their ranges."""
    return len(call.ins) // 3 if count is None else count


def _ranges(call: Call, first: int) -> None:
    for index in range(first, len(call.ins)):
        call.put_in(index, _RANGE)
    for index in (1, 2):
        call.put_out(index, _RANGE)


def _typed_ranges(call: Call, first: int, dtype: Type) -> None:
    """Ranges from this input on, and of the result, in single precision; the result itself as given."""
    for index in range(first, len(call.in_types)):
        call.type_in(index, "float32")
    for index, each in enumerate((dtype, "float32", "float32")):
        call.type_out(index, each)


# -- operators of full precision on bytes ------------------------------------------------------------------------------


def _part(call: Call, tensors: int) -> Call:
    """The call without ranges, as the operator of full precision sees it."""
    return Call(
        call.attrs, call.ins[:tensors], call.outs[:1], call.in_types[:tensors], call.out_types[:1],
        np_shape=call.np_shape, version=call.version, training=call.training,
    )  # fmt: skip


def _shapes_of(base: Operator, tensors: int | None) -> Callable[[Call], None]:
    """The shapes of the operator of full precision, and ranges behind."""

    def shapes(call: Call) -> None:
        count = _tensors(call, tensors)
        part = _part(call, count)
        with suppress(Unknown):
            base.infer(part)
        call.ins[:count] = part.ins
        call.outs[:1] = part.outs
        _ranges(call, count)

    return shapes


def _like(name: str, base: Operator, types: Types, tensors: int | None = None) -> Row:
    """What the operator of full precision computes, on the tensors without their ranges."""

    def means(call: Call) -> Means:
        return base.meaning(_part(call, _tensors(call, tensors)))

    def reads(call: Call) -> tuple[int, ...]:
        part = _part(call, _tensors(call, tensors))
        return base.read(part, base.meaning(part)[0])

    operator = replace(
        base, shapes=_shapes_of(base, tensors), means=means, types=types, outputs=3, reads=reads, results=1
    )
    return Row((f"_contrib_quantized_{name}", f"_npx_quantized_{name}"), operator)


def _typed(data: str | None, *, weights: str = "int8", tensors: int | None = None) -> Types:
    """Whole numbers in and out, ranges in single precision. Without `data` the output is as narrow as the input."""

    def types(call: Call) -> None:
        count = _tensors(call, tensors)
        for index in range(1, count):
            call.type_in(index, weights)
        _typed_ranges(call, count, data or call.in_types[0])

    return types


def _slots(attrs: Attributes) -> tuple[str, ...]:
    names = ("data", "weight") if attrs.flag("no_bias") else ("data", "weight", "bias")
    return (*names, *(f"{end}_{name}" for name in names for end in ("min", "max")))


def _joined_types(call: Call) -> None:
    tensors = call.in_types[: _tensors(call)]
    _typed_ranges(call, len(tensors), None if None in tensors else "int8" if "int8" in tensors else "uint8")


# -- to bytes and back -------------------------------------------------------------------------------------------------


def _with_ranges(call: Call) -> None:
    call.both()
    _ranges(call, 1)


def _narrowed(default: str) -> Types:
    """To bytes: signed unless the attribute says otherwise, or, left to itself, unless the range has no negatives."""

    def types(call: Call) -> None:
        wanted = call.attrs.text("out_type", default)
        if wanted == "auto":
            wanted = "uint8" if call.attrs.number("min_calib_range", -1.0) >= 0 else "int8"
        _typed_ranges(call, 1, wanted)

    return types


def _requantized(call: Call) -> None:
    call.type_in(0, "int32")
    _narrowed("int8")(call)


def _dequantize(call: Call) -> None:
    like_first(call)
    for index in (1, 2):
        call.put_in(index, _RANGE)


def _widened(call: Call) -> None:
    for index in (1, 2):
        call.type_in(index, "float32")
    call.type_out(0, "float32")


# -- two tensors of one shape ------------------------------------------------------------------------------------------


def _both(call: Call) -> None:
    shape = merge(merge(call.ins[0], call.ins[1]), call.outs[0])
    call.put_in(0, shape)
    call.put_in(1, shape)
    call.put_out(0, shape)
    _ranges(call, 2)


def _calibrated(call: Call) -> None:
    """The sum of two bytes is one where its range was measured beforehand, else a longer number."""
    first, second = call.in_types[0], call.in_types[1]
    if "min_calib_range" not in call.attrs or "max_calib_range" not in call.attrs:
        _typed_ranges(call, 2, "int32")
    else:
        _typed_ranges(call, 2, None if first is None or second is None else first if first == second else "int8")


def _multiplied(call: Call) -> None:
    if call.attrs.flag("enable_float_output"):
        call.type_out(0, "float32")
    _calibrated(call)


def rows(table: Mapping[str, Operator]) -> list[Row]:
    """The operators on bytes, which build on those of full precision."""
    same = _typed(None, tensors=1)
    norm = _like("batch_norm", table["BatchNorm"], lambda c: _typed_ranges(c, 1, "int8"), 5)
    return [
        row("_contrib_quantize _npx_quantize _npx_contrib_quantize", _with_ranges, "quantize", _narrowed("uint8"), 3,
            reads=(0,), results=1),
        row("_contrib_quantize_v2 _npx_quantize_v2 _npx_contrib_quantize_v2", _with_ranges, "quantize", _narrowed("int8"), 3,
            reads=(0,), results=1),
        row("_contrib_quantize_asym", lambda c: [c.both(), _RANGE, _RANGE], "quantize",
            lambda c: _typed_ranges(c, len(c.ins), "uint8"), 3, reads=(0,), results=1),
        row("_contrib_requantize _npx_requantize", _with_ranges, "quantize", _requantized, 3, reads=(0,), results=1),
        row("_contrib_dequantize _npx_dequantize", _dequantize, "quantize", _widened, reads=(0,), results=1),
        _like("conv", replace(table["Convolution"], slots=_slots), _typed("int32")),
        _like("fully_connected", replace(table["FullyConnected"], slots=_slots), _typed("int32")),
        _like("pooling", table["Pooling"], same, 1),
        _like("flatten", table["Flatten"], same, 1),
        _like("act", table["Activation"], same, 1),
        _like("reshape", table["_npx_reshape"], same, 1),
        _like("transpose", table["transpose"], same, 1),
        _like("concat", table["Concat"], _joined_types),
        norm._replace(names=(*norm.names, "_contrib_quantized_batch_norm_relu")),
        row("_contrib_quantized_embedding _npx_quantized_embedding", _shapes_of(table["Embedding"], 2), "embedding",
            _typed("int8", tensors=2), 3, "data weight min_weight max_weight", (1, 0), 1),
        row("_contrib_quantized_elemwise_add _npx_quantized_elemwise_add _contrib_quantized_npi_add _npx_quantized_npi_add",
            _both, "elementwise add", _calibrated, 3, reads=(0, 1), results=1),
        row("_contrib_quantized_elemwise_mul _npx_quantized_elemwise_mul", _both, "elementwise mul", _multiplied,
            lambda attrs: 1 if attrs.flag("enable_float_output") else 3, reads=(0, 1), results=1),
        row("_contrib_calibrate_entropy", lambda c: [_RANGE, _RANGE], "view", outputs=2),
    ]  # fmt: skip
