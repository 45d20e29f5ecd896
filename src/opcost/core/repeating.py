"""The graph of many equal blocks, from graphs of few.

A model of 80 equal layers does the same 80 times. Its graphs with n and with n + 1 of them differ in what was inserted: runs of
operators that repeat what was just before, in each phase. Operators refer to others, and a reference moves by the same step from
one repetition to the next and from n to n + 1. So both graphs determine that of any number of layers, exactly; where something
does not move so, `NotRepeating` is raised. An update of all parameters in one operator has a list of tensors that grows: its
tensors are records of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from opcost.core.alignment import Alignment, Chunk, NotRepeating
from opcost.core.graph import Attrs, Graph, Lifetimes, Module, ModuleCall, Note, Op, Value


class _Ref(NamedTuple):
    """What a record refers to: a place in a section, or of the section "" the number of a block itself."""

    section: str
    place: int
    part: int = 0


class _Item(NamedTuple):
    """An operator, a tensor that is there before, a call, or a module: what it is in any block, and what it refers to."""

    key: Any
    refs: tuple[_Ref, ...]
    item: Any


def repeated(fewer: Graph, more: Graph, blocks: str, further: int) -> Graph:
    """The graph with `further` more blocks below the path `blocks`, from two of which the second has one more than the first."""
    if fewer.choices or more.choices:
        raise NotRepeating
    both = [_Sections(graph, blocks) for graph in (fewer, more)]
    if both[0].records.keys() != both[1].records.keys():
        raise NotRepeating
    aligned = {name: _aligned(both[0].records[name], both[1].records[name]) for name in both[0].records}
    larger = {name: _Larger(name, aligned, both, further) for name in aligned}
    attrs = [_larger_attrs(a, b, further) for a, b in zip(*(map(_attrs_of_lists, (fewer, more))), strict=True)]
    return _assembled(more, larger, blocks, attrs)


def _aligned(fewer: Sequence[_Item], more: Sequence[_Item]) -> Alignment:
    return Alignment([record.key for record in fewer], [record.key for record in more])


def counterparts(fewer: Graph, more: Graph, blocks: str) -> list[tuple[int, int]]:
    """Each operator of the second graph, behind that which does the same in the first, in as many blocks from the nearer end.

    A number that grows by the same from block to block grows between both by what each further block adds to it, and is largest
    in one of these operators, whatever the number of blocks.
    """
    number = _number_in(blocks)

    def records(graph: Graph) -> list[_Item]:
        paths = {op.module: number.sub(f"{blocks}.*", op.module) for op in graph.ops}
        specs = [value.spec for value in graph.values]
        keys = (
            (op.kind, op.raw, op.phase, paths[op.module])
            if _takes_lists(op)
            else (op.kind, op.raw, op.phase, paths[op.module], *[specs[vid] for vid in (*op.inputs, *op.outputs)])
            for op in graph.ops
        )
        return [_Item(key, (), None) for key in keys]

    aligned = _aligned(records(fewer), records(more))
    found = []
    for (first, last), period, (times, more_times) in aligned.chunks:
        for place in range(period * more_times or more_times):
            from_end = period and 2 * (place // period) >= more_times
            found.append((first + place - (period * (more_times - times) if from_end else 0), last + place))
    return found


def same(one: Graph, other: Graph) -> bool:
    """Whether two graphs do the same with the same tensors, whatever their numbers are, and whenever their memory is freed."""
    records = [_Sections(replace(graph, lifetimes=None), "").records for graph in (one, other)]
    return all(
        len(found) == len(its) and all(a.key == b.key and a.refs == b.refs for a, b in zip(found, its, strict=True))
        for found, its in zip(records[0].values(), records[1].values(), strict=True)
    )


def _takes_lists(op: Op) -> bool:
    """Whether an operator updates many parameters at once."""
    return op.phase == "update" and op.raw.rpartition("::")[2].startswith(("_foreach_", "_fused_"))


def _attrs_of_lists(graph: Graph) -> list[Attrs]:
    return [op.attrs for op in graph.ops if _takes_lists(op)]


def _larger_attrs(fewer: Attrs, more: Attrs, further: int) -> Attrs:
    """Attributes of an operator on lists, whose numbers grow with these."""
    return {name: _grown(fewer[name], value, further) for name, value in more.items()}


def _grown(fewer: Any, more: Any, further: int) -> Any:
    return more if fewer == more else more + (more - fewer) * further


def _number_in(blocks: str) -> re.Pattern[str]:
    """Finds the number of a block in a path."""
    return re.compile(rf"^{re.escape(blocks)}\.(\d+)(?=\.|$)")


# -- graphs as records ----------------------------------------------------------------------------------------------------


class _Sections:
    """The records of one graph."""

    def __init__(self, graph: Graph, blocks: str) -> None:
        self._number = _number_in(blocks)
        values = [*graph.values]
        self._lists = {op.id: number for number, op in enumerate(filter(_takes_lists, graph.ops))}
        made = {
            vid: _Ref(f"outputs {self._lists[op.id]}", part) if op.id in self._lists else _Ref("ops", at, part)
            for at, op in enumerate(graph.ops)
            for part, vid in enumerate(op.outputs)
        }
        there = [value for value in values if value.id not in made]
        self._refs = made | {value.id: _Ref("leaves", at) for at, value in enumerate(there)}
        life = graph.lifetimes or Lifetimes((), ())
        self._gone = dict(zip(life.storages, life.times, strict=True))
        self._sets = [
            (each.name, getattr(life, each.name)) for each in fields(life) if each.name not in ("storages", "times")
        ]
        self.records = {
            "leaves": [self._leaf(value, released=value.storage in graph.released) for value in there],
            "ops": [self._op(op, values) for op in graph.ops] + [_Item("end", (), None)],
            "calls": [self._call(call) for call in graph.calls],
            "modules": [self._module(module) for module in graph.modules],
            "notes": [self._note(note) for note in graph.notes],
            "ends": [
                _Item(role, (self._refs[v],), role) for role in ("inputs", "outputs") for v in getattr(graph, role)
            ],
        }
        for op in filter(_takes_lists, graph.ops):
            number = self._lists[op.id]
            self.records[f"inputs {number}"] = [_Item(values[v].spec, (self._refs[v],), None) for v in op.inputs]
            self.records[f"outputs {number}"] = [self._output(values[v]) for v in op.outputs]

    def _anywhere(self, path: str | None) -> tuple[str | None, tuple[_Ref, ...]]:
        """A path without the number of its block, and that number."""
        found = self._number.search(path or "")
        if found is None or path is None:
            return path, ()
        return f"{path[: found.start(1)]}*{path[found.end(1) :]}", (_Ref("", int(found[1])),)

    def _memory(self, value: Value) -> tuple[Any, list[_Ref]]:
        """In which sets the memory of a tensor is, and when it is freed; only of the tensor that it belongs to."""
        refs = [self._refs[value.storage]]
        key: list[Any] = []
        if value.storage == value.id:
            gone = self._gone.get(value.id)
            refs += [] if gone is None else [_Ref("ops", gone)]
            key.append(gone is not None)
            for name, found in self._sets:
                if value.id in found:
                    times = (
                        [time for interval in found[value.id] for time in interval]
                        if isinstance(found, Mapping)
                        else []
                    )
                    refs += [_Ref("ops", time) for time in times]
                    key.append((name, len(times)))
        return tuple(key), refs

    def _leaf(self, value: Value, *, released: bool) -> _Item:
        name, number = self._anywhere(value.name)
        key, refs = self._memory(value)
        return _Item((name, value.spec, value.role, value.trainable, released, key), (*number, *refs), value)

    def _output(self, value: Value) -> _Item:
        key, refs = self._memory(value)
        return _Item((value.spec, key), tuple(refs), value)

    def _op(self, op: Op, values: Sequence[Value]) -> _Item:
        module, number = self._anywhere(op.module)
        if (of_lists := self._lists.get(op.id)) is not None:
            fixed = {name: value for name, value in op.attrs.items() if type(value) is not int}
            what: Any = (op.kind, op.raw, op.phase, op.repeat, module, of_lists, *op.attrs)
            return _Item((what, repr(fixed), repr(op.native)), number, (op, [], of_lists))
        refs = [*number, *(self._refs[vid] for vid in op.inputs)]
        memory = []
        for vid in op.outputs:
            key, its = self._memory(values[vid])
            memory.append(key)
            refs += its
        specs = [values[vid].spec for vid in (*op.inputs, *op.outputs)]
        what = (op.kind, op.raw, op.phase, op.repeat, module, len(op.outputs), *specs, *memory)
        return _Item(
            (what, repr(op.attrs), repr(op.native)), tuple(refs), (op, [values[vid] for vid in op.outputs], None)
        )

    def _call(self, call: ModuleCall) -> _Item:
        path, number = self._anywhere(call.path)
        return _Item((path, call.inputs, call.outputs), (*number, _Ref("ops", call.first), _Ref("ops", call.end)), call)

    def _note(self, note: Note) -> _Item:
        where, number = self._anywhere(note.where)
        return _Item((note.code, note.text, where), number, note)

    def _module(self, module: Module) -> _Item:
        path, number = self._anywhere(module.path)
        same_as, other = self._anywhere(module.same_as)
        tensors = (*module.parameters, *module.buffers)
        what = (
            path,
            same_as,
            module.type,
            module.calls,
            module.inputs,
            module.outputs,
            tuple(name for name, _ in tensors),
        )
        return _Item(what, (*number, *other, *(self._refs[vid] for _, vid in tensors)), module)


# -- the larger graph -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Larger:
    """The records of a section in the larger graph, and what they refer to."""

    name: str
    aligned: Mapping[str, Alignment]
    both: Sequence[_Sections]
    more: int  # repetitions more than in the larger of the two graphs
    firsts: list[int] = field(init=False)
    records: list[tuple[_Item, tuple[_Ref, ...]]] = field(init=False)

    def __post_init__(self) -> None:
        chunks = self.aligned[self.name].chunks
        lengths = [c.period * (c.times[1] + self.more) if c.period else c.times[1] for c in chunks]
        self.firsts = [*accumulate(lengths, initial=0)]
        self.records = []

    def fill(self, larger: Mapping[str, _Larger]) -> None:
        """Make all records, once the places of all sections are known."""
        for chunk in self.aligned[self.name].chunks:
            made = self._repeated(chunk) if chunk.period else self._once(chunk)
            for record, places in made:
                self.records.append(
                    (record, tuple([larger[p[0]].at(*p[1:]) if p[0] else _Ref("", p[3]) for p in places]))
                )

    def at(self, chunk: int, offset: int, repetition: int, part: int) -> _Ref:
        """The place in the larger graph."""
        found = self.aligned[self.name].chunks[chunk]
        if not 0 <= repetition < (found.times[1] + self.more if found.period else 1):
            raise NotRepeating
        return _Ref(self.name, self.firsts[chunk] + repetition * found.period + offset, part)

    def _once(self, chunk: Chunk) -> Iterator[tuple[_Item, list[Any]]]:
        for offset in range(chunk.times[1]):
            record, own, steps = self._steps(chunk.first[0] + offset, chunk.first[1] + offset)
            yield record, [_moved(place, step * self.more) for place, step in zip(own, steps, strict=True)]

    def _repeated(self, chunk: Chunk) -> Iterator[tuple[_Item, list[Any]]]:
        """The first and last repetitions are like those of the larger of the two graphs; others continue those between."""
        (first, last), period, (fewer, times) = chunk.first, chunk.period, chunk.times
        edge = (times - 2) // 2
        if edge < 1:
            raise NotRepeating
        between = [
            self._between(first + edge * period + o, last + edge * period + o, chunk, edge) for o in range(period)
        ]
        for repetition in range(times + self.more):
            from_end = times + self.more - repetition
            if edge <= repetition < times + self.more - edge:
                for record, own, steps, slopes in between:
                    by = [
                        step * self.more + slope * (repetition - edge)
                        for step, slope in zip(steps, slopes, strict=True)
                    ]
                    yield record, [_moved(place, moves) for place, moves in zip(own, by, strict=True)]
                continue
            a, b = (repetition, repetition) if repetition < edge else (fewer - from_end, times - from_end)
            for offset in range(period):
                record, own, steps = self._steps(first + a * period + offset, last + b * period + offset)
                yield record, [_moved(place, step * self.more) for place, step in zip(own, steps, strict=True)]

    def _steps(self, a: int, b: int) -> tuple[_Item, list[Any], list[int]]:
        """A record of the larger of the two graphs, where its references lead, and how they move from one graph to the other."""
        before, after = self._places(0, a), self._places(1, b)
        return self.both[1].records[self.name][b], after, _differences(before, after)

    def _between(self, a: int, b: int, chunk: Chunk, edge: int) -> tuple[_Item, list[Any], list[int], list[int]]:
        """The same for one between, and how its references move from each repetition to the next."""
        record, own, steps = self._steps(a, b)
        known = [self._places(1, b + n * chunk.period) for n in range(chunk.times[1] - 2 * edge)]
        slopes = [_differences(x, y) for x, y in pairwise(known)]
        if any(other != slopes[0] for other in slopes):
            raise NotRepeating
        return record, own, steps, slopes[0]

    def _places(self, graph: int, place: int) -> list[Any]:
        found = []
        for section, at, part in self.both[graph].records[self.name][place].refs:
            chunk, offset, repetition = self.aligned[section].place(graph, at) if section else (0, 0, at)
            found.append((section, chunk, offset, repetition, part))
        return found


def _differences(before: list[Any], after: list[Any]) -> list[int]:
    """By how many repetitions each reference moves; to another kind of record none does."""
    if len(before) != len(after) or any((*x[:3], x[4]) != (*y[:3], y[4]) for x, y in zip(before, after, strict=True)):
        raise NotRepeating
    return [y[3] - x[3] for x, y in zip(before, after, strict=True)]


def _moved(place: Any, by: int) -> Any:
    section, chunk, offset, repetition, part = place
    return section, chunk, offset, repetition + by, part


# -- records as a graph ---------------------------------------------------------------------------------------------------


def _assembled(more: Graph, larger: Mapping[str, _Larger], blocks: str, attrs_of_lists: Sequence[Attrs]) -> Graph:
    """The graph, with new numbers for all tensors: first those that are there before."""
    for each in larger.values():
        each.fill(larger)
    leaves, ops = larger["leaves"].records, larger["ops"].records[:-1]
    made = [_outputs(record, larger) for record, _ in ops]
    begins = [*accumulate(map(len, made), initial=len(leaves))]
    firsts = {"leaves": 0}
    for (record, _), begin in zip(ops, begins, strict=False):
        if record.item[2] is not None:
            firsts[f"outputs {record.item[2]}"] = begin

    def vid(ref: _Ref) -> int:
        return begins[ref.place] + ref.part if ref.section == "ops" else firsts[ref.section] + ref.place

    pattern = _number_in(blocks)

    def named(path: str, refs: list[_Ref]) -> str:
        """A path with the number of its block, which is the next reference."""
        found = pattern.search(path)
        return path if found is None else f"{path[: found.start(1)]}{refs.pop(0).place}{path[found.end(1) :]}"

    memory = _Storages(more.lifetimes or Lifetimes((), ()), vid)
    values: list[Value] = []
    released = set()
    for number, (record, places) in enumerate(leaves):
        refs = [*places]
        value: Value = record.item
        name = named(value.name, refs)
        values.append(value._replace(id=number, name=name, storage=memory.take(value, number, refs)))
        if value.storage in more.released:
            released.add(values[-1].storage)
    done: list[Op] = []
    for number, (record, places) in enumerate(ops):
        refs = [*places]
        op, _, of_lists = record.item
        module = named(op.module, refs)
        if of_lists is None:
            inputs = tuple([vid(ref) for ref in refs[: len(op.inputs)]])
            del refs[: len(op.inputs)]
        else:
            inputs = tuple([vid(found[0]) for _, found in larger[f"inputs {of_lists}"].records])
            op = op._replace(attrs=attrs_of_lists[of_lists])
        first = begins[number]
        for at, (value, own) in enumerate(made[number], first):
            values.append(value._replace(id=at, storage=memory.take(value, at, refs if own is None else [*own])))
        outputs = tuple(range(first, first + len(made[number])))
        done.append(op._replace(id=number, module=module, inputs=inputs, outputs=outputs))
    calls = []
    for record, places in larger["calls"].records:
        refs = [*places]
        path = named(record.item.path, refs)
        calls.append(record.item._replace(path=path, first=refs[0].place, end=refs[1].place))
    notes = [
        replace(record.item, where=named(record.item.where, [*places])) for record, places in larger["notes"].records
    ]
    ends = [(record.item, vid(places[0])) for record, places in larger["ends"].records]
    modules = tuple(_module(record.item, [*places], named, vid) for record, places in larger["modules"].records)
    lifetimes = None if more.lifetimes is None else memory.lifetimes()
    return replace(
        more, values=tuple(values), ops=tuple(done), modules=modules, calls=tuple(calls), lifetimes=lifetimes,
        released=frozenset(released), notes=tuple(notes),
        inputs=tuple([found for role, found in ends if role == "inputs"]),
        outputs=tuple([found for role, found in ends if role == "outputs"]),
    )  # fmt: skip


def _outputs(record: _Item, larger: Mapping[str, _Larger]) -> list[tuple[Value, tuple[_Ref, ...] | None]]:
    """What an operator makes, and the references about the memory of each where these are not the operator's own."""
    _, outputs, of_lists = record.item
    if of_lists is None:
        return [(value, None) for value in outputs]
    return [(found.item, places) for found, places in larger[f"outputs {of_lists}"].records]


