"""Reductions and running sums."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, on


@on("segment_reduce")
def _segment_reduce(call: Call) -> Translation:
    return Translation("reduce", {"fn": call["reduce"]}, call.tensors("data", "lengths", "indices", "offsets"))
