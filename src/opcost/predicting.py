"""The doors to what a model would take on a device that need not be there: predict, and calibrate the one that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, get_args

from opcost.core.graph import Note
from opcost.core.units import format_bytes, format_time
from opcost.profiles import Profile

if TYPE_CHECKING:
    from opcost.analysis.prediction.lengths import Piece
    from opcost.analysis.prediction.predict import Execution, Foretold
    from opcost.analysis.prediction.shares import Share
    from opcost.analysis.prediction.speeds import Speeds
    from opcost.api import Dtype, Dtypes, Shapes
    from opcost.core.memory import Memory
    from opcost.core.report import Report
    from opcost.core.wishes import Causal
    from opcost.devices.calibration import Calibration
    from opcost.frontends.options import Mode, ZeroGrad
    from opcost.rules.registry import Rule


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Profile):
    """A profile of what was not run: each operator with the time it would take, and what they add up to."""

    latency_ns: int
    """Kernels and the gaps between them; run eagerly also the time in which the device waits for its host."""
    kernel_ns: int
    """The kernels alone."""
    band_ns: tuple[int, int]
    """Four of five models that were measured lie inside such a band."""
    ideal_ns: int
    """Every operator at the peaks that the maker of the device prints."""
    bounds: Mapping[str, int]
    """The time of operators by what they wait for: compute, memory, launch, host."""
    memory: Memory | None = None
    """The memory of the pass or step as the device would hold it; of a text that is written, that of its largest step."""
    text: TextTimes | None = None
    """Of a language model what prefill, decode or generate take."""
    fits: bool | None = None
    """Whether the memory of the device is enough; None where that is not known."""

    def _said(self) -> list[str]:
        low, high = map(format_time, self.band_ns)
        return [
            f"{format_time(self.latency_ns)} on {self.meta['device']}",
            f"{low} to {high}",
            f"{len(self.rows):,} operators",
        ]

    def __str__(self) -> str:
        return "\n".join([str(self.answer()), *self.lines, ""])

    def _repr_html_(self) -> str:
        return self.answer().render("notebook", said=self.lines)

    @property
    def lines(self) -> list[str]:
        """The latency, how sure that is, and what operators wait for, line by line."""
        from opcost.core.devices import HOST

        low, high = map(format_time, self.band_ns)
        total = max(1, sum(self.bounds.values()))
        shares = ", ".join(f"{name} {100 * taken / total:.0f} %" for name, taken in self.bounds.items())
        # Nobody prints the peaks of a processor: they are the best that was seen of it.
        peaks = "at the best that was timed" if self.meta["device"] == HOST else "at the printed peaks of the device"
        lines = [
            f"latency      {format_time(self.latency_ns)}, four of five between {low} and {high}",
            f"             {self.meta['execution']}",
            f"kernels      {format_time(self.kernel_ns)}; {peaks} {format_time(self.ideal_ns)}",
            f"waits for    {shares}",
            f"calibration  {self.meta['calibration']}",
        ]
        if self.memory is not None:
            lines.append(f"memory       {_memory_words(self.memory)}")
        if self.fits is False:  # no tokens are written per second of what does not run
            lines.insert(0, f"DOES NOT FIT on {self.meta['device']}: times are those with enough memory")
            return lines if self.text is None else [*lines, *self.text.lines[1:]]
        return lines if self.text is None else [*lines, *self.text.lines]

    def shares(self, by: str = "module", depth: int | None = None) -> tuple[Share, ...]:
        """For each module, type, kind or name: its time, the same at the printed peaks, and what it waits for."""
        from opcost.analysis.prediction.shares import shares

        return shares(self, by, depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTimes:
    """What a language model takes to read and write a text."""

    batch: int
    """Texts at once."""
    first_token_ns: int | None
    """Until the first token is written: the whole prefill; None where only a later step was asked for."""
    token_ns: int | None
    """Between two tokens of a text, on average; None where only the prefill was asked for."""
    tokens_per_second: float
    """Of all texts together: tokens written, and of a prefill tokens read."""
    cache_tokens: int
    """What the cache of each text holds at the end."""
    cache_bytes: int
    """What the cache of all texts takes then."""
    cache_bytes_per_token: int
    """What one more token of each text adds."""

    @property
    def lines(self) -> list[str]:
        """The same in words, line by line."""
        said = [f"throughput   {self.tokens_per_second:,.1f} tokens/s of {self.batch} at once"]
        if self.first_token_ns is not None:
            said.append(f"first token  after {format_time(self.first_token_ns)}")
        if self.token_ns is not None:
            said.append(f"each token   {format_time(self.token_ns)}")
        size, more = format_bytes(self.cache_bytes), format_bytes(self.cache_bytes_per_token)
        said.append(f"cache        {size} for {self.cache_tokens:,} tokens a text; one more of each takes {more}")
        return said


def predict(
    source: Any,
    inputs: Any = None,
    *,
    device: str = "h200",
    calibration: str | PathLike[str] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
    dtypes: Dtypes | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    image: int | None = None,
    prefill: int | None = None,
    decode: int | None = None,
    cache: int | None = None,
    generate: int | None = None,
    static: int | None = None,
    cache_dtype: Dtype | None = None,
    dtype: Dtype | None = None,
    precision: str | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 - as the flag is called
    backward: bool = False,
    optimizer: bool | str | Callable[[Any], Any] | None = None,
    checkpoint: str | Sequence[str] = (),
    accumulate: int = 1,
    zero_grad: ZeroGrad = "none",
    mode: Mode | None = None,
    causal: Causal = "full",
    rules: Mapping[str, Rule] | None = None,
    execution: Execution | None = None,
) -> Prediction:
    """How long a model would take on a device, operator by operator, without running it.

    The model and its inputs are given as to `opcost.count`; a report that was counted before does as well. `device` is one of
    the table of devices; `calibration` is a file that `opcost calibrate` wrote on it, in place of the one that comes with the
    package. A device that nobody calibrated is told by its printed peaks and the shares that a calibrated one reaches of its
    own, with a wider band.

    `execution="graph"` tells one pass (or step) replayed as a graph, without the host's own time; "eager" with it;
    "compiled" as a graph whose chains of simple operators were merged. Of a language model `prefill=1024` reads a text,
    `decode=1, cache=4096` writes a token, and `prefill=1024, generate=500` reads it and writes so many: `.text` has the time
    to the first token, tokens per second and what the cache takes.
    """
    from opcost.api import count
    from opcost.core.devices import HOST, autocasts_like
    from opcost.core.report import Report
    from opcost.frontends.inputs import parse_precision

    asked: dict[str, Any] = {
        "kwargs": kwargs, "shapes": shapes, "dtypes": dtypes, "batch": batch, "tokens": tokens, "image": image, "dtype": dtype,
        "backward": backward, "optimizer": optimizer, "mode": mode, "causal": causal, "rules": rules, "static": static,
        "cache_dtype": cache_dtype, "precision": parse_precision(precision, autocasts_like(device)), "checkpoint": checkpoint,
        "accumulate": accumulate, "zero_grad": zero_grad, "device": None if device == HOST else device,
    }  # fmt: skip
    teller = _Teller(device, calibration, execution)
    if generate is not None:
        return _generated(source, teller, {**asked, "set": set, "inputs": inputs}, prefill, decode, generate)
    report = source
    if not isinstance(source, Report):
        report = count(source, inputs, set=set, prefill=prefill, decode=decode, cache=cache, **asked)
    found = teller.tell(report)
    return _held(found, report.memory, _text_times(report, found))


class _Teller:
    """Tells times of one device and way to run."""

    def __init__(self, device: str, calibration: str | PathLike[str] | None, execution: Execution | None) -> None:
        from opcost.analysis.prediction.predict import Execution as Known
        from opcost.core.devices import HOST
        from opcost.errors import InputError, UnknownName

        if execution is not None and execution not in get_args(Known):
            raise UnknownName("execution", execution, get_args(Known))
        self.speeds, told, self.calibrated = _speeds(device, calibration)
        on_host = self.speeds.device.name == HOST
        if on_host and execution == "graph":
            raise InputError("a processor replays no graphs", hint="leave execution out, or say eager or compiled")
        # What a processor takes for an operator is all the host's, so that nothing comes on top of it.
        self.execution: Execution = "graph" if on_host and execution != "compiled" else execution or "graph"
        words = _ON_A_HOST if on_host and self.execution == "graph" else _EXECUTIONS[self.execution]
        self.meta = {"device": self.speeds.device.name, "calibration": told, "execution": words}

    def tell(self, report: Report) -> Foretold:
        from opcost.analysis.prediction.predict import foretell

        return foretell(report, self.speeds, self.meta, calibrated=self.calibrated, execution=self.execution)

    def tell_steps(self, pieces: Sequence[Piece]) -> Foretold:
        from opcost.analysis.prediction.predict import foretell_steps

        return foretell_steps(pieces, self.speeds, self.meta, calibrated=self.calibrated, execution=self.execution)


def _generated(
    source: Any, teller: _Teller, asked: dict[str, Any], prefill: int | None, decode: int | None, generate: int
) -> Prediction:
    """A text that is read, and tokens that are written after it, one by one."""
    from opcost.analysis.prediction.lengths import pieces
    from opcost.analysis.prediction.predict import together
    from opcost.api import count, made_once
    from opcost.errors import InputError
    from opcost.frontends.torch.models.text import windows

    if prefill is None or decode is not None or not isinstance(generate, int) or generate < 1:
        raise InputError(
            "generate writes a number of tokens after a text that was read",
            hint="give both numbers, above zero: prefill=1024, generate=500",
        )
    with made_once(source, asked.pop("set")) as (model, usual):
        asked["mode"] = asked["mode"] or usual
        first = count(model, prefill=prefill, **asked)
        steps = generate - 1
        parts = [teller.tell(first)]
        last = first
        if steps:

            def step(held: int) -> Report:
                return count(model, decode=1, cache=held, **asked)

            found = pieces(step, prefill, prefill + steps - 1, windows(model))
            parts.append(teller.tell_steps(found))
            last = found[-1].high
    whole = together(parts)
    written = {
        **whole.profile.meta,
        **{name: last.meta[name] for name in last.meta if name.startswith("cache")},
        "text": f"{first.meta['text']}, then {generate} tokens written",
    }
    whole = whole._replace(profile=replace(whole.profile, meta=written))
    batch = int(first.meta["batch"])
    return _held(
        whole,
        max(first.known_memory(), last.known_memory(), key=lambda memory: memory.peak_bytes),
        TextTimes(
            batch=batch,
            first_token_ns=parts[0].latency_ns,
            token_ns=parts[1].latency_ns // steps if steps else None,
            tokens_per_second=batch * generate / max(1, whole.latency_ns) * 1e9,
            **_cache_of(last),
        ),
    )


def _text_times(report: Report, found: Foretold) -> TextTimes | None:
    """Of a pass of a language model its times by token."""
    if "text" not in report.meta:
        return None
    batch, new = int(report.meta["batch"]), int(report.meta["text_tokens"])
    reads = report.meta["text"].startswith("prefill")
    return TextTimes(
        batch=batch,
        first_token_ns=found.latency_ns if reads else None,
        token_ns=None if reads else found.latency_ns // new,
        tokens_per_second=batch * new / max(1, found.latency_ns) * 1e9,
        **_cache_of(report),
    )


def _cache_of(report: Report) -> dict[str, int]:
    return {name: int(report.meta[name]) for name in ("cache_tokens", "cache_bytes", "cache_bytes_per_token")}


def _held(found: Foretold, memory: Memory | None, text: TextTimes | None) -> Prediction:
    from opcost.core.devices import HOST

    profile = {field.name: getattr(found.profile, field.name) for field in fields(found.profile)}
    if found.profile.meta["device"] == HOST:  # what a processor takes is the host's time, as in what is measured on one
        profile["rows"] = tuple(
            row._replace(host_ns=row.device_ns, host_self_ns=row.device_ns, device_ns=None, device_total_ns=None)
            for row in found.profile.rows
        )
    sums = {name: value for name, value in found._asdict().items() if name != "profile"}
    fitting = None if memory is None else _fits(found.profile.meta["device"], memory)
    if fitting is not None and not fitting[0]:
        profile["notes"] = (*profile["notes"], Note("does-not-fit", fitting[1]))
    return Prediction(**profile, **sums, memory=memory, text=text, fits=None if fitting is None else fitting[0])


def _fits(name: str, memory: Memory) -> tuple[bool, str] | None:
    """Whether a device has enough memory, and a sentence on what is missing; None where that is not known."""
    from opcost.core.devices import HOST
    from opcost.core.devices import device as find_device
    from opcost.devices.allocator import fits

    usable = None if name == HOST else find_device(name).usable
    if usable is None:
        return None
    needed = f"{_memory_words(memory)}, and {format_bytes(usable)} of {name} are usable"
    return fits(memory, usable), f"it does not fit on {name}: {needed}; times are those with enough memory"


def _memory_words(memory: Memory) -> str:
    said = f"peak {format_bytes(memory.peak_bytes)}, of which {format_bytes(memory.base_bytes)} before"
    return said if memory.reserved_bytes is None else f"{said}; {format_bytes(memory.reserved_bytes)} reserved"


_EXECUTIONS = {
    "graph": "as one graph, without waiting for the host",
    "eager": "operator by operator, each started by the host",
    "compiled": "as one graph, chains of simple operators merged",
}
_ON_A_HOST = "one operator after another"
FEWEST = 100
"""Operators that a calibration must hold: with fewer whole families are missing."""

_made: dict[tuple[str, str], Speeds] = {}


def _speeds(name: str, path: str | PathLike[str] | None) -> tuple[Speeds, str, bool]:
    """The speeds of a device, where they come from in words, and whether it was timed itself."""
    from opcost.analysis.prediction.speeds import Speeds
    from opcost.core.devices import HOST
    from opcost.core.devices import device as find_device
    from opcost.devices.calibration import DOCUMENT, SHIPPED, shipped
    from opcost.errors import InputError
    from opcost.rules import default_rules

    device = None if name == HOST else find_device(name)
    if path is not None:
        calibration = DOCUMENT.load(path)
        if calibration.device != (device.name if device else HOST):
            raise InputError(
                f"the calibration {str(path)!r} is of {calibration.device!r}, and {name!r} was asked for",
                hint=f"say --device {calibration.device}, or calibrate on the other device",
            )
        if len(calibration.rows) < FEWEST:
            raise InputError(
                f"the calibration {str(path)!r} holds {len(calibration.rows)} operators, and {FEWEST} are needed",
                hint=f"go on with it: opcost calibrate -o {path}",
            )
        return Speeds(calibration, default_rules(), device), _told(calibration), True
    if device is None:
        raise InputError(
            "each processor is another, and none comes calibrated",
            hint="opcost calibrate --device cpu -o FILE, then opcost predict SOURCE --device cpu --calibration FILE",
        )
    calibrated = device.name in SHIPPED
    calibration = shipped(device.name if calibrated else SHIPPED[0])
    key = (device.name, calibration.device)
    if key not in _made:
        _made[key] = Speeds(calibration, default_rules(), device)
    told = _told(calibration)
    return _made[key], told if calibrated else f"none of {device.name}; shares of the peaks as of {told}", calibrated


def _told(calibration: Calibration) -> str:
    meta = calibration.meta
    torch = f", torch {meta['torch']}" if "torch" in meta else ""
    return (
        f"{meta.get('product', calibration.device)}, {len(calibration.rows):,} operators, {meta.get('made', '')}{torch}"
    )


SAVED_EVERY = 200
"""Operators between two writings of the file, so that a calibration that is broken off loses little."""


def calibrate(
    path: str | PathLike[str],
    *,
    device: str | None = None,
    name: str | None = None,
    seconds: float = 170,
    progress: Callable[[int, float], None] | None = None,
) -> Calibration:
    """Time operators on the device at hand for so many seconds, and write what was found to a file for `opcost.predict`.

    `device` is where they run ("cuda", "cpu"), `name` what the table of devices calls it, if its product does not tell. A
    file that is there already and is of the same device is gone on with: what it holds is kept. `progress` is told the
    operators timed and the share of the time that is over.
    """
    import time
    from datetime import datetime, timezone
    from pathlib import Path

    from opcost.core.devices import HOST
    from opcost.core.devices import device as find_device
    from opcost.core.writing import check_writable, write_text
    from opcost.devices.calibration import DOCUMENT, Calibration, Measured, dumps
    from opcost.errors import InputError
    from opcost.recorders.calibration.run import device_of, machine, run

    check_writable(path)
    where = device_of(device)
    meta = {**machine(where), "made": datetime.now(timezone.utc).date().isoformat()}
    known = HOST if where.type == "cpu" else find_device(name or meta["product"]).name
    rows: list[Measured] = []
    done = 0
    if Path(path).exists():
        before = DOCUMENT.load(path)
        if before.device != known or before.meta.get("torch") != meta["torch"]:
            raise InputError(
                f"{str(path)!r} holds a calibration of {before.device!r} with torch {before.meta.get('torch')}, "
                f"and this is {known!r} with torch {meta['torch']}",
                hint="write to another file",
            )
        rows, done = list(before.rows), before.position
    began = time.monotonic()

    def found() -> Calibration:
        return Calibration(device=known, meta=meta, position=done, rows=tuple(rows))

    def keep(number: int, row: Measured) -> None:
        nonlocal done
        done = number
        rows.append(row)
        if progress is not None:
            progress(len(rows), min(1.0, (time.monotonic() - began) / seconds))
        if len(rows) % SAVED_EVERY == 0:
            write_text(path, dumps(found()))

    run(where, seconds, done, keep)
    write_text(path, dumps(found()))
    return found()
