"""`load_and_run --profile`: one row per executed operator, with its time on the device and on the host.

Times are seconds from the first event of each clock. `start` is when the operator begins, `kern` when its first kernel does,
`end` when its kernels are done; an operator on several devices takes as long as on the slowest of them. What MegEngine's own
tool computes with, seconds as they are written included, is kept in `Profile.extra["megengine"]`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import Attr, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.shapes import Mismatch, Unknown
from opcost.errors import SourceError
from opcost.frontends.megengine.model import SOURCES, DumpedTensor, FileOperator, Model, Variable
from opcost.frontends.megengine.operators import ROWS
from opcost.frontends.megengine.operators.table import MegEngineCall
from opcost.frontends.megengine.schema import NAMES, DType, ParamFields, plain
from opcost.frontends.megengine.scopes import DumpScopes
from opcost.frontends.nodes.meaning import Operand
from opcost.traces.file import as_dict, is_shape

Json: TypeAlias = "dict[str, Any]"

_NO_TYPE = DType("float32")
_FOREVER_S = 1e9  # thirty years: a longer time is damage
_MOST = 1 << 63  # no operator does more, or moves more bytes; a larger count is damage
_WORKSPACE = "VOLATILE_CONTENT"
"""The flag of memory that an operator only works in; footprints leave it out of the results."""
COMP_NODE = re.compile(r'CompNode\("(\w+?):(\w+)"')


class _Times(NamedTuple):
    """One operator on one device or thread, in seconds."""

    place: str
    start: float
    kern: float
    end: float


def read_graph_profile(data: Json, source: str) -> Profile:
    """The profile in the object that the file holds."""
    return _GraphReader(data, source).profile()


class _GraphReader:
    def __init__(self, data: Json, source: str) -> None:
        self.source = source
        profiler = self._object(data, "profiler", "the file")
        # The documentation shows the graph inside the profiler; the tool writes it beside.
        outer = data if "graph_exec" in data else profiler
        graph = self._object(outer, "graph_exec", "the file")
        operators = self._object(graph, "operator", "graph_exec")
        self.operators = {key: self._is_object(each, f"graph_exec.operator.{key}") for key, each in operators.items()}
        self.variables = self._entries(self._object(graph, "var", "graph_exec"), "graph_exec.var")
        self.sequence = graph.get("comp_seq")
        self.device = self._timings(profiler, "device")
        self.host = self._timings(profiler, "host")
        footprints = self._is_object(profiler.get("opr_footprint") or {}, "profiler.opr_footprint")
        self.footprints = self._entries(footprints, "profiler.opr_footprint")
        self.dtypes: dict[str, str] = {}
        self.types_known: set[str] = set()

    def profile(self) -> Profile:
        sequence = self.sequence if isinstance(self.sequence, list) else []
        named = [key for key in sequence if isinstance(key, str) and key in self.operators]
        # As they ran, then those that the sequence does not name
        order = list(dict.fromkeys([*named, *self.operators]))
        self._spread_dtypes(order)
        modules = self._modules(order)
        rows = [self._row(key, modules.get(key, "")) for key in order if key in self.device or key in self.host]
        times = [each for found in (self.device or self.host).values() for each in found]
        wall = max(each.end for each in times) - min(each.start for each in times) if times else None
        return Profile(
            meta={"source": self.source, "format": "megengine", "layout": "load_and_run", "iterations": "the last one"},
            rows=tuple(rows),
            wall_ns=None if wall is None else _ns(wall),
            extra={"megengine": [self._raw(key) for key in self.operators]},
        )

    # -- reading the file --------------------------------------------------------------------------------

    def _object(self, data: Json, name: str, where: str) -> Json:
        if name not in data:
            hint = "`load_and_run MODEL --profile FILE` writes a whole one"
            raise SourceError(f"{self.source}: {where} has no {name!r}", hint=hint)
        return self._is_object(data[name], name)

    def _is_object(self, value: object, where: str) -> Json:
        if not isinstance(value, dict):
            raise SourceError(f"{self.source}: {where} is {type(value).__name__}, not an object")
        return value

    def _entries(self, table: Json, where: str) -> dict[str, Json]:
        return {key: self._is_object(entry or {}, f"{where}.{key}") for key, entry in table.items()}

    def _timings(self, profiler: Json, name: str) -> dict[str, list[_Times]]:
        found: dict[str, list[_Times]] = {}
        for key, places in self._is_object(profiler.get(name) or {}, f"profiler.{name}").items():
            if key not in self.operators:
                continue
            where = f"profiler.{name}.{key}"
            for place, times in self._is_object(places, where).items():
                moments = [self._is_object(times, where).get(word) for word in ("start", "kern", "end")]
                if not all(type(moment) in (int, float) and abs(moment or 0) < _FOREVER_S for moment in moments):
                    raise SourceError(f"{self.source}: {where} needs numbers for start, kern and end, not {moments}")
                found.setdefault(key, []).append(_Times(place, *moments))  # type: ignore[arg-type]
        return found

    def _text(self, key: str, name: str) -> str:
        return str(self.operators[key].get(name, key if name == "id" else ""))

    def _ids(self, key: str, name: str) -> list[str]:
        ids = self.operators[key].get(name)
        found = [str(one) for one in ids] if isinstance(ids, list) else []
        return [one for one in found if _WORKSPACE not in (self.variables.get(one, {}).get("flag") or ())]

    def _param(self, key: str) -> dict[str, Attr]:
        given = as_dict(self.footprints.get(key, {}).get("param"))
        return {name: value for name, value in given.items() if isinstance(value, (int, float, str, bool))}

    def _shapes(self, key: str, name: str) -> list[tuple[int, ...]]:
        shapes = self.footprints.get(key, {}).get(name) or []
        if not isinstance(shapes, list) or not all(map(is_shape, shapes)):
            raise SourceError(f"{self.source}: profiler.opr_footprint.{key}.{name} is not a list of shapes")
        return [tuple(shape) for shape in shapes]

    # -- element types: written only for variables that have memory; the others follow from them -------------------

    def _spread_dtypes(self, order: Iterable[str]) -> None:
        for variable, entry in self.variables.items():
            name = as_dict(as_dict(entry.get("mem_plan")).get("layout")).get("dtype")
            if isinstance(name, str) and (found := dtype_of(name)):
                self.dtypes[variable] = found
        self.types_known.update(self.dtypes)
        for key in order:
            given = self._ids(key, "input")
            known = [self.dtypes[variable] for variable in given if variable in self.types_known]
            for variable in given:
                # What one tensor of an operator is, its partners are; no trace has more.
                self.dtypes.setdefault(variable, known[0] if known else "float32")
            made = self._ids(key, "output")
            for variable, dtype in zip(made, self._made(key, given, len(made)), strict=True):
                if variable not in self.dtypes:
                    self.dtypes[variable] = dtype
                    if all(one in self.types_known for one in given):
                        self.types_known.add(variable)

    def _made(self, key: str, given: list[str], count: int) -> list[str]:
        """The types of the results, by the same rules as for dumps."""
        types = [self.dtypes[variable] for variable in given] or ["float32"]
        name = plain(self._text(key, "type"))
        row = ROWS.get(name)
        if row is not None:
            given_types = [Operand(place, None, dtype) for place, dtype in enumerate(types if given else ())]
            call = MegEngineCall.of(name, ParamFields(self._param(key)), given_types, count)
            with suppress(Unknown, Mismatch, *_FLAWS):
                row.infer_types(call)
                return [dtype or types[0] for dtype in call.out_types]
        return [types[0]] * count

    # -- modules: from the names of variables ----------------------------------------------------------------------

    def _modules(self, order: list[str]) -> dict[str, str]:
        places = {variable: place for place, variable in enumerate(self.variables)}
        operators = []
        for index, key in enumerate(order):
            name = plain(self._text(key, "type"))
            inputs, outputs = (
                tuple(places[variable] for variable in self._ids(key, side) if variable in places)
                for side in ("input", "output")
            )
            holds = name == "ImmutableTensor" or name.endswith(("DeviceTensor", "TensorHolder"))
            tensors = (DumpedTensor("", (), _NO_TYPE, 0, 0),) * len(outputs) if holds else ()
            operators.append(
                FileOperator(index, name, self._text(key, "name"), ParamFields(), inputs, outputs, tensors)
            )
        names = [variable.get("name") for variable in self.variables.values()]
        variables = tuple(Variable(name if isinstance(name, str) else "") for name in names)
        model = Model(
            path=self.source, format="profile", version="", operators=tuple(operators), variables=variables, outputs=()
        )
        scopes = DumpScopes(model)
        return {key: scopes.of_op.get(index, "") for index, key in enumerate(order)}

    # -- rows ------------------------------------------------------------------------------------------------------

    def _row(self, key: str, module: str) -> ProfileRow:
        on_device, on_host = self.device.get(key, []), self.host.get(key, [])
        type_name, number = self._text(key, "type"), self._text(key, "id")
        ins = self._specs(self._shapes(key, "in_shapes"), self._ids(key, "input"))
        outs = self._specs(self._shapes(key, "out_shapes"), self._ids(key, "output"))
        known = translate(type_name, self._param(key), ins, outs)
        attrs: dict[str, Attr] = dict(known.attrs)
        if on_device:
            attrs["wait_ns"] = max(_ns(times.kern - times.start) for times in on_device)
        kernels = [
            Kernel(type_name, *_place(times.place), _ns(times.start), _ns(times.end - times.start))
            for times in on_device
        ]
        slowest = max(kernels, key=lambda kernel: kernel.duration_ns, default=None)
        host_ns = max((_ns(times.end - times.start) for times in on_host), default=None)
        device_ns = slowest.duration_ns if slowest else None
        return ProfileRow(
            id=int(number) if number.isdecimal() and len(number) < 20 else list(self.operators).index(key),
            name=self._text(key, "name"), type=type_name, kind=known.kind, module=module,
            device=slowest.device if slowest else "", stream=slowest.stream if slowest else "",
            host_start_ns=min((_ns(times.start) for times in on_host), default=None), host_ns=host_ns,
            host_self_ns=host_ns, device_ns=device_ns, device_total_ns=device_ns, kernels=tuple(kernels),
            ins=known.ins, outs=known.outs, attrs=attrs,
        )  # fmt: skip

    def _specs(self, shapes: list[tuple[int, ...]], variables: list[str]) -> tuple[TensorSpec, ...]:
        dtypes = [*(self.dtypes.get(variable, "float32") for variable in variables), *["float32"] * len(shapes)]
        return tuple(TensorSpec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=False))

    def _raw(self, key: str) -> Json:
        """What MegEngine's tool reads of one operator, executed or not."""
        return {
            "id": self._text(key, "id"),
            "name": self._text(key, "name"),
            "type": self._text(key, "type"),
            "device": [list(times[1:]) for times in self.device.get(key, [])],
            "host": [list(times[1:]) for times in self.host.get(key, [])],
            "dtypes": [self.dtypes[variable] for variable in self._ids(key, "input")],
            "footprint": self._checked(key, self.footprints.get(key, {})),
        }

    def _checked(self, key: str, footprint: Json) -> Json:
        """The footprint's numbers and shapes; what is missing is left out."""
        found: Json = {}
        for name in ("computation", "memory"):
            value = footprint.get(name)
            if value is not None and not (type(value) in (int, float) and 0 <= value < _MOST):
                raise SourceError(f"{self.source}: profiler.opr_footprint.{key}.{name} is {value!r}, not a count")
            if name in footprint:
                found[name] = value
        for name in ("in_shapes", "out_shapes"):
            if footprint.get(name) is not None:
                found[name] = [list(shape) for shape in self._shapes(key, name)]
        layouts = footprint.get("in_layouts")
        if isinstance(layouts, list) and all(strides is None or isinstance(strides, list) for strides in layouts):
            found["in_layouts"] = layouts
        return found