def _module(
    module: Module, refs: list[_Ref], named: Callable[[str, list[_Ref]], str], vid: Callable[[_Ref], int]
) -> Module:
    path = named(module.path, refs)
    same_as = None if module.same_as is None else named(module.same_as, refs)
    found = [(name, vid(ref)) for (name, _), ref in zip((*module.parameters, *module.buffers), refs, strict=True)]
    split = len(module.parameters)
    return replace(module, path=path, same_as=same_as, parameters=tuple(found[:split]), buffers=tuple(found[split:]))


class _Storages:
    """The lifetimes of the larger graph, gathered tensor by tensor."""

    def __init__(self, like: Lifetimes, vid: Callable[[_Ref], int]) -> None:
        self._like, self._vid = like, vid
        self._known = frozenset(like.storages)
        self._gone: dict[int, int] = {}
        self._sets: dict[str, Any] = {}
        for each in fields(like):
            if each.name not in ("storages", "times"):
                self._sets[each.name] = {} if isinstance(getattr(like, each.name), Mapping) else set()

    def take(self, value: Value, number: int, refs: list[_Ref]) -> int:
        """Use the references about the memory of a tensor, which is like this value; says whose memory it is."""
        storage = self._vid(refs.pop(0))
        if value.storage != value.id:
            return storage
        if value.id in self._known:
            self._gone[number] = refs.pop(0).place
        for name, found in self._sets.items():
            known = getattr(self._like, name)
            if value.id not in known:
                continue
            if isinstance(known, Mapping):
                times = [refs.pop(0).place for interval in known[value.id] for _ in interval]
                found[number] = tuple(zip(times[::2], times[1::2], strict=True))
            else:
                found.add(number)
        return storage

    def lifetimes(self) -> Lifetimes:
        gone = dict(sorted(self._gone.items(), key=lambda each: each[1]))
        sets: Any = {name: found if isinstance(found, dict) else frozenset(found) for name, found in self._sets.items()}
        return replace(self._like, storages=tuple(gone), times=tuple(gone.values()), **sets)
