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

HIDDEN_UNTIL = 10000
"""From this version on every file writes them with underscores."""

OPTIONAL_AXIS = 905
"""From this version on the axis of argmax and argmin may be absent; before, -1 meant all elements."""


def upgraded(symbol: Symbol) -> Symbol:
    """The graph with auxiliary states, hidden attributes and axes as today's files have them."""
    symbol = _with_auxiliary_states(symbol)
    hidden = _hidden(symbol) if symbol.version < HIDDEN_UNTIL else {}
    if not hidden and symbol.version >= OPTIONAL_AXIS:
        return symbol
    nodes = []
    for node in symbol.nodes:
        raw = dict(node.attrs.raw)
        for key in HIDDEN_KEYS:
            if key in raw:
                raw.setdefault(f"__{key}__", raw.pop(key))
        raw.update(hidden.get(node.index, {}))
        if symbol.version < OPTIONAL_AXIS and node.op in ("argmax", "argmin") and raw.get("axis") == "-1":
            del raw["axis"]
        nodes.append(node._replace(attrs=Attributes(raw)))
    return replace(symbol, nodes=tuple(nodes))


def _hidden(symbol: Symbol) -> dict[int, dict[str, str]]:
    """Attributes of variables that stand on the operator that reads them, as `weight_lr_mult`."""
    table = all_operators()
    found: dict[int, dict[str, str]] = {}
    for node in symbol.nodes:
        if not any(key in name for name in node.attrs.raw for key in HIDDEN_KEYS if not name.startswith("__")):
            continue
        found.setdefault(node.index, {})
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
    missing = {node.index: names for node in symbol.nodes if (names := _missing_states(node))}
    if not missing:
        return symbol
    nodes: list[Node] = []
    place: list[int] = []
    """Where each node of the file went."""

    def moved(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple((place[node], output) for node, output in entries)

    for node in symbol.nodes:
        states: list[Entry] = []
        for slot in missing.get(node.index, ()):
            states.append((len(nodes), 0))
            nodes.append(Node(len(nodes), VARIABLE, f"{node.name}_{slot}" if node.name else slot, Attributes({}), ()))
        place.append(len(nodes))
        nodes.append(node._replace(index=len(nodes), inputs=(*moved(node.inputs), *states)))
    return replace(symbol, nodes=tuple(nodes), heads=moved(symbol.heads))


def _missing_states(node: Node) -> tuple[str, ...]:
    rule = all_operators().get(node.op)
    if rule is None or callable(rule.slots) or not AUXILIARY_SLOTS.intersection(rule.slots):
        return ()
    absent = rule.slots[len(node.inputs) :]
    return absent if absent and AUXILIARY_SLOTS.issuperset(absent) else ()
