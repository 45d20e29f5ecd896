"""The Chrome timeline of MegEngine's imperative profiler: pairs of begin and end on the worker's and the device's threads.

The worker opens one scope per module and function around each operator; inside the operator are its inputs and outputs
with shape and element type. The kernel on the device's thread carries the operator's number.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from opcost.core.graph import Attr, Note, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.errors import SourceError
from opcost.frontends.megengine.schema import ENUMS
from opcost.traces.file import args_of, is_shape, wall_of
from opcost.traces.megengine.graph import COMP_NODE, dtype_of, translate

Json: TypeAlias = "dict[str, Any]"
Thread: TypeAlias = "tuple[str, str]"

_TENSOR = re.compile(r"(Input|Output) \d+")
_FOREVER_US = 1e18  # also a time since 1970 is far below; beyond is damage
_DISPATCH = "OpDispatch"

_FUNCTIONS = frozenset(
    """
    adaptive_avg_pool2d adaptive_max_pool2d add avg_pool2d batch_norm batch_norm2d broadcast_to clip concat conv1d conv2d
    conv3d conv_bias conv_transpose2d conv_transpose3d cross_entropy deformable_conv2d dropout embedding exp expand_dims
    flatten gelu group_norm hsigmoid hswish instance_norm interpolate layer_norm leaky_relu linear local_conv2d
    logsigmoid logsoftmax logsumexp matmul max_pool2d mean norm normalize pad pow prelu relu relu6 reshape resize sigmoid
    silu softmax softplus split sqrt squeeze stack sum tanh transpose var where
    """.split()
)
"""Functions that open a scope of their own and may call others."""

_ELEMWISE = frozenset(ENUMS["Elemwise"])


@dataclass(slots=True)
class _OpenScope:
    """A scope or operator that has begun."""

    name: str
    start_ns: int
    ins: list[Json] = field(default_factory=list)
    outs: list[Json] = field(default_factory=list)
    inner_ns: int = 0


def read_timeline(events: list[Json], source: str, notes: Sequence[Note] = ()) -> Profile:
    """The profile in the events of a timeline; `notes` are of damage to their file."""
    reader = _TimelineReader()
    for place, event in enumerate(events):
        thread = (str(event.get("pid")), str(event.get("tid")))
        if event.get("ph") in ("B", "E"):
            moment = event.get("ts")
            if not isinstance(moment, (int, float)) or isinstance(moment, bool) or not abs(moment) < _FOREVER_US:
                raise SourceError(f"{source}: event {place} has the time {moment!r}, not a number of microseconds")
            reader.add(thread, event, round(moment * 1000))
        elif event.get("ph") == "M" and event.get("name") == "thread_name":
            reader.names[thread] = str(args_of(event).get("name", ""))
    rows = [reader.row(*operator) for operator in reader.operators]
    numbers = {number for number, *_ in reader.operators}
    kernels = {number: [*map(reader.kernel, found)] for number, found in reader.kernels.items()}
    left = reader.unpaired + sum(map(len, reader.open.values()))
    if left:
        notes = [*notes, Note("unpaired", f"{left} events have a begin or an end only and were left out")]
    spans = [(row.host_start_ns or 0, row.host_ns or 0) for row in rows]
    spans += [(kernel.start_ns, kernel.duration_ns) for found in kernels.values() for kernel in found]
    return Profile(
        meta={"source": source, "format": "megengine", "layout": "timeline"},
        rows=tuple(sorted(rows, key=lambda row: row.host_start_ns or 0)),
        unattributed=tuple(one for number, found in kernels.items() if number not in numbers for one in found),
        wall_ns=wall_of(spans),
        notes=tuple(notes),
    )


class _TimelineReader:
    def __init__(self) -> None:
        self.open: dict[Thread, list[_OpenScope]] = {}
        self.names: dict[Thread, str] = {}
        self.operators: list[tuple[int, _OpenScope, tuple[str, ...], Json, int]] = []
        """Number, scope, scopes around it, arguments and duration."""
        self.kernels: dict[int, list[tuple[Thread, str, int, int]]] = {}
        self.unpaired = 0

    def add(self, thread: Thread, event: Json, now: int) -> None:
        """The begin or the end of a scope."""
        stack, name, args = self.open.setdefault(thread, []), str(event.get("name", "")), args_of(event)
        if event["ph"] == "B":
            stack.append(_OpenScope(name, now))
            return
        if not stack or stack[-1].name != name:
            self.unpaired += 1
            return
        begun, number = stack.pop(), args.get("__id__")
        duration = now - begun.start_ns
        if isinstance(number, int):
            if event.get("cat") == "Kernel":
                self.kernels.setdefault(number, []).append((thread, name, begun.start_ns, duration))
            elif name != _DISPATCH:
                if stack:
                    stack[-1].inner_ns += duration
                self.operators.append((number, begun, tuple(scope.name for scope in stack), args, duration))
        elif stack and (tensor := _TENSOR.fullmatch(name)):
            (stack[-1].ins if tensor[1] == "Input" else stack[-1].outs).append(args)

    def row(self, number: int, scope: _OpenScope, path: tuple[str, ...], args: Json, duration: int) -> ProfileRow:
        kernels = tuple(map(self.kernel, self.kernels.get(number, ())))
        type_name = str(args.get("__name__", scope.name))
        # Parameters as numbers where they are numbers; the timeline writes all of them as text
        params: dict[str, Attr] = {
            name: _number(value) if isinstance(value, str) else value
            for name, value in args.items()
            if not name.startswith("__") and isinstance(value, (str, int, float))
        }
        word = "Elemwise" if type_name in _ELEMWISE else type_name
        known = translate(word, params, _specs(scope.ins), _specs(scope.outs))
        device_ns = sum(kernel.duration_ns for kernel in kernels) if kernels else None
        # The modules among the scopes: the innermost is the function that was called, and so are those that call others
        modules = list(path)
        last = modules.pop() if modules else ""
        while (
            modules
            and modules[-1] != last
            and (last.startswith("tensor.") or last in _FUNCTIONS)
            and modules[-1] in _FUNCTIONS
        ):
            last = modules.pop()
        devices = (COMP_NODE.match(str(tensor.get("device", ""))) for tensor in (*scope.outs, *scope.ins))
        found = next(filter(None, devices), None)
        device, stream = (
            (found[1], found[2]) if found else (kernels[0].device, kernels[0].stream) if kernels else ("", "")
        )
        return ProfileRow(
            id=number, name=".".join((*path, type_name)), type=type_name, kind=known.kind, module=".".join(modules),
            device=device, stream=stream, host_start_ns=scope.start_ns, host_ns=duration,
            host_self_ns=duration - scope.inner_ns, device_ns=device_ns, device_total_ns=device_ns,
            kernels=kernels, ins=known.ins, outs=known.outs, attrs=known.attrs,
        )  # fmt: skip

    def kernel(self, found: tuple[Thread, str, int, int]) -> Kernel:
        thread, name, start_ns, duration_ns = found
        return Kernel(name, self.names.get(thread, thread[1]), "", start_ns, duration_ns)


def _number(text: str) -> Attr:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _specs(tensors: list[Json]) -> tuple[TensorSpec, ...]:
    found = []
    for tensor in tensors:
        inside = str(tensor.get("shape", "")).strip("{}")
        words = [word for word in inside.split(",") if word.strip()]
        shape = [int(word) if word.strip().isdecimal() and len(word) < 20 else -1 for word in words]
        extents = tuple(extent if extent >= 0 else None for extent in shape) if is_shape(shape) else None
        found.append(TensorSpec(extents, dtype_of(str(tensor.get("dtype", ""))) or "float32"))
    return tuple(found)
