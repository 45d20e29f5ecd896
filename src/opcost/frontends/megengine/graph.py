"""A dump as a `Graph`: its tensors as values, its operators in our kinds, its modules as its names tell them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from opcost.core.graph import Graph, Module, Op, Role, Value
from opcost.core.shapes import Mismatch, Unknown
from opcost.errors import SourceError
from opcost.frontends.building import GraphBuilder, above, tree_order, with_above
from opcost.frontends.megengine.dtypes import FLOATING, QUANTIZED
from opcost.frontends.megengine.infer import FLAWS, Inferred, infer, label
from opcost.frontends.megengine.inputs import asked_shapes, input_names
from opcost.frontends.megengine.model import HOLDERS, SOURCES, Model, Operator, Tensor
from opcost.frontends.megengine.node import Meaning, Node
from opcost.frontends.megengine.operators import rules
from opcost.frontends.megengine.scopes import Scopes, scope_of
from opcost.frontends.options import CountOptions

_STATE = {"BatchNorm": (3, 4), "FakeQuant": (1, 2), "TQT": (1,), "LSQ": (1, 2, 3)}
"""Inputs that hold running statistics or the scales of a quantization: state, not weights."""

_LOOKS = (
    "Reshape", "Broadcast", "Dimshuffle", "AxisAddRemove", "Split", "Subtensor", "Identity", "MarkDynamicVar",
    "MarkNoBroadcastElemwise", "VirtualDep", "AssertEqual", "Sleep",
)  # fmt: skip
"""Operators whose results lie in the memory of their first input."""


def build_graph(model: Model, options: CountOptions) -> Graph:
    """Count-ready data from a dump, with the shapes that the user asked for."""
    found = infer(model, asked_shapes(model, options))
    return _Builder(model, found).built()


class _Builder(GraphBuilder):
    def __init__(self, model: Model, found: Inferred) -> None:
        super().__init__()
        self.model = model
        self.found = found
        self.scopes = Scopes(model)
        self.inputs = {variable: name for name, variable in input_names(model).items()}
        self.storage = list(range(len(model.variables)))
        self.notes.update(dict.fromkeys(found.notes))
        self.read = {*model.outputs, *(variable for op in model.operators for variable in op.inputs)}

    def built(self) -> Graph:
        for op in self.model.operators:
            if op.type not in SOURCES:
                self._add(op)
        self._add_values()
        self._tell_what_follows()
        return self.graph(
            self.model.path,
            "megengine",
            {"format": self.model.format, "megengine": self.model.version},
            modules=self._modules(),
            inputs=self.inputs,
            outputs=self.model.outputs,
        )

    def _tell_what_follows(self) -> None:
        """Note what else is in the file and not counted."""
        sets, more = self.model.testcases, self.model.more
        if sets:
            several = f"{sets} sets" if sets > 1 else "one set"
            self.note("testcase", f"the file also holds {several} of inputs and outputs")
        elif more:
            text = f"{more} bytes follow the model, as where others were appended: only the first model is counted"
            self.note("appended", text)

    # -- operators ------------------------------------------------------------------------------------------------

    def _add(self, op: Operator) -> None:
        node = self.found.nodes[op.index]
        meaning = self._meaning(node)
        inputs, outputs = op.inputs, op.outputs
        if meaning.inputs is not None:
            if any(place >= len(op.inputs) for place in meaning.inputs):
                raise SourceError(f"{label(op)} has {len(op.inputs)} inputs, and needs {max(meaning.inputs) + 1}")
            inputs = tuple(op.inputs[place] for place in meaning.inputs)
        if meaning.outputs is not None:
            first = [op.outputs[i] for i in meaning.outputs]
            outputs = (*first, *(i for i in op.outputs if i not in first and i in self.read))
        if op.type in _LOOKS and op.inputs and not self._is_number(op):
            for variable in op.outputs:
                self.storage[variable] = self.storage[op.inputs[0]]
        native = {**op.param.fields, "name": op.name} if op.name else op.param.fields
        module = self.scopes.of_op[op.index]
        self.op(meaning.kind, meaning.attrs, f"mge::{op.type}", inputs, outputs, module, native=native)

    def _meaning(self, node: Node) -> Meaning:
        rule = rules().get(node.op.type)
        if rule is None:
            return Meaning("unknown")
        if self._is_number(node.op):
            return Meaning("view", {"shapes": True})
        try:
            return rule.meaning(node)
        except Unknown:
            return Meaning("unknown")
        except Mismatch as fault:
            self.note("unknown", f"{label(node.op)} is not counted: {fault}")
            return Meaning("unknown")
        except FLAWS as fault:
            raise SourceError(f"{label(node.op)} has inputs that do not fit such an operator ({fault})") from fault

    def _is_number(self, op: Operator) -> bool:
        """Whether the result is known before anything runs, as part of working out shapes."""
        return len(op.outputs) == 1 and op.outputs[0] in self.found.numbers

    # -- values ---------------------------------------------------------------------------------------------------

    def _add_values(self) -> None:
        roles, names = self._tensors()
        for variable, stored in enumerate(self.model.variables):
            role: Role = "input" if variable in self.inputs else roles.get(variable, "activation")
            name = self.inputs.get(variable) or names.get(variable) or stored.name or f"v{variable}"
            spec = self.spec(self.found.shapes[variable], self.found.dtypes[variable])
            self.values.append(Value(variable, name, spec, role, self.storage[variable]))

    def _tensors(self) -> tuple[dict[int, Role], dict[int, str]]:
        """Role and name of every tensor that comes with the file."""
        state: set[int] = set()
        weights: set[int] = set()
        for op in self.model.operators:
            for place, variable in enumerate(op.inputs):
                (state if place in _STATE.get(op.type, ()) else weights).add(variable)
        roles: dict[int, Role] = {}
        names: dict[int, str] = {}
        for op in self.model.operators:
            if op.type not in HOLDERS:
                continue
            for variable, tensor in zip(op.outputs, op.tensors, strict=True):
                name = self.model.variables[variable].name or tensor.name or op.name
                names[variable] = name or f"tensor{op.index}"
                roles[variable] = "buffer" if variable in state - weights else role_of(tensor, name)
        return roles, names

    # -- modules --------------------------------------------------------------------------------------------------

    def _modules(self) -> Iterator[Module]:
        """The tree of the names: every path that an operator or a weight belongs to, and all paths above it."""
        held: dict[str, list[tuple[str, int]]] = {}
        buffers: dict[str, list[tuple[str, int]]] = {}
        for value in self.values:
            if value.role in ("param", "buffer"):
                path = self.scopes.of_tensor.get(value.id, "")
                (held if value.role == "param" else buffers).setdefault(path, []).append(
                    (_inside(value.name, path), value.id)
                )
        paths = with_above(dict.fromkeys([*(op.module for op in self.ops), *held, *buffers]))
        crossing = _crossing(self.ops, self.values, self.model.outputs)
        types = self._types(paths)
        for path in tree_order(paths):
            taken, given = crossing.get(path, ((), ()))
            yield Module(
                path=path,
                type=types[path],
                parameters=tuple(held.get(path, ())),
                buffers=tuple(buffers.get(path, ())),
                calls=1,
                inputs=tuple(self.values[i].spec for i in taken),
                outputs=tuple(self.values[i].spec for i in given),
            )

    def _types(self, paths: list[str]) -> dict[str, str]:
        """A dump does not say which class a module was of; a layer is called after its first operator."""
        types = dict.fromkeys(paths, "Module")
        for op in reversed(self.ops):
            if op.module in self.scopes.layers and op.kind != "view":
                types[op.module] = op.raw.rpartition(":")[2]
        types[""] = "Model"
        return types


def role_of(tensor: Tensor, name: str) -> Role:
    """Weights are numbers with a fraction, or their quantized form; a single one is a weight only by its name.

    MegEngine calls the numbers of a formula `const<2>` or after the operator that made them, `Fill[0]`.
    """
    if tensor.dtype.name not in FLOATING | QUANTIZED:
        return "const"
    named = bool(scope_of(name)) or (name.isidentifier() and name[0].islower())
    return "param" if named or prod(tensor.shape) != 1 else "const"


def _inside(name: str, path: str) -> str:
    """A tensor's name inside its module; a name made by the optimizer must not look like a path."""
    own = name.removeprefix(f"{path}.") if path else name
    return own.replace(".", "/") if not own.isidentifier() else own


