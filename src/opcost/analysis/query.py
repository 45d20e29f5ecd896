"""Questions to a profile: which operators, grouped how, in which order, how many, and what they cost beside their time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from opcost.analysis.breakdown import devices, gains_of, in_steps, judged
from opcost.analysis.join import against_peak, is_causal, product_share, rounds_to_tf32, runs_tf32, with_costs
from opcost.analysis.part import (
    LABELS,
    Part,
    check_how,
    check_keys,
    combine,
    fields,
    group,
    label,
    parts_of,
    self_host_ns,
    sort_key,
    sort_lines,
    unattributed_parts,
    usual_side,
)
from opcost.analysis.where import compile_where
from opcost.core.devices import Device, device_named_in
from opcost.core.devices import device as find_device
from opcost.core.graph import Note
from opcost.core.kinds import KINDS
from opcost.core.option import takes
from opcost.core.profile import OWN_LABELS, Answer, AnswerLine, LineRole, Profile, RankWait, extra_entries, over_runs
from opcost.errors import OpcostError, UnknownName, nearest
from opcost.options import Causal, Measure, Querying, Side
from opcost.rules.registry import Convention

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The options of a query in the one form that is worked with."""

    side: Side | None = None
    """None is the device where the trace has times of one."""
    measure: Measure = "time"
    causal: Causal = "full"
    where: str | None = None
    type: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    module: str | None = None
    """A module, and everything below it."""
    name: str | None = None
    """A regular expression that the name begins with."""
    input_dtype: str | None = None
    min_time_ns: float = -math.inf
    max_time_ns: float = math.inf
    group_by: tuple[str, ...] = ()
    aggregate_by: tuple[str, ...] = ()
    aggregate: str | None = None
    depth: int | None = None
    percentiles: tuple[float, ...] = ()
    sort: str = "time"
    top: int = 0
    """Number of lines; 0 shows all, and a negative number all but the last ones."""
    device: Device | None = None

    def __post_init__(self) -> None:
        for what, name, known in (
            ("side", self.side or "device", get_args(Side)),
            ("measure", self.measure, get_args(Measure)),
            ("value of causal", self.causal, get_args(Causal)),
            *(("kind", kind, tuple(KINDS)) for kind in self.kind),
        ):
            if name not in known:
                raise UnknownName(what, name, known)
        check_keys((*self.group_by, *self.aggregate_by))
        if self.aggregate is not None:
            check_how(self.aggregate)
        sort_key(self.sort, self.percentiles)
        for percent in self.percentiles:
            if not 0 <= percent <= 100:
                raise OpcostError(f"{percent:g} is not a percentile; they go from 0 to 100")
        if self.depth is not None and (type(self.depth) is not int or self.depth < 1):
            raise OpcostError(f"depth {self.depth!r} is not a whole number of at least 1")
        if type(self.top) is not int:
            raise OpcostError(f"top is {self.top!r}, which is not a whole number", hint="give the number itself: top=5")

    @property
    def how(self) -> str:
        return self.aggregate or "sum"

    @property
    def filters(self) -> bool:
        """Whether something of the profile may be left out."""
        chosen = (self.where, self.type, self.kind, self.module, self.name, self.input_dtype)
        return any(chosen) or (self.min_time_ns, self.max_time_ns) != (-math.inf, math.inf)


