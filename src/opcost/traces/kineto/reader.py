"""The reader of Kineto's traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost.core.interrupts import garbage_collector_paused
from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.traces.file import TraceFile
from opcost.traces.kineto.load import fault_notes, is_kineto, is_large, meta_of, rank_of, translate
from opcost.traces.kineto.profile import profile_of
from opcost.traces.kineto.replays import captures_of

if TYPE_CHECKING:
    from opcost.traces.registry import Reader


class KinetoReader:
    """The Chrome trace that PyTorch's profiler writes."""

    name = "kineto"

    def sniff(self, head: bytes) -> bool:
        return is_kineto(head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        return self.read_more(file, partial=partial)

    def read_more(
        self,
        file: TraceFile,
        *,
        partial: bool = False,
        memory: bool | None = None,
        timeline: bool = False,
        executions: bool = False,
    ) -> Profile:
        """The same, with what allocators told if that is asked for (None: where the file is not large).

        Rows of single executions tell when they ran: of a small file, and if they are asked for of one that is not large. Else
        the timeline does, if it is asked for.
        """
        with garbage_collector_paused():
            stream, translated = translate(file, partial=partial, memory=memory)
            return profile_of(
                translated,
                meta_of(file, stream.fields),
                rank_of(stream.fields),
                fault_notes(stream, translated.linked.columns),
                large=is_large(file),
                timeline=timeline,
                executions=executions,
            )

    def read_replayed(self, file: TraceFile, capture: TraceFile, *, partial: bool = False) -> Profile:
        """The same, with the operators of the graphs that were captured in another trace."""
        with garbage_collector_paused():
            captures = captures_of(translate(capture, memory=False)[1], capture.name)
            if not captures:
                raise SourceError(
                    f"{capture.path}: no graph is captured in this trace",
                    hint="name a trace of the run that captured it, from the beginning of the capture to its end",
                )
            stream, translated = translate(file, partial=partial)
            notes = fault_notes(stream, translated.linked.columns)
            meta, rank = meta_of(file, stream.fields), rank_of(stream.fields)
            return profile_of(translated, meta, rank, notes, large=is_large(file), captures=captures)


READER: Reader = KinetoReader()
