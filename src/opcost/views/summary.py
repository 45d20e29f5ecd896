"""A report in a few lines: heading, totals, conventions and what the reader must know; and its memory as a sheet."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from opcost.core.graph import FLOPS_PER_MAC, PARTS, How, Memory, MemoryPart, TensorSpec, note_texts
from opcost.core.report import NO_RULE, Parameter, Report
from opcost.core.sheet import LONG_LINE, Field, Line, Section, Sheet, Table, Total
from opcost.core.units import format_bytes, format_count
from opcost.errors import shortened, some
from opcost.views.view import ViewOptions, in_runs, keep_together, whole_percent

LONGEST_NUMBER = 20  # digits of a number in the meta data
ASSUMED_SIZES = "assumed-sizes"  # the code of notes in the heading: sizes that neither the caller nor the file gives
ROOT = "the model itself"


def summarize(report: Report) -> Sheet:
    """The whole report in a few lines, without its table."""
    meta = report.meta
    conventions = [f"1 MAC = {FLOPS_PER_MAC} FLOPs"]
    causal = meta.get("causal", "full")
    if causal != "full" or any(
        row.op.kind == "attention" and row.op.attrs.get("causal") for row in report.distinct_rows
    ):
        conventions.append(f"causal attention counted {'in full' if causal == 'full' else 'by half'}")
    conventions += filter(None, (f"{mode} mode" if (mode := meta.get("mode")) else "", report.device))
    if dtypes := list(dict.fromkeys(parameter.spec.dtype for parameter in report.parameters if not parameter.buffer)):
        conventions.append(f"{', '.join(dtypes)} parameters")
    return Sheet(
        meta=meta,
        heading=heading_of(report),
        totals=_totals(report),
        phases=tuple(report.phases.items()) if set(report.phases) != {"forward"} else (),
        conventions=tuple(conventions),
        sections=tuple(section for section in _sections(report) if section.lines),
    )


def heading_of(report: Report) -> tuple[str, ...]:
    """What was counted, by its whole name, and with which inputs."""
    meta = report.meta
    root = report.modules[0].type
    source = meta.get("source", "")
    name = root if source in ("", root) else f"{source} ({root})" if root else source
    framework = " ".join(filter(None, (meta.get("framework", ""), meta.get("version", ""))))

    def spec_text(spec: TensorSpec) -> str:
        return f"{spec} {spec.dtype}"

    def listed(words: list[str]) -> str:
        return ", ".join(keep_together(word) for word in some(words))

    inputs = listed([f"{name} {spec_text(spec)}".strip() for name, spec in report.inputs])
    if inputs and any(note.code == "guessed-inputs" for note in report.notes):
        inputs += " (generated)"
    outputs = listed(in_runs(map(spec_text, report.outputs)))
    assumed = [f"sizes   {shortened(note.text, LONG_LINE)}" for note in report.notes if note.code == ASSUMED_SIZES]
    model = " · ".join(filter(None, (name, framework)))
    lines = [
        f"model   {model}" if model else "",
        *assumed,
        f"input   {inputs}" if inputs else "",
        f"output  {outputs}" if outputs else "",
    ]
    return tuple(line for line in lines if line)


def _totals(report: Report) -> tuple[Total, ...]:
    totals = report.totals
    partial = totals.uncounted > 0
    meta, active = report.meta, report.active_params
    unused = totals.unused_params
    frozen = totals.params - totals.trainable_params
    used = f"for a token, with {meta.get('experts_per_token')} of {meta.get('experts')} experts"
    training, memory = "backward" in report.phases, report.memory
    work, live = "multiply-accumulates", "highest sum of live tensors"
    if training and totals.macs:
        work += f", {whole_percent(report.phases['forward'].macs / totals.macs)} of them forward"
    if training and memory is not None and memory.parts and memory.peak_bytes:
        part = max(memory.parts, key=memory.parts.__getitem__)
        live += f", {whole_percent(memory.parts[part] / memory.peak_bytes)} of it {part}"
    found = [
        Total("params", totals.params, "count", large=True),
        None if active is None else Total("  active", active, "count", remark=used, large=True),
        Total("  trainable", totals.trainable_params, "count") if frozen else None,
        Total("  frozen", frozen, "count") if frozen else None,
        Total("  unused", unused, "count", remark="read by no operator") if unused else None,
        Total("buffers", totals.buffers, "count") if totals.buffers else None,
        Total("MACs", totals.macs, "count", partial, work, large=True),
        Total(
            "FLOPs",
            totals.flops,
            "count",
            partial,
            f"{FLOPS_PER_MAC} per MAC, and all other arithmetic",
            large=active is None,
        ),
        Total("activations", totals.activations, "count", partial, "elements of new tensors, forward"),
        Total("bytes read", totals.bytes_read, "bytes", partial, "by each operator, without fusion"),
        Total("bytes written", totals.bytes_written, "bytes", partial),
        Total("param bytes", totals.param_bytes, "bytes"),
        Total("buffer bytes", totals.buffer_bytes, "bytes") if totals.buffer_bytes else None,
    ]
    if report.peak_bytes is not None:
        found.append(Total("peak memory", report.peak_bytes, "bytes", partial, live, large=True))
    if collectives := report.collectives:
        sent, unknown = report.wire_bytes, any(line.uncounted for line in collectives)
        found.append(Total("on the wire", sent, "bytes", unknown, "sent to other ranks, ring algorithms", large=True))
    # What a language model caches of the texts that it has read; a saved file may hold anything there
    numbers = [meta.get(name, "") for name in ("cache_tokens", "cache_bytes", "cache_bytes_per_token")]
    if all(text.isdecimal() and len(text) < LONGEST_NUMBER for text in numbers):
        tokens, nbytes, more = map(int, numbers)
        found.append(Total("cache", nbytes, "bytes", remark=f"after the pass, {tokens:,} tokens of each text"))
        found.append(Total("  per token", more, "bytes", remark="one more of each text"))
    return tuple(total for total in found if total is not None)


def _sections(report: Report) -> Iterable[Section]:
    yield Section("unused parameters", _limited(_unused(report.unused)))
    aliases = {module.path: module.same_as for module in report.modules if module.same_as is not None}
    same = [f"{path} = {first or ROOT}" for path, first in aliases.items() if _owner(path) not in aliases]
    once = "one module under several names: its parameters count once, its work as often as it is called"
    yield Section("shared modules", _limited(same), once)
    shared = [p for p in report.shared if not all(_owner(name) in aliases for name in p.names[1:])]
    yield Section("shared parameters", _limited(_shared(shared)), "counted once, at the first name")
    missed = report.coverage.uncounted
    lines = []
    for entry in missed:
        times = f"\u00a0×{entry.count}" if entry.count > 1 else ""
        reason = f" ({entry.reason})" if entry.reason != NO_RULE else ""
        named = [path or ROOT for path in entry.modules]
        places = ", ".join(named) if len(named) <= 3 else f"{', '.join(named[:2])} and {len(named) - 2:,} more modules"
        lines.append(f"{entry.raw}{times} in {places}{reason}")
    without_rule = [entry.raw for entry in missed if entry.reason == NO_RULE]
    hint = "the totals are lower bounds"
    if without_rule:
        more = ", ..." if len(without_rule) > 1 else ""
        rules = f'rules={{"{without_rule[0]}": rule{more}}}'
        hint += "; to count them, pass " + keep_together(rules)
    share = f"{sum(entry.count for entry in missed):,} of {len(report.rows):,}"
    yield Section(f"uncounted operators, {share}", _limited(lines), hint, urgent=True)
    yield _notes(report)


def _notes(report: Report) -> Section:
    notes = [note for note in report.notes if note.code != ASSUMED_SIZES]
    return Section("notes", _limited(note_texts(notes, places=True)))


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
        amount = _amount(len(owners), found)
        lines.append(f"{owner}: {names} {amount}" if owner else f"{names} {amount}")
    return lines


def _shared(parameters: Iterable[Parameter]) -> list[str]:
    groups: dict[tuple[str, ...], list[Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(tuple(map(_pattern, parameter.names)), []).append(parameter)
    lines = []
    for patterns, found in groups.items():
        names = found[0].names if len(found) == 1 else tuple(dict.fromkeys(patterns))
        listed = names if len(names) <= 4 else (*names[:3], f"({len(names) - 3:,} more names)")
        lines.append(f"{' = '.join(listed)} {_amount(len(found), found)}")
    return lines


def _amount(count: int, parameters: Iterable[Parameter]) -> str:
    """`×12, 9.22 K`, kept on one line."""
    size = format_count(sum(parameter.spec.numel for parameter in parameters if parameter.spec.known))
    return (f"×{count}, {size}" if count > 1 else size).replace(" ", "\u00a0")


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _pattern(name: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _limited(lines: list[str]) -> tuple[str, ...]:
    return tuple(shortened(line, LONG_LINE) for line in some(lines))


# -- memory -------------------------------------------------------------------------------------------------------------

BARS = "▁▂▃▄▅▆▇█"
PLACES = 36  # characters of the curve
HOW: dict[How, str] = {
    "lifetimes": "a tensor lives until Python and autograd let go of it",
    "last reader": "a tensor is gone after the last operator that reads it",
}
STANDING: tuple[MemoryPart, ...] = ("weights", "inputs", "received", "optimizer")
"""What is in memory from the first operator to the last."""


def memory_sheet(report: Report, options: ViewOptions) -> Sheet:
    """The peak by its parts, then by the modules whose results are in memory, and how it rises and falls."""
    memory = report.known_memory()
    whole = memory.peak_bytes or 1
    before, added = memory.base_bytes, memory.peak_bytes - memory.base_bytes
    amounts = (
        ("peak memory", memory.peak_bytes, "the most that is live at once"),
        ("  before", before, "weights, inputs, optimizer"),
        ("  added", added, "by the pass or step"),
        ("reserved", memory.reserved_bytes, "by the allocator, with libraries' workspaces"),
        ("fixed", memory.fixed_bytes, "the context and code of kernels, whatever runs"),
    )
    sections = [_notes(report)]
    if memory.curve:
        op = report.rows[memory.at].op
        place = f" of {op.module}" if op.module else ""
        operator = f"operator {memory.at + 1:,} of {len(memory.curve):,}, {op.phase}"
        where = Section("where", (f"the peak is reached in {op.raw}{place}, {operator}", *memory_facts(memory)))
        sections[:0] = [where, Section("over the execution", _curve(memory))]
    sizes = (Field("bytes", "bytes"), Field("share", "share", "%"))
    largest_first = sorted(memory.parts, key=lambda part: -memory.parts[part])
    parts = Table(
        fields=(Field("part", "name", "part of the peak"), *sizes, Field("meaning", "text", "what it is")),
        lines=(
            *(Line((part, memory.parts[part], memory.parts[part] / whole, PARTS[part])) for part in largest_first),
            Line(("peak", memory.peak_bytes, 1.0, ""), "total"),
        ),
        main=True,
    )
    # The modules whose results are in memory; of many the largest, and what the rest adds up to
    top = options.top
    lines = [Line((h.module or f"({ROOT})", h.bytes, h.bytes / whole, h.tensors)) for h in memory.holders[:top]]
    if top and (rest := memory.holders[top:]):
        size, share = sum(h.bytes for h in rest), sum(h.bytes / whole for h in rest)
        lines.append(Line((f"{len(rest):,} more modules", size, share, sum(h.tensors or 0 for h in rest)), "rest"))
    holders = Table(
        title="live at the peak, by the module that made it",
        fields=(Field("module", "name"), *sizes, Field("tensors", "number")),
        lines=tuple(lines),
    )
    return Sheet(
        meta=report.meta,
        heading=heading_of(report),
        tables=(parts, holders) if memory.holders else (parts,),
        totals=tuple(Total(name, size, "bytes", remark=remark) for name, size, remark in amounts if size is not None),
        sections=tuple(section for section in sections if section.lines),
    )


def memory_facts(memory: Memory) -> tuple[str, ...]:
    """How lifetimes were found, and on which device."""
    return HOW[memory.how], *((f"as {memory.device} holds it, with its kernels' own memory",) if memory.device else ())


def _curve(memory: Memory) -> tuple[str, ...]:
    """What is in memory from the first operator to the last, each character the most of its stretch."""
    curve = memory.curve
    width = min(PLACES, len(curve))
    ends = [len(curve) * place // width for place in range(width + 1)]
    highs = [max(curve[begin:end]) for begin, end in pairwise(ends)]
    low, high = min(*highs, memory.base_bytes), max(highs)
    steps = [(len(BARS) - 1) * (height - low) // (high - low) if high > low else 0 for height in highs]
    return ("".join(BARS[step] for step in steps), f"from {format_bytes(low)} to {format_bytes(high)}")


def layers_of(memory: Memory) -> tuple[Mapping[MemoryPart, int], Mapping[str, Sequence[int]]]:
    """The curve as constant amounts and curves; where these are known at the peak alone, what the pass adds is "added"."""
    passing: dict[str, Sequence[int]] = {part: memory.layers[part] for part in PARTS if part in memory.layers}
    standing = {part: memory.parts[part] for part in STANDING if memory.parts.get(part) and part not in passing}
    if memory.curve and sum(standing.values()) > min(memory.curve):  # inputs that the run freed, and no curve of theirs
        standing.pop("inputs", None)
    base = sum(standing.values())
    rest = [whole - base - sum(parts) for whole, *parts in zip(memory.curve, *passing.values(), strict=True)]
    if any(rest):
        passing["workspace" if memory.layers else "added"] = rest
    return standing, passing
