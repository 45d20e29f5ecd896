"""The instructions of a compiled program (HloProto): what they make, of what, and the products in them.

Costs are exact or none: a product alone, or in a fusion that else only moves data. What a fusion computes beside is not counted.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

from opcost.core.graph import NO_ATTRS, Attrs, Phase, TensorSpec
from opcost.frontends.protobuf import MessageFields, Piece
from opcost.traces.file import is_shape

_DTYPES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64", 10: "float16",
    11: "float32", 12: "float64", 15: "complex64", 16: "bfloat16", 18: "complex128", 19: "float8_e5m2", 20: "float8_e4m3fn",
    21: "int4", 22: "uint4",
}  # fmt: skip
"""Element types by their numbers in XLA."""
_TUPLE = 13
_MOVES = frozenset(
    "parameter constant bitcast copy transpose broadcast reshape tuple get-tuple-element slice concatenate pad reverse".split()
)
"""Instructions that compute nothing."""
_COPIES = frozenset({"copy", "transpose", "concatenate", "pad", "reverse", "slice"})
_WRAPPER = re.compile(r"(\w+)\((.*)\)$")
_CODE = ("jit", "pjit", "xla_call")  # names of wrappers that hold a function, not a module
_AGAIN = ("rematted_computation", "checkpoint")


class Instruction(NamedTuple):
    """One instruction in our words."""

    opcode: str
    scope: str = ""  # the path of the author's code that it comes from: `jit(f)/jvp(Net)/dense/dot_general`
    ins: tuple[TensorSpec, ...] = ()
    outs: tuple[TensorSpec, ...] = ()
    kind: str = ""
    attrs: Attrs = NO_ATTRS


def instructions(proto: Piece) -> dict[str, Instruction]:
    """All instructions of a program by their names, which no two have."""
    found: dict[str, Instruction] = {}
    for module in MessageFields.of(proto).messages(1):
        computations = [_Computation(each) for each in module.messages(3)]
        by_number = {each.number: each for each in computations}
        for computation in computations:
            for name in computation.names:
                found.setdefault(name, computation.instruction(name, by_number))
    return found


class _Computation:
    def __init__(self, message: MessageFields) -> None:
        self.number = message.whole(5)
        listed = message.messages(2)
        self.names = {each.text(1): each for each in listed}
        self._by_number = {each.whole(35): each for each in listed}

    def instruction(self, name: str, computations: dict[int, _Computation]) -> Instruction:
        message = self.names[name]
        opcode = message.text(2)
        metadata = message.messages(7)
        ins = tuple(spec for number in message.integers(36) for spec in self._specs(number))
        outs = _specs_of(message)
        kind, attrs = self.work(message, opcode, computations)
        return Instruction(opcode, metadata[0].text(2) if metadata else "", ins, outs, kind, attrs)

    def _specs(self, number: int) -> tuple[TensorSpec, ...]:
        message = self._by_number.get(number)
        return () if message is None else _specs_of(message)

    def work(self, message: MessageFields, opcode: str, computations: dict[int, _Computation]) -> tuple[str, Attrs]:
        """Kind and attributes of an instruction, as far as its cost is exact."""
        if opcode != "fusion":
            macs = self.macs(message)
            kind = {"dot": "matmul", "convolution": "conv"}.get(opcode, "")
            return (kind, {"macs": macs}) if macs is not None else ("copy" if opcode in _COPIES else "", NO_ATTRS)
        called = [computations[number] for number in message.integers(38) if number in computations]
        inside = [(each, part) for each in called for part in each.names.values() if part.text(2) not in _MOVES]
        if len(inside) != 1:
            return "", NO_ATTRS
        computation, part = inside[0]
        return computation.work(part, part.text(2), {})

    def macs(self, message: MessageFields) -> int | None:
        """Multiplications that are summed: of a product, its results times what is contracted; None where there is none.

        A convolution whose input is spread by zeros between its elements, as a gradient is, does not have which are real.
        """
        operands = [self._specs(number) for number in message.integers(36)]
        outs = _specs_of(message)
        if len(outs) != 1 or len(operands) < 2 or any(len(specs) != 1 for specs in operands[:2]):
            return None
        left, right = operands[0][0].dims, operands[1][0].dims
        made = prod(outs[0].dims)
        opcode = message.text(2)
        if opcode == "dot":
            contracted = [axis for numbers in message.messages(30) for axis in numbers.integers(1)]
            fits = all(0 <= axis < len(left) for axis in contracted)
            return made * prod(left[axis] for axis in contracted) if fits else None
        if opcode != "convolution":
            return None
        windows = [axis for window in message.messages(15) for axis in window.messages(1)]
        numbers = message.messages(16)
        if not numbers or message.whole(61, 1) > 1 or any(axis.whole(6, 1) > 1 for axis in windows):
            return None
        features = numbers[0].whole(4)
        return made * prod(right) // right[features] if 0 <= features < len(right) and right[features] else None


def _specs_of(message: MessageFields) -> tuple[TensorSpec, ...]:
    return tuple(spec for shape in message.messages(3) for spec in _shapes(shape, 0))


def _shapes(shape: MessageFields, depth: int) -> tuple[TensorSpec, ...]:
    """The tensors of a shape, which may be a tuple of shapes; one that no memory holds is none."""
    if shape.whole(2) == _TUPLE:
        return tuple(spec for part in shape.messages(4) for spec in _shapes(part, depth + 1)) if depth < 8 else ()
    extents = shape.integers(3)
    dtype = _DTYPES.get(shape.whole(2))
    return (TensorSpec(tuple(extents), dtype),) if dtype and is_shape(extents) and min(extents, default=0) >= 0 else ()


def place_of(scope: str) -> tuple[str, str, Phase]:
    """Where an instruction comes from: JAX's word for it, the modules around it, and the pass.

    That is its path without what only wraps functions: `jit(f)/transpose(jvp(Net))/dense/dot_general`.
    """
    *path, primitive = scope.split("/") if scope else [""]
    phase: Phase = "forward"
    modules = []
    for part in path:
        name = part
        if part.startswith("transpose("):
            phase = "backward"
        elif part in _AGAIN and phase == "forward":
            phase = "recompute"
        while (wrapped := _WRAPPER.match(name)) is not None:
            name = "" if wrapped[1] in _CODE else wrapped[2]
        if name and name not in _AGAIN:
            modules.append(name)
    return primitive, ".".join(modules), phase
