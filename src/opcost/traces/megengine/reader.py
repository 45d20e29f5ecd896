"""MegEngine's two recordings: the profile that `load_and_run --profile` writes, and the imperative Chrome timeline."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from opcost.core.graph import Note
from opcost.core.profile import Profile
from opcost.errors import SourceError

if TYPE_CHECKING:
    from opcost.traces.file import TraceFile

_GRAPH = re.compile(
    rb'\s*\{\s*"(?:profiler|graph_exec)"\s*:\s*'
    rb'(?:\{\s*(?:"(?:device|host|opr_footprint|opr_internal_pf|operator|var|mem_chunk|comp_seq)"|"?\w*\Z|\})|\Z)'
)
"""Either field, and what stands first in it unless the file is cut off before that; others may call a field so too."""
_TIMELINE_ONLY = (b'"gpu_usgae_ratio"', b'"nr_alive_tensor"', b'"nr_op_pending"', b'"OpDispatch"')
"""Words (one misspelt by its author) that no other profiler writes."""


class MegEngineReader:
    """Recognises either recording by its first words and reads it whole."""

    name = "megengine"

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins like this is one of MegEngine's."""
        return bool(_GRAPH.match(head)) or (b'"traceEvents"' in head and any(word in head for word in _TIMELINE_ONLY))

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        """The recording as a profile; of a damaged one with `partial`, what stands before the damage."""
        from opcost.traces.events import events_of
        from opcost.traces.megengine.graph import read_graph_profile
        from opcost.traces.megengine.timeline import read_timeline

        if not _GRAPH.match(file.head):
            events, damage = events_of(file, partial=partial)
            return read_timeline(events, file.name, damage=damage)
        fault = ""
        try:
            data = file.json()
        except SourceError as exc:
            if not partial:
                raise
            fault = exc.message
        if not fault:
            return read_graph_profile(data, file.name)
        # Not above, where the error still holds what was read of the file.
        from opcost.traces.megengine.damage import LOST, read_before_damage

        profile = read_graph_profile(read_before_damage(file), file.name)
        nameless = sum(row.type == LOST for row in profile.rows)
        said = f"{fault}; this is what stands before it: times of {len(profile.rows)} operators"
        if nameless:
            said += f", of which {nameless} have lost their names, for those stand at the end of the file"
        return replace(profile, notes=(*profile.notes, Note("partial", said)))


READER = MegEngineReader()