def _place(comp_node: str) -> tuple[str, str]:
    """Device and stream of `CompNode("gpu0:1" from "gpux:0")`."""
    found = COMP_NODE.match(comp_node)
    return (found[1], found[2]) if found else (comp_node, "")


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


# -- MegEngine's operators in our words, from type, parameters, shapes and element types in a profile

_WRITTEN = (
    "Float32 Uint8 Int8 Int16 Int32 IntB1 IntB2 IntB4 Byte Float16 UintB4 Quantized8Asymm QuantizedS32 QuantizedS8 "
    "Quantized4Asymm QuantizedS4 QuantizedS16 BFloat16 Bool Uint16 QuantizedS1 Complex64"
)
DTYPES = dict(zip(_WRITTEN.split(), NAMES, strict=True))
"""MegEngine's element types as its tools write them, and ours."""

_NO_WORK = (*SOURCES, "InputCallback", "OutputCallback", "ComputingGraphImpl::CallbackCaller", "DeviceTensor")
"""Operators that only hand tensors in and out."""

_FLAWS = (IndexError, KeyError, TypeError, ValueError, ArithmeticError)
"""What a translation may raise where a trace has less than a dump."""


class Translated(NamedTuple):
    """An operator in our words, with its tensors in the order of the kind."""

    kind: str
    attrs: Mapping[str, Attr]
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...]


