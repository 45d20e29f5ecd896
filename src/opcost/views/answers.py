"""One sentence with the answer, for each kind of result: what everybody reads first, in every format."""

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

from opcost.core.alike import late_rank, middle, slow_device, wait_of_others
from opcost.core.forecast import Forecast
from opcost.core.graph import MemoryPart
from opcost.core.limits import LATENCY, QUANTITIES, Quantity
from opcost.core.names import short_source
from opcost.core.profile import Answer, Busy
from opcost.core.report import Report
from opcost.core.results import Comparison, Entry, Fit, LayoutPlan, Recomputation, Sweep, Verdict
from opcost.core.scan import Scan
from opcost.core.sheet import LONG_LINE, Sheet
from opcost.core.units import format_bytes, short_bytes, short_count, short_range, short_time
from opcost.errors import counted, shortened
from opcost.views.comparison import percent
from opcost.views.planning import plan_answer
from opcost.views.profile import source_name
from opcost.views.tree import main_part
from opcost.views.view import keep_together, whole_percent

FEW = 3  # quantities of a comparison or a sweep in one sentence
LEAST_CAUSE = 0.05  # of a device's time: a smaller cause of its idleness is not named
_PARTS: dict[MemoryPart, str] = {
    "gathered": "gathered parameters",
    "received": "what other stages send",
    "saved": "saved activations",
    "temporary": "temporary results",
    "optimizer": "optimizer state",
}
_FRACTIONS = {0.25: "a quarter", 1 / 3: "a third", 0.5: "half"}
_NEAR = 0.005  # a share that is nearer to a fraction than this is called by it
_LEADING = ("macs", "params", "peak_bytes", LATENCY.name, "flops")
"""Quantities in the order in which a sentence names them."""


def answer_of(result: Any) -> str:
    """The answer of any result, in words with numbers of three digits."""
    return shortened(_answer(result), LONG_LINE)


def plain_answer(result: Any) -> str:
    """The same with ordinary spaces, for programs."""
    return answer_of(result).replace("\u00a0", " ")


def _short(quantity: Quantity, amount: int, *, partial: bool = False) -> str:
    shortest = {"bytes": short_bytes, "time": short_time}.get(quantity.unit, short_count)
    return keep_together(f"{'≥' if partial else ''}{shortest(amount)}")


def _spelled(quantity: Quantity, amount: int | None, *, partial: bool = False) -> str:
    """An amount with its unit: `4.09 GMACs`, `25.6 M parameters`, `108 MiB peak`."""
    if amount is None:
        return f"{quantity.title} unknown"
    text = _short(quantity, amount, partial=partial)
    if quantity.unit in ("bytes", "time"):
        word = {"peak_bytes": " peak", LATENCY.name: ""}.get(quantity.name, f" {quantity.title}")
    else:
        attached = quantity.name in ("macs", "flops") and text[-1:].isalpha()
        title = {"params": "parameters"}.get(quantity.name, quantity.title)
        word = title if attached else f" {title}"
    return text + keep_together(word)


def _params(params: int, active: int | None) -> str:
    """All parameters, and of a mixture of experts those that a token uses."""
    used = "" if active is None else keep_together(f" ({short_count(active)} active)")
    return _spelled(QUANTITIES["params"], params) + used


@singledispatch
def _answer(result: Any) -> str:
    raise TypeError(f"no sentence is known for {type(result).__name__}")


# -- reports and predictions ----------------------------------------------------------------------------------------------


