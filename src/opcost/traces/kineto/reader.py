"""The reader of Kineto's traces: every execution a row, or in a large file one row for all that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost.core.collector import without_collector
from opcost.core.profile import Profile
from opcost.traces.file import TraceFile
from opcost.traces.kineto.device_use import copies_of, device_uses, extra_of
from opcost.traces.kineto.load import fault_notes, is_kineto, meta_of, translate, wall_of
from opcost.traces.kineto.messages import collectives_of, exchanges
from opcost.traces.kineto.table import table_of

if TYPE_CHECKING:
    from opcost.traces.registry import Reader

LARGE_BYTES = 64 << 20
LARGE_PACKED_BYTES = LARGE_BYTES // 8
MANY = 200_000
"""Above these bytes, or so many executions and kernels, a row of a profile stands for all executions that are alike: one for
each would take long and much memory, and a gzipped file may hold a hundred times its size."""


class KinetoReader:
    """The Chrome trace that PyTorch's profiler writes."""

    name = "kineto"

    def sniff(self, head: bytes) -> bool:
        return is_kineto(head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        with without_collector():
            stream, translated = translate(file, partial=partial)
            linked = translated.linked
            is_large = file.size > (LARGE_PACKED_BYTES if file.packed else LARGE_BYTES)
            if is_large or len(linked) + len(linked.owner) > MANY:
                return table_of(file, stream, translated).profile()
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
                ),
            )


READER: Reader = KinetoReader()
