"""The weights of an archive: those that its classes name, and the constants of a module that was frozen."""

from __future__ import annotations

from typing import Any

from opcost.core.checked import Bad
from opcost.core.graph import Role
from opcost.errors import counted
from opcost.frontends.aten.call import Call, Described
from opcost.frontends.aten.resolve import is_view
from opcost.frontends.aten.views import row_major
from opcost.frontends.checkpoint.described import Tensor as Stored
from opcost.frontends.programs import ProgramBuilder, ProgramOperator, ProgramTensor, made_in
from opcost.frontends.torchscript.archive import Constant, Object, Script
from opcost.frontends.torchscript.plain import Number

MOST = 60_000
"""Attributes of modules, counting those of a shared module each time."""
_COMPARISONS = frozenset("eq ne lt le gt ge masked_fill masked_fill_ where logical_not".split())
"""What reads a table that is no weight: a mask."""
_STATISTICS = frozenset({"running_mean", "running_var"})


class Weights:
    """The tensors of the file as values of the graph, each once."""

    def __init__(self, script: Script, builder: ProgramBuilder) -> None:
        self.script, self.builder = script, builder
        self._homes: dict[tuple[str, int, tuple[int, ...]], ProgramTensor] = {}
        self._frozen: dict[str, ProgramTensor] = {}
        """Constants and attributes that no class calls a parameter, in a module that was frozen."""
        self._uses: dict[int, set[str]] = {}
        """What reads them, by their memory."""
        self._seen = 0

    def declare(self) -> None:
        """All weights, whether they are read or not."""
        self._module(self.script.root, "")
        if self.script.frozen:
            for place in range(len(self.script.constants)):
                self.constant(f"c{place}")

    def _module(self, held: Object, path: str) -> None:
        kind = self.script.class_of(held.kind)
        self.builder.modules.declare(path)
        self._seen += 1 + len(held.attributes)
        if self._seen > MOST:
            raise Bad(f"its modules have more than {MOST:,} attributes")
        for name, value in held.attributes.items():
            full = f"{path}.{name}" if path else name
            if isinstance(value, Stored) and name in (*kind.parameters, *kind.buffers):
                parameter = name in kind.parameters
                made = self._made(value, full, "param" if parameter else "buffer")
                self.builder.modules.hold(full, made.value, parameter=parameter)
            elif isinstance(value, Stored) and self.script.frozen:
                self._loaded(value, full)
            elif isinstance(value, Object) and value.kind.startswith("__torch__."):
                self._module(value, full)

    def _made(self, stored: Stored, name: str, role: Role) -> ProgramTensor:
        key = (stored.storage.key if stored.storage else name, stored.offset, stored.shape)
        if key not in self._homes:
            self._homes[key] = self._value(stored, name, role)
        return self._homes[key]

    def _value(self, stored: Stored, name: str, role: Role) -> ProgramTensor:
        tensor = Described(stored.shape, row_major(stored.shape), stored.dtype, requires_grad=role == "param")
        return self.builder.made(name, tensor, role, trainable=role == "param")

    def attribute(self, held: Object, name: str, full: str) -> Any:
        """An attribute with values of the graph in the place of the file's tensors."""
        found = held.attributes[name]
        if isinstance(found, (list, dict)):  # the code may change it, and then sees the change
            found = held.attributes[name] = self._loaded(found, full)
            return found
        return self._loaded(found, full)

    def _loaded(self, value: Any, full: str) -> Any:
        if isinstance(value, Stored):
            return self._made(value, full, "const") if not self._is_frozen(value) else self._kept(value, full)
        if isinstance(value, list) and any(isinstance(each, (Stored, list)) for each in value):
            return [self._loaded(each, f"{full}.{place}") for place, each in enumerate(value)]
        if isinstance(value, dict) and any(isinstance(each, (Stored, list)) for each in value.values()):
            return {key: self._loaded(each, f"{full}.{key}") for key, each in value.items()}
        return value

    def constant(self, name: str) -> tuple[Any] | None:
        """A constant of the code; None: there is none of this name."""
        place = int(name.removeprefix("c")) if name.removeprefix("c").isdecimal() and len(name) < 9 else -1
        if not 0 <= place < len(self.script.constants):
            return None
        found = self.script.constants[place]
        if not isinstance(found, Constant):
            return (found,)
        if found.number is not None and found.tensor.shape == ():
            return (Number(found.number),)
        stored = found.tensor._replace(storage=None)  # its data lies in a folder of its own
        return (self._loaded(stored, f"CONSTANTS.{name}"),)

    def _is_frozen(self, stored: Stored) -> bool:
        return self.script.frozen and stored.dtype.startswith(("float", "bfloat")) and stored.shape != ()

    def _kept(self, stored: Stored, name: str) -> ProgramTensor:
        known = len(self._homes)
        made = self._made(stored, name, "param")
        if len(self._homes) > known:
            self._frozen[name] = made
            self._uses[self.builder.values[made.value].storage] = set()
        return made

    def read(self, call: Call, which: ProgramOperator, arguments: dict[str, Any]) -> None:
        """Note what reads the weights of a frozen module; a view does not."""
        if not self._uses or (which.schema is not None and is_view(which.schema)):
            return
        for name, value in arguments.items():
            use = "statistic" if name in _STATISTICS else "mask" if call.base in _COMPARISONS else "weight"
            for made in made_in([value]):
                uses = self._uses.get(self.builder.values[made.value].storage)
                if uses is not None:
                    uses.add(use)

    def finish(self) -> None:
        """Call the weights of a frozen module parameters, and those buffers that are only compared or normalized with."""
        values, buffers, unread = self.builder.values, 0, 0
        for name, made in self._frozen.items():
            uses = self._uses[values[made.value].storage]
            buffer = bool(uses) and "weight" not in uses
            buffers, unread = buffers + buffer, unread + (not uses)
            role: Role = "buffer" if buffer else "param"
            values[made.value] = values[made.value]._replace(role=role, trainable=not buffer)
            self.builder.modules.hold(name, made.value, parameter=not buffer)
        if self._frozen:
            copies = f"; no code that is followed reads {unread} of them, which may be copies for another branch"
            self.builder.note(
                "frozen",
                f"the module was frozen, so its weights are constants: {counted(len(self._frozen) - buffers, 'tensor')} "
                f"counted as parameters, {buffers} as buffers{copies if unread else ''}; what freezing folded into "
                "others or merged, such as BatchNorm, is not in the file",
            )
