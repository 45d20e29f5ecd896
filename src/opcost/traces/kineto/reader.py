"""The reader of Kineto's traces: every execution a row, or in a large file one row for all that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost.core.collector import without_collector
from opcost.core.profile import Profile
from opcost.traces.file import TraceFile
from opcost.traces.kineto.load import damage_notes, is_kineto, meta_of, translate, wall_of
from opcost.traces.kineto.table import tabulate

if TYPE_CHECKING:
    from opcost.traces.registry import Reader

LARGE_BYTES = 64 << 20
LARGE_PACKED_BYTES = LARGE_BYTES // 8
"""Above this a row of a profile stands for all executions that are alike: one for each would take long and much memory."""


class KinetoReader:
    """The Chrome trace that PyTorch's profiler writes."""

    name = "kineto"

    def sniff(self, head: bytes) -> bool:
        return is_kineto(head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        if file.size > (LARGE_PACKED_BYTES if file.packed else LARGE_BYTES):
            return tabulate(file, partial=partial).profile()
        with without_collector():
            stream, translated = translate(file, partial=partial)
            rows = translated.rows()
            return Profile(
                meta=meta_of(file, stream.fields),
                rows=rows,
                unattributed=translated.unattributed(),
                wall_ns=wall_of(translated.linked),
                notes=damage_notes(stream) + translated.notes(),
            )


READER: Reader = KinetoReader()
