"""A TorchScript archive: its classes, its code and its weights."""

from __future__ import annotations

import ast
import re
import struct
import warnings
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from opcost.core.files import opened
from opcost.core.graph import Role
from opcost.core.parsing import Bad, BadArchive, archive_in, read_member
from opcost.errors import counted
from opcost.frontends.aten.call import AtenCall, Described, flat, row_major
from opcost.frontends.aten.schema import is_view
from opcost.frontends.checkpoint.described import LARGEST_PICKLE, PickledTensor, TensorUnpickler, main_pickle
from opcost.frontends.programs import ProgramBuilder, ProgramOperator
from opcost.frontends.torchscript.results import Number

LARGEST_CODE = 4 << 20  # Bytes of one file of code; those of the largest models have some hundred thousand
MOST_CODE = 64 << 20  # Bytes of all of them
MOST_WORDS = 250_000  # Names, numbers and signs of the code that is parsed: each takes some hundred bytes then
_WORD = re.compile(r"\w+|[^\w\s]")
_FORMS = {"int64": "q", "int32": "i", "float32": "f", "float64": "d", "bool": "?", "int16": "h", "uint8": "B"}


class Class(NamedTuple):
    """A class of the code: which of its attributes are parameters and buffers, and its methods."""

    file: str
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    methods: dict[str, ast.FunctionDef]
    fields: tuple[str, ...] | None = None  # Those of a named tuple


class Object(NamedTuple):
    """A module, or an object of another class, with its attributes."""

    kind: str  # The name of its class, such as `__torch__.net.Block`
    attributes: dict[str, Any]


class ScriptConstant(NamedTuple):
    """A tensor among the constants; its number where it has only one."""

    tensor: PickledTensor
    number: Any


class Script:
    """What an archive holds; files of code are parsed when they are first needed."""

    def __init__(self, texts: dict[str, str], root: Object, constants: list[Any]) -> None:
        self.texts, self.root, self.constants = texts, root, constants
        self.frozen = "training" not in root.attributes
        """Whether `torch.jit.freeze` made its weights constants, or attributes that no class calls parameters."""
        self._words = 0
        self._parsed: dict[str, tuple[dict[str, Class], dict[str, ast.FunctionDef]]] = {}

    def class_of(self, kind: str) -> Class:
        """A class by its whole name."""
        if (found := self.find_class(kind)) is None:
            raise Bad(f"the code of the class {kind[:200]!r} is missing")
        return found

    def find_class(self, kind: str) -> Class | None:
        module, _, name = kind.rpartition(".")
        return self._file(module)[0].get(name)

    def function(self, name: str) -> tuple[str, ast.FunctionDef]:
        """A function by its whole name, and its file."""
        module, _, own = name.rpartition(".")
        found = self._file(module)[1].get(own)
        if found is None:
            raise Bad(f"the code of the function {name[:200]!r} is missing")
        return module, found

    def _file(self, module: str) -> tuple[dict[str, Class], dict[str, ast.FunctionDef]]:
        if module not in self._parsed:
            text = self.texts.get(module.replace(".", "/") + ".py")
            self._words += sum(1 for _ in islice(_WORD.finditer(text or ""), MOST_WORDS + 1))
            if self._words > MOST_WORDS:
                raise Bad(f"its code has more than {MOST_WORDS:,} words")
            self._parsed[module] = ({}, {}) if text is None else _definitions(text, module)
        return self._parsed[module]


def read_script(path: Path) -> Script:
    """Read an archive."""
    with opened(path) as file, archive_in(file) as archive:
        top, pickled = main_pickle(archive)
        texts, size = {}, 0
        for name in archive.namelist():
            if name.startswith(f"{top}code/") and name.endswith(".py"):
                content = read_member(archive, name, LARGEST_CODE)
                size += len(content)
                if size > MOST_CODE:
                    raise Bad(f"its code has more than {MOST_CODE >> 20} MiB")
                texts[name.removeprefix(f"{top}code/")] = content.decode("utf-8", "replace")
        root = _Plain()(pickled)
        constants: list[Any] = []
        if f"{top}constants.pkl" in archive.namelist():
            found = TensorUnpickler.read(BytesIO(read_member(archive, f"{top}constants.pkl", LARGEST_PICKLE)))
            listed = found if isinstance(found, (list, tuple)) else []
            constants = [_constant(archive, top, each) for each in listed]
    if not isinstance(root, Object):
        raise Bad("its pickle holds no module")
    return Script(texts, root, constants)


def _constant(archive: ZipFile, top: str, found: object) -> Any:
    if not isinstance(found, PickledTensor):
        return _Plain()(found)
    form = _FORMS.get(found.dtype)
    if found.storage is None or form is None or found.shape not in ((), (1,)):
        return ScriptConstant(found, None)
    width = struct.calcsize(form)
    try:
        data = read_member(archive, f"{top}constants/{found.storage.key}", 1 << 12)
        (number,) = struct.unpack_from(f"<{form}", data, found.offset * width)
    except (KeyError, BadArchive, struct.error):
        return ScriptConstant(found, None)
    return ScriptConstant(found, number)


