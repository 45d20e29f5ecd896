"""What the options of `opcost analyze` ask: texts as they were typed become a `Question`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost.cli.analyze_options import AnalyzeChoice
from opcost.errors import OpcostError, UnknownName

if TYPE_CHECKING:
    from opcost.analysis.query import Question
    from opcost.core.devices import Device

_AS_TYPED = ("side", "where", "type", "kind", "module", "aggregate", "depth", "order_by", "causal")


def question_of(choice: AnalyzeChoice, *, top: int) -> Question:
    """What the options ask, for so many lines if nobody says; wrong names are found before a long file is read."""
    from opcost.analysis.part import fields as known_fields
    from opcost.analysis.query import Question
    from opcost.analysis.where import compile_where
    from opcost.traces.megengine.meaning import dtype_of

    if choice.where is not None:
        compile_where(choice.where, known_fields(None))
    return Question(
        **{name: getattr(choice, name) for name in _AS_TYPED},
        measure="wait" if choice.top_end_key == "kern" else "time",
        name=choice.opr_name,
        input_dtype=(dtype_of(choice.input_dtype) or choice.input_dtype) if choice.input_dtype else None,
        min_time_ns=_time(choice.min_time, float("-inf")),
        max_time_ns=_time(choice.max_time, float("inf")),
        group_by=split(choice.group_by),
        aggregate_by=split(choice.aggregate_by),
        percentiles=_percentiles(choice.percentiles),
        top=top if choice.top is None else choice.top,
        device=_device(choice),
    )


def split(words: tuple[str, ...]) -> tuple[str, ...]:
    """Words given one by one or with commas."""
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def _time(text: str | None, missing: float) -> float:
    """Nanoseconds; a bare number is seconds, as MegEngine takes it."""
    from opcost.core.units import parse_time

    if text is None:
        return missing
    try:
        return float(text) * 1e9
    except ValueError:
        return parse_time(text)


def _percentiles(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(word.strip().lstrip("p")) for word in text.split(","))
    except ValueError:
        raise OpcostError(f"{text!r} is not a list of percentiles", hint="write --percentiles 10,50,90") from None


def _device(choice: AnalyzeChoice) -> Device | None:
    from opcost.core.devices import device, measured
    from opcost.core.units import parse_bytes, parse_count

    if choice.peak_flops is None and choice.peak_bandwidth is None:
        try:
            return device(choice.device) if choice.device else None
        except UnknownName as exc:
            exc.hint += "; measured peaks can be given instead: --peak-flops, --peak-bandwidth"
            raise
    if choice.device:
        raise OpcostError("both --device and measured peaks are given", hint="name one of them")
    flops = None if choice.peak_flops is None else parse_count(choice.peak_flops)
    bandwidth = None if choice.peak_bandwidth is None else parse_bytes(choice.peak_bandwidth)
    return measured(flops, bandwidth)
