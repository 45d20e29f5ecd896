"""Models and profiles side by side, what differs between two of them, and whether a model keeps to its limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from opcost.analysis import bounds
from opcost.analysis.layers import folded
from opcost.analysis.part import LABELS, NOWHERE, Part, parts_of, shapes_text, unattributed_parts, usual_side
from opcost.core.answer import Busy
from opcost.core.graph import note_texts
from opcost.core.limits import Limit
from opcost.core.profile import Profile
from opcost.core.quantity import QUANTITIES, Quantity, amounts_of, find_quantity
from opcost.core.report import STATS, Report, Stats, Uncounted
from opcost.core.results import Compared, Comparison, Entry, EntryPart, LimitCheck, LimitStatus, ModelCheck
from opcost.core.results import EntryPart as PartName
from opcost.core.scan import Scan
from opcost.errors import InputError
from opcost.options import Side

By: TypeAlias = Literal["kind", "module"]

USUAL: dict[By, tuple[str, ...]] = {"kind": ("macs",), "module": ("params", "macs")}
"""Quantities that are compared by kind and by module by default."""
OF_OPERATORS = ("macs", "flops", "bytes_read", "bytes_written", "activations", "activation_bytes", "ops", "uncounted")
"""What a kind of operator has: parameters belong to modules."""
WHOLE = (*STATS, "peak_bytes")
_EVER = "ops"  # listed of whatever was added or removed, even where it costs nothing


class GroupCost(NamedTuple):
    """A kind or a module of one source."""

    stats: Stats
    type: str = ""
    own: Stats | None = None  # of a module, without what is below it
    known: tuple[str, ...] | None = None  # the quantities that are known of it; None where all are


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What is compared of one source; a quantity of the whole that is not there is not known."""

    compared: Compared
    totals: Mapping[str, int]
    missed: tuple[Uncounted, ...] = ()  # operators without a cost model
    places: Mapping[By, Mapping[str, GroupCost]] = field(default_factory=dict)
    """What is missing here is not known: a checkpoint has no kinds of operators."""


def costs_of(subject: Report | Scan, label: str) -> Costs:
    """What is compared of a report or of a checkpoint."""
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
    modules = {module.path: GroupCost(module.total, module.type, module.own) for module in report.modules}
    return Costs(
        compared=Compared(label=label, facts=facts, notes=tuple(note_texts(report.notes))),
        totals=amounts_of(report),
        missed=report.coverage.uncounted,
        places={"kind": {group.key: GroupCost(group.stats) for group in report.by_kind()}, "module": modules},
    )


_STORED = ("params", "param_bytes")  # what is known of a checkpoint


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
    modules = {path: GroupCost(below[path], "", own.get(path, Stats()), _STORED) for path in below}
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
    return Comparison(sources=_numbered(sources), entries=tuple(entries))


def diff(before: Costs, after: Costs, *, by: By | None = None) -> Comparison:
    """All that differs: every quantity of the whole, of each kind, and of each module without what is below it.

    Of a module that only one of them has, everything below it is added up, and not listed again.
    """
    both = (before, after)
    entries = _totals(both, [QUANTITIES[name] for name in WHOLE])
    parts: tuple[By, ...] = ("kind", "module") if by is None else (by,)
    for part in parts:
        names = OF_OPERATORS if part == "kind" else STATS
        old, new = before.places.get(part), after.places.get(part)
        if old is not None and new is not None:
            found = [old, new] if part == "kind" else [_alone(old, new), _alone(new, old)]
            known = [QUANTITIES[name] for name in names if name in before.totals and name in after.totals]
            entries += _places(part, found, known)
    kept = [entry for entry in entries if entry.part == "total" or entry.difference or entry.quantity.name == _EVER]
    return Comparison(sources=_numbered(both), entries=tuple(kept)).changed()


def _totals(sources: Sequence[Costs], quantities: Iterable[Quantity]) -> list[Entry]:
    return [
        Entry(
            part="total",
            name="",
            quantity=quantity,
            amounts=tuple(source.totals.get(quantity.name) for source in sources),
            present=(True,) * len(sources),
            partial=tuple(bool(source.missed) and quantity.needs_costs for source in sources),
        )
        for quantity in quantities
    ]


def depth_of(path: str) -> int:
    """How many modules are around this one."""
    return path.count(".") + 1 if path else 0


def _alone(mine: Mapping[str, GroupCost], other: Mapping[str, GroupCost]) -> dict[str, GroupCost]:
    """Modules with what is their own; one that the other does not have, with everything below it, and that alone."""
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


def _places(by: By, sources: Sequence[Mapping[str, GroupCost] | None], quantities: Sequence[Quantity]) -> list[Entry]:
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


