"""Plug-ins of each group: the project's own parts, named here, and those of other packages, by their entry points.

Entry points are read once, on first use, and each part is imported only when it is used. A broken one is left out with a
warning; requested by its name, it is an error that says why. The protocols of parts are in `opcost.plugins`.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, distributions, entry_points
from os import PathLike
from pathlib import PurePath
from typing import Any, TypeVar

from opcost.errors import AmbiguousSource, BrokenPlugin, OpcostError, PluginWarning, UnknownName, shortened

T = TypeVar("T")

FRONTENDS = "opcost.frontends"
RULES = "opcost.rules"
VIEWS = "opcost.views"
TRACES = "opcost.traces"

OWN: dict[str, dict[str, str]] = {
    FRONTENDS: {
        name: f"opcost.frontends.{name}:FRONTEND"
        for name in "coreml megengine mxnet onnx pt2 tflite torch torchscript".split()
    } | {
        f"{name}-recorder": f"opcost.recorders.{name}:RECORDER" for name in ("onnxruntime", "torch")
    } | {
        f"{name}-weights": f"opcost.frontends.checkpoint.{name}:READER"
        for name in "arrays gguf keras onnx pytorch safetensors".split()
    } | {
        "megengine-weights": "opcost.frontends.checkpoint.arrays:DUMP",
        "pickle-weights": "opcost.frontends.checkpoint.arrays:PICKLE",
    },
    RULES: {"builtin": "opcost.rules:add"},
    VIEWS: {
        name: f"opcost.views.{module}:{name.upper()}"
        for module, names in (
            ("text", "text table memory"), ("tree", "arch"), ("results", "json csv columns answer"), ("markdown", "md svg badge"),
            ("chart", "chart"), ("html", "html"), ("latex", "latex"), ("notebook", "notebook"), ("tensorboard", "tensorboard"),
        )
        for name in names.split()
    },
    TRACES: {
        name: f"opcost.traces.{name}:READER"
        for name in "kineto megengine mxnet nsight onnxruntime openvino tensorrt xla".split()
    } | {"own": "opcost.traces.registry:SAVED_PROFILES"},
}  # fmt: skip
"""The project's own parts, by name, so that a copy of the source on the path is all it takes to have them."""
GROUPS = tuple(OWN)

_WANTED: dict[str, dict[str, str]] = {
    FRONTENDS: {
        "load": "name framework suffixes options sniff owns named build",
        "record": "name framework suffixes wants_report owns",
        "read": "name suffixes ordered sniff",
    },
    RULES: {"__call__": ""},
    VIEWS: {"render": "name suffix results"},
    TRACES: {"read": "name sniff"},
}
"""What the parts of each group do: the method, and the attributes that a part with it must have.

A front end reads models (`load`), runs them (`record`) or reads checkpoints (`read`). What is not in `_DATA` must be callable.
"""
_TASKS = {
    "FRONTEND": "load",
    "RECORDER": "record",
}  # of the project's own front ends, before they are imported; else `read`
_DATA: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("name", "framework", "suffix"), lambda value: isinstance(value, str)),
    "suffixes": lambda value: isinstance(value, (tuple, list)) and all(isinstance(suffix, str) for suffix in value),
    "results": lambda value: isinstance(value, Mapping),
    "options": lambda value: is_dataclass(value) or isinstance(value, (tuple, list)),
    **dict.fromkeys(("wants_report", "ordered"), lambda value: isinstance(value, bool)),
}


def find(group: str) -> dict[str, EntryPoint]:
    """The parts of a group by name, not yet imported."""
    return _scan(group)[0]


def clashes(group: str) -> dict[str, BrokenPlugin]:
    """The names that two packages claim. The project's own part keeps its name; of two others neither is used."""
    return _scan(group)[1]


def load(group: str, name: str) -> Any:
    """Import one part by name."""
    parts = find(group)
    if name not in parts:
        raise clashes(group).get(name) or UnknownName(group.rpartition(".")[2].rstrip("s"), name, parts)
    part, fault = _imported(group, name)
    if fault is not None:
        raise fault
    return part


def usable(group: str, task: str = "") -> dict[str, Any]:
    """The parts of a group that can be imported, and have a method for this task, with a warning for each that is broken."""
    found: dict[str, Any] = {}
    for clash in clashes(group).values():
        _warn(clash.message)
    for name, entry in find(group).items():
        if task and _is_own(entry) and _TASKS.get(entry.attr, "read") != task:
            continue
        part, fault = _imported(group, name)
        if fault is not None:
            _warn(fault.message)
        elif not task or hasattr(part, task):
            found[name] = part
    return found


def views_of(kind: str) -> dict[str, Any]:
    """The views that show this kind of result, by name."""
    return {name: view for name, view in usable(VIEWS).items() if kind in view.results}


def load_view(name: str, kind: str) -> Any:
    """The view of this name, which must show this kind of result: report, profile, scan or tables."""
    if name in find(VIEWS) or name in clashes(VIEWS):
        view = load(VIEWS, name)
        if kind in view.results:
            return view
    raise UnknownName("view", name, views_of(kind))


