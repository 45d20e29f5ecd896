"""A comparison on a page: one column for each source, or what changed between two; and the same as records for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opcost.core.comparison import Comparison, Entry, Part
from opcost.core.harmless import printable
from opcost.core.quantity import QUANTITIES, Quantity
from opcost.views.cell import cut, format_value, width_of
from opcost.views.listing import Amount, Column, Line, Listing, Value
from opcost.views.options import NumberOptions
from opcost.views.page import Page, Titled
from opcost.views.summary import LONG_LINE, Summary, held
from opcost.wording import shortened, some

LONGEST_TITLE = 18
"""Letters of a source's name above its column; the whole name stands in the heading."""
_PARTS: dict[Part, str] = {
    "kind": "by kind",
    "module": "by module",
    "operator": "by module, type and shapes",
    "type": "by operator",
    "kernel": "by kernel",
}
_NO_LISTING = Listing(columns=(), lines=())


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(NumberOptions):
    """How much of a comparison is shown, and how."""

    top: int | None = None
    """Lines of each table below the totals."""


def comparison_page(comparison: Comparison, options: ComparisonOptions) -> Page:
    """The totals, and below them what was compared by kind or by module."""
    if comparison.changes:
        return _changes_page(comparison, options)
    totals = [entry for entry in comparison.of_part("total") if any(entry.amounts)]
    further = [
        Titled(_PARTS[part], limited(_side_by_side(comparison, found), options.top))
        for part in _PARTS
        if (found := list(comparison.of_part(part)))
    ]
    heading = (f"comparison of {len(comparison.sources)} sources", *_sources(comparison))
    summary = Summary(heading=heading, seen_against=_notes(comparison))
    return Page(_side_by_side(comparison, totals), summary, tuple(further))


def _side_by_side(comparison: Comparison, entries: Sequence[Entry]) -> Listing:
    """One line for each quantity of each thing, one column for each source."""
    several = len({entry.quantity.name for entry in entries}) > 1
    part = entries[0].part if entries else "total"
    something = [entry for entry in entries if part == "total" or any((*entry.amounts, *entry.partial))]
    nothing = [entry for entry in entries if part != "total" and not any((*entry.amounts, *entry.partial))]
    titles = short_titles([source.label for source in comparison.sources])
    columns: list[Column] = []
    if part != "total":
        columns.append(plain_column(part, unit="name" if part == "module" else "text", of=_name))
    if part == "total" or several:
        columns.append(
            plain_column("quantity", "" if part == "total" else "quantity", of=lambda entry: entry.quantity.title)
        )
    for place, (source, title) in enumerate(zip(comparison.sources, titles, strict=True)):
        columns.append(plain_column(source.label, title, unit="number", of=_amount_at(place)))
    said = []
    if part != "total" and not several and entries:
        said.append(f"the numbers are {entries[0].quantity.title}")
    if nothing:
        names = some([f"{_name(entry)} ({entry.quantity.title})" if several else _name(entry) for entry in nothing])
        said.append(f"nothing in any of them: {', '.join(names)}")
    return listed(columns, something, remarks=tuple(said))


# -- what changed ---------------------------------------------------------------------------------------------------------


def _changes_page(comparison: Comparison, options: ComparisonOptions) -> Page:
    before, after = comparison.sources[0], comparison.sources[-1]
    heading = (f"{before.label} → {after.label}", *_sources(comparison))
    if not comparison:
        return Page(_NO_LISTING, Summary(heading=heading, seen_against=("no difference",)))
    totals = [entry for entry in comparison.of_part("total") if entry.changed]
    further = []
    for part, title in _PARTS.items():
        if found := list(comparison.of_part(part)):
            table = _times(found) if found[0].quantity.name in ("time", "calls") else _differences(found)
            # Operators that were matched by their kind have no shapes to tell.
            by_kind = part == "operator" and not any(entry.detail for entry in found)
            further.append(Titled("by module and kind" if by_kind else title, limited(table, options.top)))
    listing = listed([plain_column("quantity", "", of=lambda entry: entry.quantity.title), *_BOTH], totals)
    summary = Summary(heading=heading, seen_against=_explained(comparison) if totals else ("the totals are the same",))
    return Page(listing if totals else _NO_LISTING, summary, tuple(further))


LONG_NAME = 40
EXPLAINING = 3
"""The largest changes that are named beside what they are of the whole."""


