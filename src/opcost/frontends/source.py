"""What a SOURCE string means: a saved report, a model file, or a model that Python code makes."""

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from opcost.core.files import head_of, is_nameless
from opcost.core.graph import Note
from opcost.errors import OpcostError, SourceError, UnknownSource, nearest, shortened, some
from opcost.frontends import python
from opcost.frontends.identify import identify
from opcost.frontends.registry import FUNCTIONS, FrontEnd, file_named, frontends, owner, reader
from opcost.frontends.zoo import COLLECTIONS, repaired

FORMS = (
    "path/to/file.py:Net, package.module:factory, timm:NAME, torchvision:NAME, hf:path/to/config.json, a folder with a "
    "config.json, a model file or the prefix of a checkpoint, or a report saved as .json"
)
"""How a SOURCE can be written, for the errors that must say so."""


@dataclass(frozen=True, slots=True)
class _OpenedFile:
    path: Path

    @property
    def label(self) -> str:
        return str(self.path)


class SavedReport(_OpenedFile):
    """A report written by `Report.save("....json")`."""


@dataclass(frozen=True, slots=True)
class ModelFile(_OpenedFile):
    """A file that a front end reads."""

    frontend: FrontEnd


@dataclass(frozen=True, slots=True)
class PythonModel:
    """A model, or what makes one when called with these settings."""

    label: str
    target: Any
    settings: Mapping[str, object] = field(default_factory=dict)
    from_collection: bool = False
    """Its code is a library's and its making follows a name or a file, so it gets neither network nor pickles."""
    checkpoint: Path | None = None  # The folder with its weights, which are compared with the code
    notes: list[Note] = field(default_factory=list)  # What had to be done to import its code or to make it

    def guard(self) -> AbstractContextManager[None]:
        """To be entered wherever the model is made or runs."""
        return python.offline(self.label) if self.from_collection else nullcontext()

    def build(self, *, real: bool = False) -> object:
        """The model; what makes it is called without allocating weights, unless it is to be `real`."""
        if _is_model(self.target):
            if self.settings:
                raise SourceError(f"{self.label} is a model and not a factory, so nothing can be set on it")
            return self.target
        if not callable(self.target):
            kind = type(self.target).__name__
            fault = f"{self.label} is {_article(kind)}, neither a model nor a function or class that makes one"
            raise SourceError(fault)
        python.check_call(self.target, self.settings, self.label)
        if real or self.from_collection:
            model = self._call(self.target if real else _weightless(self.target))
        else:
            with python.without_weights() as skipped:
                model = self._call(_weightless(self.target))
            if skipped:
                what = "pretrained weights were not loaded: a count needs only their shapes"
                self.notes.append(Note("weights-not-loaded", what))
        if not _is_model(model):
            fault = f"{self.label} returned {_article(type(model).__name__)}, which is not a model"
            raise SourceError(fault, hint="name a class or a function that returns the model itself")
        return model

    def _call(self, make: Callable[..., object]) -> object:
        try:
            with self.guard():
                model, notes = repaired(lambda: make(**self.settings))
            self.notes.extend(notes)
            return model
        except OpcostError:
            raise
        except Exception as exc:
            if (misspelt := python.misspelt_argument(exc)) is not None:
                raise misspelt from exc
            given = " with " + ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
            label = f"{self.label}{given if self.settings else ''}"
            hint = "arguments are given with --set name=value"
            if "cuda" in str(exc).lower():
                hint = "counting needs no GPU: make the model on the CPU"
            fault = shortened(f"{type(exc).__name__}: {exc}", 2000)
            raise SourceError(f"{label} could not be made: {fault}", hint=hint) from exc


Source: TypeAlias = SavedReport | ModelFile | PythonModel


def resolve(text: str, settings: Mapping[str, object] | None = None) -> Source:
    """Decide what a SOURCE string is; a Python source is imported here and built later."""
    # Characters that no file and no Python name has are refused before the file system does it in other words.
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise UnknownSource(f"{shortened(ascii(text))} is not text: it holds half a character") from exc
    if "\0" in text:
        raise UnknownSource(f"{shortened(ascii(text))} holds a NUL character, which no name has")
    try:
        return _resolve(text, dict(settings or {}))
    except OpcostError:
        raise
    except OSError as exc:  # the name is not one for the file system, or the file cannot be read
        raise UnknownSource(f"{shortened(text)} cannot be read: {exc.strerror or exc}") from exc


