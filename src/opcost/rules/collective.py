"""Communication between ranks, by the ring algorithms."""

from __future__ import annotations

from fractions import Fraction

from opcost.core.cost import ZERO, Cost
from opcost.rules.attr import integer, text
from opcost.rules.registry import OpView


def collective(op: OpView) -> Cost:
    """Elements that one rank adds while reducing: (g - 1) / g × x.numel FLOPs.

    Bytes are those that one of g ranks sends (read) and receives (written), ring algorithm. all_reduce: 2 (g - 1) / g ×
    x each way; all_gather: (g - 1) / g × y; reduce_scatter and all_to_all: (g - 1) / g × x; broadcast: x; send and recv: x
    one way; wait: nothing. Only all_reduce and reduce_scatter add. An unknown g is taken as large: (g - 1) / g = 1.
    """
    share = Fraction(1)
    if op.get("group") is not None:
        share -= Fraction(1, integer(op, "group"))
    incoming, outgoing = op.bytes_out, op.bytes_in
    numel = sum(spec.numel for spec in op.ins)
    match text(op, "fn"):
        case "all_reduce":
            return _moved(2 * share * outgoing, 2 * share * outgoing, share * numel)
        case "reduce_scatter":
            return _moved(share * outgoing, share * outgoing, share * numel)
        case "all_gather":
            return _moved(share * incoming, share * incoming)
        case "all_to_all":
            return _moved(share * outgoing, share * incoming)
        case "broadcast":
            return _moved(Fraction(outgoing), Fraction(outgoing))
        case "send":
            return _moved(Fraction(outgoing), Fraction(0))
        case "recv":
            return _moved(Fraction(0), Fraction(incoming))
    return ZERO  # wait


def _moved(sent: Fraction, received: Fraction, added: Fraction = Fraction(0)) -> Cost:
    return Cost(0, round(added), round(sent), round(received))


RULES = {"collective": collective}
