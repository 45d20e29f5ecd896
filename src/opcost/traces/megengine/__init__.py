"""MegEngine's two recordings: the profile that `load_and_run --profile` writes, and the imperative Chrome timeline."""

import json
import re
from dataclasses import replace
from typing import Any, TypeAlias

from opcost.core.graph import Note
from opcost.core.parsing import parse
from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.traces.file import TraceFile, events_of

_GRAPH = re.compile(
    rb'\s*\{\s*"(?:profiler|graph_exec)"\s*:\s*'
    rb'(?:\{\s*(?:"(?:device|host|opr_footprint|opr_internal_pf|operator|var|mem_chunk|comp_seq)"|"?\w*\Z|\})|\Z)'
)
"""Either field, and what comes first in it unless the file is cut off before that; other tools may have a field of this name."""
_TIMELINE_ONLY = (b'"gpu_usgae_ratio"', b'"nr_alive_tensor"', b'"nr_op_pending"', b'"OpDispatch"')
"""Words (one misspelt by its author) that no other profiler writes."""


class MegEngineReader:
    """Recognises either recording by its first words and reads it whole."""

    name = "megengine"

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins like this is one of MegEngine's."""
        return bool(_GRAPH.match(head)) or (b'"traceEvents"' in head and any(word in head for word in _TIMELINE_ONLY))

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        """The recording as a profile; of a damaged one with `partial`, what is before the damage."""
        from opcost.traces.megengine.graph import read_graph_profile
        from opcost.traces.megengine.timeline import read_timeline

        if not _GRAPH.match(file.head):
            events, notes = events_of(file, partial=partial)
            return read_timeline(events, file.name, notes)
        fault = ""
        try:
            data = file.json()
        except SourceError as exc:
            if not partial:
                raise
            fault = exc.message
        if not fault:
            return read_graph_profile(data, file.name)
        # Not above, where the error still refers to what was read of the file.
        profile = read_graph_profile(read_before_damage(file), file.name)
        nameless = sum(row.type == LOST for row in profile.rows)
        text = f"{fault}; this is what is before it: times of {len(profile.rows)} operators"
        if nameless:
            text += f", of which {nameless} have lost their names, which are at the end of the file"
        return replace(profile, notes=(*profile.notes, Note("partial", text)))


READER = MegEngineReader()


# -- what a damaged `load_and_run --profile` file has before the damage

Json: TypeAlias = "dict[str, Any]"

LOST = "(unknown)"  # the type of an operator whose description is lost

_MARK = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_RECORD = 4  # containers that are open inside a record: the document, a part, a table of it, and the record


def read_before_damage(file: TraceFile) -> Json:
    """The profile as far as it can be read, every operator with times in it; a record that was cut is left out."""
    data, depth = _salvaged(file.content(partial=True).decode("utf-8-sig", "ignore"))
    table = _last(_last(data))
    if depth >= _RECORD and isinstance(table, dict) and table:
        table.popitem()
    # With a nameless operator for every one that has times and no description
    if isinstance(data, dict):
        profiler, graph = data.setdefault("profiler", {}), data.setdefault("graph_exec", {})
        if isinstance(profiler, dict) and isinstance(graph, dict):
            operators = graph.setdefault("operator", {})
            graph.setdefault("var", {})
            sides = [profiler.get(side) for side in ("host", "device")]
            timed = [key for side in sides if isinstance(side, dict) for key in side]
            if isinstance(operators, dict) and timed:
                for key in timed:
                    nameless = {"id": key, "name": f"operator {key}", "type": LOST, "input": [], "output": []}
                    operators.setdefault(key, nameless)
                return data
    raise SourceError(f"{file.path}: no time of an operator is before the damage")


def _salvaged(text: str) -> tuple[Any, int]:
    """The document with everything closed that is open where it breaks off, and how many containers those are."""
    try:
        return parse(text, parse_constant=lambda _: None), 0
    except json.JSONDecodeError as fault:
        text = text[: fault.pos]
    except ValueError:
        return None, 0
    end = 0
    opened: list[str] = []
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark in "{[":
            opened.append(mark)
        elif mark in "}]":
            opened.pop()
        elif mark != ",":
            continue
        end = found.start() if mark == "," else found.end()
    try:
        closed = text[:end] + "".join(_CLOSING[mark] for mark in reversed(opened))
        return parse(closed, parse_constant=lambda _: None), len(opened)
    except ValueError:
        return None, 0


def _last(value: Any) -> Any:
    return next(reversed(value.values())) if isinstance(value, dict) and value else None
