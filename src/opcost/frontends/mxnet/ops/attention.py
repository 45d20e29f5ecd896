"""Attention's products on interleaved projections, and on sliding windows."""

from __future__ import annotations

from opcost.core.shapes import Extent, Mismatch, Shape, divided, product, text, times
from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.ops.table import Call, Operator, Translation, define, register


def _heads(call: Call) -> int:
    heads = call.attrs.integer("heads")
    if heads < 1:
        raise AttributeFault(f"{heads} heads")
    return heads


def _sequence(shape: Shape) -> tuple[Extent, Extent, Extent]:
    """Length, batch and features of a sequence."""
    if shape is None:
        return None, None, None
    if len(shape) != 3:
        raise Mismatch(f"{text(shape)} is not length, batch and features")
    return shape[0], shape[1], shape[2]


def _self_scores(call: Call) -> None:
    length, batch, _ = _sequence(call.ins[0])
    call.put_out(0, (times(batch, _heads(call)), length, length))


def _self_values(call: Call) -> None:
    length, batch, features = _sequence(call.ins[0])
    call.put_in(1, (times(batch, _heads(call)), length, length))
    call.put_out(0, (length, batch, divided(features, 3)))


def _cross_scores(call: Call) -> None:
    queries, batch, features = _sequence(call.ins[0])
    call.put_in(1, (None, batch, times(features, 2)))
    keys, batch, _ = _sequence(call.ins[1])
    call.put_out(0, (times(batch, _heads(call)), queries, keys))


def _cross_values(call: Call) -> None:
    keys, batch, features = _sequence(call.ins[0])
    call.put_in(1, (times(batch, _heads(call)), None, keys))
    attention = call.ins[1]
    call.put_out(0, (attention[1] if attention is not None else None, batch, divided(features, 2)))


def _scored(parts: int) -> Operator:
    """Queries times keys: `parts` projections lie interleaved in the first input's features."""

    def translate(call: Call) -> Translation:
        return Translation("matmul", {"depth": call.x()[2] // parts // _heads(call)})

    infer = _self_scores if parts == 3 else _cross_scores
    slots = ("queries_keys_values",) if parts == 3 else ("queries", "keys_values")
    return Operator(infer, translate, slots=slots)


def _weighted(parts: int) -> Operator:
    """Attention times values."""

    def translate(call: Call) -> Translation:
        return Translation("matmul", {"depth": call.x(1)[2]})

    infer = _self_values if parts == 3 else _cross_values
    return Operator(infer, translate, slots=("queries_keys_values" if parts == 3 else "keys_values", "attention"))


def _window(call: Call) -> int:
    """Places that one query meets: w to each side and its own, or only those before."""
    reach = call.attrs.integer("w")
    return 2 * reach + 1 if call.attrs.flag("symmetric", default=True) else reach + 1


def _window_scores(call: Call) -> None:
    """Queries and keys are (batch, length, heads, features); the third input tells how far apart places lie."""
    call.put_in(0, call.ins[1])
    call.put_in(1, call.ins[0])
    query = call.ins[0]
    if query is not None and len(query) == 4:
        call.put_in(2, (query[2],))
        call.put_out(0, (*query[:3], _window(call)))


def _window_values(call: Call) -> None:
    """Scores (batch, length, heads, window) with values (batch, length, heads, features)."""
    call.put_out(0, call.ins[1])
    value = call.ins[1]
    if value is not None and len(value) == 4:
        call.put_in(2, (value[2],))
        call.put_in(0, (*value[:3], _window(call)))


def _window_mask(call: Call) -> None:
    call.put_out(0, call.ins[0])


def _window_scored(call: Call) -> Translation:
    return Translation("matmul", {"depth": call.x()[3]}, (0, 1))


def _window_weighted(call: Call) -> Translation:
    return Translation("matmul", {"macs": (product(call.x()) or 0) * call.x(1)[3]}, (0, 1))


for prefix in ("_contrib_", "_npx_"):
    register((f"{prefix}interleaved_matmul_selfatt_qk",), _scored(3))
    register((f"{prefix}interleaved_matmul_selfatt_valatt",), _weighted(3))
    register((f"{prefix}interleaved_matmul_encdec_qk",), _scored(1))
    register((f"{prefix}interleaved_matmul_encdec_valatt",), _weighted(2))
    define((f"{prefix}sldwin_atten_score",), _window_scores, _window_scored)
    define((f"{prefix}sldwin_atten_context",), _window_values, _window_weighted)
    define((f"{prefix}sldwin_atten_mask_like",), _window_mask, Translation("create"))