@_answer.register
def _(report: Report) -> str:
    totals, memory = report.totals, report.memory
    partial = totals.uncounted > 0
    work = "macs" if totals.macs or not totals.flops else "flops"
    amount = _spelled(QUANTITIES[work], getattr(totals, work), partial=partial)
    peak = None if memory is None else memory.peak_bytes
    sent = f", {_spelled(QUANTITIES['wire_bytes'], report.wire_bytes, partial=partial)}" if report.collectives else ""
    if "backward" in report.phases:
        forward = report.phases.get("forward")
        if forward is not None and totals.macs:
            amount += f" ({_fraction(forward.macs / totals.macs)} forward)"
        peak_text = _spelled(QUANTITIES["peak_bytes"], peak, partial=partial and peak is not None)
        if memory is not None and memory.parts and peak:
            part = max(memory.parts, key=memory.parts.__getitem__)
            peak_text += f", of which {whole_percent(memory.parts[part] / peak)} {_PARTS.get(part, part)}"
        return f"{report.subject}: {amount}{sent}, {peak_text}"
    peak_text = _spelled(QUANTITIES["peak_bytes"], peak, partial=partial and peak is not None)
    sentence = f"{report.subject}: {amount}{sent}, {_params(totals.params, report.active_params)}, {peak_text}"
    if (main := main_part(report)) is not None:
        typed = "" if any(map(str.isalpha, main.path)) else f" ({main.type})"
        sentence += f"; {whole_percent(main.macs / totals.macs)} in {main.path}{typed}"
    return sentence


def _fraction(share: float) -> str:
    near = min(_FRACTIONS, key=lambda fraction: abs(fraction - share))
    return _FRACTIONS[near] if abs(near - share) <= _NEAR else whole_percent(share)


def _predicted(found: Forecast, subject: str, device: str) -> str:
    interval = f"80\u00a0% interval {keep_together(short_range(*found.band_ns))}"
    whole = max(1, sum(found.bounds.values()))
    bound = max(found.bounds, key=found.bounds.__getitem__, default="")
    facts = [f"{keep_together(short_time(found.latency_ns))} ({interval})"]
    if bound:
        facts.append(f"{whole_percent(found.bounds[bound] / whole)} {bound}-bound")
    facts.append("memory unknown" if found.memory is None else keep_together(short_bytes(found.memory.peak_bytes)))
    if found.fits is False:
        return f"{subject} DOES NOT FIT on {device}; with enough memory {', '.join(facts)}"
    if found.text is not None:
        facts.append(f"{found.text.tokens_per_second:,.0f} tokens/s")
    if found.step is not None and found.step.tokens_per_second is not None:
        facts.append(f"{found.step.tokens_per_second:,.0f} tokens/s per GPU")
    return f"{subject} on {device}: {', '.join(facts)}"


# -- profiles -------------------------------------------------------------------------------------------------------------


@_answer.register
def _(answer: Answer) -> str:
    if answer.predicted is not None:
        subject = answer.meta.get("subject") or short_source(answer.meta.get("source", "model"))
        return _predicted(answer.predicted, subject, answer.meta.get("device", "the device"))
    ranks = {use.rank for use in answer.devices}
    where = answer.meta.get("gpu") or (answer.meta.get("device", "") if answer.device_ns is not None else "")
    name = short_source(source_name(answer.meta)) if len(ranks) < 2 else source_name(answer.meta)
    head = ", ".join(filter(None, (name, f"{len(ranks)} ranks" if len(ranks) > 1 else "", where)))
    facts = []
    if answer.devices:
        facts += _use(answer.devices)
    else:
        times = ((answer.device_ns, "on the device"), (answer.host_ns, "on the host"), (answer.wall_ns, "of wall time"))
        time, whose = next(((ns, words) for ns, words in times if ns is not None), (None, ""))
        per = " per run" if answer.is_per_run else ""
        facts.append("times unknown" if time is None else f"{keep_together(short_time(round(time)))} {whose}{per}")
    if (worst := late_rank(answer.devices, answer.waited)) is not None:
        others, wait = wait_of_others(worst, answer.waited)
        each = f"{short_time(round(wait))}{' each' if others > 1 else ''}"
        facts.append(f"{counted(others, 'rank')} waited {keep_together(each)} for rank {worst.rank}")
    elif answer.waited:
        facts.append("no rank is late")
    elif (slowest := slow_device(answer.devices)) is not None:
        facts.append(f"rank {slowest.rank} is late, its step takes {keep_together(short_time(slowest.step_ns or 0))}")
    rows = [row for row in answer.rows if row.share]
    if rows and answer.keys != ("rank",):
        row = max(rows, key=lambda row: row.share or 0.0)
        keys = answer.keys or ("name", "type")
        label = " ".join(text for key in keys if (text := row.labels.get(key)))
        facts.append(f"{whole_percent(row.share or 0.0)} in {label}" if label else "")
    return f"{head}: {', '.join(filter(None, facts))}"


