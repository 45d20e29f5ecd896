"""Finding a model, or the function or class that makes one, in Python code the user names."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from opcost.errors import MissingFramework, OpcostError, SourceError, UnknownName
from opcost.wording import some


def import_module(name: str) -> ModuleType:
    """A module by its dotted name; the working directory counts as a place to look."""
    with _on_path(Path.cwd()), _import_errors(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as exc:
            if exc.name is None or not (name == exc.name or name.startswith(f"{exc.name}.")):
                raise
            raise SourceError(
                f"there is no Python module {exc.name!r}",
                hint="it is looked for where Python looks and in the working directory; "
                "a file is named by its path: path/to/file.py:Net",
            ) from exc


def import_file(path: Path) -> ModuleType:
    """A module from a file; its folder is importable while the file runs. A file inside a package keeps its package."""
    path = path.resolve()
    root, name = path.parent, path.stem
    while (root / "__init__.py").is_file():
        name = f"{root.name}.{name}"
        root = root.parent
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    with _on_path(root), _import_errors(str(path)):
        if "." in name:
            return importlib.import_module(name)
        if loaded is not None or name in sys.stdlib_module_names:
            name = f"opcost_source_{name}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise SourceError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module


def attribute(module: ModuleType, dotted: str, where: str) -> Any:
    """The object of this name in a module; dots reach into classes and instances."""
    found: Any = module
    for name in dotted.split("."):
        if not hasattr(found, name):
            raise UnknownName(f"name in {where}:", name, candidates(found))
        found = getattr(found, name)
    return found


def candidates(holder: object) -> list[str]:
    """The public names that might be or make a model, those that the module itself defines before imported ones."""
    public = {name: value for name, value in vars(holder).items() if not name.startswith("_")}
    own = [
        name
        for name, value in public.items()
        if callable(value) and getattr(value, "__module__", None) == getattr(holder, "__name__", None)
    ]
    return own or [name for name, value in public.items() if callable(value) and not inspect.ismodule(value)]


def check_call(factory: Callable[..., object], settings: Mapping[str, object], label: str) -> None:
    """Raise if the factory cannot be called with these arguments; a misspelt one is named with the nearest."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some callables written in C have none
        return
    parameters = signature.parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        names = [p.name for p in named]
        for name in settings:
            if name not in names:
                raise UnknownName(f"argument of {label}:", name, names)
    missing = [p.name for p in named if p.default is p.empty and p.name not in settings]
    if missing:
        wanted = " ".join(some([f"--set {name}=..." for name in missing]))
        raise SourceError(f"{label} cannot be called without {', '.join(some(missing))}", hint=f"give it: {wanted}")


def misspelt_argument(exc: Exception) -> UnknownName | None:
    """What the caller meant, where an exception says that somebody further in does not know an argument's name."""
    said = re.match(r"(?P<callee>.+)\(\) got an unexpected keyword argument '(?P<name>\w+)'", str(exc))
    trace = exc.__traceback__
    if not isinstance(exc, TypeError) or said is None or trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    callee = said["callee"].removesuffix(".__init__")
    for value in (*trace.tb_frame.f_locals.values(), *trace.tb_frame.f_globals.values()):
        if callable(value) and getattr(value, "__qualname__", None) == callee:
            named = [p.name for p in inspect.signature(value).parameters.values() if p.kind is not p.VAR_KEYWORD]
            return UnknownName(f"argument of {callee}:", said["name"], named)
    return None


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """The folder first on the import path, and the path as it was afterwards."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _import_errors(name: str) -> Iterator[None]:
    """Whatever the user's code raises while it is imported, as one of our errors that says where."""
    try:
        yield
    except (OpcostError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as exc:
        raise MissingFramework(
            f"{name} needs the Python module {exc.name!r}, which is not installed", hint=f"pip install {exc.name}"
        ) from exc
    except SystemExit as exc:
        raise SourceError(
            f"{name} ends the program when it is imported (exit code {exc.code})",
            hint='put what a script does under `if __name__ == "__main__":`',
        ) from exc
    except BaseException as exc:
        raise SourceError(f"{name} cannot be imported: {_place(exc, name)}{type(exc).__name__}: {exc}") from exc


def _place(exc: BaseException, name: str) -> str:
    """The line of the user's own file where the error came from, if it is there."""
    trace, line = exc.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
