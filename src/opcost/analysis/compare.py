"""Models and profiles side by side, what differs between two of them, and whether a model keeps to its limits."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

from opcost.analysis.breakdown import devices
from opcost.analysis.part import LABELS, NOWHERE, parts_of, shapes_text, unattributed_parts, usual_side
from opcost.core.graph import note_texts
from opcost.core.limits import LATENCY, QUANTITIES, Limit, Quantity, amounts_of, find_quantity
from opcost.core.profile import Profile
from opcost.core.report import STATS, Report, Stats, Uncounted
from opcost.core.results import Compared, Comparison, Entry, LimitCheck, LimitStatus, ModelCheck
from opcost.core.results import EntryPart as PartName
from opcost.core.scan import Scan
from opcost.errors import InputError
from opcost.options import Side

By: TypeAlias = Literal["kind", "module"]

USUAL: dict[By, tuple[str, ...]] = {"kind": ("macs",), "module": ("params", "macs")}
"""Quantities that are compared by kind and by module by default."""
OF_OPERATORS = ("macs", "flops", "bytes_read", "bytes_written", "activations", "activation_bytes", "ops", "uncounted")
"""What a kind of operator has: parameters belong to modules."""
WHOLE = (*STATS, "peak_bytes", "wire_bytes")
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
    """What is compared of a report, or of a checkpoint: its parameters, and the bytes of weights with their scales."""
    if isinstance(subject, Report):
        meta = subject.meta
        facts = {
            "source": meta.get("source", ""),
            "framework": " ".join(filter(None, (meta.get("framework"), meta.get("version")))),
            "mode": meta.get("mode", ""),
            "inputs": ", ".join(f"{name}:{spec}" for name, spec in subject.inputs),
        }
        modules = {module.path: GroupCost(module.total, module.type, module.own) for module in subject.modules}
        return Costs(
            compared=Compared(label=label, facts=facts, notes=tuple(note_texts(subject.notes))),
            totals=amounts_of(subject),
            missed=subject.coverage.uncounted,
            places={"kind": {group.key: GroupCost(group.stats) for group in subject.by_kind()}, "module": modules},
        )
    totals, bits = subject.totals, subject.totals.bits_per_param
    facts = {
        "source": subject.source,
        "framework": subject.format,
        "stored": "" if bits is None else f"{bits:.3f} bits per parameter",
        "active": "" if totals.active_params is None else f"{totals.active_params:,} parameters active",
    }
    own: dict[str, Stats] = {}
    below: dict[str, Stats] = {}
    for tensor in subject.tensors:
        if tensor.role in ("weight", "scale"):
            stats = Stats(params=tensor.params, param_bytes=tensor.bytes)
            path = _parent(tensor.name)
            own[path] = own.get(path, Stats()) + stats
            for around in _with_parents(path):
                below[around] = below.get(around, Stats()) + stats
    modules = {path: GroupCost(below[path], "", own.get(path, Stats()), _STORED) for path in below}
    return Costs(
        compared=Compared(label=label, facts=facts, notes=tuple(note.text for note in subject.notes)),
        totals={"params": totals.params, "param_bytes": totals.bytes - totals.other_bytes},
        places={"module": modules},
    )


_STORED = ("params", "param_bytes")  # what is known of a checkpoint


def compare(
    sources: Sequence[Costs], *, by: By | None = None, quantities: Iterable[str] = (), depth: int | None = None
) -> Comparison:
    """Every quantity of the whole and, by kind or by module down to a depth, those that are named."""
    wanted = tuple(find_quantity(name) for name in quantities)
    timed = (LATENCY,) if any(LATENCY.name in source.totals for source in sources) else ()
    whole = wanted if wanted and by is None else (*(QUANTITIES[name] for name in WHOLE), *timed)
    entries = [*_totals(sources, whole)]
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
    entries = [*_totals(both, [QUANTITIES[name] for name in WHOLE])]
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


def _totals(sources: Sequence[Costs], quantities: Iterable[Quantity]) -> Iterator[Entry]:
    for quantity in quantities:
        amounts = tuple(source.totals.get(quantity.name) for source in sources)
        partial = tuple(bool(source.missed) and quantity.needs_costs for source in sources)
        present = (True,) * len(sources)
        yield Entry(part="total", quantity=quantity, amounts=amounts, present=present, partial=partial)


def depth_of(path: str) -> int:
    """How many modules are around this one."""
    return path.count(".") + 1 if path else 0


def _alone(mine: Mapping[str, GroupCost], other: Mapping[str, GroupCost]) -> dict[str, GroupCost]:
    """Modules with what is their own; one that the other does not have, with everything below it, and that alone."""
    shared = {around for path in other for around in _with_parents(path)}
    found = {}
    for path, place in mine.items():
        if path in shared:
            found[path] = place._replace(stats=place.own or place.stats)
        elif _parent(path) in shared:
            found[path] = place
    return found


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _with_parents(path: str) -> Iterator[str]:
    """A path and all that are around it, up to the empty one."""
    yield path
    while path:
        path = _parent(path)
        yield path


def _places(by: By, sources: Sequence[Mapping[str, GroupCost] | None], quantities: Sequence[Quantity]) -> list[Entry]:
    """An entry for each quantity of each kind or path that some source has; of one without any places, nothing is known."""
    found = [places or {} for places in sources]
    names = _merged([list(places) for places in found])
    if by == "kind":  # the costliest first, whichever source it is in
        nothing, rank = GroupCost(Stats()), attrgetter("stats.macs", "stats.flops", "stats.bytes_read")
        ranks = {name: zip(*(rank(places.get(name, nothing)) for places in found), strict=True) for name in names}
        names.sort(key={name: [-max(each) for each in own] for name, own in ranks.items()}.__getitem__)
    entries = []
    for name in names:
        own = [_UNKNOWN if places is None else places.get(name) for places in sources]
        types = dict.fromkeys(place.type for place in own if place is not None and place.type)
        for quantity in quantities:
            partial = (place is not None and quantity.needs_costs and place.stats.uncounted > 0 for place in own)
            entries.append(
                Entry(
                    part=by, name=name, type=" → ".join(types), quantity=quantity,
                    amounts=tuple(_amount(place, quantity.name) for place in own),
                    present=tuple(place is not None for place in own), partial=tuple(partial),
                )
            )  # fmt: skip
    return entries


def _amount(place: GroupCost | None, name: str) -> int | None:
    """None for what is not known, and for what only a whole model has."""
    if place is None or (place.known is not None and name not in place.known):
        return None
    stats = place.stats
    return stats.bytes_read + stats.bytes_written if name == "bytes" else getattr(stats, name, None)


_UNKNOWN = GroupCost(Stats(), known=())


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
    "operator": "type", "kind": "kind", "module": "module", "kernel": "kernel", "shape": "operator",
}  # fmt: skip


class Key(NamedTuple):
    """What two operators must have in common to be compared."""

    name: str
    type: str = ""
    shape: str = ""


TIME = Quantity("time", "time", "time")
CALLS = Quantity("calls", "calls", "number")
_OF_DEVICES = {"from first to last kernel": "span", "idle time": "idle", "exposed communication": "communication"}


def diff_profiles(
    before: Profile, after: Profile, labels: tuple[str, str] = ("before", "after"), by: ProfileBy | None = None
) -> Comparison:
    """All keys whose time or count differs, the largest change first, on the device if both have times of one."""
    both = before, after
    side: Side = "device" if usual_side(before) == usual_side(after) == "device" else "host"
    time = TIME._replace(title=f"{side} time")
    predicted = by is None and (before.meta.get("format") == "prediction") != (after.meta.get("format") == "prediction")
    uses = [devices(profile) for profile in both]
    # Sums are divided by the runs that opcost recorded, else by the steps where both profiles have some
    steps = [max((use.steps for use in each), default=0) for each in uses]
    divisors = [profile.runs for profile in both] if any(p.runs > 1 for p in both) or not all(steps) else steps
    layers = folded(*([row.module for row in profile.rows] for profile in both))
    old, new = (
        _spent(profile, side, divided, by or "operator", names, by_kind=predicted)
        for profile, divided, names in zip(both, divisors, layers, strict=True)
    )
    keys = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
    keys.sort(key=lambda key: -abs(new.get(key, (0, 0))[0] - old.get(key, (0, 0))[0]))
    entries = [_time_entry("total", Key(""), time, [sum(spent for spent, _ in each.values()) for each in (old, new)])]
    # The time of devices from the first kernel to the last, idle, and in collectives that nothing hid, on average
    for title, read in _OF_DEVICES.items() if side == "device" else ():
        amounts: list[int | None] = []
        for each, divided in zip(uses, divisors, strict=True):
            spent = [getattr(use, f"{read}_ns") for use in each]
            amounts.append(round(sum(spent) / len(spent) / divided) if spent and None not in spent else None)
        if None not in amounts and any(amounts):
            entries.append(_time_entry("total", Key(""), Quantity(read, title, "time"), amounts))
    name: PartName = "operator" if predicted else _PARTS[by or "operator"]
    for key in keys:
        found = old.get(key), new.get(key)
        for place, quantity in enumerate((time, CALLS)):
            entries.append(_time_entry(name, key, quantity, [each and each[place] for each in found]))
    sources = []
    for label, profile, divided in zip(labels, both, divisors, strict=True):
        facts = {name: profile.meta.get(name, "") for name in ("source", "format", "device")}
        facts["per"] = f"per step of {divided}" if divided > 1 else ""
        sources.append(Compared(label=label, facts=facts))
    return Comparison(sources=tuple(sources), entries=tuple(entries)).changed()


def _time_entry(part: PartName, key: Key, quantity: Quantity, amounts: list[int | None]) -> Entry:
    """An amount that is missing belongs to an operator that only the other profile has."""
    return Entry(
        part=part, name=key.name, type=key.type, detail=key.shape, quantity=quantity, amounts=tuple(amounts),
        present=tuple(amount is not None for amount in amounts),
        partial=(False, False),
    )  # fmt: skip


def _spent(
    profile: Profile, side: Side, divided: int, by: ProfileBy, layers: Mapping[str, str], *, by_kind: bool
) -> dict[Key, tuple[int, int]]:
    """Time and executions of each key in one run of a profile."""
    found: dict[Key, tuple[int, int]] = {}
    parts = parts_of(profile, side, "time", keys=("kernel",) if by == "kernel" else ())
    if side == "device":
        parts += unattributed_parts(profile)
    for part in parts:
        row = part.row
        if by_kind and row is not None and row.kind == "view":  # which no prediction has: they run nothing on a device
            continue
        if by == "shape" or by_kind:
            key = Key("", LABELS["type"](part))
            if row is not None:
                own = (row.kind or row.type,) if by_kind else (row.type, shapes_text(row.ins))
                key = Key(layers[row.module], *own)
        elif by in ("kernel", "operator"):
            key = Key(LABELS["type" if by == "operator" else "kernel"](part))
        elif by == "module" and row is not None:
            key = Key(layers[row.module] or NOWHERE)
        else:  # of an unknown kind, the type is better than nothing
            key = Key(LABELS[by](part) or (NOWHERE if row is None else row.type))
        time, count = found.get(key, (0, 0))
        found[key] = time + part.time_ns, count + (part.launches if by == "kernel" else part.count)
    return {key: (round(time / divided), round(count / divided)) for key, (time, count) in found.items()}


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
    name, facts, was = model.compared.label, model.compared.facts, before or {}

    def checked(quantity: Quantity, limit: Limit | None) -> LimitCheck:
        amount, old = model.totals.get(quantity.name), was.get(quantity.name)
        if amount is None:
            hint = f"known are {', '.join(model.totals)}"
            raise InputError(f"{limit or quantity.name}: {name} has no such quantity", hint=hint)
        partial = quantity.needs_costs and bool(model.missed)
        word: LimitStatus = ""
        if limit is not None:
            word = "UNKNOWN" if partial and not allow_uncounted else "ok"
            if limit.relative and old is None:
                word = "new"
            elif not limit.holds(amount, old):
                word = "EXCEEDED"
        return LimitCheck(
            model=name, quantity=quantity, amount=amount, partial=partial, before=old, limit=limit, word=word
        )

    lines = [checked(limit.quantity, limit) for limit in limits]
    limited = {line.quantity.name for line in lines}
    for quantity in (QUANTITIES[other] for other in _CHANGES):
        amount = model.totals.get(quantity.name)
        if quantity.name not in limited and amount is not None and was.get(quantity.name, amount) != amount:
            lines.append(checked(quantity, None))
    inputs = facts.get("inputs") or facts.get("stored", "")
    missed = () if allow_uncounted else model.missed
    return ModelCheck(name=name, source=source, inputs=inputs, lines=tuple(lines), missed=missed)


# -- the same module in every layer under one name: `blocks.*.attn.q` for that of all blocks
#
# Traces number the calls of a class through (`Block_3.Attention_3.Linear_14`), models the places of a list (`blocks.3.attn.q`).
# A module that holds others loses its number where there are several beside each other; one that holds none is distinguished by
# its place among those of its name, so that the third projection of every layer is a line of its own.

ANY = "*"
_NUMBERED = re.compile(r"(?P<stem>.+_)?(?P<number>\d+)")


def folded(*models: Iterable[str]) -> list[dict[str, str]]:
    """Of the paths of each model the names under which layers are one; models are compared with each other, so all decide."""
    trees = [_parents(paths) for paths in models]
    named: list[dict[str, str]] = [{"": ""} for _ in trees]
    places: list[dict[str, tuple[str, int]]] = [_numbered_places(tree) for tree in trees]
    for depth in range(1, max((path.count(".") + 1 for tree in trees for path in tree if path), default=0) + 1):
        found = [[path for path in tree if path and path.count(".") + 1 == depth] for tree in trees]
        several = {
            (names[_parent(path)], place[path][0])
            for paths, names, place in zip(found, named, places, strict=True)
            for path in paths
            if path in place and place[path][1] > 0
        }
        for paths, names, place, tree in zip(found, named, places, trees, strict=True):
            for path in paths:
                above, own = names[_parent(path)], path.rpartition(".")[2]
                if path in place:
                    stem, number = place[path]
                    own = stem.rstrip("_") or own
                    if (above, stem) in several:
                        own = f"{stem}{ANY if tree[path] else number}"
                names[path] = f"{above}.{own}" if above else own
    return named


def _parents(paths: Iterable[str]) -> dict[str, bool]:
    """Every path and those above it, in their order, and whether there is something below."""
    found: dict[str, bool] = {}
    for path in paths:
        below = False
        while path and not (found.get(path, False) or (path in found and not below)):
            found[path] = found.get(path, False) or below
            path, below = _parent(path), True  # noqa: PLW2901 - up to the root
    return found


def _numbered_places(tree: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Of each module with a number its name without it, and its place among those of that name beside it."""
    numbers: dict[tuple[str, str], dict[int, str]] = {}
    for path in tree:
        if match := _NUMBERED.fullmatch(path.rpartition(".")[2]):
            numbers.setdefault((_parent(path), match["stem"] or ""), {})[int(match["number"])] = path
    return {
        path: (stem, place)
        for (_, stem), beside in numbers.items()
        for place, (_, path) in enumerate(sorted(beside.items()))
    }
