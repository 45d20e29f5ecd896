"""Shapes and element types of all variables: from the shapes of the inputs, one operator after the other.

FBS v2 stores the shapes that hold for the inputs as they were dumped; they are taken where no rule knows better. With
other inputs, and in FBS v1, everything is worked out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opcost.core.graph import Note
from opcost.core.shapes import Mismatch, Shape, Unknown, text
from opcost.errors import InputError, OpcostError, SourceError
from opcost.frontends.megengine.model import MAX_RANK, SOURCES, Model, Operator
from opcost.frontends.megengine.node import Node, Numbers, Rule
from opcost.frontends.megengine.operators import rules
from opcost.frontends.megengine.values import evaluate

FLAWS = (IndexError, KeyError, TypeError, ValueError, ArithmeticError)
"""What a rule may run into where a damaged file gives it inputs that MegEngine itself would never write."""


@dataclass(slots=True)
class Inferred:
    """What is known about every variable, and about every operator that computes."""

    shapes: list[Shape]
    dtypes: list[str]
    numbers: dict[int, Numbers]
    nodes: dict[int, Node] = field(default_factory=dict)
    """By operator; sources of tensors have none."""
    notes: list[Note] = field(default_factory=list)


def infer(model: Model, inputs: Mapping[int, tuple[int, ...]] | None = None) -> Inferred:
    """Work out shapes and types; `inputs` gives other shapes for some input variables."""
    inputs = inputs or {}
    count = len(model.variables)
    found = Inferred([None] * count, ["float32"] * count, dict(model.numbers))
    for op in model.operators:
        if op.type in SOURCES:
            for variable, tensor in zip(op.outputs, op.tensors, strict=True):
                found.shapes[variable] = inputs.get(variable, tensor.shape)
                found.dtypes[variable] = tensor.dtype.name
            continue
        node = Node(
            op,
            [found.shapes[i] for i in op.inputs],
            [found.dtypes[i] for i in op.inputs] or ["float32"],
            [found.numbers.get(i) for i in op.inputs],
        )
        _infer_one(node, model, found, changed=bool(inputs))
        found.nodes[op.index] = node
    return found


def _infer_one(node: Node, model: Model, found: Inferred, *, changed: bool) -> None:
    op = node.op
    rule = rules().get(op.type)
    stored = [model.variables[variable] for variable in op.outputs]
    node.out_dtypes = _dtypes(node, rule)
    node.out_shapes = _shapes(node, rule, changed=changed)
    if not changed:
        node.out_shapes = [_known(ours, theirs.shape) for ours, theirs in zip(node.out_shapes, stored, strict=True)]
    node.out_dtypes = [
        theirs.dtype.name if theirs.dtype else ours for ours, theirs in zip(node.out_dtypes, stored, strict=True)
    ]
    for variable, shape, dtype in zip(op.outputs, node.out_shapes, node.out_dtypes, strict=True):
        found.shapes[variable] = shape
        found.dtypes[variable] = dtype
    _note(node, rule, found)
    if (numbers := evaluate(node)) is not None:
        found.numbers[op.outputs[0]] = numbers


def _known(ours: Shape, theirs: tuple[int, ...] | None) -> Shape:
    """What MegEngine stored is right for the inputs that it stored."""
    return ours if theirs is None else theirs


def _shapes(node: Node, rule: Rule | None, *, changed: bool) -> list[Shape]:
    nothing: list[Shape] = [None] * len(node.op.outputs)
    if rule is None:
        return nothing
    try:
        found = rule.shapes(node)
    except Unknown:
        return nothing
    except Mismatch as fault:
        raise _wrong(node, str(fault), changed=changed) from None
    except FLAWS as fault:
        raise _wrong(node, f"its inputs are not those of such an operator ({fault})", changed=changed) from fault
    if len(found) != len(nothing):
        raise _wrong(node, f"it makes {len(nothing)} results, not {len(found)}", changed=changed)
    if any(len(shape or ()) > MAX_RANK for shape in found):
        raise _wrong(node, f"a result would have more than {MAX_RANK} axes", changed=changed)
    if any(extent is not None and extent < 0 for shape in found for extent in shape or ()):
        raise _wrong(node, f"a result would be {', '.join(map(text, found))}", changed=changed)
    return found


def _dtypes(node: Node, rule: Rule | None) -> list[str]:
    """What the operator declares for its result; else what its type of operators does."""
    count = len(node.op.outputs)
    declared = node.op.output_dtype
    if declared is not None and count == 1:
        return [declared.name]
    if rule is not None and rule.dtypes is not None:
        try:
            found = rule.dtypes(node)
        except FLAWS as fault:
            raise _wrong(node, f"its inputs are not those of such an operator ({fault})", changed=False) from fault
        if len(found) == count:
            return found
    return [node.dtypes[0]] * count


def _note(node: Node, rule: Rule | None, found: Inferred) -> None:
    """Say where a shape begins to depend on data; what follows from it, and side results, are not told."""
    first = node.out_shapes[0] if node.out_shapes else ()
    if rule is None or (first is not None and None not in first):
        return
    if any(shape is None or None in shape for shape in node.shapes):
        return
    shapes = ", ".join(map(text, node.out_shapes))
    found.notes.append(Note("dynamic", f"the result of {label(node.op)} ({shapes}) has a size that depends on data"))


def _wrong(node: Node, fault: str, *, changed: bool) -> OpcostError:
    shapes = ", ".join(map(text, node.shapes))
    message = f"{label(node.op)} cannot take inputs of {shapes or 'nothing'}: {fault}"
    if changed:
        return InputError(message, hint="some shapes are written into the dump: keep them, or dump the model again")
    return SourceError(message, hint="the file was changed or damaged, or a rule of opcost is wrong: please report it")


def label(op: Operator) -> str:
    """An operator as a reader finds it: its type, and its name or number."""
    return f"{op.type} {op.name!r}" if op.name else f"{op.type} number {op.index}"
