"""Columns as data frames of pandas and polars, which are imported only when one is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from opcost.errors import MissingFramework

LARGEST = 1 << 63  # the integers of a data frame are below this; a column with larger ones becomes floats


def pandas_frame(columns: dict[str, list[Any]]) -> Any:
    """A `pandas.DataFrame`; a column of whole numbers with unknown ones among them stays one of whole numbers."""
    pandas = _library("pandas")
    return pandas.DataFrame(
        {name: pandas.array(values, dtype="Int64") if _whole(values) else values for name, values in columns.items()}
    )


def polars_frame(columns: dict[str, list[Any]]) -> Any:
    """A `polars.DataFrame`."""

    def fitting(values: list[Any]) -> list[Any]:
        if any(isinstance(value, int) and abs(value) >= LARGEST for value in values):
            return [None if value is None else float(value) for value in values]
        return values

    found = {name: fitting(values) for name, values in columns.items()}
    return _library("polars").DataFrame(found, strict=False, infer_schema_length=None)


def _whole(values: list[Any]) -> bool:
    """Whether these are whole numbers that fit, as far as they are known."""
    known = [value for value in values if value is not None]
    return bool(known) and all(type(value) is int and abs(value) < LARGEST for value in known)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name != name:
            raise
        raise MissingFramework(
            f"a data frame of {name} needs the package {name}, which is not installed",
            hint=f"pip install {name}; to_dict() needs no package",
        ) from exc
