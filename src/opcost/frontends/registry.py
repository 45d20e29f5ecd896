"""The front ends: what each of them is, which one reads a file or counts an object, and how it is called.

The owner of an object is found without importing a framework: the one of a live object is already in `sys.modules`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol

from opcost.core.files import head_of, is_nameless
from opcost.core.parsing import Bad
from opcost.core.plugin import FRONTENDS, claims, faults_attributed, only, usable
from opcost.errors import InputError, SourceError, UnknownSource

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions, FrontendOption

FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)
"""What can be called and is not an object of a framework."""
HEAD_BYTES = 4096  # The bytes of a file by which a front end decides whether it reads it


class FrontEnd(Protocol):
    """One way to turn a model into a `Graph`. Importing a front end must not import its framework; `load` may.

    A class that derives from this one writes only what it does otherwise, which is `load` at the least.
    """

    name: str
    framework: str  # The module whose presence in `sys.modules` means that objects of this front end may exist
    suffixes: tuple[str, ...] = ()  # File suffixes it reads, with the dot; empty for live objects only
    options: tuple[
        FrontendOption, ...
    ] = ()  # Options that only this front end has; on the command line these are flags
    understands: frozenset[str] = frozenset()
    """Which of the options `sizes` and `dtype` it takes: other sizes are refused, another type is set afterwards."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether a file with one of the suffixes and this beginning is really ours."""
        return False

    def owns(self, obj: object) -> bool:
        """Whether a live object is ours; called only if the framework is in `sys.modules`."""
        return False

    def named(self, text: str) -> Path | None:
        """The file that is meant by a text that is not a file itself, such as the prefix that several files share."""
        return None

    def build(self, factory: Callable[..., object], kwargs: Mapping[str, object]) -> object:
        """The model that a factory makes, without memory for its weights where that can be had."""
        return factory(**kwargs)

    @abstractmethod
    def load(self, source: Any, options: CountOptions) -> Graph:
        """The graph of a model, which is the path of a file or an object."""


class FileFrontEnd(FrontEnd):
    """A front end that reads files only: by the function `load` of its module `walk`, imported when it is needed."""

    what: str  # A file of the format, in words

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.options import refuse_running

        refuse_running(options, f"{source} is {self.what}")
        try:
            found: Graph = import_module(f"opcost.frontends.{self.name}.walk").load(Path(source), options)
        except (Bad, RecursionError) as exc:
            raise SourceError(f"{source} is not {self.what} that can be read: {exc}") from exc
        return found


def frontends() -> tuple[FrontEnd, ...]:
    """All front ends, in the order of their names."""
    return tuple(frontend for _, frontend in sorted(usable(FRONTENDS, "load").items()))


def file_named(text: str) -> Path | None:
    """The file that a front end finds for a text that is not a file itself."""
    doing = "finding the file that is meant"
    found = claims(FRONTENDS, frontends(), lambda frontend: frontend.named(text) is not None, doing)
    return found[0].named(text) if found else None


def owner(obj: object) -> FrontEnd:
    """The one front end that counts this object; none, or more than one, is an error and not a guess."""
    candidates = [frontend for frontend in frontends() if frontend.framework in sys.modules]
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    doing = "deciding whether an object is its own"
    found = claims(FRONTENDS, candidates, lambda frontend: frontend.owns(obj), doing)
    if found:
        return only(found, f"an object of type {kind}")  # type: ignore[no-any-return]
    if isinstance(obj, type):
        raise UnknownSource(f"{obj.__qualname__} is a class, not a model", hint=f"make one: {obj.__qualname__}(...)")
    names = ", ".join(frontend.name for frontend in frontends()) or "none"
    fault = f"an object of type {kind} is not a model that opcost can count"
    raise UnknownSource(fault, hint=f"pass a model of one of the front ends: {names}")


def reader(path: Path) -> FrontEnd | None:
    """The front end that reads this file: the suffix narrows, the content decides; None: none does.

    What comes through a pipe has no suffix, so that all that read files are candidates.
    """
    suffixes = "".join(path.suffixes).lower()
    nameless = is_nameless(path)
    reading = [frontend for frontend in frontends() if frontend.suffixes]
    candidates = [frontend for frontend in reading if nameless or suffixes.endswith(tuple(frontend.suffixes))]
    if not candidates:
        return None
    head = head_of(path, HEAD_BYTES)
    doing = "deciding whether it reads a file"
    found = claims(FRONTENDS, candidates, lambda frontend: frontend.sniff(head, path), doing)
    return only(found, f"the file {path}")  # type: ignore[no-any-return]


FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
"""In which a whole model may compute; narrower ones are storage with scales, and are left as they are."""


def load(frontend: FrontEnd, source: Any, options: CountOptions) -> Graph:
    """The graph of a model; another element type is set afterwards where the front end does not do it."""
    from opcost.frontends.options import check_runs, check_understood

    dtype = options.dtype
    if dtype is not None and "dtype" in frontend.understands:
        dtype = None
    if dtype is not None:
        options = replace(options, dtype=None)
    check_understood(frontend, "front end", options)
    check_runs(frontend, options)
    with faults_attributed(frontend, "reading the model"):
        graph = frontend.load(source, options)
    return graph if dtype is None else _retyped(graph, dtype)


def _retyped(graph: Graph, dtype: str) -> Graph:
    """The same graph with all of its floats of this type: weights, inputs, and what is made of them."""
    from opcost.core.graph import Note, TensorSpec

    if dtype not in FLOATS:
        raise InputError(f"a model cannot compute in {dtype}", hint="give a floating type: bf16")
    others = FLOATS - {dtype}
    seen = Counter(value.spec.dtype for value in graph.values if value.spec.dtype in others)
    if not seen:
        return graph
    specs = {
        spec: TensorSpec(spec.shape, dtype) for spec in {value.spec for value in graph.values} if spec.dtype in others
    }
    values = [value._replace(spec=specs.get(value.spec, value.spec)) for value in graph.values]
    tensors = " and ".join(f"{count:,} tensors of {name}" for name, count in seen.most_common())
    note = Note("retyped", f"{tensors} of the file are counted as {dtype}, as if it had been converted")
    return replace(graph, values=tuple(values), notes=(*graph.notes, note))
