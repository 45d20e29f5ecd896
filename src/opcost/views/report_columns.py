"""The columns of a report: what each is called, what it shows, and which are shown when nobody chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from opcost.core.quantity import QUANTITIES
from opcost.core.report import STATS, Group, Row, Stats
from opcost.views.listing import Column, Unit, by_name
from opcost.views.tree import Node

By: TypeAlias = Literal["module", "op", "kind", "type"]
_TITLES: Mapping[str, str] = {
    "params": "params",
    "trainable_params": "trainable",
    "unused_params": "unused",
    "buffers": "buffers",
    "param_bytes": "param bytes",
    "buffer_bytes": "buffer bytes",
    "macs": "MACs",
    "flops": "FLOPs",
    "bytes_read": "read",
    "bytes_written": "written",
    "activations": "activations",
    "activation_bytes": "act. bytes",
    "ops": "ops",
    "uncounted": "uncounted",
}
_PARAMETERS = ("params", "trainable_params", "unused_params", "buffers", "param_bytes", "buffer_bytes")


def _stat_columns(of: Callable[[Any], Stats], total_macs: int, *, prefix: str = "", word: str = "") -> list[Column]:
    """A column for each quantity, and for what can be said with two of them."""

    def column(name: str) -> Column:
        unit: Unit = "bytes" if "bytes" in name else "number" if name in ("ops", "uncounted") else "count"
        return Column(
            name=prefix + name,
            title=word + _TITLES[name],
            unit=unit,
            of=lambda item: getattr(of(item), name),
            dull=(0,) if name == "uncounted" else (),
            priced=QUANTITIES[name].priced,
        )

    return [
        *map(column, STATS),
        Column(
            name=prefix + "bytes",
            title=word + "bytes",
            unit="bytes",
            of=lambda item: of(item).bytes_read + of(item).bytes_written,
            priced=True,
        ),
        Column(
            name=prefix + "share",
            title=word + "%",
            unit="share",
            of=lambda item: _share(of(item).macs, total_macs),
            dull=(0.0,),
        ),
    ]


def _share(macs: int, total: int) -> float:
    return macs / total if total else 0.0


def columns_of(by: By, total_macs: int) -> dict[str, Column]:
    """Every column of a listing by name; shares are of this many MACs."""
    if by == "module":
        return _module_columns(total_macs)
    return _op_columns(total_macs) if by == "op" else _group_columns(by, total_macs)


def _module_columns(total_macs: int) -> dict[str, Column]:
    """Columns of modules: each with everything below it, and again (`own`) without."""

    def own(node: Node) -> Stats:
        return node.module.own

    def total(node: Node) -> Stats:
        return node.module.total

    return by_name(
        Column(name="module", title="module", unit="name", of=lambda node: node.label),
        Column(name="path", title="path", unit="name", of=lambda node: node.module.path),
        Column(name="type", title="type", unit="text", of=lambda node: node.module.type),
        Column(name="depth", title="depth", unit="number", of=lambda node: node.module.depth),
        Column(name="calls", title="calls", unit="number", of=lambda node: node.module.calls, dull=(0, 1)),
        Column(name="input", title="input", unit="shapes", of=lambda node: node.module.inputs, dull=((),)),
        Column(name="output", title="output", unit="shapes", of=lambda node: node.module.outputs, dull=((),)),
        *_stat_columns(total, total_macs),
        *_stat_columns(own, total_macs, prefix="own_", word="own "),
        Column(name="extra", title="arguments", unit="text", of=lambda node: node.module.extra),
        Column(name="same_as", title="same as", unit="name", of=lambda node: node.module.same_as or ""),
        Column(name="note", title="", unit="text", of=lambda node: node.note, dull=("",)),
    )


def _op_columns(total_macs: int) -> dict[str, Column]:
    """Columns of a list of operators; a repeated one costs what all its repetitions cost."""

    def price(name: str) -> Callable[[Row], int | None]:
        return lambda row: None if row.cost is None else getattr(row.cost, name) * row.op.repeat

    def moved(row: Row) -> int | None:
        return None if row.cost is None else (row.cost.bytes_read + row.cost.bytes_written) * row.op.repeat

    def share(row: Row) -> float | None:
        return None if row.cost is None else _share(row.cost.macs * row.op.repeat, total_macs)

    def wrote(name: str) -> Callable[[Row], int | None]:
        """New elements or bytes; None where the operator has no cost and the size of its result is unknown."""
        return lambda row: None if row.cost is None and not getattr(row, name) else getattr(row, name) * row.op.repeat

    return by_name(
        Column(name="index", title="#", unit="number", of=lambda row: row.op.id),
        Column(name="op", title="operator", unit="name", of=lambda row: row.op.raw),
        Column(name="kind", title="kind", unit="text", of=lambda row: row.op.kind),
        Column(name="module", title="module", unit="name", of=lambda row: row.op.module, dull=("",)),
        Column(name="phase", title="phase", unit="text", of=lambda row: row.op.phase, dull=("forward",)),
        Column(name="repeat", title="times", unit="number", of=lambda row: row.op.repeat, dull=(1,)),
        Column(name="input", title="input", unit="shapes", of=lambda row: row.ins, dull=((),)),
        Column(name="output", title="output", unit="shapes", of=lambda row: row.outs, dull=((),)),
        Column(name="dtype", title="dtype", unit="text", of=_dtype, dull=("",)),
        *(
            Column(
                name=name,
                title=_TITLES[name],
                unit="bytes" if "bytes" in name else "count",
                of=price(name),
                priced=True,
            )
            for name in ("macs", "flops", "bytes_read", "bytes_written")
        ),
        Column(name="bytes", title="bytes", unit="bytes", of=moved, priced=True),
        Column(name="share", title="%", unit="share", of=share, dull=(0.0,)),
        Column(
            name="activations",
            title=_TITLES["activations"],
            unit="count",
            of=wrote("activations"),
            priced=True,
        ),
        Column(
            name="activation_bytes",
            title=_TITLES["activation_bytes"],
            unit="bytes",
            of=wrote("activation_bytes"),
            priced=True,
        ),
        Column(name="rule", title="rule", unit="text", of=lambda row: row.rule),
        Column(name="attrs", title="attributes", unit="text", of=_attributes),
    )


def _group_columns(by: str, total_macs: int) -> dict[str, Column]:
    """Columns of groups of operators (by kind) or of modules (by type)."""

    def stats(group: Group) -> Stats:
        return group.stats

    held = by == "type"
    return by_name(
        Column(name=by, title=by, unit="text", of=lambda group: group.key),
        Column(name="count", title="count", unit="number", of=lambda group: group.count),
        *(column for column in _stat_columns(stats, total_macs) if held or column.name not in _PARAMETERS),
    )


def _dtype(row: Row) -> str:
    spec = next(iter((*row.outs, *row.ins)), None)
    return spec.dtype if spec else ""


def _attributes(row: Row) -> str:
    return " ".join(f"{name}={value}" for name, value in row.op.told.items())


SHOWN: Mapping[By, tuple[str, ...]] = {
    "module": (
        "module", "type", "calls", "input", "output", "params", "macs", "share", "flops", "activations", "bytes",
        "param_bytes", "own_params", "own_macs", "note",
    ),
    "op": (
        "index", "op", "kind", "module", "phase", "repeat", "input", "output", "dtype", "macs", "share", "flops", "bytes",
        "activations",
    ),
    "kind": (
        "kind", "count", "macs", "share", "flops", "bytes_read", "bytes_written", "activations", "uncounted",
    ),
    "type": (
        "type", "count", "params", "macs", "share", "flops", "bytes_read", "bytes_written", "activations", "param_bytes",
        "uncounted",
    ),
}  # fmt: skip
"""Columns from left to right when nobody chooses and there is room for all."""

RANKED: Mapping[By, tuple[str, ...]] = {
    "module": (
        "module", "macs", "params", "share", "note", "type", "output", "calls", "input", "flops", "activations", "bytes",
        "param_bytes", "own_macs", "own_params",
    ),
    "op": (
        "index", "op", "macs", "phase", "repeat", "share", "output", "module", "flops", "bytes", "input", "kind", "dtype",
        "activations",
    ),
    "kind": (
        "kind", "macs", "share", "count", "flops", "uncounted", "bytes_read", "bytes_written", "activations",
    ),
    "type": (
        "type", "macs", "params", "share", "count", "flops", "uncounted", "bytes_read", "bytes_written", "activations",
        "param_bytes",
    ),
}  # fmt: skip
"""The same columns in the order in which they are given room."""

EVERY_BY: tuple[By, ...] = ("module", "op", "kind", "type")
