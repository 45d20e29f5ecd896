"""What MXNet itself does to an old file when it loads it: the graph that an older version meant, in today's words."""

from __future__ import annotations

from dataclasses import replace

from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.symbol import VARIABLE, Entry, Node, Symbol

AUXILIARY_SLOTS = frozenset(("moving_mean", "moving_var", "moving_avg"))
"""Inputs that an operator updates itself. Files before 0.9 do not list them."""

HIDDEN_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")
"""Attributes about a variable, today written with underscores around: old files put them anywhere, also on the reader."""

OLD_NAMES = {
    "Softmax": "SoftmaxOutput", "ElementWiseSum": "add_n", "sum_axis": "sum", "max_axis": "max",
    "min_axis": "min", "broadcast_plus": "broadcast_add", "broadcast_minus": "broadcast_sub",
    "_Plus": "elemwise_add", "_plus": "elemwise_add", "_Minus": "elemwise_sub", "_minus": "elemwise_sub",
    "_Mul": "elemwise_mul", "_mul": "elemwise_mul", "_Div": "elemwise_div", "_div": "elemwise_div",
    **{
        f"_{old}": f"_{old.lower()}"
        for old in (
            "Mod", "Power", "Maximum", "Minimum", "Hypot", "Equal", "Not_Equal", "Greater", "Greater_Equal", "Lesser",
            "Lesser_Equal", "Logical_And", "Logical_Or", "Logical_Xor",
        )
    },
    **{
        f"_{old}Scalar": f"_{new}_scalar"
        for old, new in (
            ("Plus", "plus"), ("Minus", "minus"), ("RMinus", "rminus"), ("Mul", "mul"), ("Div", "div"), ("RDiv", "rdiv"),
            ("Mod", "mod"), ("RMod", "rmod"), ("Power", "power"), ("RPower", "rpower"), ("Maximum", "maximum"),
            ("Minimum", "minimum"), ("Hypot", "hypot"), ("Equal", "equal"), ("NotEqual", "not_equal"),
            ("Greater", "greater"), ("GreaterEqual", "greater_equal"), ("Lesser", "lesser"),
            ("LesserEqual", "lesser_equal"), ("LogicalAnd", "logical_and"), ("LogicalOr", "logical_or"),
            ("LogicalXor", "logical_xor"),
        )
    },
}  # fmt: skip
"""How operators were called in files up to 0.8."""

HIDDEN_UNTIL = 10000
"""From this version on every file writes them with underscores."""

OPTIONAL_AXIS = 905
"""From this version on the axis of argmax and argmin may be absent; before, -1 meant all elements."""


def upgraded(symbol: Symbol) -> Symbol:
    """The graph with auxiliary states, hidden attributes and axes as today's files have them."""
    symbol = _with_auxiliary_states(_with_new_names(symbol))
    hidden = _hidden(symbol) if symbol.version < HIDDEN_UNTIL else {}
    if not hidden and symbol.version >= OPTIONAL_AXIS:
        return symbol
    nodes = []
    for node in symbol.nodes:
        raw = dict(node.attrs.raw)
        for key in HIDDEN_KEYS:
            if key in raw:
                raw.setdefault(f"__{key}__", raw.pop(key))
        raw.update(hidden.get(node.id, {}))
        if symbol.version < OPTIONAL_AXIS and node.op in ("argmax", "argmin") and raw.get("axis") == "-1":
            del raw["axis"]
        nodes.append(node._replace(attrs=Attributes(raw)))
    return replace(symbol, nodes=tuple(nodes))


def _with_new_names(symbol: Symbol) -> Symbol:
    if not any(node.op in OLD_NAMES for node in symbol.nodes):
        return symbol
    return replace(symbol, nodes=tuple(node._replace(op=OLD_NAMES.get(node.op, node.op)) for node in symbol.nodes))


def _hidden(symbol: Symbol) -> dict[int, dict[str, str]]:
    """Attributes of variables that stand on the operator that reads them, as `weight_lr_mult`."""
    table = all_operators()
    found: dict[int, dict[str, str]] = {}
    for node in symbol.nodes:
        if not any(key in name for name in node.attrs.raw for key in HIDDEN_KEYS if not name.startswith("__")):
            continue
        found.setdefault(node.id, {})
        rule = table.get(node.op)
        slots = rule.slot_names(node.attrs) if rule is not None else ()
        for slot, (source, _) in zip(slots, node.inputs, strict=False):
            for key in HIDDEN_KEYS:
                value = node.attrs.raw.get(f"{slot}_{key}")
                if value is not None and symbol.nodes[source].is_variable:
                    found.setdefault(source, {})[f"__{key}__"] = value
    return found


def _with_auxiliary_states(symbol: Symbol) -> Symbol:
    """Variables for the auxiliary states that the file does not name, each before the operator that keeps it."""
    missing = {node.id: names for node in symbol.nodes if (names := _missing_states(node))}
    if not missing:
        return symbol
    nodes: list[Node] = []
    place: list[int] = []
    """Where each node of the file went."""

    def moved(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple((place[node], output) for node, output in entries)

    for node in symbol.nodes:
        states: list[Entry] = []
        for slot in missing.get(node.id, ()):
            states.append((len(nodes), 0))
            nodes.append(Node(len(nodes), VARIABLE, f"{node.name}_{slot}" if node.name else slot, Attributes({}), ()))
        place.append(len(nodes))
        nodes.append(node._replace(id=len(nodes), inputs=(*moved(node.inputs), *states)))
    return replace(symbol, nodes=tuple(nodes), heads=moved(symbol.heads))


def _missing_states(node: Node) -> tuple[str, ...]:
    rule = all_operators().get(node.op)
    if rule is None or callable(rule.slots) or not AUXILIARY_SLOTS.intersection(rule.slots):
        return ()
    absent = rule.slots[len(node.inputs) :]
    return absent if absent and AUXILIARY_SLOTS.issuperset(absent) else ()
