"""The two files of a checkpoint: `PREFIX-symbol.json` and `PREFIX-0000.params`, found from either or from the prefix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from opcost.core.reading import is_nameless
from opcost.errors import SourceError

SYMBOL_ENDING = "-symbol.json"
_EPOCH = re.compile(r"-(\d{4,})$")


class Checkpoint(NamedTuple):
    """Where the graph and its weights lie."""

    symbol: Path
    params: Path | None
    chosen: bool
    """The user named the parameter file, or its epoch."""


def symbol_beside(text: str) -> Path | None:
    """The symbol of a checkpoint that is named by its prefix, if there is one."""
    path = Path(f"{text}{SYMBOL_ENDING}")
    return path if path.is_file() else None


def find_checkpoint(path: Path, params: str | Path | None = None, epoch: int | None = None) -> Checkpoint:
    """Both files, from the symbol or from the parameters, and what the user said about the parameters."""
    if params is not None and epoch is not None:
        raise SourceError("both a parameter file and an epoch were given", hint="give one of them")
    nameless = is_nameless(path)
    if path.suffix != ".json" and not nameless:
        if params is not None or epoch is not None:
            raise SourceError(f"{path} is a parameter file itself", hint=f"name the symbol: PREFIX{SYMBOL_ENDING}")
        return Checkpoint(_symbol_of(path), path, chosen=True)
    if params is not None:
        if not Path(params).exists():
            raise SourceError(f"there is no parameter file {params}", hint=_found(path))
        return Checkpoint(path, Path(params), chosen=True)
    epochs = {} if nameless else _epochs(path)
    if epoch is not None:
        if epoch not in epochs:
            raise SourceError(f"{path} has no parameters of epoch {epoch} beside it", hint=_found(path))
        return Checkpoint(path, epochs[epoch], chosen=True)
    if epochs:
        return Checkpoint(path, epochs[max(epochs)], chosen=False)
    if nameless:
        return Checkpoint(path, None, chosen=False)
    plain = path.with_name(f"{_prefix(path)}.params")
    return Checkpoint(path, plain if plain.is_file() else None, chosen=False)


def _prefix(path: Path) -> str:
    return path.name.removesuffix(SYMBOL_ENDING).removesuffix(".json")


def _epochs(path: Path) -> dict[int, Path]:
    """The parameter files beside a symbol, by their epochs."""
    prefix = _prefix(path)
    found: dict[int, Path] = {}
    for candidate in path.parent.iterdir():
        stem = candidate.stem
        match = _EPOCH.search(stem)
        if candidate.suffix == ".params" and match and stem[: match.start()] == prefix and candidate.is_file():
            found[int(match[1])] = candidate
    return found


def _found(path: Path) -> str:
    epochs = sorted(_epochs(path))
    if not epochs:
        return f"no {_prefix(path)}-0000.params lies beside it; --params names one elsewhere"
    return f"epochs beside it: {', '.join(map(str, epochs))}"


def _symbol_of(params: Path) -> Path:
    """The symbol that belongs to a parameter file."""
    stem = params.stem
    match = _EPOCH.search(stem)
    prefix = stem[: match.start()] if match else stem
    symbol = params.with_name(f"{prefix}{SYMBOL_ENDING}")
    if not symbol.is_file():
        raise SourceError(
            f"{params} holds weights and no operators, and there is no {symbol.name} beside it",
            hint=f"count the symbol: opcost count PREFIX{SYMBOL_ENDING} --params {params}",
        )
    return symbol
