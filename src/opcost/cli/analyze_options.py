"""The options of `opcost analyze`: what is asked of a profile, how it is read, and how the answer looks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import cyclopts
from cyclopts import Group

from opcost.cli.options import MODEL, SHOWING, Inputs, parameter

CHOOSING = Group("Which operators", sort_key=2)
ADDING = Group("Grouping and order", sort_key=2.5)

Profiles = Annotated[
    Path,
    parameter(
        group=MODEL,
        help="A trace of PyTorch, JAX, ONNX Runtime, MegEngine, MXNet, OpenVINO, TensorRT, Nsight Systems or rocprof, or a "
        "profile of opcost, plain or gzipped; several files, or a directory, are ranks.",
    ),
]


@cyclopts.Parameter(name="*", group=ADDING)
@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeChoice:
    """What is asked of a profile, and how the answer looks."""

    top: Annotated[
        int | None,
        parameter(
            name=["--top", "-t"], metavar="N", help="Show the first N lines; 0 shows all, -N all but the last N."
        ),
    ] = None
    type: Annotated[
        tuple[str, ...],
        parameter(name="--type", group=CHOOSING, metavar="T", help="Only operators of this type. May be repeated."),
    ] = ()
    kind: Annotated[
        tuple[str, ...],
        parameter(name="--kind", group=CHOOSING, metavar="K", help="Only operators of this kind. May be repeated."),
    ] = ()
    module: Annotated[
        str | None,
        parameter(group=CHOOSING, metavar="PATH", help="Only operators of this module and of those below it."),
    ] = None
    opr_name: Annotated[
        str | None,
        parameter(group=CHOOSING, metavar="REGEX", help="Only operators whose name begins with a match of this."),
    ] = None
    input_dtype: Annotated[
        str | None, parameter(group=CHOOSING, metavar="D", help="Only operators with an input of this element type.")
    ] = None
    min_time: Annotated[
        str | None,
        parameter(group=CHOOSING, metavar="T", help="Shortest time of an operator: seconds, or with a unit, 1ms."),
    ] = None
    max_time: Annotated[str | None, parameter(group=CHOOSING, metavar="T", help="Longest time of an operator.")] = None
    where: Annotated[
        str | None,
        parameter(
            group=CHOOSING,
            metavar="CONDITION",
            help="Only operators that satisfy this condition: 'time > 1ms and kind == \"conv\"'.",
        ),
    ] = None
    order_by: Annotated[
        str,
        parameter(
            metavar="COL",
            show_default=True,
            help="Sort by a column, largest first; +COL for the smallest first. What is missing comes last.",
        ),
    ] = "time"
    view: Annotated[
        Literal["operators", "breakdown", "communication", "memory", "critical-path", "launches"],
        parameter(
            show_default=True,
            help="What is shown: operators; where each device's time went, and what copies moved; collectives with their "
            "rates, and which ranks others waited for; memory: the peak, who held it, and over time; the critical path, and what "
            "halving a part of it would win; or launches: queues and delays over time, and where the host was behind.",
        ),
    ] = "operators"
    by: Annotated[
        Literal["operator", "execution"],
        parameter(
            show_default=True,
            help="One line per operator (of a trace without names: per type), or one for each execution.",
        ),
    ] = "operator"
    aggregate_by: Annotated[
        tuple[str, ...],
        parameter(
            metavar="KEY",
            help="One line for all operators with the same type, name, module, kind, shape, dtype, kernel, provider, rank, "
            "device, stream, step or phase; several keys with commas.",
        ),
    ] = ()
    aggregate: Annotated[
        str | None,
        parameter(metavar="HOW", help="sum (usual), mean, max, min, median, or a percentile such as p90."),
    ] = None
    group_by: Annotated[
        tuple[str, ...],
        parameter(metavar="KEY", help="One line per group, and below it the lines of the group."),
    ] = ()
    depth: Annotated[int | None, parameter(metavar="N", help="Cut modules to this many levels.")] = None
    percentiles: Annotated[
        str | None, parameter(metavar="P,...", help="Columns with percentiles of the time: 10,50,90.")
    ] = None
    side: Annotated[
        Literal["device", "host"] | None,
        parameter(help="Times of the device or of the host. Without it: of the device, if there is one."),
    ] = None
    top_end_key: Annotated[
        Literal["end", "kern"],
        parameter(show_default=True, help="end is the whole time, kern the waiting time before the kernel."),
    ] = "end"
    causal: Annotated[
        Literal["full", "half"],
        parameter(show_default=True, help="Count the full square of causal attention, or only the unmasked half."),
    ] = "full"
    device: Annotated[
        str | None,
        parameter(metavar="NAME", help="Compare rates with the peaks of this device: h200, a100, ..."),
    ] = None
    peak_flops: Annotated[
        str | None, parameter(metavar="N", help="Compare with a measured peak instead: 600T (FLOP/s).")
    ] = None
    peak_bandwidth: Annotated[
        str | None, parameter(metavar="N", help="The same for the memory: 4.1TB (per second).")
    ] = None
    show_host: Annotated[bool, parameter(group=SHOWING, help="Add a table of the times on the host.")] = False
    copy_time: Annotated[bool, parameter(group=SHOWING, help="Add the time of copies to the summary.")] = False
    print_only: Annotated[
        Literal["summary", "device", "host"] | None, parameter(group=SHOWING, help="Print only this part.")
    ] = None
    dump_only_opr: Annotated[
        bool, parameter(group=SHOWING, help="Print only which operators they are: name, type, id.")
    ] = False
    confluence: Annotated[
        bool, parameter(name=["--confluence", "--wiki"], group=SHOWING, help="MegEngine's tables for a wiki.")
    ] = False
    format: Annotated[
        Literal["table", "json", "csv", "md", "html", "megengine"] | None,
        parameter(
            group=SHOWING,
            help="The format of the output. Without it, MegEngine's own text for its profiles, else a table.",
        ),
    ] = None
    columns: Annotated[
        str | None, parameter(group=SHOWING, metavar="A,B,...", help="The columns to show, in this order.")
    ] = None
    exact: Annotated[bool, parameter(group=SHOWING, help="Numbers with all their digits.")] = False
    width: Annotated[int | None, parameter(group=SHOWING, metavar="N", help="Width in characters.")] = None
    output: Annotated[
        Path | None,
        parameter(
            name=["--output", "-o"],
            group=SHOWING,
            metavar="FILE",
            help="Write to this file; .json, .csv, .md, .html, .svg, .png choose the format, .parquet holds all that was read.",
        ),
    ] = None


@cyclopts.Parameter(name="*", group=MODEL)
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChoice:
    """How traces are read, and the model that they are joined to."""

    partial: Annotated[bool, parameter(help="Read a damaged file up to the damage.")] = False
    reader: Annotated[
        str | None,
        parameter(metavar="NAME", help="The format of the file where its content leaves doubts: kineto, mxnet, ..."),
    ] = None
    capture: Annotated[
        Path | None,
        parameter(
            metavar="FILE",
            help="A trace of the run that captured the graphs which are replayed: their kernels get its operators.",
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        parameter(
            name=["--scheduler", "--cluster"],
            metavar="WHERE",
            help="Read many ranks on a Dask cluster: local, or tcp://... Without it: in processes of this machine.",
        ),
    ] = None
    cache: Annotated[
        str | None,
        parameter(
            metavar="FOLDER",
            help="Keep what was read of many ranks here, for the next time; none: nowhere. Without it: in the user's caches.",
        ),
    ] = None
    model: Annotated[
        str | None,
        parameter(metavar="SOURCE", help="Join the rows to the modules of this model, or of a saved report."),
    ] = None
    report: Annotated[str | None, parameter(metavar="FILE", help="The same with a report saved as .json.")] = None
    inputs: Inputs = ()