def _use(devices: Sequence[Busy]) -> list[str]:
    """How the device of the median time was used, or all of them as if they were it."""
    use = middle(devices)
    if not use.rated_ns:
        return []
    time = f"{short_time(round(use.step_ns))} a step" if use.step_ns else short_time(use.rated_ns)
    found = [keep_together(time), f"busy {whole_percent(use.busy_ns / use.rated_ns)}"]
    if use.mfu is not None:
        found.insert(1, keep_together(f"MFU {whole_percent(use.mfu)}"))
    causes = use.idle_causes | use.alone_ns
    cause = max(causes, key=causes.__getitem__)
    if causes[cause] >= LEAST_CAUSE * use.rated_ns:
        found.append(f"{whole_percent(causes[cause] / use.rated_ns)} {cause}")
    return found


# -- checkpoints ----------------------------------------------------------------------------------------------------------


@_answer.register
def _(scan: Scan) -> str:
    totals, bits = scan.totals, scan.totals.bits_per_param
    stored = keep_together(f"{short_bytes(totals.bytes)} stored")
    each = "" if bits is None else f", {bits:.3g} bits per parameter"
    return f"{short_source(scan.source)}: {_params(totals.params, totals.active_params)}, {stored}{each}"


# -- comparisons ----------------------------------------------------------------------------------------------------------


@_answer.register
def _(comparison: Comparison) -> str:
    labels = [short_source(source.label) for source in comparison.sources]
    whole = [source.label for source in comparison.sources]
    if len(set(labels)) < len(labels) == len(set(whole)):
        labels = whole
    totals = {entry.quantity.name: entry for entry in comparison.of_part("total")}
    order = [totals[name] for name in dict.fromkeys(("time", *_LEADING, *totals)) if name in totals]
    if comparison.changes:
        changed = [entry for entry in order if entry.changed and entry.difference is not None]
        both = f"{labels[0]} → {labels[-1]}"
        if not changed:
            parts = sum(entry.changed for entry in comparison.entries)
            same = f"the totals are the same, {counted(parts, 'amount')} of parts differ" if parts else "no difference"
            return f"{both}: {same}"
        return f"{both}: {', '.join(map(_changed, changed[:FEW]))}"
    known = [entry for entry in order if None not in entry.amounts and any(entry.amounts)][:FEW]
    if len(labels) == 2 and known:
        return f"{labels[1]} against {labels[0]}: {', '.join(map(_changed, known))}"
    ranges = ", ".join(_range(entry, labels) for entry in known) or "nothing is known of all"
    return f"{counted(len(labels), 'source')}: {ranges}"


def _changed(entry: Entry) -> str:
    """`3.66 GMACs (+102 %)`: the last amount, and by how much it differs from the first."""
    first, last = (entry.amounts[place] or 0 for place in (0, -1))
    text = _spelled(entry.quantity, last, partial=entry.partial[-1])
    if entry.quantity.unit == "time" and entry.quantity.name != LATENCY.name:
        text = keep_together(f"{entry.quantity.title} {short_time(last)}")
    change = "the same" if first == last else f"{(last - first) / first:+.0%}".replace("%", " %") if first else "new"
    return f"{text} ({keep_together(change)})"


def _range(entry: Entry, labels: Sequence[str]) -> str:
    """`1.81 G to 3.66 GMACs`, with the sources that have the least and the most."""
    amounts = [amount or 0 for amount in entry.amounts]
    ends = [(amount, labels[amounts.index(amount)]) for amount in dict.fromkeys((min(amounts), max(amounts)))]
    texts = [_spelled(entry.quantity, amount, partial=any(entry.partial)) for amount, _ in ends]
    if len(ends) == 1:
        return texts[0]
    low = _short(entry.quantity, ends[0][0], partial=any(entry.partial))
    return f"{low} ({ends[0][1]}) to {texts[1]} ({ends[1][1]})"


