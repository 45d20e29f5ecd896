"""Nothing is fetched or unpickled while a model of a collection is made and counted, whatever its library tries.

What a configuration asks for by name is refused before anything is made; this wall stands behind, for what no list of
names foresees. It stands for the thread that makes the model alone: the others keep their network.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from opcost.errors import Refused
from opcost.wording import shortened


class _Door(NamedTuple):
    """A function through which something comes in, and which of its arguments says what."""

    module: str
    owner: str
    """A class of the module; empty for a function of the module itself."""
    name: str
    argument: int
    what: str


# Addresses stand after the names of files and hubs: what is refused first says best what was asked for.
_DOORS = (
    *(_Door(client, "Client", "send", 1, "the page") for client in ("httpx", "httpx2")),
    _Door("requests", "Session", "send", 1, "the page"),
    _Door("urllib.request", "OpenerDirector", "open", 1, "the page"),
    _Door("socket", "", "getaddrinfo", 0, "the network address"),
    _Door("socket", "", "gethostbyname", 0, "the network address"),
    _Door("socket", "socket", "connect", 1, "the network address"),
    _Door("socket", "socket", "connect_ex", 1, "the network address"),
    _Door("socket", "socket", "sendto", -1, "the network address"),
    _Door("torch", "", "load", 0, "the saved weights"),
    _Door("torch.serialization", "", "load", 0, "the saved weights"),
    _Door("torch.jit", "", "load", 0, "the saved program"),
    _Door("torch.hub", "", "load", 0, "the repository"),
    _Door("torch.hub", "", "load_state_dict_from_url", 0, "the weights"),
    _Door("pickle", "", "load", 0, "the pickle"),
    _Door("pickle", "", "loads", 0, "a pickle of"),
)

_WEIGHTS = (
    _Door("timm.models._builder", "", "load_pretrained", 0, ""),
    _Door("torchvision.models._api", "WeightsEnum", "get_state_dict", 0, ""),
    _Door("torch.hub", "", "load_state_dict_from_url", 0, ""),
    _Door("torch.nn", "Module", "load_state_dict", 0, ""),
)
"""Functions that fetch or load pretrained weights."""

_here = threading.local()
"""`source` is what this thread makes or counts while it is kept offline; `skipped`: which weights it has gone without."""
_lock = threading.Lock()
_inside = 0
_put_back: list[Callable[[], None]] = []


@contextmanager
def offline(source: str) -> Iterator[None]:
    """Refuse this thread the network and every pickle; the error names what was asked for.

    A library may know what to do without, and go on. Where it fails instead, in whatever words, the refusal is raised.
    """
    outer = getattr(_here, "source", None)
    _close_doors()
    _here.source = source
    try:
        yield
    except Exception as exc:
        refused = _refusal_behind(exc)
        if refused is None or refused is exc:
            raise
        raise refused from exc
    finally:
        _here.source = outer
        _open_doors()


class NotFetched(dict[str, Any]):
    """The weights that were not fetched: empty, and so is every part of them."""

    def __missing__(self, key: str) -> NotFetched:
        return NotFetched()

    def pop(self, key: str, *default: Any) -> Any:
        return default[0] if default else None


@contextmanager
def without_weights() -> Iterator[list[str]]:
    """Go on without pretrained weights that a factory asks for: nothing is fetched, and nothing waits for a network.

    Yields the names of the functions that were not run.
    """
    skipped: list[str] = []
    outer = getattr(_here, "skipped", None)
    _close_doors()
    _here.skipped = skipped
    try:
        yield skipped
    finally:
        _here.skipped = outer
        _open_doors()


def _refusal_behind(exc: BaseException | None) -> Refused | None:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        if isinstance(exc, Refused):
            return exc
        seen.add(id(exc))
        exc = exc.__cause__ or exc.__context__
    return None


def _close_doors() -> None:
    """Put a guard before every door, once for all threads that want it; each thread is asked whether it is meant."""
    global _inside  # noqa: PLW0603 - the doors belong to the process, and so does the number of those who want them shut
    with _lock:
        _inside += 1
        if _inside > 1:
            return
        for door in (*_DOORS, *_WEIGHTS):
            owner: Any = sys.modules.get(door.module)
            if door.owner:
                owner = getattr(owner, door.owner, None)
            if getattr(owner, door.name, None) is not None:
                _put_back.append(_guard(owner, door))


def _open_doors() -> None:
    global _inside  # noqa: PLW0603 - as above
    with _lock:
        _inside -= 1
        while not _inside and _put_back:
            _put_back.pop()()


def _guard(owner: Any, door: _Door) -> Callable[[], None]:
    """Set the guard; the answer takes it away. One that was imported by name meanwhile lets everything through later."""
    original = getattr(owner, door.name)
    inherited = door.name not in vars(owner)

    def guard(*args: Any, **kwargs: Any) -> Any:
        source, skipped = getattr(_here, "source", None), getattr(_here, "skipped", None)
        if door in _WEIGHTS and skipped is not None:
            if door.name != "load_state_dict":
                skipped.append(door.name)
                return NotFetched()
            if skipped and not (args[1] if len(args) > 1 else kwargs.get("state_dict")):
                return original(args[0], {}, strict=False)
            return original(*args, **kwargs)
        if source is None or door in _WEIGHTS:
            return original(*args, **kwargs)
        raise Refused(
            f"{shortened(source)} asks for {door.what} {_named(door, args, kwargs)}; a model is made and counted "
            "without anything being fetched or unpickled",
            hint="take out of the configuration what asks for it, or make the model in Python code: path/to/file.py:Net",
        )

    setattr(owner, door.name, guard)
    return (lambda: delattr(owner, door.name)) if inherited else (lambda: setattr(owner, door.name, original))


def _named(door: _Door, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    wanted = args[door.argument] if len(args) > max(door.argument, 0) else next(iter(kwargs.values()), "")
    for attribute in ("full_url", "url", "name"):  # of requests and of open files
        wanted = getattr(wanted, attribute, wanted)
    if isinstance(wanted, tuple):
        return ":".join(map(str, wanted[:2]))
    if isinstance(wanted, (bytes, bytearray, memoryview)):
        return f"{len(wanted):,} bytes"
    return shortened(str(wanted))