@takes(Querying)
def query(profile: Profile, **options: Unpack[Querying]) -> Answer:
    """Query a profile: `query(profile, kind="conv", sort="time", top=5, aggregate_by="type", aggregate="sum")`.

    `opcost.options.Querying` explains each option.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in ("type", "kind", "group_by", "aggregate_by"):
        if name in given:
            given[name] = tuple(given[name].split(",") if isinstance(given[name], str) else given[name])
    if "percentiles" in given:
        given["percentiles"] = tuple(float(percent) for percent in given["percentiles"])
    for name in ("min_time", "max_time"):
        if name in given:
            given[f"{name}_ns"] = given.pop(name) * 1e9
    if isinstance(given.get("device"), str):
        given["device"] = find_device(given["device"])
    return ask(profile, Question(**given))


def ask(profile: Profile, question: Question) -> Answer:
    """The answer to a question."""
    from opcost.rules import default_rules

    profile = with_costs(profile, default_rules(), Convention(causal=question.causal))
    on_device = usual_side(profile) == "device"
    # The device of a run of which only the host is known did none of that work.
    if question.device is None and on_device:
        question = replace(question, device=device_named_in(profile.meta))
    side = question.side or usual_side(profile)
    by_time = side == "device" and question.measure == "time"
    loose = unattributed_parts(profile) if by_time else []
    host_total, device_total = _totals(profile)
    total = device_total if side == "device" else host_total
    keys = (*question.group_by, *question.aggregate_by)
    parts = parts_of(profile, side, question.measure, keys=keys)
    uses = devices(profile)
    tf32 = rounds_to_tf32(profile)
    if by_time:
        parts, loose = (judged(each, question.device, uses, tf32=tf32) for each in (parts, loose))
        if question.device is not None and profile.meta.get("format") != "prediction":
            from opcost.analysis.expected import with_expected, with_use_of_peak

            # Of the devices by operators, whatever the lines are
            operators = with_expected(parts_of(profile, side, question.measure), question.device)
            uses = tuple(with_use_of_peak(uses, in_steps(profile), operators, question.device, tf32=tf32))
            parts = with_expected(parts, question.device)
    waited = tuple(extra_entries(profile.extra, "ranks", RankWait))
    gains = () if question.filters or side == "host" else gains_of(in_steps(profile), parts, waited, uses)
    if "kernel" in keys:
        # By kernel, work without an operator is as good as any other.
        parts, loose = [*parts, *loose], []
    asker = _Asker(question, total, tf32)
    condition = compile_where(question.where, fields(total, asker.single)) if question.where else lambda _: True
    parts, loose = ([part for part in each if _passes(part, question) and condition(part)] for each in (parts, loose))
    lines = asker.grouped(parts) if question.group_by else asker.listed(parts)
    for name, members in _named(loose, total, by_rank="rank" in keys).items():
        words = {"name": name, "type": "device work without an operator"}
        lines.append(replace(asker.combined(members, "sum", words, role="unattributed"), uncosted=0))
    lines.append(asker.total_line([*parts, *loose]))
    runs = profile.runs
    by_step = "step" in keys or re.search(r"\bstep\b", question.where or "") is not None
    is_per_run = runs > 1 and bool(keys or question.aggregate) and not by_step
    divided = runs if is_per_run else 1
    if is_per_run:
        lines = [line.per_run(runs) if line.role != "row" or question.how == "sum" else line for line in lines]
    return Answer(
        meta=profile.meta, side=side, keys=keys, how=question.how if keys or question.aggregate else "",
        lines=tuple(lines), percentiles=question.percentiles, total_ns=over_runs(total, divided),
        host_ns=over_runs(host_total, divided), device_ns=over_runs(device_total, divided),
        unattributed_ns=over_runs(sum(kernel.duration_ns for kernel in profile.unattributed), divided) or 0,
        wall_ns=over_runs(profile.wall_ns, divided), runs=runs, is_per_run=is_per_run, devices=uses,
        waited=waited, gains=gains, peak=question.device.description if question.device else "",
        notes=(*profile.notes, *_notes(profile, question, lines, on_device=on_device)),
    )  # fmt: skip


def _notes(profile: Profile, question: Question, lines: Iterable[AnswerLine], *, on_device: bool) -> Iterator[Note]:
    if any(map(is_causal, profile.rows)):
        how = "in full; --causal half counts what the mask lets through" if question.causal == "full" else "by half"
        yield Note("causal", f"causal attention counted {how}")
    # What was requested by a name that nothing in the profile has, so that an empty answer may be a slip
    types = {row.type for row in profile.rows} if question.type else set()
    modules = {row.module for row in profile.rows} if question.module else set()
    inside = any(module.startswith(f"{question.module}.") for module in modules)
    requested = [("type", name, types) for name in question.type]
    requested += [("module", question.module, modules)] if question.module and not inside else []
    if question.input_dtype:
        dtypes = {spec.dtype.casefold() for row in profile.rows for spec in row.ins}
        requested.append(("input type", question.input_dtype.casefold(), dtypes))
    for what, name, known in requested:
        if name not in known:
            near = " or ".join(map(repr, nearest(name, known)))
            meant = f"; did you mean {near}?" if near else ""
            yield Note("absent", f"no operator of the profile has the {what} {name!r}{meant}")
    name = profile.meta.get("gpu") or profile.meta.get("device", "")
    # A prediction has other names for devices, and its own figures.
    if on_device and question.device is None and name and profile.meta.get("format") != "prediction":
        how = "--device NAME of a device like it, or --peak-flops and --peak-bandwidth"
        yield Note("peaks", f"the peaks of {name} are not known, so no rate is compared with them; give {how}")
    if above := sum(line.above_peak for line in lines):
        causes = "another precision, data served from a cache, or a wrong device"
        yield Note("above_peak", f"{above} lines exceed the device's peak: {causes}")


@dataclass(slots=True)
class _Asker:
    """Lines for parts that have passed, in one way of grouping and sorting."""

    question: Question
    total: float | None
    tf32: bool

    def listed(self, parts: Sequence[Part]) -> list[AnswerLine]:
        """The requested lines, and one for all the others."""
        question = self.question
        pairs: list[tuple[AnswerLine, Sequence[Part]]]
        if question.aggregate_by:
            pairs = self._groups(parts, question.aggregate_by, question.how)
        elif question.aggregate:
            pairs = [(self._finished(parts, question.how, {"name": "all"}), parts)] if parts else []
        else:
            pairs = [(self.single(part), [part]) for part in parts]
        ordered = sort_lines(pairs, question.sort, question.percentiles)
        shown = ordered[: question.top or None]
        hidden = ordered[len(shown) :]
        lines = []
        spent = 0.0
        for line, _ in shown:
            spent += line.time_ns or 0.0
            lines.append(replace(line, cumulative_ns=spent))
        if hidden:
            rest = [part for _, members in hidden for part in members]
            lines.append(self.combined(rest, "sum", {"name": f"({len(hidden)} more)"}, role="rest"))
        return lines

    def grouped(self, parts: Sequence[Part]) -> list[AnswerLine]:
        """A line for each group, and below it the lines of the group."""
        question = self.question
        lines = []
        groups = self._groups(parts, question.group_by, "sum")
        for line, inside in sort_lines(groups, question.sort, question.percentiles):
            lines.append(replace(line, role="group"))
            lines += self.listed(inside)
        return lines

    def total_line(self, parts: Sequence[Part]) -> AnswerLine:
        """What all parts that passed add up to."""
        if not parts:
            share = _share(0.0, self.total)
            return AnswerLine(role="total", labels={"name": "total"}, count=0, time_ns=0.0, share=share)
        return replace(self.combined(parts, "sum", {"name": "total"}, role="total"), kernels=(), ins=(), outs=())

    def _groups(self, parts: Sequence[Part], keys: Sequence[str], how: str) -> list[tuple[AnswerLine, Sequence[Part]]]:
        found = group(parts, keys, self.question.depth)
        return [
            (self._finished(members, how, dict(zip(keys, labels, strict=True))), members)
            for labels, members in found.items()
        ]

    def single(self, part: Part) -> AnswerLine:
        """The line of one part by itself."""
        line = self._finished([part], "sum", {key: text for key in OWN_LABELS if (text := label(part, key))})
        return replace(line, id=part.row.id if part.row else None)

    def combined(
        self, parts: Sequence[Part], how: str, labels: Mapping[str, str], role: LineRole = "row"
    ) -> AnswerLine:
        of = self.question
        line = combine(parts, how, labels=labels, percentiles=of.percentiles, role=role, measure=of.measure)
        return replace(line, share=_share(line.time_ns, self.total))

    def _finished(self, parts: Sequence[Part], how: str, labels: Mapping[str, str]) -> AnswerLine:
        line = self.combined(parts, how, labels)
        if self.question.device is None:
            return line
        kinds = {LABELS["kind"](part) for part in parts}
        dtypes = {LABELS["dtype"](part) for part in parts}
        # A group of one kind and type has one peak; a mixed one has none.
        kind, dtype = (found.pop() if len(found) == 1 else "" for found in (kinds, dtypes))
        tf32, share = self.tf32 or any(runs_tf32(part.kernels) for part in parts), product_share(parts)
        return against_peak(line, self.question.device, kind=kind, dtype=dtype, tf32=tf32, products=share)


OPENED_SHARE = 0.05
OPENED_KERNELS = 5
"""Device work without an operator that is more of the time than this is opened into this many kernels and the others."""


def _named(loose: Sequence[Part], total: float | None, *, by_rank: bool) -> dict[str, list[Part]]:
    """Device work without an operator by why it has none, or the longest of its kernels by that and their names."""
    opened: dict[str, list[Part]] = {}
    if not by_rank and sum(part.time_ns for part in loose) > OPENED_SHARE * (total or 0):
        kernels: dict[str, list[Part]] = {}
        for part in loose:
            kernel = part.kernels[0]
            kernels.setdefault(f"({kernel.why or 'unattributed'}) {kernel.name}", []).append(part)
        ordered = sorted(kernels, key=lambda name: -sum(part.time_ns for part in kernels[name]))
        opened = {name: kernels[name] for name in ordered[:OPENED_KERNELS]}
        loose = [part for name in ordered[OPENED_KERNELS:] for part in kernels[name]]
    found: dict[str, list[Part]] = {}
    for part in loose:
        name, rank = LABELS["name"](part), part.kernels[0].rank
        found.setdefault(f"{rank} {name}" if by_rank and rank is not None else name, []).append(part)
    return opened | found


def _totals(profile: Profile) -> tuple[float | None, float | None]:
    host = [time for row in profile.rows if (time := self_host_ns(row)) is not None]
    device = [row.device_ns for row in profile.rows if row.device_ns is not None]
    device += [kernel.duration_ns for kernel in profile.unattributed]
    return (sum(host) if host else None), (sum(device) if device else None)


def _share(time: float | None, total: float | None) -> float | None:
    return time / total if time is not None and total else None


def _passes(part: Part, question: Question) -> bool:
    row, module, dtype = part.row, question.module, question.input_dtype
    if not question.min_time_ns <= part.time_ns <= question.max_time_ns:
        return False
    if row is None:
        return not (question.type or question.kind or module or question.name or dtype)
    try:
        is_named = not question.name or re.match(question.name, row.name)
    except re.error as fault:
        hint = "put a backslash before ( [ { * + ? . \\"
        raise OpcostError(f"{question.name!r} is not a regular expression: {fault}", hint=hint) from None
    return bool(
        (not question.type or row.type in question.type)
        and (not question.kind or row.kind in question.kind)
        and (module is None or row.module == module or row.module.startswith(f"{module}."))
        and is_named
        and (not dtype or any(spec.dtype.casefold() == dtype.casefold() for spec in row.ins))
    )
