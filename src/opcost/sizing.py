"""What the size of the inputs changes: the largest size that fits into memory, and the cost at many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any

from opcost.api import count, made_once, on_device, resolve_source
from opcost.core.devices import device as find_device
from opcost.core.graph import Memory
from opcost.core.limits import QUANTITIES, amounts_of
from opcost.core.option import Lora, changed, filled, plain, takes
from opcost.core.progress import Rounds, sharing
from opcost.core.report import Report
from opcost.core.results import Advice, Counted, Fit, Point, Recomputation, Sweep
from opcost.core.units import format_bytes, parse_bytes
from opcost.errors import BudgetExceeded, ForwardError, InputError
from opcost.frontends.source import PythonModel
from opcost.frontends.varying import OPTIONS, Varied, parse_variables
from opcost.options import Counting, Fitting, Sweeping

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.changes import Change
    from opcost.analysis.growth import LargestSize, Sample
    from opcost.core.report import Row

USUAL_COUNTS = 5  # counts of a usual search, for progress: three for a limit, a dozen for an allocator
FEW = 2  # a model that does not run at size 1 may run at 2: batch statistics need two


@takes(Fitting)
def fit(source: Any, inputs: Any = None, **options: Unpack[Fitting]) -> Fit | Recomputation:
    """The largest batch, or other size, within a memory limit: `opcost.fit(model, x, memory="24GiB").largest`.

    The model, its inputs and the other options are given as to `opcost.count`. `memory` is the limit, in bytes or as a text;
    `device` computes memory as that GPU allocates it, and is the limit where none is given. `vary` is the size that grows: batch
    (the first dimension of all inputs that have the same extent there as the first one), tokens, image, prefill, decode or cache,
    where the model has default inputs, or a dimension of an input by its name: "input_ids=1", several with commas.

    Only a few sizes are counted: where memory grows as a polynomial they determine the answer; the answer and the size after it
    are always counted. `advise=True` repeats this with other options that take less memory. Nothing is ever allocated.

    With a size that is given (`batch=64`, or `tokens=4096` with `vary="tokens"`) the result is a `Recomputation`: the modules
    of a training step to recompute so that it fits, with its memory and work before and after.
    """
    from opcost.analysis.growth import FARTHEST

    given = filled(Fitting, options)
    vary, memory = given.vary, given.memory
    limit, device_name = _limit(memory, given.device)
    counting = {name: value for name, value in plain(options).items() if name not in ("memory", "vary", "advise")}
    counting["inputs"] = inputs
    size = counting.pop(vary, None) if vary in OPTIONS else None
    done = Rounds(USUAL_COUNTS)
    with model_of(source, counting) as (model, label), sharing(done.share):
        counts = _Counts(model, counting, vary, limit, done, label)
        if size is not None:
            return _made_to_fit(counts, size, device_name, options)
        lowest = counts.lowest()
        done.rounds = 1 + (len(counts.others()) if given.advise else 0)
        first = counts.found[lowest]
        if not counts.fits(lowest):
            hint = _way_out(counts, lowest) if given.advise else ""
            raise BudgetExceeded(counts.too_large(lowest, device_name, memory), hint=hint)
        answer = counts.largest(lowest)
        if answer is None:
            beyond = counts.found[FARTHEST].peak_bytes
            constant = beyond == first.peak_bytes
            what = "does not depend on it" if constant else f"is {format_bytes(beyond)} at {FARTHEST:,}"
            raise InputError(
                f"{vary} has no largest size within {format_bytes(limit)}: the peak is {_made_of(first)} at {lowest}, and {what}",
                hint="vary another size",
            )
        at = counts.found[answer.largest]
        peaks = {size: memory.peak_bytes for size, memory in counts.found.items()}
        tried = sorted({*counts.refused, *counts.found})
        return Fit(
            source=counts.source, vary=vary, largest=answer.largest, inputs=counts.inputs[answer.largest],
            peak_bytes=at.peak_bytes, next_peak_bytes=peaks.get(answer.following),
            reserved_bytes=counts.reserved(answer.largest), next_reserved_bytes=counts.reserved(answer.following),
            limit_bytes=limit, device=device_name, options=described(options), parts=at.parts,
            counted=tuple(Counted(size, peaks.get(size), fits=counts.fits(size)) for size in tried),
            advice=_advice(counts, answer.largest) if given.advise else (),
            notes=tuple(_notes(counts, lowest, answer.following)),
        )  # fmt: skip


def _made_to_fit(counts: _Counts, size: int, device_name: str, options: Mapping[str, Any]) -> Recomputation:
    """A size that is given, with what must be recomputed so that it fits."""
    from opcost.recomputing import Search

    given = filled(Fitting, options)
    counts.done.rounds = 1
    search = Search(counts.model, counts.varied.arguments((size,)), counts.limit, device_name, counts.done.step)
    before, graph = search.plain()
    after = before
    if before.needed > counts.limit and graph is not None and "backward" in before.report.phases:
        after = search.best(before, graph)
    counts.add(size, before.report)
    if after.needed > counts.limit:
        fault, hint = counts.too_large(size, device_name, given.memory), _way_out(counts, size) if given.advise else ""
        if after.modules:
            over = format_bytes(after.needed - counts.limit)
            fault += f", and {format_bytes(after.needed)} with {len(after.modules)} modules recomputed, {over} too much"
            hint = "; ".join(filter(None, (_largest_with(counts, after.patterns), hint)))
        raise BudgetExceeded(fault, hint=hint)
    report = after.report
    others = {name: value for name, value in options.items() if name != given.vary}
    return Recomputation(
        source=counts.source, vary=given.vary, size=size, inputs=report.run_on, checkpoint=after.patterns,
        modules=after.modules, before=before.cost, after=after.cost, limit_bytes=counts.limit, device=device_name,
        options=described(others), parts=report.known_memory().parts, notes=tuple(search.notes),
    )  # fmt: skip


def _largest_with(before: _Counts, checkpoint: tuple[str, ...]) -> str:
    """The largest size that fits with these modules recomputed, in words; empty if none does."""
    counts = _Counts(
        before.model, {**before.counting, "checkpoint": checkpoint}, before.vary, before.limit, before.done
    )
    lowest = counts.lowest()
    if not counts.fits(lowest):
        return ""
    answer = counts.largest(lowest, both=False)
    return "" if answer is None else f"{counts.vary} {answer.largest:,} fits with these recomputed"


def _limit(memory: str | int | None, device: str | None) -> tuple[int, str]:
    """The limit in bytes, and the name of the device."""
    known = None if device is None else find_device(device)
    if memory is not None:
        limit = parse_bytes(memory) if isinstance(memory, str) else memory
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InputError(f"memory is {memory!r}; it must be a number of bytes above zero", hint='memory="24GiB"')
        return limit, known.name if known else ""
    if known is None:
        hint = 'give memory="24GiB" or device="h100" (on the command line --memory 24GiB, --device h100)'
        raise InputError("no memory limit is given", hint=hint)
    if known.usable is None:
        hint = f'give both: device="{known.name}", memory="{format_bytes(16 << 30)}"'
        raise InputError(f"the memory of {known.name} is not in the table of devices", hint=hint)
    return known.usable, known.name


@contextmanager
def model_of(source: Any, counting: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """The model, made once, and what a string called it; `counting` is left with the options of every count of it."""
    given = filled(Counting, counting)
    training = bool(given.backward or given.optimizer)
    named = resolve_source(source, counting.pop("set", None))
    label = named.label if isinstance(named, PythonModel) and named.from_collection else ""
    with made_once(source if named is None else named, training=training) as (model, mode):
        if counting.get("mode") is None:
            counting["mode"] = mode
        yield model, label


@dataclass(slots=True)
class _Counts:
    """The sizes that were counted, and what memory each took."""

    model: Any
    counting: Mapping[str, Any]
    vary: str
    limit: int
    done: Rounds
    source: str = ""
    report: Report | None = None  # of the last count
    found: dict[int, Memory] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)
    samples: dict[int, Sample] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    varied: Varied = field(init=False)

    def __post_init__(self) -> None:
        self.varied = Varied(dict(self.counting), (self.vary,), lambda sizes: count(self.model, **sizes).inputs)

    def sample(self, size: int) -> Sample | None:
        """The memory at a size, for the search; None where the model does not run at it."""
        try:
            report = count(self.model, **self.varied.arguments((size,)))
            self.done.step()
        except (ForwardError, InputError) as exc:
            self.refused[size] = exc.message
            if not self.found:
                raise
            return None
        return self.add(size, report)

    def add(self, size: int, report: Report) -> Sample:
        """What was counted at a size."""
        from opcost.analysis.changes import first_of_update
        from opcost.analysis.growth import Sample
        from opcost.devices.allocator import fits

        self.source = self.source or report.meta.get("source", "the model")
        self.report = report
        self.found[size] = memory = report.known_memory()
        self.inputs[size] = report.run_on
        needed = max(memory.peak_bytes, memory.reserved_bytes or 0)
        if fits(memory, self.limit):  # its allocator may reserve more than it needs
            needed = min(needed, self.limit)
        fixed = sum(memory.parts.get(part, 0) for part in ("weights", "gradients", "optimizer"))
        rows = report.rows if memory.lives is not None else ()
        self.samples[size] = Sample(needed, memory.curve, memory.lives, fixed, rows, first_of_update(report))
        return self.samples[size]

    @property
    def workspace(self) -> Callable[[Row], int] | None:
        """What an operator takes for itself on the device, if one is named."""
        name = self.counting.get("device")
        return None if name is None else on_device(find_device(name).name).workspace

    def estimate(self, samples: Mapping[int, Sample], limit: int, low: int, high: int | None) -> LargestSize | None:
        """The largest size that fits, by the sizes that were counted."""
        from opcost.analysis.capacity import estimated_largest

        return estimated_largest(samples, limit, low, high, self.workspace)

    def largest(self, lowest: int, *, both: bool = True) -> LargestSize | None:
        """The largest size that fits, found by counts, from one that was counted and does."""
        from opcost.analysis.growth import largest

        return largest(self.sample, self.limit, self.samples, lowest, self.estimate, both=both)

    def fits(self, size: int) -> bool:
        """Whether a size that was tried is within the limit."""
        return size in self.samples and self.samples[size].peak_bytes <= self.limit

    def reserved(self, size: int) -> int | None:
        """About the least that the allocator reserves for it, where one is simulated."""
        from opcost.devices.allocator import needed_bytes

        memory = self.found.get(size)
        return None if memory is None or memory.lives is None else needed_bytes(memory, self.limit)

    def too_large(self, size: int, device: str, memory: str | int | None) -> str:
        """That a size does not fit, and what it needs; on a device what its allocator reserves, and allocates of that."""
        limit, need, reserved = format_bytes(self.limit), _made_of(self.found[size]), self.reserved(size)
        place = f"on {device} ({limit} usable)" if device and memory is None else f"into {limit}"
        if device and memory is not None:
            place += f" with the allocator of {device}"
        if reserved is not None:
            need = f"{format_bytes(reserved)} reserved, of which allocated {need}"
        return f"{self.source} does not fit {place}: {self.vary} {size} needs {need}"

    def lowest(self) -> int:
        """The smallest size to begin with: one, unless the model does not run at it."""
        faults = []
        for size in (1, FEW):
            try:
                self.sample(size)
            except (ForwardError, InputError) as exc:
                faults.append(exc)
            else:
                return size
        usual = self.varied.usual()
        if usual is None or usual <= FEW:
            raise faults[0]
        self.sample(usual)
        return usual

    def others(self) -> list[Change]:
        """Other options that take less memory."""
        from opcost.analysis.changes import changes

        if self.report is None:
            return []
        return [each for each in changes(filled(Counting, self.counting), self.report) if each.saves_memory]

    def under_others(self, size: int) -> Iterator[tuple[str, str, _Counts]]:
        """Each other option with which the model stays within the limit at a size, with its counts."""
        for change in self.others():
            self.done.next()
            options = {**self.counting, change.option: change.value}
            counts = _Counts(self.model, options, self.vary, self.limit, self.done)
            with suppress(ForwardError, InputError):  # the model does not run with it
                counts.sample(size)
            if counts.fits(size):
                yield change.option, change.text, counts


def _made_of(memory: Memory) -> str:
    """The peak and its parts, in words."""
    parts = sorted(memory.parts.items(), key=lambda part: -part[1])
    return f"{format_bytes(memory.peak_bytes)} ({', '.join(f'{part} {format_bytes(size)}' for part, size in parts)})"


def described(options: Mapping[str, Any]) -> dict[str, str]:
    """The options of the count besides its inputs, in words."""
    own = (
        "shapes", "dtypes", "kwargs", "rules", "memory", "vary", "advise", "device", "calibration", "execution", "host",
        "progress",
    )  # fmt: skip
    given = {name: value for name, value in changed(Counting, plain(options)).items() if name not in own}
    if "lora" in given:
        given["lora"] = Lora.of(given["lora"])
    return {name: ",".join(value) if type(value) in (tuple, list) else str(value) for name, value in given.items()}


def _notes(counts: _Counts, lowest: int, following: int) -> Iterator[str]:
    if lowest > 1:
        below = f", and sizes below {lowest} were not tried" if lowest > FEW else ""
        yield f"the model does not run at 1{below}: {counts.refused[1]}"
    if following in counts.refused:
        yield f"the model does not run at {following:,}, so memory is not the limit: {counts.refused[following]}"
    sizes = sorted(counts.found)
    if any(counts.samples[a].peak_bytes > counts.samples[b].peak_bytes for a, b in pairwise(sizes)):
        yield "memory does not rise with every size, so a larger size may fit as well"
    if any(memory.how == "last reader" for memory in counts.found.values()):
        yield "read from a file: a tensor is freed after the last operator that reads it"


# -- what would let more in ----------------------------------------------------------------------------------------------


def _advice(before: _Counts, size: int) -> tuple[Advice, ...]:
    """The largest size with each other option that helps, the largest first.

    Where memory is known to follow lines, a size between two counted ones follows from these.
    """
    from opcost.analysis.capacity import follows_lines, reached, sample_between

    lines = follows_lines(before.samples)
    found = []
    for option, value, counts in before.under_others(size):
        beyond = reached(counts.samples[size], size, before.limit)
        counts.sample(beyond)
        answer = counts.estimate(counts.samples, before.limit, size, None) if lines else None
        if answer is None or answer.largest >= beyond or counts.fits(beyond):
            answer = counts.largest(size, both=False)
        if answer is not None and answer.largest > size:
            at = counts.samples.get(answer.largest) or sample_between(counts.samples, answer.largest, counts.workspace)
            assert at is not None
            found.append(Advice(option, value, answer.largest, max(at.curve)))
    return tuple(sorted(found, key=lambda advice: -advice.largest))


def _way_out(before: _Counts, size: int) -> str:
    """The other options with which this size fits, with the memory that is compared with the limit."""
    fits = [
        f"{option}={value} ({format_bytes(counts.samples[size].peak_bytes)})"
        for option, value, counts in before.under_others(size)
    ]
    return f"options that would fit: {', '.join(fits)}" if fits else "no other option alone makes it fit"


# -- many sizes --------------------------------------------------------------------------------------------------------------

MOST_POINTS = 10_000
PEAK = "peak_bytes"


@takes(Sweeping)
def sweep(source: Any, inputs: Any = None, **options: Unpack[Sweeping]) -> Sweep:
    """Cost, memory and latency at many sizes: `print(opcost.sweep(model, vary={"batch": "1..64", "tokens": "128..8192"}))`.

    The model, its inputs and the other options are given as to `opcost.count`; `vary` names one or two sizes as for `opcost.fit`,
    each with numbers or a text: "1,2,4..256" continues as it began, "128..8192" doubles, "10,20..100" adds 10. A list of texts
    "batch=1,2,4..256" works as well. A `device` adds the latency that `opcost.predict` gives with this `calibration` and
    `execution`, and memory as that device allocates it.

    Without a device, only as many sizes are counted as the polynomials need, and some more to check them. `progress` is called
    with each counted point and the number of points.
    """
    from opcost.analysis.growth import over_grid

    given = filled(Sweeping, options)
    if given.vary is None:
        raise InputError("nothing varies", hint='vary={"batch": "1..64"} (on the command line --vary batch=1..64)')
    axes = parse_variables(given.vary)
    given.total = prod(map(len, axes.values()))
    if given.total > MOST_POINTS:
        raise InputError(f"{given.total:,} combinations are too many: at most {MOST_POINTS:,} are counted")
    if given.device is None and any(each is not None for each in (given.calibration, given.execution, given.host)):
        raise InputError("calibration, execution and host need a device", hint='name one: device="h200"')
    own = ("vary", "calibration", "execution", "host", "progress")
    counting = {name: value for name, value in plain(options).items() if name not in own} | {"inputs": inputs}
    with model_of(source, counting) as (model, label):
        varied = Varied(counting, tuple(axes), lambda sizes: count(model, **sizes).inputs)
        points = _Points(model, tuple(axes), varied, given, label)
        if given.device is None:
            grid = over_grid(list(axes.values()), points.count)
        else:  # the time of a kernel is not a polynomial
            grid = ((sizes, points.count(sizes)) for sizes in product(*axes.values()))
        found = tuple(points.point(sizes, numbers) for sizes, numbers in grid)
    if over := sum(point.fits is False for point in found):
        which = f"{over:,} of {len(found):,} points do not fit on {points.device}"
        points.notes.insert(0, f"{which}: their latency assumes enough memory")
    if not any(point.amounts for point in found):
        raise InputError(f"{points.source or 'the model'} runs at none of these sizes: {points.notes[0]}")
    return Sweep(
        source=points.source or "the model", variables=tuple(axes), points=found, device=points.device,
        options=described(options), notes=tuple(points.notes),
    )  # fmt: skip


@dataclass(slots=True)
class _Points:
    """The points that were counted, and those that follow from them."""

    model: Any
    names: tuple[str, ...]  # of what varies
    varied: Varied
    given: Any  # the options of the sweep, and its number of points
    source: str
    device: str = ""
    found: dict[tuple[int, ...], Point] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def count(self, sizes: tuple[int, ...]) -> Sequence[int] | None:
        """Count at these sizes: quantities of the whole, then the curve of memory; None where the model does not run."""
        try:
            report = count(self.model, **self.varied.arguments(sizes))
        except (ForwardError, InputError) as exc:
            self.notes.append(f"the model does not run at {', '.join(f'{size:,}' for size in sizes)}: {exc.message}")
            self.found[sizes] = Point(sizes, {})
            return None
        self.source = self.source or report.meta.get("source", "")
        self.found[sizes] = Point(sizes, amounts_of(report), **self._latency(report, sizes))
        if self.given.progress is not None:
            self.given.progress(self.found[sizes], self.given.total)
        amounts = [amount for name, amount in self.found[sizes].amounts.items() if name != PEAK]
        return [*amounts, *report.known_memory().curve]

    def point(self, sizes: tuple[int, ...], numbers: Sequence[int] | None) -> Point:
        """The counted point, or one computed from these numbers."""
        if numbers is None or sizes in self.found:
            return self.found[sizes]
        names = [name for name in QUANTITIES if name != PEAK]
        amounts = dict(zip(names, numbers, strict=False))
        amounts[PEAK] = max(numbers[len(names) :], default=0)
        return Point(sizes, {name: amounts[name] for name in QUANTITIES}, counted=False)

    def _latency(self, report: Report, sizes: tuple[int, ...]) -> dict[str, Any]:
        from opcost.predicting import predict

        if self.given.device is None:
            return {}
        place = {name: getattr(self.given, name) for name in ("device", "calibration", "execution", "host")}
        found = predict(report, **place)
        if not self.device:
            self.device = found.meta["device"]
            self.notes.append(f"latency: {found.meta['execution']}; calibration: {found.meta['calibration']}")
        return {
            "latency_ns": found.latency_ns,
            "band_ns": found.band_ns,
            "fits": found.fits,
            **self._items(report, sizes),
        }

    def _items(self, report: Report, sizes: tuple[int, ...]) -> dict[str, Any]:
        """What a pass processes, and how many of them."""
        item, items = report.processed
        named = dict(zip(self.names, sizes, strict=True))
        if items is None and "batch" in named:
            item, items = "sample", named["batch"]
        return {"item": item, "items": items}