def _crossing(ops: list[Op], values: list[Value], outputs: tuple[int, ...]) -> dict[str, tuple[list[int], list[int]]]:
    """For each module, the values that it takes from outside and those that it hands out."""
    maker = {variable: op.module for op in ops for variable in op.outputs}
    around: dict[str, tuple[str, ...]] = {}

    def chain(path: str) -> tuple[str, ...]:
        found = around.get(path)
        if found is None:
            found = around[path] = tuple(dict.fromkeys(("", *above(path), path)))
        return found

    taken: dict[str, dict[int, None]] = {}
    given: dict[str, dict[int, None]] = {}
    for op in ops:
        for variable in op.inputs:
            if values[variable].role not in ("input", "activation"):
                continue
            made = maker.get(variable)
            inside = set(chain(made)) if made is not None else set()
            for path in chain(op.module):
                if path not in inside:
                    taken.setdefault(path, {})[variable] = None
            if made is not None:
                users = set(chain(op.module))
                for path in chain(made):
                    if path not in users:
                        given.setdefault(path, {})[variable] = None
    for variable in outputs:
        for path in chain(maker[variable]) if variable in maker else ():
            given.setdefault(path, {})[variable] = None
    return {path: (list(taken.get(path, ())), list(given.get(path, ()))) for path in {*taken, *given}}
