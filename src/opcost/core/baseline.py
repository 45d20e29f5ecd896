"""What models cost when that was last agreed on, in one small JSON file that belongs beside the code."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import msgspec

from opcost.core import document
from opcost.core.escaping import json_text
from opcost.core.files import head_of, write_text
from opcost.core.quantity import LATENCY, QUANTITIES, amounts_of
from opcost.core.schema import load as load_report

SCHEMA = "opcost.baseline/1"

Amounts = Mapping[str, int]  # quantities of one model by name


class _Model(msgspec.Struct):
    source: str
    totals: dict[str, int]


class _Baseline(msgspec.Struct):
    models: dict[str, _Model]


def _read(data: _Baseline) -> dict[str, Amounts]:
    for name, model in data.models.items():
        document.believe(f"models.{name}", model.totals.values())
    return {
        name: {key: amount for key, amount in model.totals.items() if key in QUANTITIES or key.startswith(LATENCY.name)}
        for name, model in data.models.items()
    }


_DOCUMENT = document.Document(
    noun="baseline", schema=SCHEMA, again="opcost check --save-baseline FILE", form=_Baseline, read=_read
)


def load_baseline(path: str | PathLike[str], models: tuple[str, ...] = ()) -> dict[str, Amounts]:
    """What models cost before, by name; a saved report is the baseline of one model."""
    if len(models) == 1 and b'"opcost.report/' in head_of(path, 512):
        return {models[0]: amounts_of(load_report(path))}
    return _DOCUMENT.load(fspath(path))


def save_baseline(path: str | PathLike[str], models: Mapping[str, tuple[str, Amounts]]) -> None:
    """Write source and amounts of each model, whole or not at all."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "models": {name: {"source": source, "totals": dict(totals)} for name, (source, totals) in models.items()},
    }
    write_text(path, json_text(data, indent=2) + "\n")
