"""MegEngine's two recordings: the profile that `load_and_run --profile` writes, and the imperative Chrome timeline."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opcost.core.profile import Profile
from opcost.errors import SourceError

if TYPE_CHECKING:
    from opcost.traces.file import TraceFile

_GRAPH = re.compile(rb'\s*\{\s*"(profiler|graph_exec)"\s*:')
_TIMELINE_ONLY = (b'"gpu_usgae_ratio"', b'"nr_alive_tensor"', b'"nr_op_pending"', b'"OpDispatch"')
"""Words (one misspelt by its author) that no other profiler writes."""


class MegEngineReader:
    """Recognises either recording by its first words and reads it whole."""

    name = "megengine"

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins like this is one of MegEngine's."""
        return bool(_GRAPH.match(head)) or (b'"traceEvents"' in head and any(word in head for word in _TIMELINE_ONLY))

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        """The recording as a profile; a damaged timeline can be read in part, a damaged graph profile cannot."""
        from opcost.traces.events import events_of
        from opcost.traces.megengine_graph import read_graph_profile
        from opcost.traces.megengine_timeline import read_timeline

        if not _GRAPH.match(file.head):
            events, damage = events_of(file, partial=partial)
            return read_timeline(events, file.name, damage=damage)
        try:
            data = file.json()
        except SourceError as fault:
            # What operators there are stands behind their times.
            raise SourceError(
                fault.message, hint="record it again: without its end, nothing in it has a name"
            ) from fault
        return read_graph_profile(data, file.name)


READER = MegEngineReader()
