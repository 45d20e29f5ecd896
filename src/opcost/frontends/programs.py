"""Programs of PyTorch in files: what readers of `.pt2` and of TorchScript share, from one operator to the tree of modules."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.files import opened
from opcost.core.graph import Module, ModuleCall, Role
from opcost.core.parsing import Bad, archive_in, short
from opcost.frontends.aten.call import Translation, flat
from opcost.frontends.aten.composite import ComposedStep, taken_apart
from opcost.frontends.aten.schema import Plan, is_view, translate
from opcost.frontends.aten.tensor import Described, layout_name
from opcost.frontends.building import GraphBuilder, above, check_extents, tree_order


def holds_code(path: Path) -> bool:
    """Whether an archive of PyTorch's holds code, as one of TorchScript does; one that cannot be listed holds none."""
    try:
        with opened(path) as file, archive_in(file) as archive:
            return any("/code/" in name for name in archive.namelist())
    except Bad:
        return False


# -- modules, as operators have them: `key,path,type;key,path,type`, outermost first -------------------------------------

_LONGEST_PATH = 1000
_DEEPEST = 64
_AGAIN = re.compile(r"@\d+(?=\.|$)")  # What a path has where a module is called once more


class ModuleEntry(NamedTuple):
    """A module around an operator."""

    key: str  # Another one for each call
    path: str
    type: str


def stack_of(text: str) -> tuple[ModuleEntry, ...]:
    """The modules around an operator."""
    found = []
    for entry in text.split(";") if text else ():
        key, _, rest = entry.partition(",")
        path, _, kind = rest.rpartition(",")
        if key.startswith("_empty_nn_module_stack"):
            return ()
        found.append(ModuleEntry(key, again_removed(_checked(path)), kind.rpartition(".")[2] or "Module"))
    return tuple(found)


def again_removed(path: str) -> str:
    """The path of a module, without the number of its call."""
    return _AGAIN.sub("", path)


def _checked(path: str) -> str:
    if len(path) > _LONGEST_PATH or path.count(".") > _DEEPEST:
        raise Bad(f"the module {short(path)} is nested too deep")
    return path


class ProgramModules:
    """Follows the operators through the modules."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {"": "Module"}
        self.stored: dict[str, tuple[list[tuple[str, int]], list[tuple[str, int]]]] = {}
        """Parameters and buffers of each module, with their values."""
        self.calls: list[ModuleCall] = []
        self._open: list[tuple[str, int]] = []

    def declare(self, path: str) -> None:
        """A module that the program names."""
        for each in (*above(_checked(path)), path):
            self.types.setdefault(each, "Module")

    def hold(self, name: str, value: int, *, parameter: bool) -> None:
        """A weight, by its full name."""
        path, _, own = name.rpartition(".")
        self.declare(path)
        self.stored.setdefault(path, ([], []))[0 if parameter else 1].append((own, value))

    def enter(self, stack: tuple[ModuleEntry, ...], at: int) -> str:
        """The module of the next operator, which is the `at`-th; without a stack it is the root."""
        if not stack:
            return ""
        same = 0
        for entry, (key, _) in zip(stack, self._open, strict=False):
            if entry.key != key:
                break
            same += 1
        self.leave(at, same)
        for key, path, kind in stack[same:]:
            self.declare(path)
            if self.types[path] == "Module":
                self.types[path] = kind
            self._open.append((key, len(self.calls)))
            self.calls.append(ModuleCall(path, (), (), at, at))
        return stack[-1].path

    def leave(self, at: int, depth: int = 0) -> None:
        """Close the modules below a depth."""
        while len(self._open) > depth:
            _, index = self._open.pop()
            self.calls[index] = self.calls[index]._replace(end=at)

    def all(self) -> Iterator[Module]:
        """Every module once, in the order of definition, those below right after the one above."""
        count = Counter(call.path for call in self.calls)
        for path in tree_order(self.types):
            parameters, buffers = map(tuple, self.stored.get(path, ((), ())))
            yield Module(path=path, type=self.types[path], parameters=parameters, buffers=buffers, calls=count[path])


MOST_AXES = 64
_FLAWS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, StopIteration, TypeError, ValueError,
)  # fmt: skip
"""What a handler raises where arguments are not those of such an operator."""


class ProgramBuilder(GraphBuilder):
    """Makes values and operators in the order of the program; a tensor that has a value knows its number."""

    def __init__(self, symbols: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.symbols = symbols or {}
        self.modules = ProgramModules()
        self._possible: set[tuple[int | None, ...]] = set()

    def made(self, name: str, tensor: Described, role: Role = "activation", **place: Any) -> Described:
        """The tensor with a new value; `place` as for `value`."""
        shape = tuple(tensor.shape)
        if shape not in self._possible:
            check_extents(shape, name or "a result", MOST_AXES)
            self._possible.add(shape)
        tensor.value = self.value(name, self.spec(shape, tensor.dtype), role, **place)
        return tensor

    def emit(
        self, plan: Plan, named: Mapping[str, Any], outs: Mapping[str, Described], module: str, repeat: int = 1
    ) -> list[Described]:
        """An operator as the table of `frontends.aten` has it, or those that it consists of; `outs` are its results by name."""
        results = tuple(outs.values())
        names = {id(tensor): name for name, tensor in outs.items()}
        for step, found in self._steps(ComposedStep(plan, plan.call({**plan.defaults, **named}, results))):
            inner, call = step
            given = flat(call.args.values()) if found.ins is None else found.ins
            reads = [tensor.value for tensor in given]  # type: ignore[attr-defined]
            for place, tensor in enumerate(call.outs):
                home = _home(step, found, place)
                if home is not None:  # a look at a weight takes its gradients too
                    tensor.requires_grad |= home.requires_grad
                self.made(names.get(id(tensor), ""), tensor, home=None if home is None else home.value)  # type: ignore[arg-type]
            writes = [tensor.value for tensor in call.outs or found.outs or ()]  # type: ignore[attr-defined]
            self.op(found.kind, found.attrs, inner.operator, reads, writes, module, repeat)
        if any(tensor.value < 0 for tensor in results):
            raise Bad(f"{plan.operator} has {len(outs)} results, more than it makes")
        return [*results]

    def _steps(self, step: ComposedStep) -> list[tuple[ComposedStep, Translation]]:
        """An operator, or those that it consists of, and what each computes."""
        plan, call = step
        tensors: list[Any] = [*flat(call.args.values()), *call.outs]
        kind = "unknown"
        if any(None in tensor.shape or None in tensor.stride() for tensor in tensors):
            kind = "view" if plan.schema is not None and is_view(plan.schema) else "unknown"
        elif all(layout_name(tensor) == "strided" for tensor in tensors):
            try:
                return [(each, translate(*each)) for each in taken_apart(call) or [step]]
            except _FLAWS:
                self.note("unknown", f"{plan.operator} is not counted: its arguments do not fit it")
        return [(step, Translation(kind, {}))]


def _home(step: ComposedStep, found: Translation, place: int) -> Any:
    """The tensor in whose memory a result is: the one that the schema names, or for a view the first; None: in its own."""
    schema, arguments = step.plan.schema, step.call.args
    if schema is None or not schema.returns:
        return None
    returned = schema.returns[min(place, len(schema.returns) - 1)]
    if returned.alias and (returned.writes or found.kind == "view"):
        shared = list(flat(arguments[a.name] for a in schema.arguments if a.alias == returned.alias))
        if shared:
            return shared[min(place, len(shared) - 1)]
    if found.kind != "view" or "empty" in schema.name:
        return None
    return next(flat(arguments.values()), None)