class _Plain:
    """What was unpickled, with objects by their class and attributes; what the pickle shares stays shared."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def __call__(self, found: Any, depth: int = 0) -> Any:
        if depth > 64:
            raise Bad("its modules are nested more than 64 deep")
        if isinstance(found, PickledTensor) or id(found) in self._seen:
            return self._seen.get(id(found), found)
        state = getattr(found, "state", None)
        if isinstance(state, list):
            attributes = next((each for each in state if isinstance(each, dict)), {})
            made = self._seen[id(found)] = Object(str(getattr(type(found), "named", "")), {})
            made.attributes.update({str(key): self(value, depth + 1) for key, value in attributes.items()})
            return made
        if isinstance(found, dict):
            entries = self._seen[id(found)] = {}
            entries.update({key: self(value, depth + 1) for key, value in found.items()})
            return entries
        if isinstance(found, (list, tuple)):
            parts: list[Any] = []
            self._seen[id(found)] = parts
            parts.extend(self(value, depth + 1) for value in found)
            return parts
        return found


def _definitions(text: str, module: str) -> tuple[dict[str, Class], dict[str, ast.FunctionDef]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise Bad(f"the code of {module[:200]} cannot be parsed: {exc}") from exc
    classes: dict[str, Class] = {}
    functions: dict[str, ast.FunctionDef] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            named = {"__parameters__": (), "__buffers__": ()} | {
                target.id: _words(each.value)
                for each in node.body
                if isinstance(each, ast.Assign)
                for target in each.targets
                if isinstance(target, ast.Name)
            }
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            plain = any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
            fields = tuple(
                each.target.id
                for each in node.body
                if plain and isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            )
            weights = named["__parameters__"], named["__buffers__"]
            classes[node.name] = Class(module, *weights, methods, fields if plain else None)
    return classes, functions


def _words(node: ast.expr) -> tuple[str, ...]:
    if not isinstance(node, (ast.List, ast.Tuple)):
        return ()
    return tuple(each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str))


# -- the weights of an archive: those that its classes name, and the constants of a module that was frozen

MOST = 60_000  # Attributes of modules, counting those of a shared module each time
_COMPARISONS = frozenset("eq ne lt le gt ge masked_fill masked_fill_ where logical_not".split())
"""What reads a table that is no weight: a mask."""
_STATISTICS = frozenset({"running_mean", "running_var"})


class ScriptWeights:
    """The tensors of the file as values of the graph, each once."""

    def __init__(self, script: Script, builder: ProgramBuilder) -> None:
        self.script, self.builder = script, builder
        self._homes: dict[tuple[str, int, tuple[int, ...]], Described] = {}
        self._frozen: dict[str, Described] = {}
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

    def _module(self, owner: Object, path: str) -> None:
        kind = self.script.class_of(owner.kind)
        self.builder.modules.declare(path)
        self._seen += 1 + len(owner.attributes)
        if self._seen > MOST:
            raise Bad(f"its modules have more than {MOST:,} attributes")
        for name, value in owner.attributes.items():
            full = f"{path}.{name}" if path else name
            if isinstance(value, PickledTensor) and name in (*kind.parameters, *kind.buffers):
                parameter = name in kind.parameters
                made = self._made(value, full, "param" if parameter else "buffer")
                self.builder.modules.hold(full, made.value, parameter=parameter)
            elif isinstance(value, PickledTensor) and self.script.frozen:
                self._loaded(value, full)
            elif isinstance(value, Object) and value.kind.startswith("__torch__."):
                self._module(value, full)

    def _made(self, stored: PickledTensor, name: str, role: Role) -> Described:
        key = (stored.storage.key if stored.storage else name, stored.offset, stored.shape)
        if key not in self._homes:
            tensor = Described(stored.shape, row_major(stored.shape), stored.dtype, requires_grad=role == "param")
            self._homes[key] = self.builder.made(name, tensor, role, trainable=role == "param")
        return self._homes[key]

    def attribute(self, owner: Object, name: str, full: str) -> Any:
        """An attribute with values of the graph in the place of the file's tensors."""
        found = self._loaded(owner.attributes[name], full)
        if isinstance(found, (list, dict)):  # the code may change it, and then sees the change
            owner.attributes[name] = found
        return found

    def _loaded(self, value: Any, full: str) -> Any:
        if isinstance(value, PickledTensor):
            floats = value.dtype.startswith(("float", "bfloat")) and value.shape != ()
            if not self.script.frozen or not floats:
                return self._made(value, full, "const")
            known = len(self._homes)
            made = self._made(value, full, "param")
            if len(self._homes) > known:
                self._frozen[full] = made
                self._uses[self.builder.values[made.value].storage] = set()
            return made
        if isinstance(value, list) and any(isinstance(each, (PickledTensor, list)) for each in value):
            return [self._loaded(each, f"{full}.{place}") for place, each in enumerate(value)]
        if isinstance(value, dict) and any(isinstance(each, (PickledTensor, list)) for each in value.values()):
            return {key: self._loaded(each, f"{full}.{key}") for key, each in value.items()}
        return value

    def constant(self, name: str) -> tuple[Any] | None:
        """A constant of the code; None: there is none of this name."""
        place = int(name.removeprefix("c")) if name.removeprefix("c").isdecimal() and len(name) < 9 else -1
        if not 0 <= place < len(self.script.constants):
            return None
        found = self.script.constants[place]
        if not isinstance(found, ScriptConstant):
            return (found,)
        if found.number is not None and found.tensor.shape == ():
            return (Number(found.number),)
        stored = found.tensor._replace(storage=None)  # its data lies in a folder of its own
        return (self._loaded(stored, f"CONSTANTS.{name}"),)

    def read(self, call: AtenCall, which: ProgramOperator, arguments: dict[str, Any]) -> None:
        """Note what reads the weights of a frozen module; a view does not."""
        if not self._uses or (which.schema is not None and is_view(which.schema)):
            return
        for name, value in arguments.items():
            use = "statistic" if name in _STATISTICS else "mask" if call.base in _COMPARISONS else "weight"
            for made in flat([value]):
                uses = self._uses.get(self.builder.values[made.value].storage)  # type: ignore[attr-defined]
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
