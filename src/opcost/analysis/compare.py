"""Several models side by side, and what differs between two: quantities of the whole, of kinds and of modules by their path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.comparison import Compared, Comparison, Entry, Part
from opcost.core.graph import note_texts
from opcost.core.quantity import QUANTITIES, Quantity, amounts_of, find_quantity
from opcost.core.report import STATS, Report, Stats, Uncounted
from opcost.core.scan import Scan

By: TypeAlias = Literal["kind", "module"]

USUAL: dict[By, tuple[str, ...]] = {"kind": ("macs",), "module": ("params", "macs")}
"""Quantities that are compared by kind and by module when nobody chooses."""
OF_OPERATORS = ("macs", "flops", "bytes_read", "bytes_written", "activations", "activation_bytes", "ops", "uncounted")
"""What a kind of operator has: parameters belong to modules."""
WHOLE = (*STATS, "peak_bytes")
_EVER = "ops"
"""Told of whatever was added or removed, even where it costs nothing."""


class Place(NamedTuple):
    """A kind or a module of one source."""

    stats: Stats
    type: str = ""
    own: Stats | None = None
    """Of a module, without what is below it."""
    known: tuple[str, ...] | None = None
    """The quantities that are known of it; None where all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What is compared of one source; a quantity of the whole that is not there is not known."""

    compared: Compared
    totals: Mapping[str, int]
    missed: tuple[Uncounted, ...] = ()
    """Operators without a price."""
    places: Mapping[By, Mapping[str, Place]] = field(default_factory=dict)
    """What is missing here is not known: a checkpoint has no kinds of operators."""


def costs_of(subject: Report | Scan, label: str) -> Costs:
    """What is compared of a report or of a checkpoint: the one place that knows what kinds of sources there are."""
    return _of_scan(subject, label) if isinstance(subject, Scan) else _of_report(subject, label)


def _of_report(report: Report, label: str) -> Costs:
    meta = report.meta
    inputs = ", ".join(f"{name}:{spec}" for name, spec in report.inputs)
    facts = {
        "source": meta.get("source", ""),
        "framework": " ".join(filter(None, (meta.get("framework"), meta.get("version")))),
        "mode": meta.get("mode", ""),
        "inputs": inputs,
    }
    modules = {module.path: Place(module.total, module.type, module.own) for module in report.modules}
    return Costs(
        compared=Compared(label=label, facts=facts, notes=tuple(note_texts(report.notes))),
        totals=amounts_of(report),
        missed=report.coverage.uncounted,
        places={"kind": {group.key: Place(group.stats) for group in report.by_kind()}, "module": modules},
    )


_STORED = ("params", "param_bytes")
"""What a checkpoint tells."""


def _of_scan(scan: Scan, label: str) -> Costs:
    """Parameters as the model has them, and the bytes of weights with their scales."""
    totals, bits = scan.totals, scan.totals.bits_per_param
    facts = {
        "source": scan.source,
        "framework": scan.format,
        "stored": "" if bits is None else f"{bits:.3f} bits per parameter",
        "active": "" if totals.active_params is None else f"{totals.active_params:,} parameters active",
    }
    own: dict[str, Stats] = {}
    below: dict[str, Stats] = {}
    for tensor in scan.tensors:
        if tensor.role not in ("weight", "scale"):
            continue
        stats = Stats(params=tensor.params, param_bytes=tensor.bytes)
        path = parent = _parent(tensor.name)
        own[path] = own.get(path, Stats()) + stats
        below[parent] = below.get(parent, Stats()) + stats
        while parent:
            parent = _parent(parent)
            below[parent] = below.get(parent, Stats()) + stats
    modules = {path: Place(below[path], "", own.get(path, Stats()), _STORED) for path in below}
    return Costs(
        compared=Compared(label=label, facts=facts, notes=tuple(note.text for note in scan.notes)),
        totals={"params": totals.params, "param_bytes": totals.bytes - totals.other_bytes},
        places={"module": modules},
    )


def compare(
    sources: Sequence[Costs], *, by: By | None = None, quantities: Iterable[str] = (), depth: int | None = None
) -> Comparison:
    """Every quantity of the whole and, by kind or by module down to a depth, those that are named."""
    wanted = tuple(find_quantity(name) for name in quantities)
    whole = wanted if wanted and by is None else tuple(QUANTITIES[name] for name in WHOLE)
    entries = _totals(sources, whole)
    limit = float("inf") if depth is None else depth
    if by is not None:
        found = [source.places.get(by) for source in sources]
        if by == "module":
            found = [
                places and {path: place for path, place in places.items() if 0 < depth_of(path) <= limit}
                for places in found
            ]
        entries += _places(by, found, wanted or tuple(QUANTITIES[name] for name in USUAL[by]))
    return Comparison(sources=_told_apart(sources), entries=tuple(entries))


def diff(before: Costs, after: Costs, *, by: By | None = None) -> Comparison:
    """All that is not the same: every quantity of the whole, of each kind, and of each module without what is below it.

    Of a module that only one of them has, everything below it is added up, and not told again.
    """
    both = (before, after)
    entries = _totals(both, [QUANTITIES[name] for name in WHOLE])
    parts: tuple[By, ...] = ("kind", "module") if by is None else (by,)
    for part in parts:
        names = OF_OPERATORS if part == "kind" else STATS
        old, new = before.places.get(part), after.places.get(part)
        if old is not None and new is not None:
            found = [old, new] if part == "kind" else _folded(old, new)
            told = [QUANTITIES[name] for name in names if name in before.totals and name in after.totals]
            entries += _places(part, found, told)
    kept = [entry for entry in entries if entry.part == "total" or entry.difference or entry.quantity.name == _EVER]
    return Comparison(sources=_told_apart(both), entries=tuple(kept)).changed()


def _totals(sources: Sequence[Costs], quantities: Iterable[Quantity]) -> list[Entry]:
    return [
        Entry(
            part="total",
            name="",
            quantity=quantity,
            amounts=tuple(source.totals.get(quantity.name) for source in sources),
            present=(True,) * len(sources),
            partial=tuple(bool(source.missed) and quantity.priced for source in sources),
        )
        for quantity in quantities
    ]


def depth_of(path: str) -> int:
    """How many modules are around this one."""
    return path.count(".") + 1 if path else 0


def _folded(before: Mapping[str, Place], after: Mapping[str, Place]) -> list[Mapping[str, Place]]:
    """Modules with what is their own; one that the other does not have at all, with everything below it, and that alone."""
    return [_alone(before, after), _alone(after, before)]


def _alone(mine: Mapping[str, Place], other: Mapping[str, Place]) -> dict[str, Place]:
    shared: set[str] = set()  # paths that the other has, and all that are around them
    for path in other:
        around = path
        while around not in shared:
            shared.add(around)
            around = _parent(around)
    found = {}
    for path, place in mine.items():
        if path in shared:
            found[path] = place._replace(stats=place.own or place.stats)
        elif _parent(path) in shared:
            found[path] = place
    return found


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _places(by: By, sources: Sequence[Mapping[str, Place] | None], quantities: Sequence[Quantity]) -> list[Entry]:
    """An entry for each quantity of each kind or path that some source has; of one without any places, nothing is known."""
    found = [places or {} for places in sources]
    names = _merged([list(places) for places in found])
    if by == "kind":  # the costliest first, whichever source it is in
        names.sort(
            key=lambda name: [-max(each) for each in zip(*(_rank(places.get(name)) for places in found), strict=True)]
        )
    return [
        _entry(by, name, quantity, [_UNKNOWN if places is None else places.get(name) for places in sources])
        for name in names
        for quantity in quantities
    ]


def _entry(part: Part, name: str, quantity: Quantity, places: Sequence[Place | None]) -> Entry:
    types = list(dict.fromkeys(place.type for place in places if place is not None and place.type))
    return Entry(
        part=part,
        name=name,
        type=" → ".join(types),
        quantity=quantity,
        amounts=tuple(None if place is None else _amount(place, quantity.name) for place in places),
        present=tuple(place is not None for place in places),
        partial=tuple(place is not None and quantity.priced and place.stats.uncounted > 0 for place in places),
    )


def _amount(place: Place, name: str) -> int | None:
    """None for what is not known, and for what only a whole model has."""
    if place.known is not None and name not in place.known:
        return None
    stats = place.stats
    return stats.bytes_read + stats.bytes_written if name == "bytes" else getattr(stats, name, None)


_UNKNOWN = Place(Stats(), known=())


def _rank(place: Place | None) -> tuple[int, int, int]:
    stats = Stats() if place is None else place.stats
    return stats.macs, stats.flops, stats.bytes_read


def _merged(lists: Sequence[Sequence[str]]) -> list[str]:
    """All names once, each after the one that it follows in its own list."""
    following: dict[str, list[str]] = {}
    known: set[str] = set()
    roots: list[str] = []
    for names in lists:
        before: str | None = None
        for name in names:
            if name not in known:
                known.add(name)
                (roots if before is None else following.setdefault(before, [])).insert(0, name)
            before = name
    merged: list[str] = []
    waiting = roots[::-1]
    while waiting:
        name = waiting.pop()
        merged.append(name)
        waiting += following.get(name, [])[::-1]
    return merged


def _told_apart(sources: Sequence[Costs]) -> tuple[Compared, ...]:
    """The sources, where those of one name get a number."""
    seen: dict[str, int] = {}
    found = []
    for source in sources:
        number = seen[source.compared.label] = seen.get(source.compared.label, 0) + 1
        label = source.compared.label if number == 1 else f"{source.compared.label} ({number})"
        found.append(replace(source.compared, label=label))
    return tuple(found)
