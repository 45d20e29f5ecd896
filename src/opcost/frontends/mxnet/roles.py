"""Which variables are inputs, which are weights, which are auxiliary states: a symbol alone does not say.

A parameter file does, and so does a user who names the inputs. Beyond that, the place at which an operator reads a variable
says it: what is in the slot `weight` is a weight, what is in the slot `label` is not.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

from opcost.frontends.mxnet import ops
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.control import CONDITIONAL, FOREACH, FUSED, WHILE, loop_of
from opcost.frontends.mxnet.symbol import VARIABLE, AttributeFault, Attributes, Entry, Symbol, SymbolNode

SLOTS: dict[str, list[str]] = ops.DATA["slots"]
"""Inputs of operators that say how a variable is used: weights, states that the operator updates itself (files before 0.9 do not
list them), and what is beside the data, as labels, indices and lengths."""
WEIGHT_SLOTS, AUXILIARY_SLOTS = frozenset(SLOTS["weight"]), frozenset(SLOTS["state"])

WEIGHT_ENDINGS = tuple(f"{dot}{word}" for dot in "_." for word in ("weight", "bias", "gamma", "beta", "parameters"))
STATE_ENDINGS = ("_moving_mean", "_moving_var", "_running_mean", "_running_var", ".running_mean", ".running_var")
SIDE_ENDINGS = ("label", "_state", "_state_cell", "_init_c", "_init_h")

GLUON_KEYS = ("__lr_mult__", "__wd_mult__", "__storage_type__")
"""Attributes that a parameter of a gluon block carries, and an input does not."""


DATA, WEIGHT, STATE, SIDE = 1, 2, 4, 8  # How a variable is read; several together are one number


@dataclass(frozen=True, slots=True)
class Roles:
    """The variables of a graph by their nodes, each kind in the order of the file."""

    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    states: tuple[int, ...]
    frozen: frozenset[int]  # Weights that training leaves as they are
    side: frozenset[int]  # Inputs that are labels, states, indices and the like


class Saved(NamedTuple):
    """A weight as a parameter file, or a live model, has it."""

    shape: tuple[int, ...]
    dtype: str
    state: bool  # It is an auxiliary state
    trainable: bool = True


def assign(symbol: Symbol, named: Collection[str], saved: Mapping[str, Saved]) -> Roles:
    """Decide what each variable is, from the names the user gave and the names in the parameter file."""
    uses = _uses(symbol)
    kinds = {node.id: _kind(node, uses[node.id], named, saved) for node in symbol.variables}
    inputs, weights, states = (
        tuple(node for node, kind in kinds.items() if kind == wanted) for wanted in ("input", "weight", "state")
    )
    side = (node for node in inputs if uses[node] & SIDE or symbol.nodes[node].name.endswith(SIDE_ENDINGS))
    untrained = {node.id for node in symbol.variables if node.name in saved and not saved[node.name].trainable}
    return Roles(inputs, weights, states, frozenset((*_frozen(symbol), *untrained)), frozenset(side))


def _kind(node: SymbolNode, use: int, named: Collection[str], saved: Mapping[str, Saved]) -> str:
    if node.name in named:
        return "input"
    if (node.name in saved and saved[node.name].state) or use & STATE:
        return "state"
    if node.name in saved or use & WEIGHT:
        return "weight"
    if saved:  # what a parameter file does not hold comes from outside
        return "input"
    if any(key in node.attrs.raw for key in GLUON_KEYS):
        return "weight"
    if use & (SIDE | DATA) or node.name.endswith(SIDE_ENDINGS):
        return "input"
    if node.name.endswith(STATE_ENDINGS):
        return "state"
    return "weight" if named or node.name.endswith(WEIGHT_ENDINGS) else "input"


def _uses(symbol: Symbol) -> list[int]:
    """For each node, in which slots its outputs end up; operators without weights of their own hand that on."""
    uses = [0] * len(symbol.nodes)
    for node in reversed(symbol.nodes):
        if node.is_variable:
            continue
        for (source, _), use in zip(node.inputs, _input_uses(node, uses[node.id]), strict=True):
            uses[source] |= use
    return uses


_USES = {
    slot: bit
    for use, bit in (("weight", WEIGHT), ("state", STATE), ("side", SIDE), ("data", DATA))
    for slot in SLOTS[use]
}
"""What the slot of an input says."""


def _input_uses(node: SymbolNode, passed: int) -> Iterable[int]:
    """How a node uses each of its inputs; an operator without weights of its own passes on how its result is used."""
    if node.subgraphs:
        # The uses of the variables inside a loop, a branch or a fused operator, for the inputs that they are
        found = [0] * len(node.inputs)
        for body, places in zip(node.subgraphs, _wiring(node), strict=False):
            inner = _uses(body)
            for variable, place in zip(body.variables, places, strict=False):
                if 0 <= place < len(found):
                    found[place] |= inner[variable.id]
        return found
    operator = all_operators().get(node.op)
    try:
        slots = operator.slot_names(node.attrs) if operator is not None else ()
    except AttributeFault:
        slots = ()
    other = passed if operator is not None and not WEIGHT_SLOTS.intersection(slots) else 0
    return [_USES.get(slot, other) for slot, _ in zip_longest(slots[: len(node.inputs)], node.inputs, fillvalue="")]


def _wiring(node: SymbolNode) -> list[Sequence[int]]:
    """For each graph inside a node, the input that each of its variables is."""
    if node.op in CONDITIONAL or node.op in WHILE:
        others = ("func_input_locs",) if node.op in WHILE else ("then_input_locs", "else_input_locs")
        return [node.attrs.integers(name, ()) for name in ("cond_input_locs", *others)]
    count = len(node.subgraphs[0].variables)
    try:
        if node.op in FOREACH:
            variables = loop_of(node.attrs, node.subgraphs[0], len(node.inputs)).variables
            return [[variables.index(place) if place in variables else -1 for place in range(count)]]
    except AttributeFault:
        return []
    return [range(count)] if node.op in FUSED else []


def _frozen(symbol: Symbol) -> Iterator[int]:
    """Weights that receive no gradient: a fixed gamma, a gluon Constant, a learning rate of zero."""
    for node in symbol.nodes:
        if node.op in ops.DATA["fixed gamma"] and len(node.inputs) > 1 and node.attrs.flag("fix_gamma", default=True):
            yield node.inputs[1][0]
        if node.is_variable and (node.attrs.raw.get("__init__", "").startswith("Constant_") or _rate(node) == 0):
            yield node.id


def _rate(node: SymbolNode) -> float:
    try:
        return node.attrs.number("__lr_mult__", 1.0)
    except AttributeFault:
        return 1.0


# -- what MXNet itself does to an old file when it loads it: the graph that an older version meant, in today's words ----

HIDDEN_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")
"""Attributes about a variable, today written with underscores around: old files put them anywhere, also on the reader."""

OLD_NAMES: dict[str, str] = ops.DATA["old_names"]  # How operators were called in files up to 0.8

HIDDEN_UNTIL = 10000  # From this version on every file writes them with underscores

OPTIONAL_AXIS = 905  # From this version on the axis of argmax and argmin may be absent; before, -1 meant all elements


def upgraded(symbol: Symbol) -> Symbol:
    """The graph with auxiliary states, hidden attributes and axes as today's files have them."""
    if any(node.op in OLD_NAMES for node in symbol.nodes):
        nodes = [node._replace(op=OLD_NAMES.get(node.op, node.op)) for node in symbol.nodes]
        symbol = replace(symbol, nodes=tuple(nodes))
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
        raw.update(hidden.get(node.id, {}))
        if symbol.version < OPTIONAL_AXIS and node.op in ("argmax", "argmin") and raw.get("axis") == "-1":
            del raw["axis"]
        nodes.append(node._replace(attrs=Attributes(raw)))
    return replace(symbol, nodes=tuple(nodes))


def _hidden(symbol: Symbol) -> dict[int, dict[str, str]]:
    """Attributes of variables that are written on the operator that reads them, as `weight_lr_mult`."""
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
    nodes: list[SymbolNode] = []
    place: list[int] = []
    """Where each node of the file went."""

    def moved(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple((place[node], output) for node, output in entries)

    for node in symbol.nodes:
        states: list[Entry] = []
        for slot in missing.get(node.id, ()):
            states.append((len(nodes), 0))
            nodes.append(
                SymbolNode(len(nodes), VARIABLE, f"{node.name}_{slot}" if node.name else slot, Attributes({}), ())
            )
        place.append(len(nodes))
        nodes.append(node._replace(id=len(nodes), inputs=(*moved(node.inputs), *states)))
    return replace(symbol, nodes=tuple(nodes), heads=moved(symbol.heads))


def _missing_states(node: SymbolNode) -> tuple[str, ...]:
    rule = all_operators().get(node.op)
    if rule is None or callable(rule.slots) or not AUXILIARY_SLOTS.intersection(rule.slots):
        return ()
    absent = rule.slots[len(node.inputs) :]
    return absent if absent and AUXILIARY_SLOTS.issuperset(absent) else ()
