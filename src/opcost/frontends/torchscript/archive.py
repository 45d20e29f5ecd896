"""A TorchScript archive: its classes, its code and its weights."""

import ast
import re
import struct
import warnings
from contextlib import suppress
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from opcost.core.files import opened
from opcost.core.graph import Role
from opcost.core.parsing import Bad, BadArchive, archive_in, read_member
from opcost.errors import counted
from opcost.frontends.aten.call import AtenCall, flat
from opcost.frontends.aten.schema import Plan, is_view
from opcost.frontends.aten.tensor import Described, row_major
from opcost.frontends.checkpoint.pytorch import LARGEST_PICKLE, PickledTensor, TensorUnpickler, main_pickle
from opcost.frontends.programs import ProgramBuilder
from opcost.frontends.torchscript.results import Number

LARGEST_CODE = 4 << 20  # Bytes of one file of code; those of the largest models have some hundred thousand
MOST_CODE = 64 << 20  # Bytes of all of them
MOST_WORDS = 250_000  # Names, numbers and signs of the code that is parsed: each takes some hundred bytes then
_WORD = re.compile(r"\w+|[^\w\s]")
_FORMS = {"int64": "q", "int32": "i", "float32": "f", "float64": "d", "bool": "?", "int16": "h", "uint8": "B"}


class Class(NamedTuple):
    """A class of the code: which of its attributes are parameters and buffers, and its methods."""

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    methods: dict[str, ast.FunctionDef]
    fields: tuple[str, ...] | None = None  # Those of a named tuple


class Object(NamedTuple):
    """A module, or an object of another class, with its attributes."""

    kind: str  # The name of its class, such as `__torch__.net.Block`
    attributes: dict[str, Any]


class Script:
    """What an archive holds; files of code are parsed when they are first needed."""

    def __init__(self, texts: dict[str, str], root: Object, constants: Object) -> None:
        self.texts, self.root, self.constants = texts, root, constants
        self.frozen = "training" not in root.attributes
        """Whether `torch.jit.freeze` made its weights constants, or attributes that no class calls parameters."""
        self._words = 0
        self._parsed: dict[str, dict[str, Class | ast.FunctionDef]] = {}

    def class_of(self, kind: str) -> Class:
        """A class by its whole name."""
        found = self.find(kind)
        if not isinstance(found, Class):
            raise Bad(f"the code of the class {kind[:200]!r} is missing")
        return found

    def find(self, name: str) -> Class | ast.FunctionDef | None:
        """A class or a function by its whole name."""
        module, _, own = name.rpartition(".")
        if module not in self._parsed:
            text = self.texts.get(module.replace(".", "/") + ".py", "")
            self._words += sum(1 for _ in islice(_WORD.finditer(text), MOST_WORDS + 1))
            if self._words > MOST_WORDS:
                raise Bad(f"its code has more than {MOST_WORDS:,} words")
            self._parsed[module] = _definitions(text, module)
        return self._parsed[module].get(own)


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
        root = _plain(pickled, {})
        constants: list[Any] = []
        if f"{top}constants.pkl" in archive.namelist():
            found = TensorUnpickler.read(BytesIO(read_member(archive, f"{top}constants.pkl", LARGEST_PICKLE)))
            listed = found if isinstance(found, (list, tuple)) else []
            constants = [_constant(archive, top, each) for each in listed]
    if not isinstance(root, Object):
        raise Bad("its pickle holds no module")
    return Script(texts, root, Object("", {f"c{place}": each for place, each in enumerate(constants)}))


def _constant(archive: ZipFile, top: str, found: object) -> Any:
    """A constant; of a tensor without axes the number in it."""
    if not isinstance(found, PickledTensor):
        return _plain(found, {})
    form = _FORMS.get(found.dtype)
    if found.storage is not None and form is not None and found.shape == ():
        with suppress(KeyError, BadArchive, struct.error):
            data = read_member(archive, f"{top}constants/{found.storage.key}", 1 << 12)
            return Number(*struct.unpack_from(f"<{form}", data, found.offset * struct.calcsize(form)))
    return found._replace(storage=None)  # its data lies in a folder of its own


def _plain(found: Any, seen: dict[int, Any], depth: int = 0) -> Any:
    """What was unpickled, with objects by their class and attributes; what the pickle shares stays shared."""
    if depth > 64:
        raise Bad("its modules are nested more than 64 deep")
    if id(found) in seen or isinstance(found, PickledTensor):
        return seen.get(id(found), found)
    made: Any
    state = getattr(found, "state", None)
    if isinstance(state, list):
        attributes = next((each for each in state if isinstance(each, dict)), {})
        made = seen[id(found)] = Object(str(getattr(type(found), "named", "")), {})
        made.attributes.update({str(key): _plain(value, seen, depth + 1) for key, value in attributes.items()})
    elif isinstance(found, dict):
        made = seen[id(found)] = {}
        made.update({key: _plain(value, seen, depth + 1) for key, value in found.items()})
    elif isinstance(found, (list, tuple)):
        made = seen[id(found)] = []
        made.extend(_plain(value, seen, depth + 1) for value in found)
    else:
        return found
    return made


def _definitions(text: str, module: str) -> dict[str, Class | ast.FunctionDef]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise Bad(f"the code of {module[:200]} cannot be parsed: {exc}") from exc
    found: dict[str, Class | ast.FunctionDef] = {**_functions(body)}
    for node in body:
        if isinstance(node, ast.ClassDef):
            words: dict[str, tuple[str, ...]] = {}
            fields = []
            for each in node.body:
                match each:
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=parts) | ast.Tuple(elts=parts)):
                        words[name] = tuple(
                            part.value
                            for part in parts
                            if isinstance(part, ast.Constant) and isinstance(part.value, str)
                        )
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        fields.append(name)
            named = any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
            weights = words.get("__parameters__", ()), words.get("__buffers__", ())
            found[node.name] = Class(*weights, _functions(node.body), tuple(fields) if named else None)
    return found


def _functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {each.name: each for each in body if isinstance(each, ast.FunctionDef)}


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
            for name, constant in self.script.constants.attributes.items():
                self.loaded(constant, f"CONSTANTS.{name}")

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
                self.loaded(value, full)
            elif isinstance(value, Object) and value.kind.startswith("__torch__."):
                self._module(value, full)

    def _made(self, stored: PickledTensor, name: str, role: Role) -> Described:
        key = (stored.storage.key if stored.storage else name, stored.offset, stored.shape)
        if key not in self._homes:
            tensor = Described(stored.shape, row_major(stored.shape), stored.dtype, requires_grad=role == "param")
            self._homes[key] = self.builder.made(name, tensor, role, trainable=role == "param")
        return self._homes[key]

    def loaded(self, value: Any, full: str) -> Any:
        """An attribute or a constant with values of the graph in the place of the file's tensors."""
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
            return [self.loaded(each, f"{full}.{place}") for place, each in enumerate(value)]
        if isinstance(value, dict) and any(isinstance(each, (PickledTensor, list)) for each in value.values()):
            return {key: self.loaded(each, f"{full}.{key}") for key, each in value.items()}
        return value

    def read(self, call: AtenCall, which: Plan, arguments: dict[str, Any]) -> None:
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
