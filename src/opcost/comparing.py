"""The doors that hold models against each other and against budgets: compare, check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from opcost.api import Dtypes, Shapes, count, scan

if TYPE_CHECKING:
    from opcost.analysis.compare import By, Costs
    from opcost.analysis.prediction.predict import Execution
    from opcost.core.budget import Verdict
    from opcost.core.comparison import Comparison
    from opcost.core.limit import Limit
    from opcost.core.report import Report
    from opcost.core.scan import Scan
    from opcost.frontends.source import Source


def compare(
    *sources: Any,
    labels: Sequence[str] | None = None,
    by: By | None = None,
    quantities: Sequence[str] = (),
    depth: int | None = 1,
    **options: Any,
) -> Comparison:
    """What several models cost, side by side: `print(opcost.compare("timm:resnet18", "timm:resnet50", by="kind"))`.

    Each source is a report, a scan, a checkpoint, or whatever `opcost.count` takes; `options` are those of `opcost.count`, for
    all that are counted. Of a checkpoint only the parameters and their bytes are known.
    `by` adds kinds of operators or modules (down to `depth`, None for all), `quantities` names what is compared, and `labels`
    what the columns are called.
    """
    from opcost.analysis.compare import compare as side_by_side
    from opcost.analysis.compare import costs_of
    from opcost.core.report import Report
    from opcost.core.scan import Scan
    from opcost.errors import InputError

    by = check_comparison(by, quantities)
    if labels is not None and len(labels) != len(sources):
        raise InputError(f"there are {len(labels)} labels for {len(sources)} sources")
    if options and sources and all(isinstance(source, (Report, Scan)) for source in sources):
        raise InputError("options about counting are given, and all sources are reports", hint="leave them out")
    held = [_held(source, labels[place] if labels else None, options) for place, source in enumerate(sources)]
    found = [costs_of(*each) for each in held]
    return side_by_side(found, by=by, quantities=quantities, depth=depth)


def _held(source: Any, label: str | None, options: Mapping[str, Any]) -> tuple[Report | Scan, str]:
    """What is counted or read of a source, and its own name unless it is given one."""
    from opcost.core.report import Report
    from opcost.core.scan import Scan

    held = source_or_scan(str(source)) if isinstance(source, (str, Path)) else source
    if not isinstance(held, (Report, Scan)):
        held = count(held, **options)
    own = held.source if isinstance(held, Scan) else held.meta.get("source", "model")
    return held, label or (str(source) if isinstance(source, (str, Path)) else own)


def source_or_scan(text: str, settings: Mapping[str, object] | None = None) -> Source | Scan:
    """What a string means, where it may also name a checkpoint: weights without a model."""
    from opcost.errors import OpcostError, UnknownSource
    from opcost.frontends.source import resolve

    try:
        return resolve(text, settings)
    except UnknownSource:
        with suppress(OpcostError):
            return scan(text)
        raise


def check(
    source: Any,
    inputs: Any = None,
    *,
    shapes: Shapes | None = None,
    dtypes: Dtypes | None = None,
    baseline: str | PathLike[str] | None = None,
    allow_uncounted: bool = False,
    device: str | None = None,
    calibration: str | PathLike[str] | None = None,
    execution: Execution | None = None,
    **limits: str | int,
) -> Verdict:
    """Hold a model to a budget: `opcost.check(model, x, macs="<4.2G", params=26_000_000, peak_bytes="<=512MiB")`.

    A limit has the name of a total; without a relation it is the most that is allowed. With a `baseline` (a saved report, or a
    file of `opcost check --save-baseline`) it may be about a change: `macs="<+1%"`. `source` is a report, a checkpoint, or
    whatever `opcost.count` takes; for its other options count first and hand over the report. `latency="<5ms"` is predicted for a
    `device`, with the `calibration` and `execution` of `opcost.predict`. Raises `BudgetExceeded` with the
    offending totals, also where an operator has no price unless `allow_uncounted=True`, and returns the verdict otherwise.
    """
    from opcost.analysis.budget import judge
    from opcost.analysis.compare import costs_of
    from opcost.core.baseline import load_baseline
    from opcost.core.budget import Verdict
    from opcost.core.limit import parse_limit
    from opcost.core.quantity import HELD
    from opcost.core.report import Report
    from opcost.core.scan import Scan
    from opcost.errors import BudgetExceeded, InputError

    wanted = [parse_limit(name, limit, HELD) for name, limit in limits.items()]
    place = Place(device, calibration, execution)
    check_place(place, wanted)
    if not wanted:
        raise InputError("no limit is given", hint='write, for example, macs="<4.2G"')
    if baseline is None and (changes := [str(limit) for limit in wanted if limit.relative]):
        raise InputError(f"{', '.join(changes)} is about a change", hint="say since what: baseline='report.json'")
    options = {"inputs": inputs, "shapes": shapes, "dtypes": dtypes}
    if isinstance(source, (Report, Scan)) and any(option is not None for option in options.values()):
        raise InputError("inputs are given for a report, which was made with its own", hint="leave them out")
    held, label = _held(source, None, options)
    costs, wanted = with_latency(costs_of(held, label), held, wanted, place)
    name = costs.compared.label
    before = None if baseline is None else load_baseline(baseline, (name,)).get(name)
    judged = judge(costs, wanted, before=before, allow_uncounted=allow_uncounted)
    verdict = Verdict(models=(judged,), baseline="" if baseline is None else fspath(baseline))
    if not verdict:
        raise BudgetExceeded("\n  ".join(("a budget is exceeded", *verdict.offending)))
    return verdict


class Place(NamedTuple):
    """Where a model would run, for limits on its latency: as `opcost.predict` takes it."""

    device: str | None = None
    calibration: str | PathLike[str] | None = None
    execution: Execution | None = None


def check_place(place: Place, limits: Iterable[Limit]) -> None:
    """Raise where a latency is limited and nobody says on which device, or the other way round, before anything is counted."""
    from opcost.core.quantity import LATENCY
    from opcost.errors import InputError

    timed = [str(limit) for limit in limits if limit.quantity is LATENCY]
    if timed and place.device is None:
        raise InputError(f"{timed[0]} is about a device, and none is named", hint='name one: device = "h200"')
    if not timed and any(each is not None for each in place):
        raise InputError(
            "where the model runs is told, and no latency is limited", hint='add a limit: latency = "<5ms"'
        )


def with_latency(costs: Costs, held: Report | Scan, limits: Iterable[Limit], place: Place) -> tuple[Costs, list[Limit]]:
    """What a model costs with its latency on a device, where that is limited, and the limits with that quantity."""
    from opcost.core.quantity import LATENCY, latency_on
    from opcost.core.report import Report
    from opcost.predicting import predict

    wanted = list(limits)
    if not isinstance(held, Report) or all(limit.quantity is not LATENCY for limit in wanted):
        return costs, wanted
    assert place.device is not None
    found = predict(held, device=place.device, calibration=place.calibration, execution=place.execution)
    quantity = latency_on(found.meta["device"])
    told = replace(costs, totals={**costs.totals, quantity.name: found.latency_ns})
    return told, [replace(limit, quantity=quantity) if limit.quantity is LATENCY else limit for limit in wanted]


def check_comparison(by: str | None, quantities: Iterable[str]) -> By | None:
    """Raise for what nothing can be compared by, before anything is counted."""
    from opcost.analysis.compare import By
    from opcost.core.quantity import find_quantity
    from opcost.errors import UnknownName

    if by is not None and by not in get_args(By):
        raise UnknownName("value of by", by, get_args(By))
    for name in quantities:
        find_quantity(name)
    return by  # type: ignore[return-value]
