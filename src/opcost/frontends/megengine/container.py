"""Where the parts of a dump lie in its file: four containers, told apart by their first bytes.

size, root, "mgv2"             FBS v2: one flatbuffer that holds the weights too
"MGBC", 8 + 4 bytes, length    FBS v1: the weights in one piece of this length, then a flatbuffer
"MGBS", 4 bytes, length        FBS v1 as old versions wrote it; operator ids do not know versions
"mgbtest0", count              a test case: one of the above, then `count` models that hold inputs and outputs
"""

from __future__ import annotations

from typing import NamedTuple

from opcost.errors import SourceError
from opcost.frontends.flatbuffer import U32, U64, Buffer, Pages

TESTCASE = b"mgbtest0"
V2 = b"mgv2"
V1 = b"MGBC"
V1_UNVERSIONED = b"MGBS"
V1_GRAPH = b"mgb1"

_TESTCASE_HEADER = len(TESTCASE) + 4
_LONGEST_HEAD = _TESTCASE_HEADER + 12


class Container(NamedTuple):
    """What the head of a dump says."""

    magic: bytes
    graph: Buffer
    weights: tuple[int, int]
    """First byte and end of the weights of FBS v1; in FBS v2 they lie inside the graph."""
    testcases: int
    more: int = 0
    """Bytes after the model: further ones that were appended, or the data of test cases."""


def recognize(head: bytes) -> bool:
    """Whether a file that begins like this is a dump."""
    start = _TESTCASE_HEADER if head.startswith(TESTCASE) else 0
    return head[start : start + 4] in (V1, V1_UNVERSIONED) or head[start + 8 : start + 12] == V2 or start > 0


def locate(data: Pages) -> Container:
    """Find the graph and the weights in a file."""
    size, what, head = data.size, data.what, data.beginning(_LONGEST_HEAD)
    start = testcases = 0
    if head.startswith(TESTCASE):
        start, testcases = _TESTCASE_HEADER, _number(data, len(TESTCASE), 4)
    magic = head[start : start + 4]
    if magic in (V1, V1_UNVERSIONED):
        length_at = start + (16 if magic == V1 else 8)
        first = length_at + 8
        length = _number(data, length_at, 8)
        if length > size - first:
            raise _cut(what, f"it claims {length} bytes of weights and has {max(size - first, 0)}", length_at)
        graph = _graph(data, first + length)
        return Container(magic, graph, (first, first + length), testcases, size - graph.end)
    if head[start + 8 : start + 12] != V2:
        raise SourceError(
            f"{what} is not a MegEngine dump: it begins with {head[:12]!r}",
            hint="opcost reads what megengine.jit.trace.dump writes, in FBS v1 and v2",
        )
    graph = _graph(data, start)
    return Container(V2, graph, (0, 0), testcases, size - graph.end)


def _graph(data: Pages, at: int) -> Buffer:
    """A flatbuffer that begins with its own length."""
    length = _number(data, at, 4)
    if length > data.size - at - 4:
        raise _cut(data.what, f"its graph claims {length} bytes and {max(data.size - at - 4, 0)} are left", at)
    return Buffer(data, at + 4, at + 4 + length, data.what)


def _number(data: Pages, at: int, width: int) -> int:
    if at + width > data.size:
        raise _cut(data.what, f"it ends after {data.size} bytes, inside its header", at)
    found: int = data.unpack(U32 if width == 4 else U64, at)[0]
    return found


def _cut(what: str, fault: str, at: int) -> SourceError:
    return SourceError(f"{what} is cut short: {fault}, at byte {at}", hint="fetch or dump it again")
