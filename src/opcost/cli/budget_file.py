"""Budgets that stand in a file: `[tool.opcost]` of pyproject.toml, or an opcost.toml."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from opcost.cli.options import CountChoice, FrontEndChoice, InputChoice
from opcost.comparing import Place, check_place
from opcost.core.limit import Limit, parse_limit
from opcost.core.quantity import HELD
from opcost.core.reading import whole
from opcost.errors import OpcostError, SourceError, UnknownName
from opcost.wording import shortened

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = ("opcost.toml", "pyproject.toml")
"""Where budgets are looked for, the first that has them."""
LARGEST = 4 << 20
"""Bytes of the largest such file that is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted:
    """One model of the file: how it is counted, and what it may cost."""

    name: str
    source: str
    choice: CountChoice
    limits: tuple[Limit, ...]
    allow_uncounted: bool = False
    place: Place = field(default_factory=Place)
    """Where it would run, for a limit on its latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFile:
    """All that the file says."""

    path: Path
    models: tuple[Budgeted, ...]
    baseline: Path | None = None


def find_budgets(path: Path | None) -> BudgetFile | None:
    """The budgets of the file that is named, or of the first in this folder that has some; None where there are none."""
    if path is not None:
        found = _read(path)
        if found is None:
            raise OpcostError(f"{path} has no [tool.opcost]", hint="docs/budgets.md shows what stands there")
        return found
    for name in NAMES:
        candidate = Path(name)
        if candidate.is_file() and (found := _read(candidate)) is not None:
            return found
    return None


def _read(path: Path) -> BudgetFile | None:
    data = _toml(path)
    place = ""
    if path.name == "pyproject.toml":
        tool = data.get("tool", {})
        if not isinstance(tool, dict) or "opcost" not in tool:
            return None
        data, place = tool["opcost"], "tool.opcost"
    with _in(path, place):
        table = _table(data)
        _known(table, ("models", "baseline"), "key")
        baseline = table.get("baseline")
        if baseline is not None:
            with _in(path, f"{place}.baseline".lstrip(".")):
                baseline = path.parent / _of(str, baseline)
    models = []
    inner = f"{place}.models" if place else "models"
    with _in(path, inner):
        named = _table(table.get("models", {}))
        if not named:
            raise OpcostError("no model is named", hint="docs/budgets.md shows what stands there")
    for name, model in named.items():
        with _in(path, f"{inner}.{name}"):
            models.append(_model(name, _table(model), path, f"{inner}.{name}"))
    return BudgetFile(path=path, models=tuple(models), baseline=baseline)


def _toml(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(whole(path, LARGEST, "budget").decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SourceError(f"{path} is not TOML: {shortened(str(exc) or 'it is nested too deeply')}") from exc
    return found


@contextmanager
def _in(path: Path, place: str) -> Iterator[None]:
    """Say in which file and under which key something is wrong."""
    try:
        yield
    except OpcostError as exc:
        if getattr(exc, "placed", False):
            raise
        where = f"{path}, {shortened(place)}" if place else str(path)
        told = OpcostError(f"{where}: {exc.message}", hint=exc.hint)
        told.placed = True  # type: ignore[attr-defined]
        raise told from exc


# -- one model ----------------------------------------------------------------------------------------------------------


def _model(name: str, table: Mapping[str, Any], path: Path, place: str) -> Budgeted:
    entries = {key.replace("-", "_"): value for key, value in table.items()}
    _known(entries, ("source", "limits", "allow_uncounted", *_PLACE, *_MODEL, *_COUNTING, *_own_options()), "key")
    if "source" not in entries:
        raise OpcostError("no source is given", hint='write source = "timm:resnet50"')
    limits = []
    for quantity, limit in _table(entries.get("limits", {})).items():
        with _in(path, f"{place}.limits.{quantity}"):
            # In a file a number alone may be meant in any unit, as in a text.
            limits.append(parse_limit(quantity, str(limit) if type(limit) is int else limit, HELD))
    own = {option: _option(entries[option]) for option in _own_options() if option in entries}
    told = {}
    for key, read in (*_MODEL.items(), *_COUNTING.items(), *_PLACE.items()):
        if key in entries:
            with _in(path, f"{place}.{key}"):
                told[key] = read(entries[key])
    renamed = {"input": "inputs", "set": "settings", "arg": "arguments"}
    model = InputChoice(**{renamed.get(key, key): told[key] for key in _MODEL if key in told})
    choice = CountChoice(
        model=model, frontend=replace(FrontEndChoice(), **own), **{key: told[key] for key in _COUNTING if key in told}
    )
    place_of = Place(**{key: told[key] for key in _PLACE if key in told})
    if place_of.calibration is not None:
        place_of = place_of._replace(calibration=path.parent / place_of.calibration)
    check_place(place_of, limits)
    return Budgeted(
        name=name,
        source=_beside(path, _of(str, entries["source"])),
        choice=choice,
        limits=tuple(limits),
        allow_uncounted=_of(bool, entries.get("allow_uncounted", False)),
        place=place_of,
    )


def _beside(path: Path, source: str) -> str:
    """A source that is a file, or code in one, is looked for beside the budgets."""
    file = path.parent / (source.rpartition(":")[0] or source)
    if path.parent.resolve() != Path.cwd() and (file.is_file() or (path.parent / source).exists()):
        return str(path.parent / source)
    return source


def _own_options() -> list[str]:
    return [each.name for each in fields(FrontEndChoice)]


def _option(value: object) -> object:
    """An option of one front end: a table of sizes by name is written as it is typed, `batch=1`."""
    if isinstance(value, dict):
        return tuple(f"{name}={each}" for name, each in value.items())
    return tuple(value) if isinstance(value, list) else value


def _texts(value: object) -> tuple[str, ...]:
    """One text or several; inputs by name are written as they are typed, `name:shape`."""
    if isinstance(value, dict):
        return tuple(f"{name}:{_of(str, shape)}" for name, shape in value.items())
    return tuple(_of(str, each) for each in value) if isinstance(value, list) else (_of(str, value),)


def _pairs(value: object) -> tuple[str, ...]:
    """Settings as they are typed; what is nested gets dots."""
    found: list[str] = []
    for name, each in _table(value).items():
        if isinstance(each, dict):
            found += [f"{name}.{pair}" for pair in _pairs(each)]
        else:
            found.append(f"{name}={each!r}")
    return tuple(found)


def _of(kind: type, value: object) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise OpcostError(f"{shortened(repr(value))} stands where {_WORDS[kind]} belongs")
    return value


def _table(value: object) -> dict[str, Any]:
    return dict(_of(dict, value))


def _known(table: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in table:
        if name not in known:
            raise UnknownName(what, name, known)


def _is(kind: type) -> Callable[[object], Any]:
    return lambda value: _of(kind, value)


_WORDS = {str: "a text", int: "a whole number", bool: "true or false", dict: "a table"}
_MODEL: dict[str, Callable[[object], Any]] = {
    "input": _texts,
    "set": _pairs,
    "arg": _pairs,
    "batch": _is(int),
    "tokens": _is(int),
    "image": _is(int),
    "dtype": _is(str),
}
_PLACE: dict[str, Callable[[object], Any]] = {"device": _is(str), "calibration": _is(str), "execution": _is(str)}
_COUNTING: dict[str, Callable[[object], Any]] = {
    "train": _is(bool),
    "backward": _is(bool),
    "optimizer": _is(str),
    "precision": _is(str),
    "checkpoint": _texts,
    "accumulate": _is(int),
    "zero_grad": _is(str),
    "real": _is(bool),
    "causal": _is(str),
}
"""What can be told of counting, by the names of the flags."""
