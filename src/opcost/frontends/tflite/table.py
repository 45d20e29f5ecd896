"""The table of what TensorFlow Lite's operators mean, which the families of operators fill, and what they share."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.nodes.call import Call, Meaning, Out, Table, entering

TABLE: Table = {}
handles = entering(TABLE)

_FUSED = {1: "relu", 2: "hardtanh", 3: "relu6", 4: "tanh", 5: "sign"}


def then(call: Call) -> dict[str, Attr]:
    """The activation that a product or a convolution applies to its result."""
    name = _FUSED.get(call.whole("fused"))
    return {"then": (name,)} if name else {}


def activated(call: Call, meaning: Meaning) -> Meaning:
    """The activation that another operator applies to its result, in place."""
    name = _FUSED.get(call.whole("fused"))
    if name is None:
        return meaning
    if name == "relu" and meaning.attrs == {"fn": "add"}:
        return meaning._replace(attrs={"fn": "add_relu"})
    made = call.step(meaning.kind, meaning.attrs, call.given if meaning.reads is None else meaning.reads, meaning.outs)
    return Meaning("elementwise", {"fn": name}, [Out(made[0].shape, made[0].dtype, home=made[0])], made[:1])