def dtype_of(name: str) -> str | None:
    """Our name of an element type; a quantized one is written with its scale, as in `QuantizedS8(0.1)`."""
    found = re.match(r"\w+", name)
    return DTYPES.get(found[0]) if found else None


def translate(
    type_name: str, param: Mapping[str, Attr], ins: Sequence[TensorSpec], outs: Sequence[TensorSpec]
) -> Translated:
    """Kind, attributes and tensors; the kind is empty where the operator is not known."""
    name = plain(type_name)
    if name in _NO_WORK or type_name in _NO_WORK:
        return Translated("view", {}, tuple(ins), tuple(outs))
    row = ROWS.get(name)
    if row is None:
        return Translated("", dict(param), tuple(ins), tuple(outs))
    given = [Operand(place, spec.shape, spec.dtype) for place, spec in enumerate(ins)]
    call = MegEngineCall.of(name, ParamFields(param), given, len(outs))
    call.outs, call.out_types = [spec.shape for spec in outs], [spec.dtype for spec in outs]
    try:
        kind, attrs = row.meaning(call)
        reads, results = row.read(call), row.made(call) or ()
        chosen = tuple(ins) if reads is None else tuple(ins[place] for place in reads)
        first = tuple(outs[place] for place in results)
    except (Unknown, Mismatch, *_FLAWS):
        return Translated("", dict(param), tuple(ins), tuple(outs))
    others = tuple(spec for place, spec in enumerate(outs) if place not in results)
    return Translated(kind, {**param, **attrs}, chosen, (*first, *others))