def view_for_suffix(path: str | PathLike[str], kind: str = "report") -> Any:
    """The view of this kind of result that writes files with this path's suffix."""
    suffix = PurePath(path).suffix.lower()
    views = views_of(kind)
    for view in views.values():
        if suffix and view.suffix == suffix:
            return view
    if (name := suffix[1:]) in find(VIEWS) or name in clashes(VIEWS):
        load(VIEWS, name)  # says why it is not among them, if it is broken
    known = sorted({view.suffix for view in views.values() if view.suffix})
    hint = f"name the file with one of {', '.join(known)}"
    if not suffix:
        raise OpcostError(f"{shortened(str(path))} has no suffix that says how it is to be written", hint=hint)
    raise UnknownName("file suffix", suffix, known, hint=hint)


def checked(entry: EntryPoint) -> Any:
    """Import a part and check that it has what its group requires; any fault is a `BrokenPlugin`."""
    lack = ""
    try:
        part = entry.load()
        tasks = _WANTED[entry.group]
        done = [task for task in tasks if hasattr(part, task)] or [*tasks][:1]
        for name in " ".join(f"{tasks[task]} {task}" for task in done).split():
            value = getattr(part, name, None)
            if value is None:
                lack = "it cannot be called" if name == "__call__" else f"it has no {name}"
            elif not _DATA.get(name, callable)(value):
                lack = f"its {name} is {shortened(repr(value))}"
            if lack:
                break
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        raise BrokenPlugin(f"{_described(entry)} cannot be used: {_reason(exc)}") from exc
    if lack:
        raise BrokenPlugin(f"{_described(entry)} cannot be used: {lack}")
    return part


def warn_of_fault(group: str, part: object, doing: str, exc: BaseException) -> None:
    """Warn that a part failed at something that the others can do without it."""
    name = next(name for name, other in usable(group).items() if other is part)
    _warn(f"{_described(find(group)[name])} failed when {doing}: {_reason(exc)}")


def claims(group: str, parts: Iterable[T], question: Callable[[T], bool], doing: str) -> list[T]:
    """The parts that answer yes; one that fails at it claims nothing, which is a warning."""
    found = []
    for part in parts:
        try:
            if question(part):
                found.append(part)
        except (OpcostError, OSError, KeyboardInterrupt):
            raise
        except BaseException as exc:  # noqa: BLE001 - a plug-in may raise anything
            warn_of_fault(group, part, doing, exc)
    return found


def only(claims: Sequence[Any], what: str, hint: str = "") -> Any:
    """The one part that claims it; None: none does. Several are an error and not a guess."""
    if len(claims) > 1:
        raise AmbiguousSource(f"{' and '.join(part.name for part in claims)} both claim {what}", hint=hint)
    return claims[0] if claims else None


@contextmanager
def faults_attributed(part: object, doing: str) -> Iterator[None]:
    """Errors of a third-party part are reported as its own; those about files and from the user pass through."""
    try:
        yield
    except (OpcostError, OSError, KeyboardInterrupt):
        raise
    except BaseException as exc:
        home = type(part).__module__
        if home.partition(".")[0] == "opcost":
            raise
        raise BrokenPlugin(
            f"the plug-in {type(part).__qualname__} of {home} failed when {doing}: {_reason(exc)}",
            hint="it is not part of opcost",
        ) from exc


@cache
def _scan(group: str) -> tuple[dict[str, EntryPoint], dict[str, BrokenPlugin]]:
    """The usable names, and those that two packages claim."""
    found: dict[str, EntryPoint] = {}
    twice: dict[str, BrokenPlugin] = {}
    own = [EntryPoint(name, value, group) for name, value in OWN[group].items()]
    for entry in (*own, *(entry for entry in _entries(group) if not _is_own(entry))):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            twice[entry.name] = BrokenPlugin(
                f"two plug-ins of {group} are called {entry.name!r}: {other.value} of {_name_of(other.dist)} and "
                f"{entry.value} of {_name_of(entry.dist)}; {'that of opcost' if _is_own(other) else 'neither'} is used",
                hint="uninstall one of the packages",
            )
    return {name: entry for name, entry in found.items() if name not in twice or _is_own(entry)}, twice


def _entries(group: str) -> Iterable[EntryPoint]:
    try:
        return entry_points(group=group)
    except Exception:  # noqa: BLE001 - one package whose list cannot be parsed; the others' can
        found: list[EntryPoint] = []
        for package in distributions():
            try:
                found += package.entry_points.select(group=group)
            except Exception as exc:  # noqa: BLE001 - as above
                _warn(f"the plug-ins of the package {_name_of(package)} cannot be listed: {_reason(exc)}")
        return found


@cache
def _imported(group: str, name: str) -> tuple[Any, BrokenPlugin | None]:
    try:
        return checked(find(group)[name]), None
    except BrokenPlugin as fault:
        return None, fault


@cache
def _warn(text: str) -> None:
    warnings.warn(PluginWarning(text), stacklevel=2)


def _described(entry: EntryPoint) -> str:
    return f"the plug-in {entry.name!r} of {entry.group} (package {_name_of(entry.dist)}, {shortened(entry.value)})"


def _name_of(package: Any) -> str:
    """Of the package that declares a plug-in; opcost's own are declared here."""
    try:
        return f"{package.metadata['Name']} {package.version}" if package is not None else "opcost"
    except Exception:  # noqa: BLE001 - a package may lack what describes it
        return "without a name"


def _is_own(entry: EntryPoint) -> bool:
    return entry.value.partition(".")[0] == "opcost"


def _reason(exc: BaseException) -> str:
    if isinstance(exc, SystemExit):
        return f"it ends the program (exit code {exc.code})"
    return shortened(f"{type(exc).__name__}: {exc}", 500)
