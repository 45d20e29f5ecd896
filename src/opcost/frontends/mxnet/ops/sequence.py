"""Batches of sequences of different lengths."""

from __future__ import annotations

from opcost.core.shapes import Mismatch, text
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.table import VIEW, Call, Translation, define, elementwise, types_of


def _batch(call: Call) -> None:
    """The lengths are one for each sequence; steps lie along axis 0 and the batch along 1, or the other way round."""
    x = call.dims(0)
    if len(x) < 2:
        raise Mismatch(f"the data is {text(x)}, which has no steps and batch")
    call.put_in(1, (x[0 if call.attrs.integer("axis", 0) else 1],))


def _masked(call: Call) -> None:
    like_first(call)
    _batch(call)


def _last(call: Call) -> None:
    _batch(call)
    x = call.dims(0)
    call.put_out(0, (x[0 if call.attrs.integer("axis", 0) else 1], *x[2:]))


def _mask(call: Call) -> Translation:
    return elementwise("masked_fill") if len(call.ins) > 1 else VIEW


def _reverse(call: Call) -> Translation:
    return Translation("gather") if len(call.ins) > 1 else Translation("copy")


_SLOTS = ("data", "sequence_length")

define("SequenceMask _npx_sequence_mask", _masked, _mask, types_of(0), slots=_SLOTS)
define("SequenceReverse _npx_sequence_reverse", _masked, _reverse, types_of(0), slots=_SLOTS)
define("SequenceLast _npx_sequence_last", _last, _reverse, types_of(0), slots=_SLOTS)