def _entry(part: EntryPart, name: str, quantity: Quantity, places: Sequence[GroupCost | None]) -> Entry:
    types = list(dict.fromkeys(place.type for place in places if place is not None and place.type))
    return Entry(
        part=part,
        name=name,
        type=" → ".join(types),
        quantity=quantity,
        amounts=tuple(None if place is None else _amount(place, quantity.name) for place in places),
        present=tuple(place is not None for place in places),
        partial=tuple(place is not None and quantity.needs_costs and place.stats.uncounted > 0 for place in places),
    )


def _amount(place: GroupCost, name: str) -> int | None:
    """None for what is not known, and for what only a whole model has."""
    if place.known is not None and name not in place.known:
        return None
    stats = place.stats
    return stats.bytes_read + stats.bytes_written if name == "bytes" else getattr(stats, name, None)


_UNKNOWN = GroupCost(Stats(), known=())


def _rank(place: GroupCost | None) -> tuple[int, int, int]:
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


def _numbered(sources: Sequence[Costs]) -> tuple[Compared, ...]:
    """The sources; the second of one name gets a number."""
    seen: dict[str, int] = {}
    found = []
    for source in sources:
        number = seen[source.compared.label] = seen.get(source.compared.label, 0) + 1
        label = source.compared.label if number == 1 else f"{source.compared.label} ({number})"
        found.append(replace(source.compared, label=label))
    return tuple(found)


# -- profiles -----------------------------------------------------------------------------------------------------------
#
# A prediction names operators as the dispatcher runs them and a trace as the author called them (`aten::addmm`,
# `aten::linear`), so these two are compared by module and kind. The same module of many layers is one line.

ProfileBy: TypeAlias = Literal["operator", "kind", "module", "kernel", "shape"]
"""What makes a line: the type of an operator, ... or its module, type and shapes together."""
_PARTS: dict[ProfileBy, PartName] = {
    "operator": "type",
    "kind": "kind",
    "module": "module",
    "kernel": "kernel",
    "shape": "operator",
}


class Key(NamedTuple):
    """What two operators must have in common to be compared."""

    name: str
    type: str = ""
    shape: str = ""


class Spent(NamedTuple):
    """Time and executions of one key in one run of a profile."""

    time_ns: int = 0
    count: int = 0  # type: ignore[assignment]  # a tuple has a method of this name


TIME = Quantity("time", "time", "time")
CALLS = Quantity("calls", "calls", "number")


def diff_profiles(
    before: Profile, after: Profile, labels: tuple[str, str] = ("before", "after"), by: ProfileBy | None = None
) -> Comparison:
    """All keys whose time or count differs, the largest change first, on the device if both have times of one."""
    side: Side = "device" if usual_side(before) == usual_side(after) == "device" else "host"
    time = TIME._replace(title=f"{side} time")
    predicted = by is None and _is_predicted(before) != _is_predicted(after)
    uses = [bounds.devices(profile) for profile in (before, after)]
    parts = _divisors((before, after), uses)
    layers = folded(*([row.module for row in profile.rows] for profile in (before, after)))
    old, new = (
        _spent(profile, side, divided, by or "operator", names, by_kind=predicted)
        for profile, divided, names in zip((before, after), parts, layers, strict=True)
    )
    keys = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
    keys.sort(key=lambda key: -abs(new.get(key, _NOTHING).time_ns - old.get(key, _NOTHING).time_ns))
    whole = [sum(spent.time_ns for spent in found.values()) for found in (old, new)]
    entries = [_time_entry("total", Key(""), time, list(whole))]
    if side == "device":
        entries += _of_devices(uses, parts)
    name: PartName = "operator" if predicted else _PARTS[by or "operator"]
    for key in keys:
        was, now = old.get(key), new.get(key)
        entries.append(_time_entry(name, key, time, [None if each is None else each.time_ns for each in (was, now)]))
        entries.append(_time_entry(name, key, CALLS, [None if each is None else each.count for each in (was, now)]))
    sources = tuple(
        Compared(label=label, facts=_facts(profile, divided))
        for label, profile, divided in zip(labels, (before, after), parts, strict=True)
    )
    return Comparison(sources=sources, entries=tuple(entries)).changed()


def _facts(profile: Profile, divided: int) -> dict[str, str]:
    meta = profile.meta
    per = f"per step of {divided}" if divided > 1 else ""
    facts = {"source": meta.get("source", ""), "format": meta.get("format", ""), "device": meta.get("device", "")}
    return {**facts, "per": per}


def _divisors(profiles: Sequence[Profile], uses: Sequence[Sequence[Busy]]) -> list[int]:
    """What sums are divided by: runs that opcost recorded, else steps where both profiles have some."""
    steps = [max((use.steps for use in each), default=0) for each in uses]
    if any(profile.runs > 1 for profile in profiles) or not all(steps):
        return [profile.runs for profile in profiles]
    return steps


