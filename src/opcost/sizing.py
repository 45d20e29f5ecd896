"""The doors to what a size of the inputs does: the largest that fits into memory, and what each of many costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from itertools import pairwise, product
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

from opcost.api import count, made_once
from opcost.core.progress import Rounds, sharing
from opcost.core.units import format_bytes

if TYPE_CHECKING:
    from opcost.analysis.growth import Sample
    from opcost.analysis.prediction.predict import Execution
    from opcost.core.fit import Advice, Fit
    from opcost.core.memory import Memory
    from opcost.core.report import ModuleCost, Report
    from opcost.core.sweep import Point, Sweep
    from opcost.frontends.varying import Varied

USUAL_COUNTS = 5
"""What a search for a size takes, for the share of the work that is told: of a limit three, of an allocator up to a dozen."""
FEW = 2
"""Where a model does not run at one, it may at two: statistics of a batch need as many."""


def fit(
    source: Any,
    inputs: Any = None,
    *,
    memory: str | int | None = None,
    device: str | None = None,
    vary: str = "batch",
    advise: bool = True,
    **options: Any,
) -> Fit:
    """The largest batch, or other size, with which a model keeps to a limit: `opcost.fit(model, x, memory="24GiB").largest`.

    The model, its inputs and `options` are given as to `opcost.count`. `memory` is the limit, in bytes or as a text; `device`
    tells memory as that GPU would hold it, and is the limit where none is given. `vary` is what grows: batch (the first dimension
    of all inputs that have as many there as the first one), tokens, image, prefill, decode or cache, where the model makes its
    own inputs, or a dimension of an input by its name: "input_ids=1", several with commas.

    A few sizes are counted, and where memory grows as a polynomial they tell where the answer lies; the answer and the size after
    it are always counted. `advise=True` does the same under other options that take less memory. Nothing is ever allocated.
    """
    from opcost.analysis.growth import FARTHEST, largest
    from opcost.core.fit import Counted, Fit
    from opcost.errors import BudgetExceeded, InputError

    limit, device_name = _limit(memory, device)
    told = {**options, "inputs": inputs, "device": device}
    done = Rounds(USUAL_COUNTS)
    with _model(source, told) as model, sharing(done.share):
        counts = _Counts(model, told, vary, limit, done)
        lowest = counts.lowest()
        done.rounds = 1 + (len([*_others(told, counts)]) if advise else 0)
        first = counts.found[lowest]
        if not counts.fits(lowest):
            raise BudgetExceeded(
                f"{counts.source} does not fit {counts.place(device_name, memory)}: {vary} {lowest} needs {counts.need(lowest)}",
                hint=_way_out(told, counts, lowest) if advise else "",
            )
        answer = largest(counts.sample, limit, counts.samples, lowest)
        if answer is None:
            beyond = counts.found[FARTHEST].peak_bytes
            what = (
                "does not depend on it" if beyond == first.peak_bytes else f"is {format_bytes(beyond)} at {FARTHEST:,}"
            )
            raise InputError(
                f"{vary} has no largest size within {format_bytes(limit)}: the peak is {_made_of(first)} at {lowest}, and {what}",
                hint="vary another size",
            )
        at = counts.found[answer.largest]
        following = counts.found.get(answer.following)
        return Fit(
            source=counts.source,
            vary=vary,
            largest=answer.largest,
            inputs=counts.inputs[answer.largest],
            peak_bytes=at.peak_bytes,
            next_peak_bytes=None if following is None else following.peak_bytes,
            reserved_bytes=counts.reserved(answer.largest),
            next_reserved_bytes=counts.reserved(answer.following),
            limit_bytes=limit,
            device=device_name,
            asked=_asked(options),
            parts=at.parts,
            counted=tuple(
                Counted(size, None if found is None else found.peak_bytes, fits=counts.fits(size))
                for size, found in sorted({**dict.fromkeys(counts.refused), **counts.found}.items())
            ),
            advice=_advice(told, counts, answer.largest) if advise else (),
            notes=tuple(_notes(counts, lowest, answer.following)),
        )


def _limit(memory: str | int | None, device: str | None) -> tuple[int, str]:
    """Bytes that there are, and the name of the device."""
    from opcost.core.devices import device as find_device
    from opcost.core.units import parse_bytes
    from opcost.errors import InputError

    known = None if device is None else find_device(device)
    if memory is not None:
        limit = parse_bytes(memory) if isinstance(memory, str) else memory
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InputError(f"memory is {memory!r}; it must be a number of bytes above zero", hint='memory="24GiB"')
        return limit, known.name if known else ""
    if known is None:
        raise InputError(
            "nothing says how much memory there is",
            hint='give memory="24GiB" or device="h100" (on the command line --memory 24GiB, --device h100)',
        )
    if known.usable is None:
        raise InputError(
            f"how much memory {known.name} has is not in the table of devices",
            hint=f'give both: device="{known.name}", memory="{format_bytes(16 << 30)}"',
        )
    return known.usable, known.name


@contextmanager
def _model(source: Any, told: dict[str, Any]) -> Iterator[Any]:
    """The model, made once; `told` is left with what every count of it is told."""
    from opcost.errors import UnknownName

    known = signature(count).parameters
    for name in told:
        if name not in known:
            raise UnknownName("option of opcost.count", name, [name for name in known if name != "source"])
    training = bool(told.get("backward") or told.get("optimizer"))
    with made_once(source, told.pop("set", None), training=training) as (model, mode):
        if told.get("mode") is None:
            told["mode"] = mode
        yield model


class _Counts:
    """The sizes that were counted, and what memory each took."""

    def __init__(self, model: Any, told: Mapping[str, Any], vary: str, limit: int, done: Rounds) -> None:
        from opcost.frontends.varying import Varied

        self.model = model
        self.vary = vary
        self.limit = limit
        self.done = done
        self.source = ""
        self.modules: tuple[ModuleCost, ...] = ()
        self.found: dict[int, Memory] = {}
        self.inputs: dict[int, str] = {}
        self.samples: dict[int, Sample] = {}
        self.refused: dict[int, str] = {}
        self.varied: Varied = Varied(dict(told), (vary,), lambda asked: count(model, **asked).inputs)

    def sample(self, size: int) -> Sample | None:
        """What was counted at a size, for the search; None where the model does not run at it."""
        from opcost.analysis.growth import Sample
        from opcost.devices.allocator import least_capacity
        from opcost.errors import ForwardError, InputError

        try:
            report = count(self.model, **self.varied.told((size,)))
            self.done.step()
        except (ForwardError, InputError) as exc:
            self.refused[size] = exc.message
            if not self.found:
                raise
            return None
        self.source = report.meta.get("source", "the model")
        self.modules = report.modules
        self.found[size] = memory = report.known_memory()
        self.inputs[size] = report.run_on
        needed = memory.peak_bytes
        if memory.lives is not None:
            needed = max(needed, least_capacity(memory.lives, self.limit, needed))
        self.samples[size] = Sample(needed, memory.curve)
        return self.samples[size]

    def fits(self, size: int) -> bool:
        """Whether a size that was tried is within the limit."""
        return size in self.samples and self.samples[size].peak_bytes <= self.limit

    def reserved(self, size: int) -> int | None:
        """What an allocator needs for it, as far as one is simulated."""
        held = self.found.get(size)
        return None if held is None or held.lives is None else self.samples[size].peak_bytes

    def place(self, device: str, memory: str | int | None) -> str:
        """What it would have to fit, in words."""
        limit = format_bytes(self.limit)
        if not device:
            return f"into {limit}"
        return f"on {device} ({limit} usable)" if memory is None else f"into {limit} as {device} holds it"

    def need(self, size: int) -> str:
        """What a size needs; of a device that is what its allocator reserves, of which less is allocated at once."""
        made_of, reserved = _made_of(self.found[size]), self.reserved(size)
        return made_of if reserved is None else f"{format_bytes(reserved)} reserved, of which allocated {made_of}"

    def lowest(self) -> int:
        """The smallest size to begin with: one, unless the model does not run at it."""
        from opcost.errors import ForwardError, InputError

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


def _made_of(memory: Memory) -> str:
    """The peak, and what it is made of, in words."""
    parts = sorted(memory.parts.items(), key=lambda part: -part[1])
    return f"{format_bytes(memory.peak_bytes)} ({', '.join(f'{part} {format_bytes(size)}' for part, size in parts)})"


def _asked(options: Mapping[str, Any]) -> dict[str, str]:
    """What was asked besides the inputs, in words."""
    usual = {name: parameter.default for name, parameter in signature(count).parameters.items()}
    inputs = ("shapes", "dtypes", "kwargs", "rules")
    return {
        name: str(value)
        for name, value in options.items()
        if name not in inputs and value != usual[name] and value not in (None, {}, ())
    }


def _notes(counts: _Counts, lowest: int, following: int) -> Iterator[str]:
    if lowest > 1:
        below = f", and smaller ones than {lowest} were not tried" if lowest > FEW else ""
        yield f"it does not run at 1{below}: {counts.refused[1]}"
    if following in counts.refused:
        yield f"it does not run at {following:,}, so that memory is not what ends it: {counts.refused[following]}"
    sizes = sorted(counts.found)
    if any(counts.samples[a].peak_bytes > counts.samples[b].peak_bytes for a, b in pairwise(sizes)):
        yield "memory does not rise with every size, so that a larger one than told may fit as well"
    if any(memory.how == "last reader" for memory in counts.found.values()):
        yield "read from a file: a tensor is gone after the last operator that reads it"


# -- what would let more in ----------------------------------------------------------------------------------------------


def _others(told: Mapping[str, Any], before: _Counts) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """Options that take less memory and are not chosen yet."""
    if any(memory.how == "last reader" for memory in before.found.values()):  # a file, which is not run
        return
    training = bool(told.get("backward") or told.get("optimizer"))
    if told.get("dtype") is None and told.get("precision") is None:
        yield from (("precision", name) for name in ("bf16-mixed", "bfloat16") if training or name == "bfloat16")
    if training and not told.get("checkpoint") and (blocks := _blocks(before.modules)):
        yield "checkpoint", blocks
    if isinstance(told.get("optimizer"), str):
        yield from (("optimizer", name) for name in ("adafactor", "sgd") if name != told["optimizer"].lower())


def _blocks(modules: Sequence[ModuleCost]) -> tuple[str, ...]:
    """Patterns of the paths of blocks that a model repeats: numbered modules of one type with others inside, near the root."""
    parents = {module.parent for module in modules}
    types: dict[str, list[str]] = {}
    for module in modules:
        before, _, name = module.path.rpartition(".")
        if before and name.isdigit() and module.path in parents:
            types.setdefault(before, []).append(module.type)
    found = [path for path, kinds in types.items() if len(kinds) > 1 and len(set(kinds)) == 1]
    nearest = min((path.count(".") for path in found), default=0)
    return tuple(dict.fromkeys(f"{re.sub('[0-9]+', '*', path)}.*" for path in found if path.count(".") == nearest))


def _under_others(told: Mapping[str, Any], before: _Counts, size: int) -> Iterator[tuple[str, str, _Counts]]:
    """Each other option under which the model keeps to the limit at a size, with what was counted there."""
    from opcost.errors import ForwardError, InputError

    for option, value in _others(told, before):
        before.done.next()
        counts = _Counts(before.model, {**told, option: value}, before.vary, before.limit, before.done)
        try:
            counts.sample(size)
        except (ForwardError, InputError):  # the model does not run so
            continue
        if counts.fits(size):
            yield option, value if isinstance(value, str) else ",".join(value), counts


def _advice(told: Mapping[str, Any], before: _Counts, size: int) -> tuple[Advice, ...]:
    """The largest size under each other option with which more fits, the most first."""
    from opcost.analysis.growth import largest
    from opcost.core.fit import Advice

    found = []
    for option, value, counts in _under_others(told, before, size):
        answer = largest(counts.sample, before.limit, counts.samples, size)
        if answer is not None and answer.largest > size:
            found.append(Advice(option, value, answer.largest, counts.found[answer.largest].peak_bytes))
    return tuple(sorted(found, key=lambda advice: -advice.largest))


def _way_out(told: Mapping[str, Any], before: _Counts, size: int) -> str:
    """Under which other options it fits at least at this size, with what is compared with the limit."""
    fits = [
        f"{option}={value} ({format_bytes(counts.samples[size].peak_bytes)})"
        for option, value, counts in _under_others(told, before, size)
    ]
    return f"options that would fit: {', '.join(fits)}" if fits else "no other option alone makes it fit"


# -- many sizes --------------------------------------------------------------------------------------------------------------

MOST_POINTS = 10_000
PEAK = "peak_bytes"


def sweep(
    source: Any,
    inputs: Any = None,
    *,
    vary: str | Sequence[str] | Mapping[str, str | Sequence[int]],
    device: str | None = None,
    calibration: str | PathLike[str] | None = None,
    execution: Execution | None = None,
    progress: Callable[[Point, int], None] | None = None,
    **options: Any,
) -> Sweep:
    """Cost, memory and latency at many sizes: `print(opcost.sweep(model, vary={"batch": "1..64", "tokens": "128..8192"}))`.

    The model, its inputs and `options` are given as to `opcost.count`; `vary` names one or two sizes as `opcost.fit` does, each
    with numbers or a text: "1,2,4..256" goes on as it began, "128..8192" doubles, "10,20..100" adds 10. A list of texts
    "batch=1,2,4..256" does as well. With a `device` there is the latency too, as `opcost.predict` tells it with this
    `calibration` and `execution`, and memory is told as that device holds it.

    Without one, only as many sizes are counted as polynomials need to tell the others, and some more to check them; `progress`
    is told each point that was counted, and how many points there are.
    """
    from opcost.analysis.growth import over_grid
    from opcost.core.sweep import Sweep
    from opcost.errors import InputError
    from opcost.frontends.varying import Varied, parse_variables

    axes = parse_variables(vary)
    total = prod(map(len, axes.values()))
    if total > MOST_POINTS:
        raise InputError(f"these are {total:,} combinations, and at most {MOST_POINTS:,} are counted")
    if device is None and (calibration is not None or execution is not None):
        raise InputError("how the model runs is told, and no device", hint='name one: device="h200"')
    told = {**options, "inputs": inputs, "device": device}
    with _model(source, told) as model:
        varied = Varied(told, tuple(axes), lambda asked: count(model, **asked).inputs)
        points = _Points(
            model,
            varied,
            (device, calibration, execution),
            lambda point: None if progress is None else progress(point, total),
        )
        if device is None:
            grid = over_grid(list(axes.values()), points.count)
        else:  # what a kernel takes is no polynomial
            grid = ((sizes, points.count(sizes)) for sizes in product(*axes.values()))
        found = tuple(points.point(sizes, numbers) for sizes, numbers in grid)
    if over := sum(point.fits is False for point in found):
        points.notes.insert(
            0,
            f"{over:,} of {len(found):,} points do not fit on {points.device}: their latency is that with enough memory",
        )
    if not any(point.amounts for point in found):
        raise InputError(f"{points.source} runs at none of these sizes: {points.notes[0]}")
    return Sweep(
        source=points.source,
        variables=tuple(axes),
        points=found,
        device=points.device,
        asked=_asked(options),
        notes=tuple(points.notes),
    )


class _Points:
    """The points that were counted, and the numbers in which others are told."""

    def __init__(self, model: Any, varied: Varied, place: tuple[Any, Any, Any], done: Callable[[Point], None]) -> None:
        self.source = "the model"
        self.device = ""
        self.found: dict[tuple[int, ...], Point] = {}
        self.notes: list[str] = []
        self._model = model
        self._varied = varied
        self._place = place
        self._done = done

    def count(self, sizes: tuple[int, ...]) -> Sequence[int] | None:
        """Count at these sizes: quantities of the whole, then the curve of memory; None where the model does not run."""
        from opcost.core.quantity import amounts_of
        from opcost.core.sweep import Point
        from opcost.errors import ForwardError, InputError

        try:
            report = count(self._model, **self._varied.told(sizes))
        except (ForwardError, InputError) as exc:
            self.notes.append(f"it does not run at {', '.join(f'{size:,}' for size in sizes)}: {exc.message}")
            self.found[sizes] = Point(sizes, {})
            return None
        self.source = report.meta.get("source", self.source)
        self.found[sizes] = self._timed(Point(sizes, amounts_of(report)), report)
        self._done(self.found[sizes])
        return [
            *(amount for name, amount in self.found[sizes].amounts.items() if name != PEAK),
            *report.known_memory().curve,
        ]

    def point(self, sizes: tuple[int, ...], numbers: Sequence[int] | None) -> Point:
        """What was counted, or is told by such numbers."""
        from opcost.core.quantity import QUANTITIES
        from opcost.core.sweep import Point

        if numbers is None or sizes in self.found:
            return self.found[sizes]
        names = [name for name in QUANTITIES if name != PEAK]
        amounts = dict(zip(names, numbers, strict=False))
        amounts[PEAK] = max(numbers[len(names) :], default=0)
        return Point(sizes, {name: amounts[name] for name in QUANTITIES}, counted=False)

    def _timed(self, point: Point, report: Report) -> Point:
        from opcost.predicting import predict

        device, calibration, execution = self._place
        if device is None:
            return point
        found = predict(report, device=device, calibration=calibration, execution=execution)
        if not self.device:
            self.device = found.meta["device"]
            self.notes.append(f"latency: {found.meta['execution']}; calibration: {found.meta['calibration']}")
        return point._replace(latency_ns=found.latency_ns, band_ns=found.band_ns, fits=found.fits)