def _explained(comparison: Comparison) -> tuple[str, ...]:
    """How much of a change in time the largest changes make up."""
    total = next((entry for entry in comparison.of_part("total") if entry.quantity.name == "time"), None)
    if total is None or not total.difference:
        return ()
    parts = [entry for part in _PARTS for entry in comparison.of_part(part) if entry.quantity.name == "time"]
    largest = sorted(parts, key=lambda entry: -abs(entry.difference or 0))[:EXPLAINING]
    named = ", ".join(f"{_begun(entry.type or _name(entry))} {_signed(entry)}" for entry in largest)
    together = Amount(sum(entry.difference or 0 for entry in largest), "time", signed=True)
    changes = f"the {len(largest)} largest changes are" if len(largest) > 1 else "the largest change is"
    return (f"{changes} {held(format_value(together, _BOTH[2]))} of {_signed(total)}: {named}",)


def _begun(name: str) -> str:
    return cut(name, LONG_NAME, "name")


def _signed(entry: Entry) -> str:
    told = _difference(entry)
    return held(format_value(told, _BOTH[2])) if told else ""


def _differences(entries: Sequence[Entry]) -> Listing:
    """One line for each kind or module, one column for each quantity that is another."""
    lines: dict[str, dict[str, Entry]] = {}
    quantities: dict[str, Quantity] = {}
    for entry in entries:
        lines.setdefault(entry.name, {})[entry.quantity.name] = entry
        quantities[entry.quantity.name] = entry.quantity
    part = entries[0].part
    columns = [
        plain_column(part, unit="name" if part == "module" else "text", of=_of_first(_name)),
        plain_column("change", of=_of_first(lambda entry: "changed" if entry.change == "same" else entry.change)),
        plain_column("type", of=_of_first(lambda entry: entry.type), dull=("",)),
        *(
            plain_column(name, quantity.title, unit="number", of=_difference_in(name), dull=("",))
            for name, quantity in sorted(quantities.items(), key=lambda item: _ORDER.index(item[0]))
        ),
    ]
    ranked = [name for name in _RANKED if name in quantities]
    order = (part, "change", *ranked[:2], "type", *ranked[2:], *(name for name in quantities if name not in ranked))
    return replace(listed(columns, list(lines.values())), ranked=order)


def _times(entries: Sequence[Entry]) -> Listing:
    """One line for each operator whose time or number of calls is another."""
    lines: dict[tuple[str, str, str], dict[str, Entry]] = {}
    for entry in entries:
        lines.setdefault((entry.name, entry.type, entry.detail), {})[entry.quantity.name] = entry

    def of_time(column: Column) -> Column:
        read = column.of
        return replace(column, of=lambda line: read(line["time"]) if "time" in line else "")

    part = entries[0].part
    named = "module" if part == "operator" else part
    typed = any(entry.type for entry in entries)
    columns = [
        plain_column(named, unit="name", of=_of_first(_name)),
        *((plain_column("type", of=_of_first(lambda entry: entry.type)),) if named == "module" and typed else ()),
        plain_column("shapes", of=_of_first(lambda entry: entry.detail), dull=("",)),
        *map(of_time, _BOTH),
        plain_column("calls", unit="number", of=_difference_in("calls"), dull=("",)),
    ]
    ranked = (named, "difference", "type", "before", "after", "relative", "shapes", "calls")
    return replace(listed(columns, list(lines.values())), ranked=ranked)


_ORDER = tuple(QUANTITIES)
_RANKED = ("params", "macs", "flops", "activations", "bytes_read", "bytes_written", "ops")


def _of_first(read: Callable[[Entry], Value]) -> Callable[[dict[str, Entry]], Value]:
    """What all quantities of one thing have in common."""
    return lambda line: read(next(iter(line.values())))


def _difference_in(name: str) -> Callable[[dict[str, Entry]], Value]:
    return lambda line: _difference(line[name]) if name in line else ""


def _difference(entry: Entry) -> Value:
    if entry.difference is None:
        return None
    return Amount(entry.difference, entry.quantity.unit, signed=True) if entry.difference else ""


def relative(entry: Entry) -> str:
    """The change in percent of what was before."""
    first = entry.amounts[0] if entry.present[0] else 0
    if entry.difference is None or first is None:
        return "?"
    if entry.change in ("added", "removed"):
        return entry.change
    return percent(first, first + entry.difference) if entry.difference else ""


def percent(before: int, after: int) -> str:
    """The change in percent; of nothing there is none."""
    return f"{(after - before) / before:+.2%}" if before else "new"


# -- cells ----------------------------------------------------------------------------------------------------------------


def plain_column(
    name: str,
    title: str | None = None,
    *,
    unit: Any = "text",
    of: Callable[[Any], Value],
    dull: tuple[Value, ...] = (),
) -> Column:
    """A column whose cells bring their own units."""
    return Column(name=printable(name), title=printable(name if title is None else title), unit=unit, of=of, dull=dull)


def _name(entry: Entry) -> str:
    return entry.name or "(root)"


