"""Eight-bit arithmetic: every tensor comes with the smallest and the largest number that it represents."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from opcost.core.shapes import Unknown
from opcost.frontends.mxnet.ops.table import FUNCTIONS, SymbolCall, inputs_of
from opcost.frontends.rows import Means, Places, RowOperator, Type


def _ranges(call: SymbolCall, tensors: int, dtype: Type) -> None:
    """What is behind the tensors, and behind the result of this type, are ranges: one element in single precision each."""
    for index in range(tensors, len(call.ins)):
        call.put_in(index, (1,))
        call.type_in(index, "float32")
    call.type_out(0, dtype)
    for index in (1, 2):
        call.put_out(index, (1,))
        call.type_out(index, "float32")


def on_bytes(
    table: Mapping[str, RowOperator], ops: str, like: str, types: str, tensors: int = 0, slots: str = ""
) -> RowOperator:
    """What an operator of full precision computes, on tensors without their ranges; a third of the inputs unless given."""
    base = table[like]

    def part(call: SymbolCall) -> SymbolCall:
        """The call as the operator of full precision sees it."""
        count = tensors or len(call.ins) // 3
        return SymbolCall(
            call.attrs, call.ins[:count], call.outs[:1], call.in_types[:count], call.out_types[:1],
            np_shape=call.np_shape, version=call.version, training=call.training,
        )  # fmt: skip

    def shapes(call: SymbolCall) -> None:
        plain = part(call)
        with suppress(Unknown):
            base.infer(plain)
        call.ins[: len(plain.ins)] = plain.ins
        call.outs[:1] = plain.outs

    def means(call: SymbolCall) -> Means:
        return base.meaning(part(call))

    def reads(call: SymbolCall) -> Places:
        return inputs_of(base, part(call), means(call)[0])

    found = FUNCTIONS.row(ops, shapes, base.kind, types, 3, slots, results=[0])
    meaning = means if callable(base.means) else base.means
    return replace(found, means=meaning, reads=reads, kind=base.kind, slots=found.slots or base.slots)


def _byte_types(call: SymbolCall, dtype: str, tensors: int = 0, weights: str = "int8") -> None:
    """Bytes in, whole numbers out; `same`: the result is as narrow as the input."""
    count = tensors or len(call.ins) // 3
    for index in range(1, count):
        call.type_in(index, weights)
    _ranges(call, count, call.in_types[0] if dtype == "same" else dtype)


def _joined_bytes(call: SymbolCall) -> None:
    tensors = call.in_types[: len(call.ins) // 3]
    _ranges(call, len(tensors), None if None in tensors else "int8" if "int8" in tensors else "uint8")


def _narrowed(call: SymbolCall, default: str, source: Type = None) -> None:
    """To bytes: signed unless the attribute says otherwise, or, left to itself, unless the range has no negatives."""
    call.type_in(0, source)
    wanted = call.attrs.text("out_type", default)
    if wanted == "auto":
        wanted = "uint8" if call.attrs.number("min_calib_range", -1.0) >= 0 else "int8"
    _ranges(call, 1, wanted)


def _calibrated(call: SymbolCall) -> None:
    """The sum of two bytes is one where its range was measured beforehand, else a longer number."""
    first, second = call.in_types[0], call.in_types[1]
    if "min_calib_range" not in call.attrs or "max_calib_range" not in call.attrs:
        _ranges(call, 2, "int32")
    else:
        _ranges(call, 2, None if first is None or second is None else first if first == second else "int8")


def _multiplied_bytes(call: SymbolCall) -> None:
    if call.attrs.flag("enable_float_output"):
        call.type_out(0, "float32")
    _calibrated(call)