def _of_devices(uses: Sequence[Sequence[Busy]], divided: Sequence[int]) -> list[Entry]:
    """The time of a device from its first kernel to its last, its idle time, and collectives that nothing hid, on average."""

    def mean(place: int, name: str) -> int | None:
        found = [getattr(use, name) for use in uses[place]]
        return round(sum(found) / len(found) / divided[place]) if found and None not in found else None

    names = (("span", "from first to last kernel"), ("idle", "idle time"), ("communication", "exposed communication"))
    found = []
    for name, title in names:
        amounts = [mean(place, f"{name}_ns") for place in range(2)]
        if None not in amounts and any(amounts):
            found.append(_time_entry("total", Key(""), Quantity(name, title, "time"), amounts))
    return found


_NOTHING = Spent()


def _time_entry(part: PartName, key: Key, quantity: Quantity, amounts: list[int | None]) -> Entry:
    """An amount that is missing belongs to an operator that only the other profile has."""
    return Entry(
        part=part, name=key.name, type=key.type, detail=key.shape, quantity=quantity, amounts=tuple(amounts),
        present=tuple(amount is not None for amount in amounts),
        partial=(False, False),
    )  # fmt: skip


def _is_predicted(profile: Profile) -> bool:
    return profile.meta.get("format") == "prediction"


def _spent(
    profile: Profile, side: Side, divided: int, by: ProfileBy, layers: Mapping[str, str], *, by_kind: bool
) -> dict[Key, Spent]:
    found: dict[Key, Spent] = {}
    parts = parts_of(profile, side, "time", keys=("kernel",) if by == "kernel" else ())
    if side == "device":
        parts += unattributed_parts(profile)
    for part in parts:
        row = part.row
        if by_kind and row is not None and row.kind == "view":  # which no prediction has: they run nothing on a device
            continue
        key = _predicted_key(part, layers) if by_kind else _key(part, by, layers)
        known = found.get(key, Spent())
        count = part.launches if by == "kernel" else part.count
        found[key] = Spent(known.time_ns + part.time_ns, known.count + count)
    return {key: Spent(round(spent.time_ns / divided), round(spent.count / divided)) for key, spent in found.items()}


def _key(part: Part, by: ProfileBy, layers: Mapping[str, str]) -> Key:
    row = part.row
    if by == "kernel":
        return Key(LABELS["kernel"](part))
    if by == "shape":
        return Key("", LABELS["type"](part)) if row is None else Key(layers[row.module], row.type, shapes_text(row.ins))
    if by == "operator":
        return Key(LABELS["type"](part))
    if by == "module" and row is not None:
        return Key(layers[row.module] or NOWHERE)
    # Of an unknown kind, the type says more than nothing.
    return Key(LABELS[by](part) or (NOWHERE if row is None else row.type))


def _predicted_key(part: Part, layers: Mapping[str, str]) -> Key:
    row = part.row
    return Key("", LABELS["type"](part)) if row is None else Key(layers[row.module], row.kind or row.type)


# -- budgets ------------------------------------------------------------------------------------------------------------

_CHANGES = ("params", "macs", "flops", "activations", "bytes", "peak_bytes")
"""Quantities whose change since the baseline is listed even where they have no limit."""


def judge(
    model: Costs,
    limits: Iterable[Limit],
    *,
    source: str = "",
    before: Mapping[str, int] | None = None,
    allow_uncounted: bool = False,
) -> ModelCheck:
    """Every limit with its verdict and, where there is a baseline, what else has changed."""
    name, facts = model.compared.label, model.compared.facts
    was = before or {}
    lines = [_checked(model, limit.quantity, was, limit, unknown=not allow_uncounted) for limit in limits]
    limited = {line.quantity.name for line in lines}
    for quantity in (QUANTITIES[other] for other in _CHANGES):
        amount = model.totals.get(quantity.name)
        if quantity.name not in limited and amount is not None and was.get(quantity.name, amount) != amount:
            lines.append(_checked(model, quantity, was, None))
    inputs = facts.get("inputs") or facts.get("stored", "")
    missed = () if allow_uncounted else model.missed
    return ModelCheck(name=name, source=source, inputs=inputs, lines=tuple(lines), missed=missed)


def _checked(
    model: Costs, quantity: Quantity, was: Mapping[str, int], limit: Limit | None, *, unknown: bool = False
) -> LimitCheck:
    amount, before = model.totals.get(quantity.name), was.get(quantity.name)
    if amount is None:
        raise InputError(
            f"{limit or quantity.name}: {model.compared.label} has no such quantity",
            hint=f"known are {', '.join(model.totals)}",
        )
    partial = quantity.needs_costs and bool(model.missed)
    return LimitCheck(
        model=model.compared.label,
        quantity=quantity,
        amount=amount,
        partial=partial,
        before=before,
        limit=limit,
        word=_word(limit, amount, before, unknown=unknown and partial),
    )


def _word(limit: Limit | None, amount: int, before: int | None, *, unknown: bool) -> LimitStatus:
    if limit is None:
        return ""
    if limit.relative and before is None:
        return "new"
    if not limit.holds(amount, before):
        return "EXCEEDED"
    return "UNKNOWN" if unknown else "ok"
