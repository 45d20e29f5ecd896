"""An answer about a profile as the page has it: its lines, how devices were used, what to do; and the whole profile over time."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from opcost.core.devices import named_by_driver
from opcost.core.escaping import printable
from opcost.core.graph import FLOPS_PER_MAC, note_texts
from opcost.core.names import short_kernel_name, step_number
from opcost.core.profile import Answer, Kernel, Profile, ProfileRow, weighted_mean
from opcost.core.sheet import Section
from opcost.core.timeline import Span, checked_lanes, kernel_sort, lane_title, lanes_as_columns, nested, thinned_lanes
from opcost.errors import some
from opcost.version import __version__
from opcost.views.answers import answer_of
from opcost.views.html.graphs import shapes_of
from opcost.views.html.reports import (
    PageData,
    PathTree,
    column_of,
    devices_of,
    families,
    plain,
    sections_of,
    table_of,
    totals_of,
    words_of,
)
from opcost.views.profile import (
    launches_text,
    list_answer,
    profile_totals,
    savings_of,
    source_name,
    time_text,
    verdict_lines,
    verdicts,
)
from opcost.views.report import moved
from opcost.views.savings import LINES
from opcost.views.view import Columns, ViewOptions

_FACTS = (
    "inputs", "format", "framework", "version", "torch", "device", "gpu", "precision", "threads", "execution", "calibration",
)  # fmt: skip
"""The meta data in the header, in this order; the rest is listed below."""
FEW_NAMED = 4  # operators without a cost model that are named in the alert; the table has all of them
LEAST_MISSED = 0.001  # a smaller part of the time without a cost model makes no alert


def profile_page(answer: Answer, options: ViewOptions) -> PageData:
    """All that the page shows of answers about one profile."""
    meta = {key: printable(value) for key, value in answer.meta.items()}
    facts = [(key, meta[key]) for key in _FACTS if meta.get(key)]
    runs = f"{answer.runs:,}, {'per run' if answer.is_per_run else 'together'}"
    further = tuple(f"{key}: {value}" for key, value in meta.items() if key not in (*_FACTS, "source", "subject"))
    peak = [f"peaks of {answer.peak}"] if answer.peak else []
    total = next((line for line in answer.lines if line.role == "total"), None)
    missed = (total.uncosted_share or 0) if total is not None and total.computation is not None else None
    sections = [
        Section("notes", (*peak, *note_texts(note for note in answer.notes if note.code != "peaks"))),
        Section("recorded with", further),
    ]
    if missed is not None and missed >= LEAST_MISSED:
        rows = [(row.uncosted_share * row.time_ns, row) for row in answer.rows if row.uncosted_share and row.time_ns]
        keys = answer.keys or ("name", "type")
        named = [
            f"{printable(' '.join(row.labels.get(key, '') for key in keys))}: {time_text(time)}"
            for time, row in sorted(rows, key=lambda found: -found[0])
        ]
        title = f"{100 * missed:.1f} % of the {answer.side} time has no cost model, so FLOPs and bytes are lower bounds"
        sections.append(Section(title, tuple(some(named, FEW_NAMED)), urgent=True))
    if answer.runs > 1:
        facts.append(("runs", runs))
    if missed is not None:  # under which conventions there are costs, and how much of the time has one
        share = f"{100 * (1 - missed):.1f} %" if missed else "all"
        facts.append(("conventions", f"1 MAC = {FLOPS_PER_MAC} FLOPs · bytes without fusion"))
        facts.append(("counted", f"{share} of the {answer.side} time"))
    sheets = [table_of(table, f"{each.name}: {table.title}") for each in options.sheets for table in each.shown]
    tables = [*(_table(each, options.columns) for each in (answer, *options.others)), *sheets]
    whole = {} if options.profile is None else _whole(options.profile, answer)
    return {
        "title": printable(answer_of(answer), keep="\u00a0"),
        "facts": [("source", printable(source_name(answer.meta))), *facts, ("opcost", __version__)],
        "totals": totals_of(profile_totals(answer)),
        **sections_of(section for section in sections if section.urgent or section.lines),
        "uses": _uses(answer),
        "gains": _gains(answer, tables, whole),
        "tables": tables,
        **whole,
    }


def _uses(answer: Answer) -> list[PageData]:
    """Each device with its verdict, those that are alike once; of very many the first, and how many more there are."""
    titles = [plain(line) for line in verdict_lines(answer)]
    about = [use for _, use in verdicts(answer)]
    if len(titles) < len(about):
        about = [*about[: len(titles) - 1], None]
    found: list[PageData] = []
    for use, title in zip(about, titles, strict=True):
        found.append({"title": title, "span": 0, "parts": [], "sentences": []})
        if use is None:
            continue
        # How a device spent its time, in parts that add up to the span but for long gaps
        idle = {f"idle: {cause}": time for cause, time in use.idle_causes.items()}
        parts = {
            "computing": use.busy_ns - use.communication_ns - use.copies_ns,
            **use.alone_ns,
            **idle,
            "idle": use.idle_ns - use.gap_ns - sum(idle.values()),
        }
        found[-1] |= {"span": use.rated_ns, "parts": [(name, time) for name, time in parts.items() if time > 0]}
        if use.kernels:
            median, overlap = time_text(use.median_ns), time_text(use.overlap_ns)
            lines = [f"{use.kernels:,} kernels, median {median}, side by side {overlap}"]
            lines += [launches_text(use)] if use.launches else []
            found[-1]["sentences"] = [plain(line) for line in lines]
    return found


_VIEWS = {"timeline": "timeline", "operators": "ops"}
"""Views that advice leads to, and the data of the page that they need."""


def _gains(answer: Answer, tables: Sequence[PageData], whole: PageData) -> PageData:
    """Potential savings, the largest first, each with what to do, where the page shows it, and the command that does."""
    places = {table["title"]: place for place, table in enumerate(tables)} | {LINES: 0}

    def shown(view: str, find: str) -> PageData | None:
        if view in _VIEWS and whole.get(_VIEWS[view]):
            return {"view": view, "find": find}
        view = "breakdown: time of each device" if view == "timeline" else view  # which also many ranks have
        return {"view": "table", "place": places[view], "find": find} if view in places else None

    source = "TRACES" if "ranks" in answer.meta else answer.meta.get("source") or "TRACE"
    found = [
        {
            "what": printable(gain.what),
            "time": gain.time_ns,
            "share": gain.share,
            "advice": advice.text,
            "show": shown(advice.view, printable(advice.find)),
            "command": printable(f"opcost analyze {source} {gain.command}"),
        }
        for gain, advice in zip(answer.gains, savings_of(answer).advice, strict=True)
    ]
    per = "per step" if any(use.steps for use in answer.devices) else "in the whole run"
    return {"title": f"What to do next: potential savings {per}, upper bounds", "found": found}


def _table(answer: Answer, columns: Columns) -> PageData:
    table = list_answer(answer, columns)
    keys = f" by {', '.join(answer.keys)}" if answer.keys else ""
    data = table_of(table, f"{answer.side} time{keys}")
    if order := table.order:
        shown = (column for column in data["columns"] if column["name"] != "top_kernel")
        data["columns"] = sorted(shown, key=lambda column: order.index(column["name"]))
    # What a C++ function is called without its namespaces and templates, as other names are
    names = [str(line.values[0]) for line in table.lines]
    if (short := [short_kernel_name(name) for name in names]) != names:
        data["columns"][0]["short"] = words_of(short)
    data["folds"] = "time"
    # Why columns that compare with peaks are missing, and what gives them
    data["remarks"] += [printable(note.text) for note in answer.notes if note.code == "peaks"]
    data["roles"] = [(row, line.role) for row, line in enumerate(answer.lines) if line.role != "row"]
    data["kernels"] = [[(use.count, printable(use.name), use.time_ns) for use in line.kernels] for line in answer.lines]
    return data


MOST_NAMES = 30_000  # operators that the tree lists by their own names; of more it has the types
NO_OPERATOR = "(no operator)"


def _whole(profile: Profile, answer: Answer) -> PageData:
    tree, leaves = profile_tree(profile, answer.runs if answer.is_per_run else 1)
    quantities: list[PageData] = [
        *({"name": s, "title": f"{s} time", "unit": "time", "usual": answer.side == s} for s in ("device", "host")),
        {"name": "calls", "title": "calls", "unit": "number"},
        {"name": "macs", "title": "MACs", "unit": "count"},
        {"name": "flops", "title": "FLOPs", "unit": "count"},
        {"name": "bytes", "title": "bytes moved", "unit": "bytes"},
    ]
    names = [profile.meta.get(key, "") for key in ("gpu", "device")] if answer.device_ns is not None else []
    device = next((found for name in names if (found := named_by_driver(name))), None)
    return {
        "tree": tree.page("module", source_name(profile.meta), quantities, measured=("device", "host"))
        | {"operators": True},
        "families": families(),
        "ops": _operators(profile.rows, leaves, answer.side),
        "timeline": timeline_of(profile),
        "devices": devices_of(),
        "device": device.name if device else profile.meta.get("device", ""),
    }


def _operators(rows: Sequence[ProfileRow], leaves: Sequence[int], side: str) -> PageData | None:
    """One line for all executions of an operator with the same shapes, those with the most time first."""
    found: dict[tuple[int, Any], list[Any]] = {}
    for row, leaf in zip(rows, leaves, strict=True):
        line = found.setdefault((leaf, row.ins), [row, leaf, 0, 0, []])
        line[2] += row.count
        line[3] += (row.device_ns if side == "device" else row.host_self_ns) or 0
        line[4] += row.kernels
    if not found:
        return None
    first, nodes, calls, times, kernels = zip(*sorted(found.values(), key=lambda line: -line[3]), strict=True)
    costs = [row.cost for row in first]
    single = [time / count if count else None for time, count in zip(times, calls, strict=True)]
    phases = [row.phase for row in first]
    fills = [
        (name, title, unit, [weighted_mean((getattr(one, name), one.duration_ns) for one in own) for own in kernels])
        for name, title, unit in (("occupancy", "occupancy", "share"), ("blocks_per_sm", "blocks/SM", "ratio"))
    ]
    return {
        "count": len(first),
        "module": list(nodes),
        "columns": [
            column_of("raw", "operator", "text", [row.type for row in first]),
            column_of("kind", "kind", "text", [_kind_of(row) for row in first]),
            column_of("repeat", "calls", "number", calls),
            column_of("whole", f"{side} time", "time", times),
            column_of("time", "of one call", "time", single),
            column_of("flops", "FLOPs of one", "count", [cost and cost.flops for cost in costs]),
            column_of("bytes", "bytes of one", "bytes", [cost and moved(cost) for cost in costs]),
            *(column_of(name, title, unit, values) for name, title, unit, values in fills if any(values)),
            column_of("ins", "input", "shapes", [shapes_of(row.ins) for row in first]),
            column_of("dtype", "", "text", [row.ins[0].dtype if row.ins else "" for row in first]),
            *([column_of("phase", "phase", "text", phases)] if {*phases} != {"forward"} else []),
        ],
    }


def _kind_of(row: ProfileRow) -> str:
    """Its kind; of an operator that is not known, what its kernels are."""
    return row.kind or (kernel_sort(row.kernels[0].name, "") if row.kernels else "")


def profile_tree(profile: Profile, runs: int) -> tuple[PathTree, list[int]]:
    """Times by module, operator and kernel as a tree, of one of this number of runs; and the node of each row."""
    named = len({row.name for row in profile.rows}) <= MOST_NAMES
    tree = PathTree(("device", "host", "calls", "macs", "flops", "bytes"))
    leaves = []
    for row in profile.rows:
        module = tree.walk(row.module.split(".")) if row.module else 0
        name = row.name if named and row.name else row.type
        if row.module:  # which need not be repeated
            name = row.type if name == row.module else name.removeprefix(f"{row.module}.")
        leaves.append(tree.child(module, name, row.kind or row.type))
    lost = tree.child(0, NO_OPERATOR) if profile.unattributed else 0
    for row, leaf in zip(profile.rows, leaves, strict=True):
        own = tree.own
        own["calls"][leaf] += row.count / runs
        own["host"][leaf] += (row.host_self_ns or 0) / runs
        if row.cost is not None:
            own["macs"][leaf] += row.cost.macs * row.count / runs
            own["flops"][leaf] += row.cost.flops * row.count / runs
            own["bytes"][leaf] += moved(row.cost) * row.count / runs
        own["device"][leaf] += ((row.device_ns or 0) - sum(kernel.duration_ns for kernel in row.kernels)) / runs
        for kernel in row.kernels:
            own["device"][tree.child(leaf, kernel.name, "kernel")] += kernel.duration_ns / runs
    for kernel in profile.unattributed:
        tree.own["device"][tree.child(lost, kernel.name, "kernel")] += kernel.duration_ns / runs
    return tree, leaves


def timeline_of(profile: Profile) -> PageData | None:
    """Host and streams on lanes, and steps; None where the profile has no start times."""
    lanes = checked_lanes(profile.extra["timeline"]) if "timeline" in profile.extra else _lanes_of(profile)
    if lanes is None:
        return None
    numbers = list(map(step_number, lanes["words"]))
    # Steps are marked above the lanes, and have no colour in them
    sorts = ["" if number is not None else sort for number, sort in zip(numbers, lanes["sorts"], strict=True)]
    return {**lanes, "sorts": sorts, "steps": _marked_steps(lanes, numbers) or _begun_steps(profile)}


Step = tuple[int, int, int]
"""Beginning and end from the first event on, and number."""


def _marked_steps(lanes: PageData, numbers: Sequence[int | None]) -> list[Step]:
    """The steps that the profiler's schedule marked, by the numbers in names; of many ranks as the first has them."""
    found: dict[int, Step] = {}
    for lane in lanes["lanes"]:
        for start, length, name in zip(accumulate(lane["step"]), lane["length"], lane["name"], strict=True):
            if (number := numbers[name]) is not None:
                found.setdefault(number, (start, start + length, number))
    return sorted(found.values())


