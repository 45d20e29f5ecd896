"""Commands that compare models with each other and with budgets: compare, check."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

from opcost.cli.flags import SOURCE, depth_of, frontend_flags, group, keywords, parameter, split
from opcost.cli.models import TABLE, counting
from opcost.cli.output import Output
from opcost.cli.printing import warn
from opcost.comparing import COMPARING, Budgeted, LatencyTarget, check_place, judge_model, results_of
from opcost.comparing import compare as compare_sources
from opcost.core.files import check_writable, read_whole
from opcost.core.limits import LIMITED, QUANTITIES, load_baseline, parse_condition, parse_limit
from opcost.core.limits import save_baseline as write_baseline
from opcost.core.option import declared
from opcost.core.results import ModelCheck, Verdict
from opcost.core.units import format_time
from opcost.errors import OpcostError, SourceError, UnknownName, shortened
from opcost.frontends.registry import frontends
from opcost.options import BUDGET, Checking, Comparing, Pairs, Showing
from opcost.profiles import find_trace
from opcost.views.comparison import percent

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CompareFlags: Any = frontend_flags(Comparing, Showing, only=TABLE)
CheckFlags: Any = frontend_flags(Checking, Showing, only=TABLE)
FAILING = group(BUDGET)


def compare(
    *sources: Annotated[str, parameter(
        group=SOURCE, help="Models, files and reports as for `opcost count`, checkpoints, or two profiles.")],
    fail_if: Annotated[tuple[str, ...], parameter(
        group=FAILING, metavar="CONDITION",
        help="Exit with 1 if the second source satisfies this against the first: 'macs>+1%', 'params>+10M', "
        "'peak_bytes>512MiB', of profiles 'time>+5%', or 'changed'. May be repeated.")] = (),
    allow_uncounted: Annotated[bool, parameter(
        group=FAILING, help="Judge by lower bounds where some operators have no cost model.")] = False,
    flags: CompareFlags = None,
) -> int:  # fmt: skip
    """Compare what models cost, side by side, or where the time of two profiles goes."""
    from opcost.analysis.compare import TIME

    output = Output({name: value for name, value in (flags or {}).items() if name not in ("by", "depth")}, "tables")
    if len(sources) < 2:
        hint = "name two or more: opcost compare A B; see `opcost compare --help`"
        raise OpcostError("there is nothing to compare", hint=hint)
    if fail_if and len(sources) != 2:
        raise OpcostError(f"--fail-if compares two sources, and {len(sources)} are named", hint="name two")
    options = keywords(flags, also=("by", "depth"))
    if "quantities" in options:
        options["quantities"] = split(options["quantities"])
    if "depth" in options:
        options["depth"] = depth_of(options["depth"])
    claimed = [find_trace(source) for source in sources]
    traces = any(claimed)
    known = {"time": TIME} if traces else QUANTITIES
    conditions = [parse_condition(text, known) for text in fail_if if text != "changed"]
    with counting(f"comparing {' and '.join(sources[:2])}", quiet=output.quiet):
        results: list[Any] = [trace() if trace else each for trace, each in zip(claimed, sources, strict=True)]
        if not traces:
            counted = {name: options.pop(name) for name in list(options) if name not in COMPARING}
            results = [*results_of(sources, counted)]
        found = compare_sources(*results, labels=sources, **options)
    whole = found if traces else compare_sources(*results, quantities=list(QUANTITIES))
    output.show(found)
    failed = "changed" in fail_if and bool(found.changed())
    for condition in conditions:
        total = whole.total(condition.quantity.name)
        assert total is not None
        old, new = (amount or 0 if traces else amount for amount in (total.amounts[0], total.amounts[-1]))
        if old is None or new is None:
            raise OpcostError(f"{condition}: a checkpoint does not have it", hint="name params or param_bytes")
        if condition.holds(new, old):
            text_of = format_time if condition.quantity.unit == "time" else "{:,}".format
            warn(f"{condition}: {text_of(old)} → {text_of(new)} ({percent(old, new)})")
        elif any(total.partial) and not (traces or allow_uncounted):  # a lower bound does not pass
            reason = "some operators have no cost model (--allow-uncounted judges without them)"
            warn(f"{condition}: unknown, because {reason}")
        else:
            continue
        failed = True
    return 1 if failed else 0


# -- budgets -------------------------------------------------------------------------------------------------------------


def check(
    *sources: Annotated[str, parameter(
        group=SOURCE,
        help="What is checked, as for `opcost count`; without a limit, names of models in the budget file, by default all.")],
    limit: Annotated[tuple[str, ...], parameter(
        group=FAILING, metavar="CONDITION", help="Any other limit, as 'ops<=500' or 'macs<+1%'. May be repeated.")] = (),
    config: Annotated[Path | None, parameter(
        group=FAILING, metavar="FILE", help="The budget file. Without it opcost.toml or pyproject.toml here.")] = None,
    save_baseline: Annotated[Path | None, parameter(
        group=FAILING, metavar="FILE", help="Write the counts, to compare with later.")] = None,
    flags: CheckFlags = None,
) -> int:  # fmt: skip
    """Check models against budgets. The exit code is 1 if one is exceeded; `--format md` is a summary for a pull request."""
    flags = flags or {}
    output = Output(flags, "tables")
    limits = [parse_limit(name, flags[f"max_{name}"], LIMITED) for name in LIMITED if f"max_{name}" in flags]
    limits += [parse_condition(text, LIMITED) for text in limit]
    options = {
        name: value for name, value in keywords(flags).items() if name not in _OF_CHECK and not name.startswith("max_")
    }
    place = LatencyTarget(*(flags.get(name) for name in LatencyTarget._fields))
    baseline = flags.get("baseline")
    if save_baseline is not None:
        check_writable(save_baseline)
    if limits:
        if config is not None:
            raise OpcostError("limits are given, and a budget file too", hint="leave one of them out")
        if not sources:
            raise OpcostError("there is nothing to check", hint="name a model: opcost check SOURCE --max-macs 4.2G")
        check_place(place, limits)
        models = [Budgeted(each, each, options, tuple(limits), place=place) for each in dict.fromkeys(sources)]
    else:
        file = find_budgets(config, sources)
        if options or place != LatencyTarget():
            raise OpcostError(f"how models are counted is set in {file.path}", hint="write the option there")
        known = {model.name: model for model in file.models}
        for name in sources:
            if name not in known:
                raise UnknownName(f"model of {file.path}", name, known, hint="or give a limit, such as --max-macs 4.2G")
        models = [known[name] for name in dict.fromkeys(sources)] or list(file.models)
        baseline = baseline or file.baseline
    if flags.get("allow_uncounted", False):
        models = [model._replace(allow_uncounted=True) for model in models]
    if baseline is not None and save_baseline is not None and not baseline.exists():
        baseline = None  # this run writes it
    changes = [(limit, model.name) for model in models for limit in model.limits if limit.relative]
    if changes and baseline is None and save_baseline is None:
        hint = "make one by --save-baseline FILE, and name it by --baseline FILE"
        raise OpcostError("{} of {} is about a change, and there is no baseline".format(*changes[0]), hint=hint)
    before = {} if baseline is None else load_baseline(baseline, tuple(model.name for model in models))
    judged: list[ModelCheck] = []
    counted = {}
    with counting("counting models", share=lambda: (len(judged), len(models)), quiet=output.quiet):
        for model in models:
            found, totals = judge_model(model, before.get)
            counted[model.name] = (model.source, totals)
            judged.append(found)
    verdict = Verdict(models=tuple(judged), baseline="" if baseline is None else str(baseline))
    if save_baseline is not None:
        write_baseline(save_baseline, counted)
    output.show(verdict)
    return 0 if verdict else 1


_OF_CHECK = (*LatencyTarget._fields, "baseline", "allow_uncounted")


# -- budget files: [tool.opcost] of pyproject.toml, or an opcost.toml --------------------------------------------------------

NAMES = ("opcost.toml", "pyproject.toml")  # where budgets are looked for; the first file that has them is read
LARGEST = 4 << 20  # bytes of the largest budget file that is read


class BudgetFile(NamedTuple):
    """The content of a budget file."""

    path: Path
    models: tuple[Budgeted, ...]
    baseline: Path | None


def find_budgets(path: Path | None, sources: tuple[str, ...] = ()) -> BudgetFile:
    """The budgets of the named file, or of the first in this folder that has some."""
    if path is not None:
        found = _read(path)
        if found is None:
            raise OpcostError(f"{path} has no [tool.opcost]", hint="docs/budgets.md shows the format")
        return found
    for name in NAMES:
        candidate = Path(name)
        if candidate.is_file() and (found := _read(candidate)) is not None:
            return found
    which = f" for {sources[0]}" if sources else ""
    missing = "there is neither an opcost.toml nor a [tool.opcost] in a pyproject.toml here"
    raise OpcostError(f"no budget was given{which}, and {missing}", hint="write, for example, --max-macs 4.2G")


def _read(path: Path) -> BudgetFile | None:
    try:
        data: dict[str, Any] = tomllib.loads(read_whole(path, LARGEST, "budget").decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SourceError(f"{path} is not TOML: {shortened(str(exc) or 'it is nested too deeply')}") from exc
    keys = []
    if path.name == "pyproject.toml":
        tool = data.get("tool", {})
        if not isinstance(tool, dict) or "opcost" not in tool:
            return None
        data, keys = tool["opcost"], ["tool", "opcost"]
    with _under(*keys, path=path):
        _of(dict, data, known=("models", "baseline"))
        with _under("baseline"):
            baseline = path.parent / _of(str, data["baseline"]) if "baseline" in data else None
        with _under("models"):
            models = _of(dict, data.get("models", {}))
            if not models:
                raise OpcostError("no model is named", hint="docs/budgets.md shows the format")
            return BudgetFile(path, tuple(_model(name, table, path) for name, table in models.items()), baseline)


@contextmanager
def _under(*keys: str, path: Path | None = None) -> Iterator[None]:
    """Add to an error the keys under which it occurred, and at last the file."""
    try:
        yield
    except OpcostError as exc:
        exc.keys = [*keys, *getattr(exc, "keys", ())]  # type: ignore[attr-defined]
        if path is None:
            raise
        where = ", ".join(filter(None, (str(path), shortened(".".join(exc.keys)))))  # type: ignore[attr-defined]
        raise OpcostError(f"{where}: {exc.message}", hint=exc.hint) from exc


def _model(name: str, table: object, path: Path) -> Budgeted:
    with _under(name):
        keys = _keys()
        entries = {key.replace("-", "_"): value for key, value in _of(dict, table).items()}
        _of(dict, entries, known=("source", "limits", *keys))
        if "source" not in entries:
            raise OpcostError("no source is given", hint='write source = "timm:resnet50"')
        limits = []
        for quantity, limit in _of(dict, entries.get("limits", {})).items():
            with _under("limits", quantity):
                # In a file a bare number may be meant in any unit, as in a text.
                limits.append(parse_limit(quantity, str(limit) if type(limit) is int else limit, LIMITED))
        typed = {}
        for key, value in entries.items():
            if key in keys:
                option, read = keys[key]
                with _under(key):
                    typed[option] = read(value)
        place = LatencyTarget(*(typed.pop(each, None) for each in LatencyTarget._fields))
        if place.calibration is not None:
            place = place._replace(calibration=path.parent / place.calibration)
        if place.host is not None:
            place = place._replace(host=path.parent / place.host)
        check_place(place, limits)
        allowed, source = typed.pop("allow_uncounted", False), _of(str, entries["source"])
        # A source that is a file, or code in one, is looked for beside the budget file.
        file = path.parent / (source.rpartition(":")[0] or source)
        if path.parent.resolve() != Path.cwd() and (file.is_file() or (path.parent / source).exists()):
            source = str(path.parent / source)
        return Budgeted(name, source, keywords(typed), tuple(limits), allowed, place)


def _keys() -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """The keys of a model in a budget file: the flags without hyphens, each with its option and the function that reads it."""
    found: dict[str, tuple[str, Callable[[Any], Any]]] = {}
    for name, (kind, option) in declared(Checking).items():
        if option.python_only or name in (*LIMITED, "baseline"):
            continue
        key = option.flags[0].lstrip("-").replace("-", "_") if option.flags else name
        typed = option.typed or kind
        plain = next((each for each in (typed, *get_args(typed)) if each in (bool, int, str)), str)
        read = {Pairs: _pairs, tuple[str, ...]: _texts}.get(typed, lambda value, plain=plain: _of(plain, value))
        found[key] = (name, read)
    for part in frontends():
        for own in part.options:
            found.setdefault(own.name, (own.name, _own_option))
    return found


def _own_option(value: object) -> object:
    """An option of one front end: a table of sizes by name is written as it is typed, `batch=1`."""
    if isinstance(value, dict):
        return tuple(f"{name}={each}" for name, each in value.items())
    return tuple(value) if isinstance(value, list) else value


def _texts(value: object) -> tuple[str, ...]:
    """One text or several; inputs by name are written as they are typed, `name:shape`."""
    if isinstance(value, dict):
        return tuple(f"{name}:{_of(str, shape)}" for name, shape in value.items())
    return tuple(_of(str, each) for each in (value if isinstance(value, list) else [value]))


def _pairs(value: object) -> tuple[str, ...]:
    """Settings as they are typed; nested names get dots."""
    found: list[str] = []
    for name, each in _of(dict, value).items():
        if isinstance(each, dict):
            found += [f"{name}.{pair}" for pair in _pairs(each)]
        else:
            found.append(f"{name}={each!r}")
    return tuple(found)


def _of(kind: type, value: object, known: tuple[str, ...] | None = None) -> Any:
    """The value, if it is of this type and, of a table, has only these keys."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "a text", int: "a whole number", bool: "true or false", dict: "a table"}
        raise OpcostError(f"{shortened(repr(value))} is not {words[kind]}")
    if known is not None and (unknown := next((name for name in value if name not in known), None)):  # type: ignore[attr-defined]
        raise UnknownName("key", unknown, known)
    return value
