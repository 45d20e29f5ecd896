"""Comparisons: one column for each source, or what changed between two; and the same for programs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from opcost.core.escaping import printable
from opcost.core.limits import QUANTITIES
from opcost.core.names import short_source
from opcost.core.results import Comparison, Entry, EntryPart
from opcost.core.sheet import LONG_LINE, Amount, Cell, Section, Sheet, Table
from opcost.errors import shortened, some
from opcost.views.view import Column, ViewOptions, cut, format_amount, keep_together, listing, reading, width_of

LONGEST_TITLE = 18  # letters of a source's name above its column; the whole name is in the heading
LONG_NAME = 40
EXPLAINING = 3  # the largest changes that are named beside their share of the whole
_PARTS: dict[EntryPart, str] = {
    "kind": "by kind", "module": "by module", "operator": "by module, type and shapes", "type": "by operator",
    "kernel": "by kernel",
}  # fmt: skip
_RANKED = "params macs flops latency peak_bytes wire_bytes activations bytes_read bytes_written ops".split()


def comparison_sheet(comparison: Comparison, options: ViewOptions) -> Sheet:
    """The totals, and below them what was compared by kind or by module."""
    if comparison.changes:
        return _changes(comparison, options)
    whole = {entry.quantity.name: entry for entry in comparison.of_part("total") if any(entry.amounts)}
    totals = [whole[name] for name in dict.fromkeys((*_RANKED, *whole)) if name in whole]
    tables = [_side_by_side(comparison, totals, "totals")]
    for part, title in _PARTS.items():
        if found := list(comparison.of_part(part)):
            tables.append(_side_by_side(comparison, found, title).limited(options.top))
    heading = tuple(_sources(comparison))
    noted: dict[str, list[str]] = {}  # each note once, with the sources that have it
    for source in comparison.sources:
        for note in source.notes:
            noted.setdefault(note, []).append(source.label)
    whose = {note: "all" if len(of) == len(comparison.sources) else ", ".join(of) for note, of in noted.items()}
    notes = some([shortened(f"{labels}: {note}", LONG_LINE) for note, labels in whose.items()])
    return Sheet(heading=heading, tables=tuple(tables), sections=_unlike(comparison), facts=tuple(notes))


def _unlike(comparison: Comparison) -> tuple[Section, ...]:
    """A warning where some models were counted in train mode and others in eval mode."""
    modes: dict[str, list[str]] = {}
    for source in comparison.sources:
        if mode := source.facts.get("mode"):
            modes.setdefault(mode, []).append(source.label)
    if len(modes) < 2:
        return ()
    named = [f"{mode} mode of {', '.join(some(labels))}" for mode, labels in modes.items()]
    hint = 'count all in one mode: model.eval(), or mode="eval" (on the command line --eval)'
    return (
        Section(
            f"the modes differ: {'; '.join(named)}",
            ("train and eval mode do different work in Dropout and BatchNorm",),
            hint,
            urgent=True,
        ),
    )


def _side_by_side(comparison: Comparison, entries: Sequence[Entry], title: str) -> Table:
    """One line for each quantity of each thing, one column for each source."""
    several = len({entry.quantity.name for entry in entries}) > 1
    part = entries[0].part if entries else "total"
    something = [entry for entry in entries if part == "total" or any((*entry.amounts, *entry.partial))]
    nothing = [entry for entry in entries if part != "total" and not any((*entry.amounts, *entry.partial))]
    titles = short_titles([source.label for source in comparison.sources])
    columns: list[Column] = []
    if part != "total":
        columns.append(Column(part, "name" if part == "module" else "text", of=_name))
    if part == "total" or several:
        header = "" if part == "total" else "quantity"
        columns.append(Column("quantity", title=header, of=lambda entry: entry.quantity.title))
    for place, (source, short) in enumerate(zip(comparison.sources, titles, strict=True)):
        columns.append(Column(printable(source.label), "number", printable(short), of=_amount_at(place)))
    remarks = []
    if part != "total" and not several and entries:
        remarks.append(f"the numbers are {entries[0].quantity.title}")
    if nothing:
        names = some([f"{_name(entry)} ({entry.quantity.title})" if several else _name(entry) for entry in nothing])
        remarks.append(f"nothing in any of them: {', '.join(names)}")
    is_total = part == "total"
    return listing(columns, something, title=title, ranked=(), remarks=tuple(remarks), main=is_total, turns=is_total)


# -- what changed -------------------------------------------------------------------------------------------------------


def _changes(comparison: Comparison, options: ViewOptions) -> Sheet:
    heading = tuple(_sources(comparison))
    tables = []
    totals = [entry for entry in comparison.of_part("total") if entry.changed]
    if totals:
        columns = (Column("quantity", title="", of=lambda entry: entry.quantity.title), *_BOTH)
        tables.append(listing(columns, totals, title="totals", ranked=(), main=True))
    for part, title in _PARTS.items():
        if found := list(comparison.of_part(part)):
            table = _times(found) if found[0].quantity.name in ("time", "calls") else _differences(found)
            # Operators that were matched by their kind have no shapes.
            by_kind = part == "operator" and not any(entry.detail for entry in found)
            tables.append(replace(table, title="by module and kind" if by_kind else title).limited(options.top))
    total = next((entry for entry in totals if entry.quantity.name == "time"), None)
    facts = _explained(comparison, total) if total is not None and total.difference else ()
    return Sheet(heading=heading, tables=tuple(tables), sections=_unlike(comparison), facts=facts)


def _explained(comparison: Comparison, total: Entry) -> tuple[str, ...]:
    """How much of a change in time the largest changes make up."""
    parts = [entry for part in _PARTS for entry in comparison.of_part(part) if entry.quantity.name == "time"]
    largest = sorted(parts, key=lambda entry: -abs(entry.difference or 0))[:EXPLAINING]

    def signed(time: int | None) -> str:
        return keep_together(format_amount(Amount(time, "time", signed=True))) if time else ""

    named = ", ".join(
        f"{cut(each.type or _name(each), LONG_NAME, 'name')} {signed(each.difference)}" for each in largest
    )
    together = sum(entry.difference or 0 for entry in largest)
    changes = f"the {len(largest)} largest changes are" if len(largest) > 1 else "the largest change is"
    explained = f"{changes} {signed(together) or '–'} of {signed(total.difference)}: {named}"
    return (explained,)


def _differences(entries: Sequence[Entry]) -> Table:
    """One line for each kind or module, one column for each quantity that changed."""
    quantities = {entry.quantity.name: entry.quantity for entry in entries}
    part = entries[0].part
    columns = [
        Column(part, "name" if part == "module" else "text", of=_of_first(_name)),
        Column("change", of=_of_first(lambda entry: "changed" if entry.change == "same" else entry.change)),
        Column("type", of=_of_first(lambda entry: entry.type), blank=("",)),
        *(
            Column(name, "number", quantity.title, of=_difference_in(name), blank=("",))
            for name, quantity in QUANTITIES.items()
            if name in quantities
        ),
    ]
    first = [name for name in _RANKED if name in quantities]
    ranked = (part, "change", *first[:2], "type", *first[2:], *(name for name in quantities if name not in first))
    return listing(columns, _together(entries), ranked=ranked)


def _times(entries: Sequence[Entry]) -> Table:
    """One line for each operator whose time or number of calls changed."""

    def of_time(column: Column) -> Column:
        return replace(column, of=lambda line: column.of(line["time"]) if "time" in line else "")

    part = entries[0].part
    named = "module" if part == "operator" else part
    typed = named == "module" and any(entry.type for entry in entries)
    columns = [
        Column(named, "name", of=_of_first(_name)),
        *((Column("type", of=_of_first(lambda entry: entry.type)),) if typed else ()),
        Column("shapes", of=_of_first(lambda entry: entry.detail), blank=("",)),
        *map(of_time, _BOTH),
        Column("calls", "number", of=_difference_in("calls"), blank=("",)),
    ]
    ranked = (named, "difference", "type", "before", "after", "relative", "shapes", "calls")
    return listing(columns, _together(entries), ranked=ranked)


def _together(entries: Sequence[Entry]) -> Iterable[dict[str, Entry]]:
    """The entries of each thing by their quantities."""
    lines: dict[tuple[str, str, str], dict[str, Entry]] = {}
    for entry in entries:
        lines.setdefault((entry.name, entry.type, entry.detail), {})[entry.quantity.name] = entry
    return lines.values()


def _of_first(read: Callable[[Entry], Cell]) -> Callable[[dict[str, Entry]], Cell]:
    """What all quantities of one thing have in common."""
    return lambda line: read(next(iter(line.values())))


def _difference_in(name: str) -> Callable[[dict[str, Entry]], Cell]:
    return lambda line: _difference(line[name]) if name in line else ""


def _difference(entry: Entry) -> Cell:
    if entry.difference is None:
        return None
    return Amount(entry.difference, entry.quantity.unit, signed=True) if entry.difference else ""


def _relative(entry: Entry) -> str:
    """The change in percent of what was before."""
    first = entry.amounts[0] if entry.present[0] else 0
    if entry.difference is None or first is None:
        return "?"
    if entry.change in ("added", "removed"):
        return entry.change
    return percent(first, first + entry.difference) if entry.difference else ""


def percent(before: int, after: int) -> str:
    """The change in percent; "new" where there was nothing."""
    return f"{(after - before) / before:+.2%}" if before else "new"


def _name(entry: Entry) -> str:
    return entry.name or "(root)"


def _amount_at(place: int) -> Callable[[Entry], Cell]:
    def read(entry: Entry) -> Cell:
        amount = entry.amounts[place] if entry.present[place] else ""
        return Amount(amount, entry.quantity.unit, entry.partial[place]) if isinstance(amount, int) else amount

    return read


_BOTH = (
    Column("before", "number", of=_amount_at(0)),
    Column("after", "number", of=_amount_at(-1)),
    Column("difference", "number", of=_difference),
    Column("relative", "number", "%", of=_relative),
)


def _sources(comparison: Comparison) -> list[str]:
    """The sources by their whole names, with framework, mode and inputs; those with the same together."""
    alike: dict[str, list[str]] = {}
    for source in comparison.sources:
        facts = ", ".join(fact for name, fact in source.facts.items() if fact and name != "source")
        alike.setdefault(facts, []).append(source.label)
    lines = (": ".join(filter(None, (", ".join(labels), facts))) for facts, labels in alike.items())
    return [shortened(line, LONG_LINE) for line in lines]


def short_titles(labels: Sequence[str]) -> list[str]:
    """Names for the heads of columns: what follows the last slash or colon, where these differ."""

    def shorten(name: str) -> str:
        half = (LONGEST_TITLE - 1) // 2
        return name if width_of(name) <= LONGEST_TITLE else f"{name[:half]}…{name[-half:]}"

    bare = list(map(short_source, labels))
    if len(set(bare)) < len(bare):
        bare = list(labels)
    short = list(map(shorten, bare))
    if len(set(short)) == len(short):
        return short
    return [f"{place}: {name}"[:LONGEST_TITLE] for place, name in enumerate(short, 1)]


def comparison_records(comparison: Comparison) -> Table:
    """One line for each quantity of each thing, nothing rounded; what is not there or not known is empty."""
    columns = [
        *reading("part name type detail quantity=quantity.name"),
        *(
            Column(printable(source.label), "number", of=lambda entry, place=place: entry.amounts[place])  # type: ignore[misc]
            for place, source in enumerate(comparison.sources)
        ),
    ]
    if comparison.changes:
        columns += reading("change difference:number")
    return listing(columns, comparison.entries)


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """All of it for JSON; amounts are in the order of the sources."""
    lines = []
    for entry in comparison.entries:
        line: dict[str, Any] = {name: getattr(entry, name) for name in ("part", "name", "type", "detail")}
        line |= {"quantity": entry.quantity.name, "unit": entry.quantity.unit}
        line |= {"amounts": list(entry.amounts), "present": list(entry.present), "lower_bound": list(entry.partial)}
        if comparison.changes:
            line |= {"change": entry.change, "difference": entry.difference}
        lines.append(line)
    sources = [{"label": source.label, **source.facts, "notes": list(source.notes)} for source in comparison.sources]
    return {"schema": "opcost.comparison/1", "changes": comparison.changes, "sources": sources, "lines": lines}
