"""`opcost check SOURCE --max-macs 4.2G`, and `opcost check` with budgets from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group

from opcost.cli.budget_file import NAMES, Budgeted, BudgetFile, find_budgets
from opcost.cli.counting import sources_of
from opcost.cli.options import MODEL, CountChoice, parameter
from opcost.cli.tables import TableChoice, check_tables, show_tables
from opcost.comparing import Place, check_place, with_latency
from opcost.core.limit import Limit, parse_condition, parse_limit
from opcost.core.progress import working
from opcost.core.quantity import HELD
from opcost.core.writing import check_writable
from opcost.errors import OpcostError, UnknownName

BUDGET = Group("The budget", sort_key=0)

COUNT = parameter(group=BUDGET, metavar="COUNT")
SIZE = parameter(group=BUDGET, metavar="SIZE")


def check(
    *sources: Annotated[
        str,
        parameter(
            group=MODEL,
            help="What is checked, as for `opcost count`; where no limit is given, names of models in the file of budgets, "
            "without any all of them.",
        ),
    ],
    max_params: Annotated[str | None, COUNT, parameter(help="Parameters, as 25.6M or 25,557,032.")] = None,
    max_macs: Annotated[str | None, COUNT, parameter(help="Multiply-accumulates, as 4.2G.")] = None,
    max_flops: Annotated[str | None, COUNT, parameter(help="Floating-point operations.")] = None,
    max_activations: Annotated[str | None, COUNT, parameter(help="Elements that the forward pass writes.")] = None,
    max_param_bytes: Annotated[str | None, SIZE, parameter(help="Bytes of the parameters, as 512MiB or 1.5GB.")] = None,
    max_activation_bytes: Annotated[str | None, SIZE, parameter(help="Bytes that the forward pass writes.")] = None,
    max_bytes: Annotated[str | None, SIZE, parameter(help="Bytes that operators read and write.")] = None,
    max_peak_bytes: Annotated[str | None, SIZE, parameter(help="Highest memory in use at once.")] = None,
    max_latency: Annotated[
        str | None, parameter(group=BUDGET, metavar="TIME", help="Predicted time of one pass on --device, as 5ms.")
    ] = None,
    device: Annotated[
        str | None, parameter(group=BUDGET, metavar="NAME", help="For a limit on latency: h200, h100, a100, ...")
    ] = None,
    calibration: Annotated[
        Path | None, parameter(group=BUDGET, metavar="FILE", help="What opcost calibrate wrote on that device.")
    ] = None,
    execution: Annotated[
        Literal["graph", "eager", "compiled"] | None,
        parameter(group=BUDGET, help="How it runs there, as for opcost predict."),
    ] = None,
    limit: Annotated[
        tuple[str, ...],
        parameter(
            group=BUDGET, metavar="CONDITION", help="Any other limit, as 'ops<=500' or 'macs<+1%'. May be repeated."
        ),
    ] = (),
    allow_uncounted: Annotated[
        bool,
        parameter(
            group=BUDGET, help="Pass although some operators have no price, so that the counts are lower bounds."
        ),
    ] = False,
    config: Annotated[
        Path | None,
        parameter(group=BUDGET, metavar="FILE", help=f"The file of budgets. Without it {' or '.join(NAMES)} here."),
    ] = None,
    baseline: Annotated[
        Path | None,
        parameter(
            group=BUDGET, metavar="FILE", help="Compare with what --save-baseline wrote, or with a saved report."
        ),
    ] = None,
    save_baseline: Annotated[
        Path | None, parameter(group=BUDGET, metavar="FILE", help="Write what was counted, to compare with later.")
    ] = None,
    choice: CountChoice | None = None,
    shown: TableChoice | None = None,
) -> int:
    """Hold models to budgets. The exit code is 1 if one is exceeded; `--view md` is a summary for a pull request."""
    from opcost.analysis.budget import judge
    from opcost.analysis.compare import costs_of
    from opcost.core.baseline import load_baseline
    from opcost.core.baseline import save_baseline as write_baseline
    from opcost.core.budget import Judged, Verdict

    shown = shown or TableChoice()
    most = {
        "params": max_params,
        "macs": max_macs,
        "flops": max_flops,
        "activations": max_activations,
        "param_bytes": max_param_bytes,
        "activation_bytes": max_activation_bytes,
        "bytes": max_bytes,
        "peak_bytes": max_peak_bytes,
        "latency": max_latency,
    }
    limits = [parse_limit(name, text, HELD) for name, text in most.items() if text is not None]
    limits += [parse_condition(text, HELD) for text in limit]
    place = Place(device, calibration, execution)
    check_tables(shown)
    if save_baseline is not None:
        check_writable(save_baseline)
    if limits:
        if config is not None:
            raise OpcostError("limits are given, and a file of budgets too", hint="leave one of them out")
        check_place(place, limits)
        models = _typed(sources, limits, choice or CountChoice(), place, allow_uncounted=allow_uncounted)
    else:
        file = _file(config, sources)
        if place != Place():
            raise OpcostError(f"where models run stands in {file.path}", hint='write it there: device = "h200"')
        if choice is not None and choice != CountChoice():
            raise OpcostError(f"how models are counted stands in {file.path}", hint="write the option there")
        models = _chosen(file, sources, allow_uncounted=allow_uncounted)
        baseline = baseline or file.baseline
    if baseline is not None and save_baseline is not None and not baseline.exists():
        baseline = None  # there will be one from now on
    if baseline is None and save_baseline is None:
        _refuse_changes(models)
    before = {} if baseline is None else load_baseline(baseline, tuple(model.name for model in models))
    judged: list[Judged] = []
    counted = {}
    with working("counting models", share=lambda: (len(judged), len(models)), quiet=shown.quiet):
        for model in models:
            (held,) = sources_of((model.source,), model.choice, quiet=shown.quiet, runs_on=model.place.device)
            costs, limited = with_latency(costs_of(held, model.name), held, model.limits, model.place)
            counted[model.name] = (model.source, costs.totals)
            judged.append(
                judge(
                    costs,
                    limited,
                    source="" if model.source == model.name else model.source,
                    before=before.get(model.name),
                    allow_uncounted=model.allow_uncounted,
                )
            )
    verdict = Verdict(models=tuple(judged), baseline="" if baseline is None else str(baseline))
    if save_baseline is not None:
        write_baseline(save_baseline, counted)
    show_tables(verdict, shown)
    return 0 if verdict else 1


def _typed(
    sources: tuple[str, ...], limits: list[Limit], choice: CountChoice, place: Place, *, allow_uncounted: bool
) -> list[Budgeted]:
    """What is on the command line: the same limits for every source."""
    if not sources:
        raise OpcostError("there is nothing to check", hint="name a model: opcost check SOURCE --max-macs 4.2G")
    return [
        Budgeted(
            name=source,
            source=source,
            choice=choice,
            limits=tuple(limits),
            allow_uncounted=allow_uncounted,
            place=place,
        )
        for source in dict.fromkeys(sources)
    ]


def _file(config: Path | None, sources: tuple[str, ...]) -> BudgetFile:
    file = find_budgets(config)
    if file is None:
        wanted = f" for {sources[0]}" if sources else ""
        raise OpcostError(
            f"no budget was given{wanted}, and there is neither an opcost.toml nor a [tool.opcost] in a pyproject.toml here",
            hint="write, for example, --max-macs 4.2G",
        )
    return file


def _chosen(file: BudgetFile, names: tuple[str, ...], *, allow_uncounted: bool) -> list[Budgeted]:
    from dataclasses import replace

    known = {model.name: model for model in file.models}
    for name in names:
        if name not in known:
            raise UnknownName(f"model of {file.path}", name, known, hint="or give a limit, such as --max-macs 4.2G")
    found = [known[name] for name in dict.fromkeys(names)] or list(file.models)
    return [replace(model, allow_uncounted=True) for model in found] if allow_uncounted else found


def _refuse_changes(models: list[Budgeted]) -> None:
    """A limit on a change says nothing where nobody knows what was before."""
    for model in models:
        for limit in model.limits:
            if limit.relative:
                raise OpcostError(
                    f"{limit} of {model.name} is about a change, and there is no baseline",
                    hint="make one by --save-baseline FILE, and name it by --baseline FILE",
                )
