"""The reader of Kineto's traces: every execution a row, or in a large file one row for all that are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from opcost.core.collector import without_collector
from opcost.core.profile import Profile
from opcost.traces.file import TraceFile
from opcost.traces.kineto.device_use import copies_of, device_uses, extra_of
from opcost.traces.kineto.lanes import timeline_of
from opcost.traces.kineto.load import fault_notes, is_kineto, is_large, meta_of, translate, wall_of
from opcost.traces.kineto.memory_use import memory_of
from opcost.traces.kineto.messages import collectives_of, exchanges
from opcost.traces.kineto.table import table_of

if TYPE_CHECKING:
    from opcost.traces.registry import Reader

MANY = 200_000
"""Of a large file, or above so many executions and kernels, a row of a profile stands for all executions that are alike: one
for each would take long and much memory."""


class KinetoReader:
    """The Chrome trace that PyTorch's profiler writes."""

    name = "kineto"

    def sniff(self, head: bytes) -> bool:
        return is_kineto(head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        return self.read_more(file, partial=partial)

    def read_more(
        self, file: TraceFile, *, partial: bool = False, memory: bool | None = None, timeline: bool = False
    ) -> Profile:
        """The same, with what allocators told if that is asked for (None: where the file is not large).

        Rows of single executions tell when they ran; of a large file the timeline does, if it is asked for.
        """
        with without_collector():
            stream, translated = translate(file, partial=partial, memory=memory)
            linked = translated.linked
            if is_large(file) or len(linked) + len(linked.owner) > MANY:
                found = table_of(file, stream, translated).profile()
                return replace(found, extra={**found.extra, "timeline": timeline_of(translated)}) if timeline else found
            return Profile(
                meta=meta_of(file, stream.fields),
                rows=translated.rows(),
                unattributed=translated.unattributed(),
                wall_ns=wall_of(linked),
                notes=fault_notes(stream, linked.columns) + translated.notes(),
                extra=extra_of(
                    device_uses(translated).values(),
                    copies_of(translated),
                    exchanges(collectives_of(translated), translated.rank),
                    memory_of(translated),
                ),
            )


READER: Reader = KinetoReader()
