"""Which variables are inputs, which are weights, which are auxiliary states: a symbol alone does not say.

A parameter file does, and so does a user who names the inputs. Beyond that, the place at which an operator reads a variable
tells: what stands in the slot `weight` is a weight, what stands in the slot `label` is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Flag, auto

from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.dialect import AUXILIARY_SLOTS
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.control import CONDITIONAL, FOREACH, FUSED, WHILE, loop_of
from opcost.frontends.mxnet.symbol import Node, Symbol

WEIGHT_SLOTS = frozenset(
    ("weight", "bias", "gamma", "beta", "parameters", "min_weight", "max_weight", "min_bias", "max_bias")
)
SIDE_SLOTS = frozenset(
    ("label", "state", "state_cell", "sequence_length", "length", "index", "indices", "like", "shape_like", "crop_like",
     "rois", "mask", "data_lengths", "label_lengths", "im_info", "condition")
)  # fmt: skip
"""Places of inputs beside the data: labels, states, indices, lengths."""

DATA_SLOT = "data"

WEIGHT_ENDINGS = (
    "_weight",
    "_bias",
    "_gamma",
    "_beta",
    ".weight",
    ".bias",
    ".gamma",
    ".beta",
    "_parameters",
    ".parameters",
)
STATE_ENDINGS = ("_moving_mean", "_moving_var", "_running_mean", "_running_var", ".running_mean", ".running_var")
SIDE_ENDINGS = ("label", "_state", "_state_cell", "_init_c", "_init_h")

GLUON_KEYS = ("__lr_mult__", "__wd_mult__", "__storage_type__")
"""Attributes that a parameter of a gluon block carries, and an input does not."""


class Use(Flag):
    """How a variable is read."""

    NONE = 0
    DATA = auto()
    WEIGHT = auto()
    STATE = auto()
    SIDE = auto()


@dataclass(frozen=True, slots=True)
class Roles:
    """The variables of a graph by their nodes, each kind in the order of the file."""

    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    states: tuple[int, ...]
    frozen: frozenset[int]
    """Weights that training leaves as they are."""
    side: frozenset[int]
    """Inputs that are labels, states, indices and the like."""


def assign(symbol: Symbol, named: Collection[str], saved: Collection[str], saved_states: Collection[str]) -> Roles:
    """Decide what each variable is, from the names the user gave and the names in the parameter file."""
    uses = _uses(symbol)
    kinds: dict[str, list[int]] = {"input": [], "weight": [], "state": []}
    for node in symbol.variables:
        kind = _kind(node, uses[node.id], named, saved, saved_states)
        kinds[kind].append(node.id)
    inputs = tuple(kinds["input"])
    return Roles(
        inputs,
        tuple(kinds["weight"]),
        tuple(kinds["state"]),
        frozenset(_frozen(symbol)),
        frozenset(node for node in inputs if Use.SIDE in uses[node] or _ends(symbol.nodes[node].name, SIDE_ENDINGS)),
    )


def _kind(node: Node, use: Use, named: Collection[str], saved: Collection[str], saved_states: Collection[str]) -> str:
    if node.name in named:
        return "input"
    if node.name in saved_states or Use.STATE in use:
        return "state"
    if node.name in saved or Use.WEIGHT in use:
        return "weight"
    if saved or saved_states:  # what a parameter file does not hold comes from outside
        return "input"
    if any(key in node.attrs.raw for key in GLUON_KEYS):
        return "weight"
    if use & (Use.SIDE | Use.DATA) or _ends(node.name, SIDE_ENDINGS):
        return "input"
    if _ends(node.name, STATE_ENDINGS):
        return "state"
    if _ends(node.name, WEIGHT_ENDINGS):
        return "weight"
    return "weight" if named else "input"


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    return name.endswith(endings)


def _uses(symbol: Symbol) -> list[Use]:
    """For each node, in which slots its outputs end up; operators without weights of their own hand that on."""
    uses = [Use.NONE] * len(symbol.nodes)
    for node in reversed(symbol.nodes):
        if node.is_variable:
            continue
        for (source, _), use in zip(node.inputs, _input_uses(node, uses[node.id]), strict=True):
            uses[source] |= use
    return uses


def _input_uses(node: Node, passed: Use) -> Iterator[Use]:
    if node.subgraphs:
        yield from _body_uses(node)
        return
    rule = all_operators().get(node.op)
    try:
        slots = rule.slot_names(node.attrs) if rule is not None else ()
    except AttributeFault:
        slots = ()
    transparent = rule is not None and not WEIGHT_SLOTS.intersection(slots)
    for place in range(len(node.inputs)):
        slot = slots[place] if place < len(slots) else ""
        if slot in WEIGHT_SLOTS:
            yield Use.WEIGHT
        elif slot in AUXILIARY_SLOTS:
            yield Use.STATE
        elif slot in SIDE_SLOTS:
            yield Use.SIDE
        elif slot == DATA_SLOT:
            yield Use.DATA
        else:
            yield passed if transparent else Use.NONE


def _body_uses(node: Node) -> Iterator[Use]:
    """The uses of the variables inside a loop or a fused operator, for the inputs that they stand for."""
    body = node.subgraphs[0]
    inner = _uses(body)
    variables = [inner[variable.id] for variable in body.variables]
    places: tuple[int, ...] = ()
    try:
        if node.op in FOREACH:
            places = loop_of(node.attrs, body, len(node.inputs)).variables
        elif node.op in FUSED:
            places = tuple(range(len(variables)))
    except AttributeFault:
        places = ()
    if node.op in CONDITIONAL or node.op in WHILE:
        yield from _branch_uses(node)
        return
    for place in range(len(node.inputs)):
        yield variables[places[place]] if place < len(places) else Use.NONE


def _branch_uses(node: Node) -> Iterator[Use]:
    others = ("func_input_locs",) if node.op in WHILE else ("then_input_locs", "else_input_locs")
    names = ("cond_input_locs", *others)
    found = [Use.NONE] * len(node.inputs)
    for name, body in zip(names, node.subgraphs, strict=False):
        inner = _uses(body)
        for variable, place in zip(body.variables, node.attrs.integers(name, ()), strict=False):
            if 0 <= place < len(found):
                found[place] |= inner[variable.id]
    yield from found


_FIXED_GAMMA = ("BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU",
                "_npx_batch_norm", "_npx_sync_batch_norm")  # fmt: skip


def _frozen(symbol: Symbol) -> Iterator[int]:
    """Weights that receive no gradient: a fixed gamma, a gluon Constant, a learning rate of zero."""
    for node in symbol.nodes:
        if node.op in _FIXED_GAMMA and len(node.inputs) > 1 and node.attrs.flag("fix_gamma", default=True):
            yield node.inputs[1][0]
        if node.is_variable and (node.attrs.raw.get("__init__", "").startswith("Constant_") or _rate(node) == 0):
            yield node.id


def _rate(node: Node) -> float:
    try:
        return node.attrs.number("__lr_mult__", 1.0)
    except AttributeFault:
        return 1.0
