"""Comparing models with each other and with budgets: compare, check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike, fspath
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from opcost.api import count, load_report, scan
from opcost.core.devices import autocasts_like
from opcost.core.limits import LATENCY, LIMITED, Amounts, Limit, Quantity, find_quantity, load_baseline, parse_limit
from opcost.core.option import declared, filled, takes
from opcost.core.profile import Profile
from opcost.core.progress import sharing
from opcost.core.report import Report
from opcost.core.results import Comparison, ModelCheck, Verdict
from opcost.core.scan import Scan
from opcost.errors import BudgetExceeded, InputError, OpcostError, UnknownName, UnknownSource
from opcost.frontends.inputs import parse_precision
from opcost.frontends.source import SavedReport, Source, resolve
from opcost.options import Checking, Comparing, Costing, Execution
from opcost.profiles import find_trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.compare import Costs
    from opcost.profiles import Prediction


@takes(Comparing)
def compare(*sources: Any, **options: Unpack[Comparing]) -> Comparison:
    """What several models cost, side by side: `print(opcost.compare("timm:resnet18", "timm:resnet50", by="kind"))`.

    Each source is a report, a scan, a checkpoint, or anything that `opcost.count` takes; the other options are those of
    `opcost.count`, for all that are counted. Of a checkpoint only the parameters and their bytes are known. Two profiles, or two
    traces, are compared by time. `by` adds kinds of operators or modules (down to `depth`, None for all), `quantities` names what
    is compared, `labels` names the columns. With a `device` the latency that `opcost.predict` gives there is compared too.
    `changes=True` shows only what differs between two sources.
    """
    from opcost.analysis.compare import By, ProfileBy, costs_of, diff, diff_profiles
    from opcost.analysis.compare import compare as side_by_side

    given = filled(Comparing, options)
    labels = [result_label(source) for source in sources] if given.labels is None else given.labels
    if len(labels) != len(sources):
        raise InputError(f"there are {len(labels)} labels for {len(sources)} sources")
    counting = {name: value for name, value in options.items() if name not in COMPARING}
    profiles: list[Profile | None] = []
    for source in sources:
        trace = find_trace(source) if isinstance(source, (str, Path)) else None
        profiles.append(source if isinstance(source, Profile) else trace and trace())
    named = [label for label, profile in zip(labels, profiles, strict=True) if profile is not None]
    if named:
        _refuse_columns(options, "of profiles the time is compared")
        if len(profiles) != 2 or None in profiles:
            hint = "name two profiles, or models and reports"
            raise InputError(f"{named[0]} is a profile, which is compared with one other profile", hint=hint)
        if counting:
            raise InputError("options about counting do not apply to profiles", hint="leave them out")
    keys = get_args(ProfileBy if named else By)
    if given.by is not None and given.by not in keys:
        raise UnknownName("value of by", given.by, keys)
    if named:
        return diff_profiles(profiles[0], profiles[1], (labels[0], labels[1]), given.by)  # type: ignore[arg-type]
    for name in given.quantities:  # unknown ones are found before anything is counted
        find_quantity(name)
    if given.changes:
        _refuse_columns(options, "changes are of every quantity and module")
        if len(sources) != 2:
            raise InputError(f"changes are between two sources, and {len(sources)} are given")
    results = results_of(sources, autocast_on(counting, given.device))
    found = [costs_of(result, label) for result, label in zip(results, labels, strict=True)]
    place = LatencyTarget(given.device)
    predicted = (_predicted(result, place) for result in results)
    found = [_with_latency(costs, each, LATENCY) for costs, each in zip(found, predicted, strict=True)]
    if given.changes:
        return diff(*found, by=given.by)
    return side_by_side(found, by=given.by, quantities=given.quantities, depth=given.depth)


COMPARING = ("labels", "by", "quantities", "depth", "changes")  # options of a comparison that are not those of a count


def _refuse_columns(options: Mapping[str, Any], why: str) -> None:
    """Raise for options that choose quantities and modules, where these are not chosen."""
    if name := next((name for name in ("quantities", "depth") if name in options), None):
        flag = declared(Comparing)[name][1].flags or (f"--{name}",)
        raise InputError(f"{name} ({flag[0]}) does not apply: {why}", hint="leave it out")


def results_of(sources: Sequence[Any], options: Mapping[str, Any]) -> list[Report | Scan]:
    """The reports and scans of sources; `options` are for those that are counted, and an error where none is."""
    options = dict(options)
    settings = options.pop("set", None)
    # Settings are for code that makes a model; a file among the sources has none.
    found = list(sources)
    for place, source in enumerate(sources):
        if isinstance(source, (str, Path)):
            is_file = exists(source)  # noqa: PTH110 - it takes any name
            found[place] = source_or_scan(str(source), None if is_file else settings)
    if (settings or options) and found and all(isinstance(each, (Report, Scan, SavedReport)) for each in found):
        hint = "count the models again with them"
        raise InputError("options about counting do not apply to saved reports and checkpoints", hint=hint)
    results: list[Report | Scan] = []
    with sharing(lambda: (len(results), len(found))):
        for each in found:
            if isinstance(each, (Report, Scan)):
                results.append(each)
            else:
                results.append(load_report(each.path) if isinstance(each, SavedReport) else count(each, **options))
    return results


def autocast_on(options: Mapping[str, Any], device: str | None) -> dict[str, Any]:
    """Options of a count, with autocast as on the device where the model would run."""
    if device is None or options.get("precision") is None:
        return dict(options)
    return {**options, "precision": parse_precision(options["precision"], autocasts_like(device))}


def result_label(source: Any) -> str:
    """What a source is called in a table: as it was typed, or its own name."""
    if isinstance(source, (str, Path)):
        return str(source)
    if isinstance(source, Scan):
        return source.source
    return str(getattr(source, "meta", {}).get("source", type(source).__name__))


def source_or_scan(text: str, settings: Mapping[str, object] | None = None) -> Source | Scan:
    """The source that a string names, which may also be a checkpoint: weights without a model."""
    try:
        return resolve(text, settings)
    except UnknownSource:
        with suppress(OpcostError):
            return scan(text)
        raise


@takes(Checking, others=True)
def check(source: Any, inputs: Any = None, **options: Unpack[Checking]) -> Verdict:
    """Check a model against a budget: `opcost.check(model, x, macs="<4.2G", params=26_000_000, peak_bytes="<=512MiB")`.

    A limit has the name of a total; without a relation it is the largest allowed value. With a `baseline` (a saved report, or a
    file of `opcost check --save-baseline`) it may be about a change: `macs="<+1%"`. `source` is a report, a checkpoint, or
    anything that `opcost.count` takes, with its options. `latency="<5ms"` is predicted for a `device`, with the `calibration` and
    `execution` of `opcost.predict`. Raises `BudgetExceeded` with the offending totals, also where an operator has no cost model
    unless `allow_uncounted=True`, and returns the verdict otherwise.
    """
    known = {name for name in declared(Checking) if name not in LIMITED}
    wanted = [parse_limit(name, limit, LIMITED) for name, limit in options.items() if name not in known]  # type: ignore[arg-type]
    given = filled(Checking, {name: value for name, value in options.items() if name in known})
    baseline = given.baseline
    place = LatencyTarget(given.device, given.calibration, given.execution, given.host)
    check_place(place, wanted)
    if not wanted:
        raise InputError("no limit is given", hint='write, for example, macs="<4.2G"')
    if baseline is None and (changes := [str(limit) for limit in wanted if limit.relative]):
        raise InputError(f"{', '.join(changes)} is about a change", hint="name the old report: baseline='report.json'")
    counting = {name: value for name, value in options.items() if name in declared(Costing) and value is not None}
    if inputs is not None:
        counting["inputs"] = inputs
    name = str(source) if isinstance(source, (str, Path)) else ""
    model = Budgeted(name, source, counting, tuple(wanted), given.allow_uncounted, place)
    judged, _ = judge_model(model, lambda name: load_baseline(baseline, (name,)).get(name) if baseline else None)
    verdict = Verdict(models=(judged,), baseline="" if baseline is None else fspath(baseline))
    if not verdict:
        raise BudgetExceeded("\n  ".join(("a budget is exceeded", *verdict.offending)))
    return verdict


class LatencyTarget(NamedTuple):
    """Where a model would run, for limits on its latency: as `opcost.predict` takes it."""

    device: str | None = None
    calibration: str | PathLike[str] | None = None
    execution: Execution | None = None
    host: str | PathLike[str] | None = None


class Budgeted(NamedTuple):
    """One model: how it is counted, and its limits."""

    name: str  # empty: the model's own
    source: Any
    options: Mapping[str, Any]  # keyword arguments of `opcost.count`
    limits: tuple[Limit, ...]
    allow_uncounted: bool = False
    place: LatencyTarget = LatencyTarget()  # where it would run, for a limit on its latency


def check_place(place: LatencyTarget, limits: Iterable[Limit]) -> None:
    """Raise for a limit on latency without a device, or a device without such a limit, before anything is counted."""
    timed = [str(limit) for limit in limits if limit.quantity is LATENCY]
    if timed and place.device is None:
        raise InputError(f"{timed[0]} needs a device", hint='name one: device = "h200"')
    if not timed and any(each is not None for each in place):
        raise InputError("a device is given, and no limit on latency", hint='add a limit: latency = "<5ms"')


def _predicted(result: Report | Scan, place: LatencyTarget) -> Prediction | None:
    """How long it takes there; None without a device, and of a checkpoint, which does not run."""
    from opcost.predicting import predict

    if not isinstance(result, Report) or place.device is None:
        return None
    return predict(result, **place._asdict())


def _with_latency(costs: Costs, found: Prediction | None, quantity: Quantity) -> Costs:
    return costs if found is None else replace(costs, totals={**costs.totals, quantity.name: found.latency_ns})


def judge_model(model: Budgeted, before: Callable[[str], Amounts | None]) -> tuple[ModelCheck, Amounts]:
    """Count a model and compare it with its limits and with what it cost `before`; also its totals."""
    from opcost.analysis.compare import costs_of, judge

    place, limits = model.place, model.limits
    (result,) = results_of([model.source], autocast_on(model.options, place.device))
    name = model.name or result_label(result)
    costs = costs_of(result, name)
    if found := _predicted(result, place):
        name_of = f"{LATENCY.name} on {found.meta['device']}"  # another quantity than that on another device
        quantity = LATENCY._replace(name=name_of, title=name_of)
        costs = _with_latency(costs, found, quantity)
        limits = tuple(replace(each, quantity=quantity) if each.quantity is LATENCY else each for each in limits)
    origin = model.source if isinstance(model.source, str) and model.source != name else ""
    judged = judge(costs, limits, source=origin, before=before(name), allow_uncounted=model.allow_uncounted)
    return judged, costs.totals
