"""Eight-bit arithmetic: every tensor comes with the smallest and the largest number that it represents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from opcost.core.shapes import Unknown
from opcost.frontends.mxnet.ops.table import Call, Means, Operator, Type, Types, row
from opcost.frontends.mxnet.symbol import Attributes


def _ranges(call: Call, tensors: int, dtype: Type) -> None:
    """What is behind the tensors, and behind the result of this type, are ranges: one element in single precision each."""
    for index in range(tensors, len(call.ins)):
        call.put_in(index, (1,))
        call.type_in(index, "float32")
    call.type_out(0, dtype)
    for index in (1, 2):
        call.put_out(index, (1,))
        call.type_out(index, "float32")


# -- operators of full precision on bytes ------------------------------------------------------------------------------


def _part(call: Call, tensors: int) -> Call:
    """The call without ranges, as the operator of full precision sees it; a third of the inputs are tensors unless given."""
    count = tensors or len(call.ins) // 3
    return Call(
        call.attrs, call.ins[:count], call.outs[:1], call.in_types[:count], call.out_types[:1],
        np_shape=call.np_shape, version=call.version, training=call.training,
    )  # fmt: skip


def _shapes_of(base: Operator, tensors: int) -> Callable[[Call], None]:
    def shapes(call: Call) -> None:
        part = _part(call, tensors)
        with suppress(Unknown):
            base.infer(part)
        call.ins[: len(part.ins)] = part.ins
        call.outs[:1] = part.outs

    return shapes


def _like(name: str, base: Operator, types: Types, tensors: int = 0) -> Operator:
    """What the operator of full precision computes, on the tensors without their ranges."""

    def means(call: Call) -> Means:
        return base.meaning(_part(call, tensors))

    def reads(call: Call) -> tuple[int, ...]:
        return base.read(_part(call, tensors), means(call)[0])

    return replace(
        base, names=(f"_contrib_quantized_{name}", f"_npx_quantized_{name}"), shapes=_shapes_of(base, tensors), means=means,
        types=types, outputs=lambda _: 3, reads=reads, results=1,
    )  # fmt: skip


def _typed(dtype: str | None, tensors: int = 0, *, weights: str = "int8") -> Types:
    """Bytes in, whole numbers out; without a type the result is as narrow as the input."""

    def types(call: Call) -> None:
        count = tensors or len(call.ins) // 3
        for index in range(1, count):
            call.type_in(index, weights)
        _ranges(call, count, dtype or call.in_types[0])

    return types


def _slots(attrs: Attributes) -> tuple[str, ...]:
    names = ("data", "weight") if attrs.flag("no_bias") else ("data", "weight", "bias")
    return (*names, *(f"{end}_{name}" for name in names for end in ("min", "max")))


def _joined_types(call: Call) -> None:
    tensors = call.in_types[: len(call.ins) // 3]
    _ranges(call, len(tensors), None if None in tensors else "int8" if "int8" in tensors else "uint8")


# -- to bytes and back, and two tensors of one shape -------------------------------------------------------------------


def _narrowed(default: str, source: Type = None) -> Types:
    """To bytes: signed unless the attribute says otherwise, or, left to itself, unless the range has no negatives."""

    def types(call: Call) -> None:
        call.type_in(0, source)
        wanted = call.attrs.text("out_type", default)
        if wanted == "auto":
            wanted = "uint8" if call.attrs.number("min_calib_range", -1.0) >= 0 else "int8"
        _ranges(call, 1, wanted)

    return types


def _calibrated(call: Call) -> None:
    """The sum of two bytes is one where its range was measured beforehand, else a longer number."""
    first, second = call.in_types[0], call.in_types[1]
    if "min_calib_range" not in call.attrs or "max_calib_range" not in call.attrs:
        _ranges(call, 2, "int32")
    else:
        _ranges(call, 2, None if first is None or second is None else first if first == second else "int8")


def _multiplied(call: Call) -> None:
    if call.attrs.flag("enable_float_output"):
        call.type_out(0, "float32")
    _calibrated(call)


def rows(table: Mapping[str, Operator]) -> list[Operator]:
    """The operators on bytes, which build on those of full precision."""
    same, both = _typed(None, 1), "..., ... -> ..."
    norm = _like("batch_norm", table["BatchNorm"], _typed("int8", 5, weights="float32"), 5)
    return [
        row("_contrib_quantize _npx_quantize _npx_contrib_quantize", "... -> ...", "quantize", _narrowed("uint8"), 3,
            reads=(0,), results=1),
        row("_contrib_quantize_v2 _npx_quantize_v2 _npx_contrib_quantize_v2", "... -> ...", "quantize",
            _narrowed("int8"), 3, reads=(0,), results=1),
        row("_contrib_quantize_asym", "... -> ...", "quantize", lambda c: _ranges(c, len(c.ins), "uint8"), 3,
            reads=(0,), results=1),
        row("_contrib_requantize _npx_requantize", "... -> ...", "quantize", _narrowed("int8", "int32"), 3, reads=(0,),
            results=1),
        row("_contrib_dequantize _npx_dequantize", "like", "quantize", lambda c: _ranges(c, 1, "float32"), reads=(0,),
            results=1),
        _like("conv", replace(table["Convolution"], slots=_slots), _typed("int32")),
        _like("fully_connected", replace(table["FullyConnected"], slots=_slots), _typed("int32")),
        _like("pooling", table["Pooling"], same, 1),
        _like("flatten", table["Flatten"], same, 1),
        _like("act", table["Activation"], same, 1),
        _like("reshape", table["_npx_reshape"], same, 1),
        _like("transpose", table["transpose"], same, 1),
        _like("concat", table["Concat"], _joined_types),
        replace(norm, names=(*norm.names, "_contrib_quantized_batch_norm_relu")),
        row("_contrib_quantized_embedding _npx_quantized_embedding", _shapes_of(table["Embedding"], 2), "embedding",
            _typed("int8", 2), 3, "data weight min_weight max_weight", (1, 0), 1),
        row("_contrib_quantized_elemwise_add _npx_quantized_elemwise_add _contrib_quantized_npi_add _npx_quantized_npi_add",
            both, "elementwise add", _calibrated, 3, reads=(0, 1), results=1),
        row("_contrib_quantized_elemwise_mul _npx_quantized_elemwise_mul", both, "elementwise mul", _multiplied,
            "1?enable_float_output 3", reads=(0, 1), results=1),
        row("_contrib_calibrate_entropy", "-> 1, 1", "view", outputs=2),
    ]  # fmt: skip
