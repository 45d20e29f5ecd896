"""Eight-bit arithmetic: every tensor comes with the smallest and the largest number that it stands for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from opcost.core.shapes import Unknown, merge
from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.table import (
    VIEW,
    Call,
    Infer,
    Operator,
    Translation,
    define,
    elementwise,
    operators,
    register,
)

_RANGE = (1,)
"""A range is two tensors of one element."""


def _tensors(call: Call) -> int:
    """How many of the inputs are tensors; the rest are their ranges, two for each."""
    return len(call.ins) // 3


def _ranges(call: Call, first: int) -> None:
    for index in range(first, len(call.ins)):
        call.put_in(index, _RANGE)
    for index in (1, 2):
        call.put_out(index, _RANGE)


def _part(call: Call, tensors: int) -> Call:
    """The call without ranges, as the operator of full precision sees it."""
    return Call(
        call.attrs, call.ins[:tensors], call.outs[:1], call.in_types[:tensors], call.out_types[:1],
        np_shape=call.np_shape, version=call.version, training=call.training,
    )  # fmt: skip


def _like(base: str, *, tensors: int | None = None) -> Infer:
    """The shapes of the operator of full precision, and ranges behind."""

    def infer(call: Call) -> None:
        count = _tensors(call) if tensors is None else tensors
        part = _part(call, count)
        with suppress(Unknown):
            operators()[base].infer(part)
        call.ins[:count] = part.ins
        call.outs[:1] = part.outs
        _ranges(call, count)

    return infer


def _translated(base: str, *, tensors: int | None = None) -> Operator:
    """What the operator of full precision computes, on the tensors without their ranges."""
    operator = operators()[base]

    def translate(call: Call) -> Translation:
        count = _tensors(call) if tensors is None else tensors
        found = operator.translated(_part(call, count))
        return found._replace(inputs=found.inputs or tuple(range(count)), results=1)

    return replace(operator, infer=_like(base, tensors=tensors), translate=translate, outputs=3)


def _typed(data: str | None, *, weights: str = "int8", tensors: int | None = None) -> Infer:
    """Whole numbers in and out, ranges in single precision. Without `data` the output is as narrow as the input."""

    def infer(call: Call) -> None:
        count = _tensors(call) if tensors is None else tensors
        for index in range(1, count):
            call.type_in(index, weights)
        for index in range(count, len(call.in_types)):
            call.type_in(index, "float32")
        call.type_out(0, data or call.in_types[0])
        call.type_out(1, "float32")
        call.type_out(2, "float32")

    return infer


def _slots(attrs: Attributes) -> tuple[str, ...]:
    names = ("data", "weight") if attrs.flag("no_bias") else ("data", "weight", "bias")
    return (*names, *(f"{end}_{name}" for name in names for end in ("min", "max")))


def _with_ranges(call: Call) -> None:
    call.put_out(0, call.ins[0])
    call.put_in(0, call.outs[0])
    _ranges(call, 1)


def _narrowed(call: Call) -> None:
    """To bytes: signed unless the attribute says otherwise, or, left to itself, unless the range has no negatives."""
    wanted = call.attrs.text("out_type", "int8" if "out_type" in call.attrs else "uint8")
    if wanted == "auto":
        low = call.attrs.number("min_calib_range", -1.0)
        wanted = "uint8" if low >= 0 else "int8"
    call.type_out(0, wanted)
    for index in range(1, len(call.in_types)):
        call.type_in(index, "float32")
    call.type_out(1, "float32")
    call.type_out(2, "float32")


def _signed(call: Call) -> None:
    if "out_type" in call.attrs:
        _narrowed(call)
        return
    call.type_out(0, "int8")
    for index in range(1, len(call.in_types)):
        call.type_in(index, "float32")
    call.type_out(1, "float32")
    call.type_out(2, "float32")


def _requantized(call: Call) -> None:
    call.type_in(0, "int32")
    _signed(call)


def _widened(call: Call) -> None:
    for index in (1, 2):
        call.type_in(index, "float32")
    call.type_out(0, "float32")


def _dequantize(call: Call) -> None:
    like_first(call)
    for index in (1, 2):
        call.put_in(index, _RANGE)


def _both(call: Call) -> None:
    """Two tensors of one shape."""
    shape = merge(merge(call.ins[0], call.ins[1]), call.outs[0])
    call.put_in(0, shape)
    call.put_in(1, shape)
    call.put_out(0, shape)
    _ranges(call, 2)


def _calibrated(call: Call) -> None:
    """The sum of two bytes is one where its range was measured beforehand, else a longer number."""
    measured = "min_calib_range" in call.attrs and "max_calib_range" in call.attrs
    first, second = call.in_types[0], call.in_types[1]
    if not measured:
        call.type_out(0, "int32")
    elif first is not None and second is not None:
        call.type_out(0, first if first == second else "int8")
    for index in range(2, len(call.in_types)):
        call.type_in(index, "float32")
    call.type_out(1, "float32")
    call.type_out(2, "float32")


def _multiplied(call: Call) -> None:
    if call.attrs.flag("enable_float_output"):
        call.type_out(0, "float32")
    _calibrated(call)


def _multiply_outputs(attrs: Attributes) -> int:
    return 1 if attrs.flag("enable_float_output") else 3


def _joined_types(call: Call) -> None:
    tensors = call.in_types[: _tensors(call)]
    if None not in tensors:
        call.type_out(0, "int8" if "int8" in tensors else "uint8")
    for index in range(len(tensors), len(call.in_types)):
        call.type_in(index, "float32")
    call.type_out(1, "float32")
    call.type_out(2, "float32")


def _statistics(call: Call) -> None:
    for index in range(1, len(call.in_types)):
        call.type_in(index, "float32")
    call.type_out(0, "int8")
    call.type_out(1, "float32")
    call.type_out(2, "float32")


def _asymmetric(call: Call) -> None:
    call.put_out(0, call.ins[0])
    call.put_in(0, call.outs[0])
    for index in (1, 2):
        call.put_out(index, _RANGE)


def _asymmetric_types(call: Call) -> None:
    call.type_out(0, "uint8")
    call.type_out(1, "float32")
    call.type_out(2, "float32")


def _register() -> None:
    quantize = Translation("quantize", {}, (0,), 1)
    define("_contrib_quantize _npx_quantize _npx_contrib_quantize", _with_ranges, quantize, _narrowed, 3)
    define("_contrib_quantize_v2 _npx_quantize_v2 _npx_contrib_quantize_v2", _with_ranges, quantize, _signed, 3)
    define("_contrib_quantize_asym", _asymmetric, quantize, _asymmetric_types, 3)
    define("_contrib_requantize _npx_requantize", _with_ranges, quantize, _requantized, 3)
    define("_contrib_dequantize _npx_dequantize", _dequantize, quantize, _widened)
    for name, base in (("conv", "Convolution"), ("fully_connected", "FullyConnected")):
        operator = replace(_translated(base), types=_typed("int32"), slots=_slots)
        register((f"_contrib_quantized_{name}", f"_npx_quantized_{name}"), operator)
    for name, base in (
        ("pooling", "Pooling"), ("flatten", "Flatten"), ("act", "Activation"), ("reshape", "_npx_reshape"),
        ("transpose", "transpose"),
    ):  # fmt: skip
        operator = replace(_translated(base, tensors=1), types=_typed(None, tensors=1))
        register((f"_contrib_quantized_{name}", f"_npx_quantized_{name}"), operator)
    register(
        ("_contrib_quantized_concat", "_npx_quantized_concat"), replace(_translated("Concat"), types=_joined_types)
    )
    register(
        ("_contrib_quantized_batch_norm", "_npx_quantized_batch_norm", "_contrib_quantized_batch_norm_relu"),
        replace(_translated("BatchNorm", tensors=5), types=_statistics),
    )
    define(
        (
            "_contrib_quantized_elemwise_add _npx_quantized_elemwise_add _contrib_quantized_npi_add _npx_quantized_npi_add"
        ),
        _both,
        elementwise("add", (0, 1))._replace(results=1),
        _calibrated,
        3,
    )
    define(
        "_contrib_quantized_elemwise_mul _npx_quantized_elemwise_mul",
        _both,
        elementwise("mul", (0, 1))._replace(results=1),
        _multiplied,
        _multiply_outputs,
    )
    define(
        "_contrib_quantized_embedding _npx_quantized_embedding",
        _like("Embedding", tensors=2),
        Translation("embedding", {}, (1, 0), 1),
        _typed("int8", tensors=2),
        3,
        slots="data weight min_weight max_weight",
    )
    define("_contrib_calibrate_entropy", _calibrate, VIEW, outputs=2)


def _calibrate(call: Call) -> None:
    call.put_out(0, _RANGE)
    call.put_out(1, _RANGE)


_register()