def _resolve(text: str, settings: Mapping[str, object]) -> Source:
    prefix, colon, rest = text.partition(":")
    if colon and prefix in COLLECTIONS:
        if not rest:
            raise UnknownSource(f"{text!r} names no model", hint=f"write {prefix}:NAME")
        return PythonModel(text, COLLECTIONS[prefix](rest, settings), from_collection=True)
    path = Path(text)
    if not path.is_file() and (meant := file_named(text)) is not None:
        return _file(meant, settings)
    if path.exists():
        return _file(path, settings)
    before, colon, name = text.rpartition(":")
    if colon and before and name:
        if before.endswith(".py") or "/" in before or "\\" in before:
            path = Path(before)
            if not path.is_file():
                siblings = [str(found) for found in path.parent.glob("*.py")] if path.parent.is_dir() else []
                near = nearest(str(path), siblings)
                fault = f"there is no file {shortened(str(path))}"
                raise UnknownSource(fault, hint=f"did you mean {near[0]}:{name}?" if near else "")
            if path.suffix != ".py":
                identity = identify(path)
                raise UnknownSource(f"{path} is {identity.what}, not Python code", hint=identity.hint)
            return _python(lambda: python.import_file(path), name, str(path), settings)
        if all(part.isidentifier() for part in before.split(".")):
            if importlib.util.find_spec(before.partition(".")[0]) is None and (near := nearest(prefix, COLLECTIONS)):
                wanted = shortened(f"{near[0]}:{rest}")
                raise UnknownSource(f"{shortened(repr(text))}: nothing is called {prefix!r}; did you mean {wanted!r}?")
            return _python(lambda: python.import_module(before), name, before, settings)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not path.suffix.isalpha():
        hint = f"the model of this name in the local cache of Hugging Face is hf:{text}; a source is {FORMS}"
        raise UnknownSource(f"there is no file {shortened(text)}", hint=hint)
    if "/" in text or "\\" in text or path.suffix:
        raise UnknownSource(f"there is no file {shortened(text)}", hint=f"a source is {FORMS}")
    named = f"a model of a collection is timm:{text} or torchvision:{text}; " if text.isidentifier() else ""
    fault = f"{shortened(repr(text))} is not a source that opcost understands"
    raise UnknownSource(fault, hint=f"{shortened(named)}a source is {FORMS}")


def _file(path: Path, settings: Mapping[str, object]) -> Source:
    if not path.is_dir():
        # A JSON file that calls itself a report of ours within its first bytes
        if (path.suffix == ".json" or is_nameless(path)) and b'"opcost.report/' in head_of(path, 512):
            found: Source = SavedReport(path)
        elif (frontend := reader(path)) is not None:
            found = ModelFile(path, frontend)
        elif path.suffix == ".py":
            names = python.candidates(repaired(lambda: python.import_file(path))[0])
            choices = f"write one of {', '.join(some([f'{path}:{name}' for name in names]))}"
            fault = f"{path} is Python code; which of its names makes the model?"
            raise UnknownSource(fault, hint=choices if names else "it defines none")
        else:
            identity = identify(path)
            raise UnknownSource(f"{path} is {identity.what}", hint=identity.hint)
        if settings:
            raise SourceError(f"{path} is a file, so nothing can be set on it with --set")
        return found
    if (path / "config.json").is_file():
        return PythonModel(str(path), COLLECTIONS["hf"](str(path), settings), from_collection=True, checkpoint=path)
    identity = identify(path)
    raise UnknownSource(f"{path} is {identity.what}", hint=identity.hint)


def _python(load: Callable[[], ModuleType], name: str, where: str, settings: Mapping[str, object]) -> PythonModel:
    """What a name means in a module of the user's."""
    module, notes = repaired(load)
    return PythonModel(f"{where}:{name}", python.attribute(module, name, where), settings, notes=[*notes])


def _is_model(obj: object) -> bool:
    """A class or a function that is named makes the model, even where one handed over would itself be counted."""
    if isinstance(obj, (type, *FUNCTIONS)):
        return False
    try:
        return bool(owner(obj))
    except UnknownSource:
        return False


def _weightless(target: Callable[..., object]) -> Callable[..., object]:
    """What is called in place of a factory so that no weights are allocated, where the framework of its models can do that.

    Of a class it is that of its ancestors. Of a function it is the framework that its code has imported, or,
    where it imports one only when called, one that is installed.
    """
    able = {frontend.framework: frontend for frontend in frontends() if type(frontend).build is not FrontEnd.build}
    if isinstance(target, type):
        frameworks = {base.__module__.partition(".")[0] for base in target.__mro__}
    else:
        frameworks = able.keys() & sys.modules.keys()
        frameworks = frameworks or {name for name in able if importlib.util.find_spec(name)}
    frontend = next((frontend for name, frontend in able.items() if name in frameworks), None)
    return target if frontend is None else lambda **settings: frontend.build(target, settings)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
