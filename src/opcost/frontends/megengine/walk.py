"""A dump as a `Graph`, by the walk over nodes that formats share: shapes, numbers and operators are found in one go.

FBS v2 stores the shapes that hold for the inputs as they were dumped; they are taken where no rule knows better. With
other inputs, and in FBS v1, everything is worked out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs, Graph, Role
from opcost.core.shapes import Mismatch, Shape, Unknown, complete, text
from opcost.errors import InputError, OpcostError, SourceError
from opcost.frontends.megengine.model import HOLDERS, MAX_RANK, SOURCES, FileOperator, Model, input_names
from opcost.frontends.megengine.operators import ROWS
from opcost.frontends.megengine.operators.elements import content_of
from opcost.frontends.megengine.operators.table import MegEngineCall
from opcost.frontends.megengine.schema import FORMAT
from opcost.frontends.megengine.scopes import DumpScopes, role_of
from opcost.frontends.nodes.meaning import GraphNode, NodeGraph, Operand, Out
from opcost.frontends.nodes.walk import FAULTS, Walk
from opcost.frontends.rows import Places, RowOperator

DOMAIN = "mge"  # The word before the names of its operators

_STATE = {"BatchNorm": (3, 4), "FakeQuant": (1, 2), "TQT": (1,), "LSQ": (1, 2, 3)}
"""Inputs that hold running statistics or the scales of a quantization: state, not weights."""

_Meaning: TypeAlias = "tuple[str, Attrs, Places | None, Places | None]"
"""Kind and attributes, the inputs that are read and the results that the kind speaks of; None: all of them."""
_UNKNOWN: _Meaning = ("unknown", NO_ATTRS, None, None)
_SHAPES: _Meaning = ("view", {"shapes": True}, None, None)


class DumpWalk(Walk):
    """Makes a value for every variable, with its number, and an operator for every one that computes."""

    format = "megengine"
    scopes: DumpScopes

    def __init__(self, model: Model, inputs: Mapping[int, tuple[int, ...]] | None = None) -> None:
        """`inputs` gives other shapes for some input variables."""
        super().__init__(DumpScopes(model), trusted=not inputs)
        self.model = model
        self.made: dict[str, Operand] = {}
        """All tensors, by the keys of their variables."""
        self._inputs = inputs or {}
        self._operator: FileOperator
        self._keys = [f"v{variable}" for variable in range(len(model.variables))]
        self._read = {*model.outputs, *(variable for op in model.operators for variable in op.inputs)}
        self._input_names = {variable: name for name, variable in input_names(model).items()}
        # Role and name of every tensor that comes with the file
        self._roles: dict[int, Role] = dict.fromkeys(self._input_names, "input")
        self._names = dict(self._input_names)
        state: set[int] = set()
        weights: set[int] = set()
        for op in model.operators:
            places = _STATE.get(op.type, ())
            for place, variable in enumerate(op.inputs):
                (state if place in places else weights).add(variable)
        state -= weights
        for op, variable, tensor in model.brought_in(*HOLDERS):
            name = model.variables[variable].name or tensor.name or op.name
            self._names[variable] = name or f"tensor{op.index}"
            self._roles[variable] = "buffer" if variable in state else role_of(tensor, name)

    def run(self) -> DumpWalk:
        """Work out all shapes, types and operators; the walk itself comes back."""
        graph, keys = NodeGraph("", (), {}, (), (), {}), self._keys
        for op in self.model.operators:
            if op.type in SOURCES:
                for variable, tensor in zip(op.outputs, op.tensors, strict=True):
                    shape, content = self._inputs.get(variable, tensor.shape), self.model.numbers.get(variable)
                    spec = self.maker.spec(shape, tensor.dtype.name)
                    value = self.maker.value(self._named(variable), spec, self._roles[variable])
                    self.made[self._keys[variable]] = Operand(value, shape, spec.dtype, content, stored=True)
                continue
            self._operator = op
            inputs, outputs = tuple([keys[i] for i in op.inputs]), tuple([keys[i] for i in op.outputs])
            self.node(GraphNode(op.type, DOMAIN, op.name, inputs, outputs), graph, self.made)
        return self

    def tensor(self, variable: int) -> Operand:
        """What is known of a variable."""
        return self.made[self._keys[variable]]

    def _named(self, variable: int) -> str:
        return self._names.get(variable) or self.model.variables[variable].name or self._keys[variable]

    def special(
        self, node: GraphNode, ins: Sequence[Operand | None], graph: NodeGraph, env: dict[str, Operand]
    ) -> Sequence[Operand]:
        """Every node is MegEngine's own: its row says all of it."""
        op, row, given = self._operator, ROWS.get(self._operator.type), [env[name] for name in node.inputs]
        call = MegEngineCall.of(op.type, op.param, given, len(op.outputs))
        self._work_out(row, call)
        content, home = content_of(call), None
        if content is not None:  # known before anything runs, as part of working out shapes
            kind, attrs, reads, results = _SHAPES
        else:
            kind, attrs, reads, results = self._meaning_of(row, call) if row is not None else _UNKNOWN
            home = given[0] if op.type in FORMAT["looks"] and given else None
        outs = [Out(*of, content, home) for of in zip(call.outs, call.out_types, strict=True)]  # type: ignore[arg-type]
        path, names = self.scopes.of_op[op.index], [self._named(variable) for variable in op.outputs]
        made = self.emit(node, path, kind, attrs, given if reads is None else [given[i] for i in reads], outs, names)
        outputs = op.outputs
        if results is not None:  # those that the kind speaks of, and others only if they are read
            first = [op.outputs[place] for place in results]
            outputs = (*first, *(i for i in op.outputs if i not in first and i in self._read))
        native = {**op.param, "name": op.name} if op.name else op.param
        self.maker.ops[-1] = self.maker.ops[-1]._replace(outputs=outputs, native=native)
        return made

    @staticmethod
    def known(ours: Shape, theirs: tuple[int, ...] | None) -> Shape:
        """What MegEngine stored is right for the inputs that it stored."""
        return ours if theirs is None else theirs

    # -- one operator -------------------------------------------------------------------------------------------------

    def _meaning_of(self, row: RowOperator, call: MegEngineCall) -> _Meaning:
        """What an operator does."""
        op, outs, count = self._operator, call.outs, len(call.ins)
        # Where a shape begins to depend on data; not what follows from it, and not side results
        if outs and not complete(outs[0]) and all(map(complete, call.ins)):
            shapes = ", ".join(map(text, outs))
            self.maker.note("dynamic", f"the result of {label(op)} ({shapes}) has a size that depends on data")
        try:
            kind, attrs = row.meaning(call)
            reads, results = None if kind == "unknown" else row.read(call), row.made(call)
        except Unknown:
            return _UNKNOWN
        except Mismatch as fault:
            self.maker.note("unknown", f"{label(op)} is not counted: {fault}")
            return _UNKNOWN
        except FAULTS as fault:
            raise SourceError(f"{label(op)} has inputs that do not fit such an operator ({fault})") from fault
        if reads is not None and any(place >= count for place in reads):
            raise SourceError(f"{label(op)} has {count} inputs, and needs {max(reads) + 1}")
        return kind, attrs, reads, results

    def _work_out(self, row: RowOperator | None, call: MegEngineCall) -> None:
        """Shapes and element types of the results: by the rule, and as the file has them."""
        outs, types, declared = call.outs, call.out_types, self._operator.output_dtype
        if declared is not None and len(outs) == 1:
            types[0] = declared.name
        try:
            if row is not None:
                with suppress(Unknown):
                    row.infer(call)
                row.infer_types(call)
        except Mismatch as fault:
            raise self._wrong(call, str(fault)) from None
        except FAULTS as fault:
            raise self._wrong(call, f"its inputs are not those of such an operator ({fault})") from fault
        if any(len(shape or ()) > MAX_RANK for shape in outs):
            raise self._wrong(call, f"a result would have more than {MAX_RANK} axes")
        if any(extent is not None and extent < 0 for shape in outs for extent in shape or ()):
            raise self._wrong(call, f"a result would be {', '.join(map(text, outs))}")
        for place, variable in enumerate(self._operator.outputs):
            stored = self.model.variables[variable]
            outs[place] = self.known(outs[place], stored.shape) if self.trusted else outs[place]
            types[place] = stored.dtype.name if stored.dtype else types[place] or call.dtype()

    def _wrong(self, call: MegEngineCall, fault: str) -> OpcostError:
        shapes = ", ".join(map(text, call.ins))
        message = f"{label(self._operator)} cannot take inputs of {shapes or 'nothing'}: {fault}"
        if not self.trusted:
            return InputError(message, hint="some shapes are written into the dump: keep them, or dump the model again")
        return SourceError(
            message, hint="the file was changed or damaged, or a rule of opcost is wrong: please report it"
        )

    # -- the whole ----------------------------------------------------------------------------------------------------

    def built(self) -> Graph:
        """The graph of a walk that has run."""
        model = self.model
        if model.testcases:
            several = f"{model.testcases} sets" if model.testcases > 1 else "one set"
            self.maker.note("testcase", f"the file also holds {several} of inputs and outputs")
        elif model.more:
            found = (
                f"{model.more} bytes follow the model, as where others were appended: only the first model is counted"
            )
            self.maker.note("appended", found)
        meta = {"format": model.format, "megengine": model.version}
        taken, given = map(self.tensor, self._input_names), map(self.tensor, model.outputs)
        return self.finished(model.path, meta, "Model", [*taken], [*given])


def label(op: FileOperator) -> str:
    """An operator as a reader finds it: its type, and its name or number."""
    return f"{op.type} {op.name!r}" if op.name else f"{op.type} number {op.index}"
