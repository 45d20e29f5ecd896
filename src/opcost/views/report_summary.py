"""What is said of a report below its table: the totals, the conventions they follow, and everything the reader must know."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opcost.core.cost import FLOPS_PER_MAC
from opcost.core.graph import TensorSpec, note_texts
from opcost.core.report import NO_RULE, Parameter, Report
from opcost.core.units import format_count
from opcost.views.cell import in_runs
from opcost.views.summary import LONG_LINE, Quantity, Section, Summary, held
from opcost.wording import shortened, some

LONGEST_NUMBER = 20
"""Digits of a number in what is told beside the rows."""


ASSUMED_SIZES = "assumed-sizes"
"""The code of notes that are part of the heading: which sizes of inputs neither the caller nor the file gives."""


def summarize(report: Report) -> Summary:
    """The whole report in a few lines."""
    return Summary(
        heading=heading_of(report),
        quantities=_quantities(report),
        phases=tuple(report.phases.items()) if set(report.phases) != {"forward"} else (),
        conventions=_conventions(report),
        sections=tuple(section for section in _sections(report) if section.lines),
    )


def heading_of(report: Report) -> tuple[str, ...]:
    """What was counted, and with which inputs."""
    meta = report.meta
    root = report.modules[0].type
    source = meta.get("source", "")
    name = root if source in ("", root) else f"{source} ({root})" if root else source
    framework = " ".join(filter(None, (meta.get("framework", ""), meta.get("version", ""))))
    first = " · ".join(filter(None, (name, framework)))
    inputs = _some([f"{name} {_spec(spec)}".strip() for name, spec in report.inputs])
    if inputs and any(note.code == "guessed-inputs" for note in report.notes):
        inputs += " (generated)"
    outputs = _some(in_runs(map(_spec, report.outputs)))
    assumed = [f"sizes   {shortened(note.text, LONG_LINE)}" for note in report.notes if note.code == ASSUMED_SIZES]
    lines = [first, *assumed, f"input   {inputs}" if inputs else "", f"output  {outputs}" if outputs else ""]
    return tuple(line for line in lines if line)


def _spec(spec: TensorSpec) -> str:
    return f"{spec} {spec.dtype}"


def _some(words: list[str]) -> str:
    return ", ".join(held(word) for word in some(words))


def _quantities(report: Report) -> tuple[Quantity, ...]:
    totals = report.totals
    partial = totals.uncounted > 0
    unused = totals.unused_params
    frozen = totals.params - totals.trainable_params
    found = [
        Quantity("params", totals.params, "count"),
        Quantity("  trainable", totals.trainable_params, "count") if frozen else None,
        Quantity("  frozen", frozen, "count") if frozen else None,
        Quantity("  unused", unused, "count", remark="read by no operator") if unused else None,
        Quantity("buffers", totals.buffers, "count") if totals.buffers else None,
        Quantity("MACs", totals.macs, "count", partial, "multiply-accumulates"),
        Quantity("FLOPs", totals.flops, "count", partial, f"{FLOPS_PER_MAC} per MAC, and all other arithmetic"),
        Quantity("activations", totals.activations, "count", partial, "elements of new tensors, forward"),
        Quantity("bytes read", totals.bytes_read, "bytes", partial, "by each operator, without fusion"),
        Quantity("bytes written", totals.bytes_written, "bytes", partial),
        Quantity("param bytes", totals.param_bytes, "bytes"),
        Quantity("buffer bytes", totals.buffer_bytes, "bytes") if totals.buffer_bytes else None,
        None
        if report.peak_bytes is None
        else Quantity("peak memory", report.peak_bytes, "bytes", partial, "highest sum of live tensors"),
        *_cache(report),
    ]
    return tuple(quantity for quantity in found if quantity is not None)


def _cache(report: Report) -> Iterable[Quantity]:
    """What a language model keeps of the texts that it has read; in a file that was saved anything may stand there."""
    names = ("cache_tokens", "cache_bytes", "cache_bytes_per_token")
    told = [report.meta.get(name, "") for name in names]
    if all(text.isdecimal() and len(text) < LONGEST_NUMBER for text in told):
        tokens, nbytes, more = map(int, told)
        yield Quantity("cache", nbytes, "bytes", remark=f"after the pass, {tokens:,} tokens of each text")
        yield Quantity("  per token", more, "bytes", remark="one more of each text")


def _conventions(report: Report) -> tuple[str, ...]:
    meta = report.meta
    said = [f"1 MAC = {FLOPS_PER_MAC} FLOPs"]
    causal = meta.get("causal", "full")
    if causal != "full" or any(row.op.kind == "attention" and row.op.attrs.get("causal") for row in report.rows):
        said.append(f"causal attention counted {'in full' if causal == 'full' else 'by half'}")
    if mode := meta.get("mode"):
        said.append(f"{mode} mode")
    if device := meta.get("device"):
        said.append(device)
    if dtypes := list(dict.fromkeys(parameter.spec.dtype for parameter in report.parameters if not parameter.buffer)):
        said.append(f"{', '.join(dtypes)} parameters")
    return tuple(said)


def _sections(report: Report) -> Iterable[Section]:
    yield Section("unused parameters", _limited(_unused(report.unused)))
    aliases = {module.path: module.same_as for module in report.modules if module.same_as is not None}
    yield Section(
        "shared modules",
        _limited(
            [
                f"{path} = {first or 'the model itself'}"
                for path, first in aliases.items()
                if _owner(path) not in aliases
            ]
        ),
        "one module under several names: its parameters count once, its work as often as it is called",
    )
    shared = [p for p in report.shared if not all(_owner(name) in aliases for name in p.names[1:])]
    yield Section("shared parameters", _limited(_shared(shared)), "counted once, at the first name")
    yield _uncounted(report)
    yield from notes_of(report)


def notes_of(report: Report) -> Iterable[Section]:
    """What the reader must know beside the numbers."""
    notes = [note for note in report.notes if note.code != ASSUMED_SIZES]
    yield Section("notes", _limited(note_texts(notes, places=True)))


def _uncounted(report: Report) -> Section:
    missed = report.coverage.uncounted
    lines = []
    for entry in missed:
        times = f"\u00a0×{entry.count}" if entry.count > 1 else ""
        reason = f" ({entry.reason})" if entry.reason != NO_RULE else ""
        lines.append(f"{entry.raw}{times} in {_places(entry.modules)}{reason}")
    without_rule = [entry.raw for entry in missed if entry.reason == NO_RULE]
    hint = "the totals are lower bounds"
    if without_rule:
        more = ", ..." if len(without_rule) > 1 else ""
        rules = f'rules={{"{without_rule[0]}": rule{more}}}'
        hint += "; to count them, pass " + held(rules)
    share = f"{sum(entry.count for entry in missed):,} of {len(report.rows):,}"
    return Section(f"uncounted operators, {share}", _limited(lines), hint, urgent=True)


def _unused(parameters: Iterable[Parameter]) -> list[str]:
    """Modules, names and elements; modules that differ only in numbers are one line."""
    groups: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(_pattern(_owner(parameter.name)), []).append(parameter)
    lines = []
    for pattern, found in groups.items():
        owners = list(dict.fromkeys(_owner(parameter.name) for parameter in found))
        names = ", ".join(some(list(dict.fromkeys(parameter.name.rpartition(".")[2] for parameter in found))))
        owner = owners[0] if len(owners) == 1 else pattern
        amount = _amount(len(owners), _elements(found))
        lines.append(f"{owner}: {names} {amount}" if owner else f"{names} {amount}")
    return lines


def _shared(parameters: Iterable[Parameter]) -> list[str]:
    groups: dict[tuple[str, ...], list[Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(tuple(map(_pattern, parameter.names)), []).append(parameter)
    return [
        f"{_equal(found[0].names if len(found) == 1 else tuple(dict.fromkeys(patterns)))} "
        + _amount(len(found), _elements(found))
        for patterns, found in groups.items()
    ]


def _equal(names: tuple[str, ...]) -> str:
    shown = names if len(names) <= 4 else (*names[:3], f"({len(names) - 3:,} more names)")
    return " = ".join(shown)


def _amount(count: int, elements: int) -> str:
    """`×12  9.22 K`, kept on one line."""
    size = format_count(elements)
    return (f"×{count}, {size}" if count > 1 else size).replace(" ", "\u00a0")


def _elements(parameters: Iterable[Parameter]) -> int:
    return sum(parameter.spec.numel for parameter in parameters if parameter.spec.known)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _pattern(name: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _places(modules: tuple[str, ...]) -> str:
    named = [path or "the model itself" for path in modules]
    return ", ".join(named) if len(named) <= 3 else f"{', '.join(named[:2])} and {len(named) - 2:,} more modules"


def _limited(lines: list[str]) -> tuple[str, ...]:
    return tuple(shortened(line, LONG_LINE) for line in some(lines))
