"""What would make a model faster or smaller on a device: it is counted and predicted again with other options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

from opcost.api import count, made_once
from opcost.core.devices import HOST
from opcost.core.devices import device as find_device
from opcost.core.names import short_source
from opcost.core.option import filled, plain, takes
from opcost.core.progress import Rounds, sharing
from opcost.core.report import Report
from opcost.core.sheet import Field, Line, Section, Sheet, Table
from opcost.core.units import short_bytes, short_range, short_time
from opcost.errors import OpcostError, shortened
from opcost.frontends.varying import Varied
from opcost.options import Advising
from opcost.predicting import predict
from opcost.sizing import described, model_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.changes import Change
    from opcost.profiles import Prediction

WORTH = 0.005  # less of the time or of the memory is no gain
LARGER = 0.02  # what doubling the batch has to gain, to be doubled once more
DOUBLINGS = 8
PATIENCE = 2  # how often doubling may gain less, for kernels differ by size
SHORT = 120  # characters of a reason


@takes(Advising)
def advise(source: Any, inputs: Any = None, **options: Unpack[Advising]) -> Sheet:
    """What would make a model faster or smaller: `print(opcost.advise(model, x, device="h200", optimizer="adamw"))`.

    The model, its inputs and the other options are given as to `opcost.predict`. Each line is one option with another value: a
    precision, channels last, compiled, a larger batch, a static cache, a fused optimizer, recomputed activations; the last one
    combines those that gain. The model is counted with each; what does not run or gains nothing is named. All times are
    predicted, per image or token where the batch differs.

    The error is that of the gain: operators that run before and after take as long in both, and the others are as far off
    as the 80 % intervals say, independently of each other.
    """
    given = filled(Advising, options)
    place = {name: getattr(given, name) for name in _PLACE}
    counting = {name: value for name, value in plain(options).items() if name not in _PLACE} | {"inputs": inputs}
    counting["device"] = None if given.device == HOST else given.device
    done = Rounds(1)
    done.rounds = USUAL_TRIALS
    with model_of(source, counting) as (model, label), sharing(done.share):
        trials = _Trials(source, model, options, given, counting, place, done)
        before = trials.run(())
        found = [*trials.alone(before)]
        best = trials.together(before, [each for each in found if each.gain(before) > WORTH])
        return _sheet(label, before, found, best, trials)


_PLACE = ("device", "calibration", "execution", "host")  # options of a prediction, not of a count
USUAL_TRIALS = 16  # for progress


class Alternative(NamedTuple):
    """The model under some changes."""

    changes: tuple[Change, ...]
    predicted: Prediction
    item: str  # image, token, sample; empty where it is not known what a pass processes
    items: int

    @property
    def item_ns(self) -> float:
        """The time of one item."""
        return self.predicted.latency_ns / self.items

    @property
    def peak_bytes(self) -> int | None:
        memory = self.predicted.memory
        return None if memory is None else memory.peak_bytes

    @property
    def reserved_bytes(self) -> int | None:
        memory = self.predicted.memory
        return None if memory is None else memory.reserved_bytes

    def gain(self, before: Alternative) -> float:
        """The share of the time of an item that is saved."""
        return 1 - self.item_ns / before.item_ns

    def error(self, before: Alternative) -> float:
        """How far off the gain may be: what both have in common cancels, and the rest is off as its interval says."""
        kept = Counter(map(_key, self.predicted.rows)) & Counter(map(_key, before.predicted.rows))
        # Of eager execution the host is a part, which is no sum of operators
        same = not (self.predicted.bounds.get("host") or before.predicted.bounds.get("host"))
        same = same or self.predicted.meta["execution"] == before.predicted.meta["execution"]
        parts = []
        for trial in (self, before):
            found = trial.predicted
            work = sum(row.device_ns or row.host_ns or 0 for row in found.rows)
            common = sum(times * (key[-1] or 0) for key, times in kept.items()) if same else 0
            low, high = found.band_ns
            parts.append((high - low) / 2 * (1 - common / max(1, work)) / trial.items)
        return hypot(*parts) / before.item_ns

    def __str__(self) -> str:
        return ", ".join(map(str, self.changes))


def _key(row: Any) -> tuple[Any, ...]:
    """What an operator is; the last part is its time."""
    return row.type, row.ins, row.outs, row.phase, row.device_ns or row.host_ns


@dataclass(slots=True)
class _Trials:
    """The model under changes, and why some were left out."""

    source: Any
    model: Any
    options: Mapping[str, Any]
    given: Any
    counting: dict[str, Any]
    place: dict[str, Any]
    done: Rounds
    left: list[str] = field(default_factory=list)
    reports: dict[str, Report] = field(default_factory=dict)

    def run(self, changes: tuple[Change, ...]) -> Alternative:
        """Count and predict the model with these changes."""
        chosen = {each.option: each.value for each in changes}
        place = {name: chosen.pop(name, value) for name, value in self.place.items()}
        if place["execution"] != "eager":
            place["host"] = None
        batch = chosen.get("batch")
        report = self._counted(chosen)
        item, items = report.processed
        if items is None:
            batch = batch or _batch(report, self.counting)
            item, items = ("sample", batch) if batch else ("", 1)
        return Alternative(changes, predict(report, **place), item, items)

    def _counted(self, chosen: dict[str, Any]) -> Report:
        key = repr(sorted(chosen.items(), key=lambda item: item[0]))
        if key not in self.reports:
            settings, batch = chosen.pop("set", None), chosen.pop("batch", None)
            options = {**self.counting, **chosen}
            if batch is not None:
                before = next(iter(self.reports.values()))
                options = Varied(options, ("batch",), lambda _: before.inputs).arguments((batch,))
            if settings is None:
                self.reports[key] = count(self.model, **options)
            else:
                with made_once(self.source, {**(self.given.set or {}), **settings}) as (model, _):
                    self.reports[key] = count(model, **options)
            self.done.next()
        return self.reports[key]

    def tried(self, changes: tuple[Change, ...]) -> Alternative | None:
        """The same, None where the model does not run so."""
        try:
            return self.run(changes)
        except OpcostError as exc:
            self.left.append(f"{', '.join(map(str, changes))}: does not run, {shortened(exc.message, SHORT)}")
            return None

    def alone(self, before: Alternative) -> Iterator[Alternative]:
        """Each change that makes it faster or smaller."""
        from opcost.analysis.changes import Change, changes

        report = next(iter(self.reports.values()))
        device = None if self.given.device == HOST else find_device(self.given.device)
        lower = "bfloat16" if device is None or "bfloat16" in device.flops else "float16"
        offered = [*changes(replaced(self.given, self.counting), report, lower=lower)]
        execution = self.given.execution
        offered += [Change("execution", name) for name in _FASTER.get(execution or "graph", ()) if device is not None]
        for change in offered:
            trial = self.tried((change,))
            if trial is not None and self.is_better(trial, before):
                yield trial
        larger = self.larger(before, ())
        if larger is not None:
            yield larger

    def is_better(self, trial: Alternative, before: Alternative) -> bool:
        """Whether it gains time or memory; if not, that is noted."""
        gain = trial.gain(before)
        now, was = trial.peak_bytes or 0, before.peak_bytes or 0
        if gain > WORTH or now < was * (1 - WORTH):
            return True
        same = abs(gain) <= WORTH and now == was
        slower = f"{-gain:.1%} slower".replace("%", " %") if gain < -WORTH else "not faster"
        self.left.append(f"{trial}: {'changes nothing' if same else f'{slower}, and not smaller'}")
        return False

    def larger(self, before: Alternative, changes: tuple[Change, ...]) -> Alternative | None:
        """The batch doubled as long as the time of an item falls and memory is enough; None where that is not at all."""
        from opcost.analysis.changes import Change

        batch = _batch(next(iter(self.reports.values())), self.counting)
        best, misses = None, 0
        for doubling in range(1, DOUBLINGS + 1):
            trial = None if batch is None else self.tried((*changes, Change("batch", batch << doubling)))
            if trial is None or trial.predicted.fits is False:
                break
            best, misses = (trial, 0) if trial.gain(best or before) >= LARGER else (best, misses + 1)
            if misses == PATIENCE:
                break
        return best

    def together(self, before: Alternative, found: list[Alternative]) -> Alternative | None:
        """The combination of changes that gain and learn the same, each added where it gains more."""
        best = before
        for trial in sorted(found, key=lambda each: -each.gain(before)):
            (change,) = trial.changes
            used = {each.option for each in best.changes}
            if change.alters_results or change.option in used or change.option == "batch":
                continue
            added = self.tried((*best.changes, change))
            if added is not None and added.gain(best) > WORTH and added.predicted.fits is not False:
                best = added
        if any(each.changes[0].option == "batch" for each in found):
            best = self.larger(best, best.changes) or best
        return best if len(best.changes) > 1 else None


_FASTER = {"eager": ("graph", "compiled"), "graph": ("compiled",)}


def replaced(given: Any, counting: dict[str, Any]) -> Any:
    """The options that were given, with the device as a count has it."""
    return type(given)(**{**vars(given), "device": counting["device"]})


def _batch(report: Report, counting: dict[str, Any]) -> int | None:
    """The batch that a count had."""
    if "batch" in report.meta:  # of a language model
        return int(report.meta["batch"])
    try:
        return Varied(counting, ("batch",), lambda _: report.inputs).usual()
    except OpcostError:  # no input has one
        return None


# -- as a sheet -----------------------------------------------------------------------------------------------------------

TOGETHER = "together"
ERROR = (
    "± is the error of the gain: operators that are the same before and after cancel, the others are as far off as the 80 % "
    "intervals say, independently of each other; a gain within it is uncertain"
)
EAGER = "memory is that of eager execution, also where the model is compiled"
TF32 = "products of float32 are timed without TF32, which torch.set_float32_matmul_precision('high') allows"


def _sheet(
    label: str, before: Alternative, found: list[Alternative], best: Alternative | None, trials: _Trials
) -> Sheet:
    """The model as it is, each change by its gain, then the combination."""
    meta = before.predicted.meta
    rows = [(AS_IS, before), *((str(each), each) for each in sorted(found, key=lambda each: _rank(each, before)))]
    rows += [] if best is None else [(TOGETHER, best)]
    item = before.item or "pass"
    per_item = any(each.items != before.items for _, each in rows)
    fields = (
        Field("change", "name"), Field("effect"), Field("saved", "share", "saved %"), Field("error", "share", "± %"),
        Field("latency", "time"), Field("per_item", "time", f"per {item}", blank=() if per_item else (None,)),
        Field("interval", "number", "80 % interval"), Field("peak", "bytes", "peak memory"),
        Field("reserved", "bytes", blank=(None,)), Field("fits", blank=("", "yes")),
    )  # fmt: skip
    lines = [
        Line((
            name, _effect(each, before), "" if each is before else each.gain(before),
            "" if each is before else each.error(before), each.predicted.latency_ns, round(each.item_ns) if per_item else None,
            short_range(*each.predicted.band_ns), each.peak_bytes, each.reserved_bytes,
            {True: "yes", False: "no", None: ""}[each.predicted.fits],
        ))
        for name, each in rows
    ]  # fmt: skip
    times = ("per_item", "peak", "latency") if per_item else ("latency", "peak")
    ranked = ("change", "saved", "error", "effect", *times, "fits", "interval", "reserved")
    table = Table(title="changes", fields=fields, lines=tuple(lines), ranked=ranked, main=True)
    notes = [f"all times are predicted; {ERROR}", f"execution: {meta['execution']}; calibration: {meta['calibration']}"]
    report = next(iter(trials.reports.values()))
    if any(row.op.kind == "matmul" and row.ins and row.ins[0].dtype == "float32" for row in report.rows):
        notes.append(TF32)
    if any(change.option == "execution" for _, each in rows for change in each.changes):
        notes.append(EAGER)
    apart = [str(each) for each in found if each.changes[0].alters_results and each.gain(before) > WORTH]
    if best is not None and apart:
        notes.append(
            f"not part of the combination, because the model learns otherwise, or computes in fewer bits: {', '.join(apart)}"
        )
    sections = [Section("left out", tuple(trials.left)), Section("notes", tuple(notes))]
    if best is not None:
        sections.insert(0, Section(TOGETHER, (str(best),)))
    options = ", ".join(f"{name}={value}" for name, value in described(trials.options).items())
    return Sheet(
        name="advise",
        meta=meta,
        answer=_answer(label or meta["source"], before, rows, best),
        heading=tuple(filter(None, (f"input   {report.run_on}", options))),
        tables=(table,),
        sections=tuple(section for section in sections if section.lines),
    )


AS_IS = "as it is"


def _rank(trial: Alternative, before: Alternative) -> tuple[bool, float]:
    return trial.predicted.fits is False, -trial.gain(before)


def _effect(trial: Alternative, before: Alternative) -> str:
    """Faster or slower, unless that is within the error."""
    gain = trial.gain(before)
    if trial is before or abs(gain) <= WORTH:
        return "" if trial is before else "as fast"
    return "uncertain" if abs(gain) <= trial.error(before) else "faster" if gain > 0 else "slower"


def _answer(source: str, before: Alternative, rows: list[tuple[str, Alternative]], best: Alternative | None) -> str:
    """The times before and after, and what makes the most of the difference."""
    latency = short_time(before.predicted.latency_ns)
    head = f"{short_source(source)} on {before.predicted.meta['device']}"
    memory = "" if before.peak_bytes is None else f", {short_bytes(before.peak_bytes)} peak"
    faster = [each for _, each in rows if each is not best and each is not before and each.gain(before) > WORTH]
    chosen = best or (faster[0] if faster else None)
    if chosen is None:
        return f"{head}: {latency}{memory}; nothing that was tried makes it faster"
    times = f"{latency} to {short_time(chosen.predicted.latency_ns)}"
    if chosen.items != before.items:
        times = f"{short_time(before.item_ns)} to {short_time(chosen.item_ns)} per {before.item or 'pass'}"
    after = "" if chosen.peak_bytes is None else f"{memory} to {short_bytes(chosen.peak_bytes)}"
    saved = f"saves {100 * chosen.gain(before):.0f} ± {100 * chosen.error(before):.0f} %"
    return f"{head}: {times} predicted ({saved}){after} with {chosen}"