# -- budgets, fits and sweeps ---------------------------------------------------------------------------------------------


@_answer.register
def _(verdict: Verdict) -> str:
    limits = [line for line in verdict.lines if line.limit is not None]
    broken = [line for line in limits if line.word in ("EXCEEDED", "UNKNOWN")]
    count = f"{len(broken)} of {counted(len(limits), 'limit')}" if broken else counted(len(limits), "limit")
    first = f"; {verdict.offending[0]}" if verdict.offending else ""
    return f"{'within the budget' if verdict else 'NOT within the budget'}: {count}{first}"


def _limit_and_use(found: Fit | Recomputation) -> tuple[str, str]:
    """The memory that there is, and what of it is needed."""
    limit = format_bytes(found.limit_bytes) + (f" of {found.device}" if found.device else "")
    if found.reserved_bytes is None:
        return limit, f"{short_bytes(found.peak_bytes)} peak"
    return limit, f"{short_bytes(found.reserved_bytes)} reserved"


@_answer.register
def _(fit: Fit) -> str:
    limit, used = _limit_and_use(fit)
    largest = f"{fit.vary} {fit.largest:,} is the largest within {limit}"
    best = f"; {fit.advice[0].largest:,} with {fit.advice[0].option}={fit.advice[0].value}" if fit.advice else ""
    return f"{short_source(fit.source)}: {largest}, at {used}{best}"


@_answer.register
def _(found: Recomputation) -> str:
    limit, used = _limit_and_use(found)
    fits = f"{short_source(found.source)}: {found.vary} {found.size:,} fits within {limit}, at {used}"
    if not found.modules:
        return f"{fits}, and nothing has to be recomputed"
    added = f"{percent(found.before.flops, found.after.flops)} FLOPs"
    if found.before.latency_ns is not None and found.after.latency_ns is not None:
        times = " to ".join(map(short_time, (found.before.latency_ns, found.after.latency_ns)))
        added += f", latency from {times}"
    return f"{fits}, with {counted(len(found.modules), 'module')} recomputed: {added}"


@_answer.register
def _(sweep: Sweep) -> str:
    def ends(quantity: Quantity, numbers: Iterable[int | None]) -> str:
        known = [number for number in numbers if number is not None]
        if not known:
            return ""
        least, most = min(known), max(known)
        return _spelled(quantity, most) if least == most else f"{_short(quantity, least)} to {_spelled(quantity, most)}"

    on = f" on {sweep.device}" if sweep.device else ""
    sizes = []
    for name, values in zip(sweep.variables, zip(*(point.sizes for point in sweep.points), strict=True), strict=False):
        sizes.append(f"{name} {' to '.join(dict.fromkeys(f'{size:,}' for size in (min(values), max(values))))}")
    found = [ends(LATENCY, [point.latency_ns for point in sweep.points])]
    counts = [QUANTITIES[name] for name in ("macs", "peak_bytes")]
    found += (ends(each, [point.amounts.get(each.name) for point in sweep.points]) for each in counts)
    rated = [point for point in sweep.points if point.items_per_second is not None]
    if rated:
        best = max(rated, key=lambda point: point.items_per_second or 0.0)
        at = " and ".join(f"{name} {size:,}" for name, size in zip(sweep.variables, best.sizes, strict=True))
        found.append(f"at most {best.items_per_second:,.0f} {best.item}s/s at {at}")
    if over := sum(point.fits is False for point in sweep.points):
        found.append(f"{over} of {len(sweep.points)} do not fit")
    return f"{short_source(sweep.source)}{on}, {', '.join(sizes)}: {', '.join(filter(None, found)) or 'it ran at none of them'}"


_answer.register(LayoutPlan, plan_answer)


@_answer.register
def _(sheet: Sheet) -> str:
    return sheet.answer or f"{source_name(sheet.meta)} ({sheet.meta.get('format', 'opcost')}): {sheet.name}"