def _begun_steps(profile: Profile) -> list[Step]:
    """The steps of rows where nothing marked them, each until the next begins."""
    rows = [(row.host_start_ns, row.host_ns or 0, row.step) for row in profile.rows if row.host_start_ns is not None]
    begun: dict[int, int] = {}
    for start, _, step in sorted(rows, key=lambda row: row[0]):
        if step is not None:
            begun.setdefault(step, start)
    if len(begun) < 2:
        return []
    first, last = min(start for start, _, _ in rows), max(start + spent for start, spent, _ in rows)
    ends = [*list(begun.values())[1:], last]
    return [(start - first, end - first, step) for (step, start), end in zip(begun.items(), ends, strict=True)]


def _lanes_of(profile: Profile) -> PageData | None:
    if any(row.count > 1 for row in profile.rows):
        return None
    several = len({row.rank for row in profile.rows}) > 1
    host: dict[int, list[Span]] = {}
    sorts: dict[str, str] = {}
    streams: dict[tuple[str, str, str], list[Span]] = {}

    def add(kernels: Iterable[Kernel], rank: int | None, sort: str) -> None:
        whose = f"rank {rank} " if several and rank is not None else ""
        for kernel in kernels:
            sorts.setdefault(kernel.name, kernel_sort(kernel.name, sort))
            span = Span(kernel.start_ns, kernel.duration_ns, kernel.name)
            streams.setdefault((whose, kernel.device, kernel.stream), []).append(span)

    for row in profile.rows:
        name, sort = row.name or row.type, row.kind or row.type
        sorts.setdefault(name, sort)
        if row.host_start_ns is not None and row.host_ns is not None:
            host.setdefault(row.rank, []).append(Span(row.host_start_ns, row.host_ns, name))
        add(row.kernels, row.rank, sort)
    for kernel in profile.unattributed:
        add((kernel,), kernel.rank, "")
    lanes = {
        f"{f'rank {rank} ' if several else ''}host{f' {level + 1}' if level else ''}": spans
        for rank, found in host.items()
        for level, spans in enumerate(nested(found))
    }
    for (whose, device, stream), spans in sorted(streams.items()):
        lanes[f"{whose}{lane_title(device, stream, (span.name for span in spans))}"] = spans
    starts = [span.start_ns for spans in lanes.values() for span in spans]
    if len(starts) < 2 or not any(starts):
        return None
    return lanes_as_columns(thinned_lanes(lanes), sorts)
