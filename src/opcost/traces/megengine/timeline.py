"""The Chrome timeline of MegEngine's imperative profiler: pairs of begin and end on the worker's and the device's threads.

The worker opens one scope per module and function around each operator; inside the operator are its inputs and outputs
with shape and element type. The kernel on the device's thread carries the operator's number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from opcost.core.graph import Attr, Note, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.errors import SourceError
from opcost.frontends.megengine.schema import ENUMS
from opcost.traces.file import args_of, is_shape
from opcost.traces.megengine.graph import dtype_of, translate

Json: TypeAlias = "dict[str, Any]"
Thread: TypeAlias = "tuple[str, str]"

_COMP_NODE = re.compile(r'CompNode\("(\w+?):(\w+)"')
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
class _Open:
    """A scope or operator that has begun."""

    name: str
    start_ns: int
    ins: list[Json] = field(default_factory=list)
    outs: list[Json] = field(default_factory=list)
    inner_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operator:
    number: int
    type: str
    path: tuple[str, ...]
    start_ns: int
    duration_ns: int
    self_ns: int
    args: Json
    ins: list[Json]
    outs: list[Json]


def read_timeline(events: list[Json], source: str, *, damage: str = "") -> Profile:
    """The profile in the events of a timeline; `damage` is what is wrong with their file."""
    return _Reader(source, damage).read(events)


class _Reader:
    def __init__(self, source: str, damage: str) -> None:
        self.source = source
        self.damage = damage
        self.open: dict[Thread, list[_Open]] = {}
        self.names: dict[Thread, str] = {}
        self.operators: list[_Operator] = []
        self.kernels: dict[int, list[tuple[Thread, str, int, int]]] = {}
        self.unpaired = 0

    def read(self, events: list[Json]) -> Profile:
        for place, event in enumerate(events):
            thread = (str(event.get("pid")), str(event.get("tid")))
            phase = event.get("ph")
            if phase == "B":
                self.open.setdefault(thread, []).append(_Open(str(event.get("name", "")), self._time(event, place)))
            elif phase == "E":
                self._close(thread, event, self._time(event, place))
            elif phase == "M" and event.get("name") == "thread_name":
                self.names[thread] = str(args_of(event).get("name", ""))
        rows = [self._row(operator) for operator in self.operators]
        numbers = {operator.number for operator in self.operators}
        loose = [self._kernel(*one) for number, found in self.kernels.items() if number not in numbers for one in found]
        return Profile(
            meta={"source": self.source, "format": "megengine", "layout": "timeline"},
            rows=tuple(sorted(rows, key=lambda row: row.host_start_ns or 0)),
            unattributed=tuple(loose),
            wall_ns=self._wall(),
            notes=self._notes(),
        )

    def _time(self, event: Json, place: int) -> int:
        moment = event.get("ts")
        if not isinstance(moment, (int, float)) or isinstance(moment, bool) or not abs(moment) < _FOREVER_US:
            raise SourceError(f"{self.source}: event {place} has the time {moment!r}, not a number of microseconds")
        return round(moment * 1000)

    def _close(self, thread: Thread, event: Json, now: int) -> None:
        stack = self.open.get(thread, [])
        name = str(event.get("name", ""))
        if not stack or stack[-1].name != name:
            self.unpaired += 1
            return
        begun = stack.pop()
        args = args_of(event)
        number = args.get("__id__")
        if isinstance(number, int):
            if event.get("cat") == "Kernel":
                self.kernels.setdefault(number, []).append((thread, name, begun.start_ns, now - begun.start_ns))
            elif name != _DISPATCH:
                self._operator(begun, stack, number, args, now)
        elif stack and (tensor := _TENSOR.fullmatch(name)):
            (stack[-1].ins if tensor[1] == "Input" else stack[-1].outs).append(args)

    def _operator(self, begun: _Open, around: list[_Open], number: int, args: Json, now: int) -> None:
        duration = now - begun.start_ns
        if around:
            around[-1].inner_ns += duration
        self.operators.append(
            _Operator(
                number=number,
                type=str(args.get("__name__", begun.name)),
                path=tuple(scope.name for scope in around),
                start_ns=begun.start_ns,
                duration_ns=duration,
                self_ns=duration - begun.inner_ns,
                args=args,
                ins=begun.ins,
                outs=begun.outs,
            )
        )

    def _row(self, operator: _Operator) -> ProfileRow:
        kernels = tuple(self._kernel(*one) for one in self.kernels.get(operator.number, ()))
        type_name = "Elemwise" if operator.type in _ELEMWISE else operator.type
        # Parameters as numbers where they are numbers; the timeline writes all of them as text
        args = operator.args
        found: dict[str, Attr] = {}
        for name, value in args.items():
            if name.startswith("__") or not isinstance(value, (str, int, float)):
                continue
            found[name] = _number(value) if isinstance(value, str) else value
        known = translate(type_name, found, _specs(operator.ins), _specs(operator.outs))
        device_ns = sum(kernel.duration_ns for kernel in kernels) if kernels else None
        device, stream = self._place(operator, kernels)
        return ProfileRow(
            id=operator.number, name=".".join((*operator.path, operator.type)), type=operator.type,
            kind=known.kind, module=_module(operator.path), device=device, stream=stream,
            host_start_ns=operator.start_ns, host_ns=operator.duration_ns, host_self_ns=operator.self_ns,
            device_ns=device_ns, device_total_ns=device_ns, kernels=kernels, ins=known.ins, outs=known.outs,
            attrs=known.attrs,
        )  # fmt: skip

    def _place(self, operator: _Operator, kernels: tuple[Kernel, ...]) -> tuple[str, str]:
        for tensor in (*operator.outs, *operator.ins):
            if found := _COMP_NODE.match(str(tensor.get("device", ""))):
                return found[1], found[2]
        return (kernels[0].device, kernels[0].stream) if kernels else ("", "")

    def _kernel(self, thread: Thread, name: str, start_ns: int, duration_ns: int) -> Kernel:
        return Kernel(name, self.names.get(thread, thread[1]), "", start_ns, duration_ns)

    def _wall(self) -> int | None:
        starts = [operator.start_ns for operator in self.operators]
        ends = [operator.start_ns + operator.duration_ns for operator in self.operators]
        for found in self.kernels.values():
            starts += [start for _, _, start, _ in found]
            ends += [start + duration for _, _, start, duration in found]
        return max(ends) - min(starts) if starts else None

    def _notes(self) -> tuple[Note, ...]:
        left = self.unpaired + sum(map(len, self.open.values()))
        notes = [Note("partial", self.damage)] if self.damage else []
        if left:
            notes.append(Note("unpaired", f"{left} events have a begin or an end only and were left out"))
        return tuple(notes)


def _module(path: tuple[str, ...]) -> str:
    """The modules among the scopes: the innermost is the function that was called, and so are those that call others."""
    kept = list(path)
    last = kept.pop() if kept else ""
    while kept and kept[-1] != last and (last.startswith("tensor.") or last in _FUNCTIONS) and kept[-1] in _FUNCTIONS:
        last = kept.pop()
    return ".".join(kept)


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
