"""Columns as the page has them: numbers as arrays, texts once each and told by their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opcost.core.graph import TensorSpec
from opcost.core.harmless import printable
from opcost.views.cell import format_value
from opcost.views.listing import Amount, Column, Listing, Value

Told = dict[str, Any]


def words_of(texts: Iterable[str]) -> Told:
    """A column of texts, each distinct one written once."""
    places: dict[str, int] = {}
    at = [places.setdefault(text, len(places)) for text in texts]
    return {"words": list(map(printable, places)), "at": at}


def numbers_of(numbers: Sequence[float | None]) -> Told:
    """A column of numbers; whole ones stay whole, and None is unknown."""
    return {"values": [_short(number) for number in numbers]}


def _short(number: float | None) -> float | None:
    return float(f"{number:.6g}") if isinstance(number, float) and not number.is_integer() else number


def shapes_of(specs: Sequence[TensorSpec]) -> str:
    """Shapes on one line, the commonest element type left out."""
    return ", ".join(str(spec) if spec.dtype == "float32" else f"{spec} {spec.dtype}" for spec in specs)


def table_of(title: str, listing: Listing, roles: Sequence[str] | None = None) -> Told:
    """A listing as the page has it; `roles` tells more of its lines than the listing does."""
    told = list(roles) if roles is not None else [line.role for line in listing.lines]
    return {
        "title": title,
        "count": len(listing.lines),
        "columns": [_column(listing, place) for place in listing.telling],
        "roles": [[row, role] for row, role in enumerate(told) if role != "row"],
        "remarks": [printable(remark) for remark in listing.remarks],
    }


def _column(listing: Listing, place: int) -> Told:
    column = listing.columns[place]
    told: Told = {"name": column.name, "title": printable(column.title), "unit": column.unit}
    values = [_value(line.values[place], column) for line in listing.lines]
    if column.textual:
        return told | words_of(str(value) for value in values)
    return told | {"values": values}


def _value(value: Value, column: Column) -> Any:
    if isinstance(value, Amount):
        return [value.number, value.unit, value.partial, value.signed]
    if isinstance(value, (tuple, str)) or (value is None and column.textual):
        return format_value(value, column)
    return _short(value)