def _amount_at(place: int) -> Callable[[Entry], Value]:
    def read(entry: Entry) -> Value:
        if not entry.present[place]:
            return ""
        amount = entry.amounts[place]
        return None if amount is None else Amount(amount, entry.quantity.unit, entry.partial[place])

    return read


_BOTH = (
    plain_column("before", unit="number", of=_amount_at(0)),
    plain_column("after", unit="number", of=_amount_at(-1)),
    plain_column("difference", unit="number", of=_difference),
    plain_column("relative", "%", unit="number", of=relative),
)


def listed(columns: Sequence[Column], lines: Iterable[Any], remarks: tuple[str, ...] = ()) -> Listing:
    """What each column reads of each line."""
    drawn = tuple(Line(tuple(column.of(line) for column in columns)) for line in lines)
    return Listing(columns=tuple(columns), lines=drawn, remarks=remarks)


def limited(listing: Listing, top: int | None) -> Listing:
    """The first lines of a table, and how many more there are; what they add up to stays."""
    rows = [line for line in listing.lines if line.role == "row"]
    more = 0 if top is None else len(rows) - top
    if top is None or more <= 0:
        return listing
    sums = [line for line in listing.lines if line.role != "row"]
    said = f"and {more:,} more {'line' if more == 1 else 'lines'}"
    return replace(listing, lines=(*rows[:top], *sums), remarks=(*listing.remarks, said))


# -- around the tables ----------------------------------------------------------------------------------------------------


def _sources(comparison: Comparison) -> list[str]:
    """Each source by its whole name, with what its numbers must be seen against."""
    said = []
    for source in comparison.sources:
        facts = [fact for name, fact in source.facts.items() if fact and name != "source"]
        said.append(shortened(f"{source.label}: {', '.join(facts)}" if facts else source.label, LONG_LINE))
    return said


def _notes(comparison: Comparison) -> tuple[str, ...]:
    """What is said of several sources is said once."""
    said: dict[str, list[str]] = {}
    for source in comparison.sources:
        for note in source.notes:
            said.setdefault(note, []).append(source.label)
    lines = []
    for note, labels in said.items():
        whose = "all" if len(labels) == len(comparison.sources) else ", ".join(labels)
        lines.append(shortened(f"{whose}: {note}", LONG_LINE))
    return tuple(some(lines))


def short_titles(labels: Sequence[str]) -> list[str]:
    """Names for the heads of columns: without what stands before the last slash or colon, where they stay different."""
    bare = [label.replace("\\", "/").rstrip("/").rpartition("/")[2] for label in labels]
    bare = [name.partition(":")[2] or name for name in bare]
    if len(set(bare)) < len(bare):
        bare = list(labels)
    cut = [_middle_cut(name) for name in bare]
    return (
        cut if len(set(cut)) == len(cut) else [f"{place}: {name}"[:LONGEST_TITLE] for place, name in enumerate(cut, 1)]
    )


def _middle_cut(name: str) -> str:
    if width_of(name) <= LONGEST_TITLE:
        return name
    half = (LONGEST_TITLE - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


# -- for programs -------------------------------------------------------------------------------------------------------------


def comparison_records(comparison: Comparison) -> Listing:
    """One line for each quantity of each thing, nothing rounded; what is not there or not known is empty."""
    columns = [
        plain_column("part", of=lambda entry: entry.part),
        plain_column("name", unit="name", of=lambda entry: entry.name),
        plain_column("type", of=lambda entry: entry.type),
        plain_column("detail", of=lambda entry: entry.detail),
        plain_column("quantity", of=lambda entry: entry.quantity.name),
        *(
            plain_column(source.label, unit="number", of=lambda entry, place=place: entry.amounts[place])  # type: ignore[misc]
            for place, source in enumerate(comparison.sources)
        ),
    ]
    if comparison.changes:
        columns += [
            plain_column("change", of=lambda entry: entry.change),
            plain_column("difference", unit="number", of=lambda entry: entry.difference),
        ]
    return listed(columns, comparison.entries)


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """All of it for JSON; amounts stand in the order of the sources."""
    lines = []
    for entry in comparison.entries:
        line: dict[str, Any] = {
            "part": entry.part,
            "name": entry.name,
            "type": entry.type,
            "detail": entry.detail,
            "quantity": entry.quantity.name,
            "unit": entry.quantity.unit,
            "amounts": list(entry.amounts),
            "present": list(entry.present),
            "lower_bound": list(entry.partial),
        }
        if comparison.changes:
            line |= {"change": entry.change, "difference": entry.difference}
        lines.append(line)
    return {
        "schema": "opcost.comparison/1",
        "changes": comparison.changes,
        "sources": [
            {"label": source.label, **source.facts, "notes": list(source.notes)} for source in comparison.sources
        ],
        "lines": lines,
    }
