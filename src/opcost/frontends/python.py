"""Finding a model, or the function or class that makes one, in Python code the user names."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, NamedTuple

from opcost.errors import MissingFramework, OpcostError, Refused, SourceError, UnknownName, shortened, some


def import_module(name: str) -> ModuleType:
    """A module by its dotted name; the working directory counts as a place to look."""
    with _on_path(Path.cwd()), _import_errors(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as exc:
            if exc.name is None or not (name == exc.name or name.startswith(f"{exc.name}.")):
                raise
            hint = "it is looked for where Python looks and in the working directory"
            hint = f"{hint}; a file is named by its path: path/to/file.py:Net"
            raise SourceError(f"there is no Python module {exc.name!r}", hint=hint) from exc


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
    public = {name: value for name, value in vars(holder).items() if not name.startswith("_") and callable(value)}
    home = getattr(holder, "__name__", None)
    own = [name for name, value in public.items() if getattr(value, "__module__", None) == home]
    return own or [name for name, value in public.items() if not inspect.ismodule(value)]


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
    """The error for a misspelt argument, where an exception says that a function further in does not know it."""
    found = re.match(r"(?P<callee>.+)\(\) got an unexpected keyword argument '(?P<name>\w+)'", str(exc))
    frames = [frame for frame, _ in walk_tb(exc.__traceback__)]
    if not isinstance(exc, TypeError) or found is None or not frames:
        return None
    callee = found["callee"].removesuffix(".__init__")
    for value in (*frames[-1].f_locals.values(), *frames[-1].f_globals.values()):
        if callable(value) and getattr(value, "__qualname__", None) == callee:
            named = [p.name for p in inspect.signature(value).parameters.values() if p.kind is not p.VAR_KEYWORD]
            return UnknownName(f"argument of {callee}:", found["name"], named)
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
        fault = f"{name} needs the Python module {exc.name!r}, which is not installed"
        raise MissingFramework(fault, hint=f"pip install {exc.name}") from exc
    except SystemExit as exc:
        fault = f"{name} ends the program when it is imported (exit code {exc.code})"
        raise SourceError(fault, hint='put what a script does under `if __name__ == "__main__":`') from exc
    except BaseException as exc:
        # The line of the user's own file where the error came from, if it is there
        lines = [line for frame, line in walk_tb(exc.__traceback__) if frame.f_code.co_filename == name]
        place = f"line {lines[-1]}: " if lines else ""
        raise SourceError(f"{name} cannot be imported: {place}{type(exc).__name__}: {exc}") from exc


# -- no network and no pickles while a model of a collection is made and counted -----------------------------------------
#
# What a configuration names is refused before anything is made; these guards refuse what no list of names foresees. They
# hold for the thread that makes the model alone: the others keep their network.


class _Guarded(NamedTuple):
    """A function through which something comes in, and which of its arguments names it."""

    module: str
    name: str  # With its class in front, where it is a method
    argument: int = 0
    what: str = ""  # Empty where it loads weights without which one can go on


# Addresses come after the names of files and hubs: the first refusal names best what was requested.
_GUARDED = tuple(_Guarded(*row) for row in (
    ("httpx", "Client.send", 1, "the page"), ("httpx2", "Client.send", 1, "the page"),
    ("requests", "Session.send", 1, "the page"), ("urllib.request", "OpenerDirector.open", 1, "the page"),
    ("socket", "getaddrinfo", 0, "the network address"),
    ("socket", "gethostbyname", 0, "the network address"), ("socket", "socket.connect", 1, "the network address"),
    ("socket", "socket.connect_ex", 1, "the network address"), ("socket", "socket.sendto", -1, "the network address"),
    ("torch", "load", 0, "the saved weights"), ("torch.serialization", "load", 0, "the saved weights"),
    ("torch.jit", "load", 0, "the saved program"), ("torch.hub", "load", 0, "the repository"),
    ("torch.hub", "load_state_dict_from_url", 0, "the weights"), ("pickle", "load", 0, "the pickle"),
    ("pickle", "loads", 0, "a pickle of"),
    ("timm.models._builder", "load_pretrained"), ("torchvision.models._api", "WeightsEnum.get_state_dict"),
    ("torch.hub", "load_state_dict_from_url"), ("torch.nn", "Module.load_state_dict"),
))  # fmt: skip

_here = threading.local()
"""`source` is what this thread makes or counts while it is kept offline; `skipped`: which weights it has gone without."""
_lock = threading.Lock()
_inside = 0
_put_back: list[Callable[[], None]] = []


@contextmanager
def _guards(**state: Any) -> Iterator[None]:
    """Guard every function, once for all threads; each call checks whether its thread is meant, by this state of it."""
    global _inside  # noqa: PLW0603 - the guards belong to the process, and so does the number of their users
    outer = {name: getattr(_here, name, None) for name in state}
    with _lock:
        _inside += 1
        for guarded in _GUARDED if _inside == 1 else ():
            owner: Any = sys.modules.get(guarded.module)
            *of_class, name = guarded.name.split(".")
            for part in of_class:
                owner = getattr(owner, part, None)
            if getattr(owner, name, None) is not None:
                _put_back.append(_guard(owner, name, guarded))
    vars(_here).update(state)
    try:
        yield
    finally:
        vars(_here).update(outer)
        with _lock:
            _inside -= 1
            while not _inside and _put_back:
                _put_back.pop()()


@contextmanager
def offline(source: str) -> Iterator[None]:
    """Refuse this thread the network and every pickle; the error names what was requested.

    A library may know what to do without, and go on. Where it fails instead, in whatever words, the refusal is raised.
    """
    with _guards(source=source):
        try:
            yield
        except Exception as exc:
            behind: BaseException | None = exc
            seen: set[int] = set()
            while behind is not None and not isinstance(behind, Refused) and id(behind) not in seen:
                seen.add(id(behind))
                behind = behind.__cause__ or behind.__context__
            if not isinstance(behind, Refused) or behind is exc:
                raise
            raise behind from exc


class NotFetched(dict[str, Any]):
    """The weights that were not fetched: empty, and so is every part of them."""

    def __missing__(self, key: str) -> NotFetched:
        return NotFetched()

    def pop(self, key: str, *default: Any) -> Any:
        return default[0] if default else None


@contextmanager
def without_weights() -> Iterator[list[str]]:
    """Go on without pretrained weights that a factory asks for: nothing is fetched.

    Yields the names of the functions that were not run.
    """
    skipped: list[str] = []
    with _guards(skipped=skipped):
        yield skipped


def _guard(owner: Any, name: str, guarded: _Guarded) -> Callable[[], None]:
    """Set the guard; the answer takes it away. One that was imported by name meanwhile lets everything through later."""
    original = getattr(owner, name)
    inherited = name not in vars(owner)

    def guard(*args: Any, **kwargs: Any) -> Any:
        source, skipped = getattr(_here, "source", None), getattr(_here, "skipped", None)
        if not guarded.what and skipped is not None:
            if name != "load_state_dict":
                skipped.append(name)
                return NotFetched()
            if skipped and not (args[1] if len(args) > 1 else kwargs.get("state_dict")):
                return original(args[0], {}, strict=False)
            return original(*args, **kwargs)
        if source is None or not guarded.what:
            return original(*args, **kwargs)
        text = f"{shortened(source)} asks for {guarded.what} {_named(guarded, args, kwargs)}"
        hint = "take out of the configuration what asks for it, or make the model in Python code: path/to/file.py:Net"
        raise Refused(f"{text}; a model is made and counted without anything being fetched or unpickled", hint=hint)

    setattr(owner, name, guard)
    return (lambda: delattr(owner, name)) if inherited else (lambda: setattr(owner, name, original))


def _named(guarded: _Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    wanted = args[guarded.argument] if len(args) > max(guarded.argument, 0) else next(iter(kwargs.values()), "")
    for attribute in ("full_url", "url", "name"):  # of requests and of open files
        wanted = getattr(wanted, attribute, wanted)
    if isinstance(wanted, tuple):
        return ":".join(map(str, wanted[:2]))
    if isinstance(wanted, (bytes, bytearray, memoryview)):
        return f"{len(wanted):,} bytes"
    return shortened(str(wanted))
