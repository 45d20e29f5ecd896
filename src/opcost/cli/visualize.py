"""`opcost visualize MODEL --log_path DIR`: statistics laid out as MegEngine's tool prints them, and a TensorBoard log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group

from opcost.cli.counting import report_of
from opcost.cli.options import CountChoice, Quiet, SourceArgument, parameter
from opcost.cli.saying import say
from opcost.cli.settings import parse_settings
from opcost.errors import InputError

STATISTICS = Group("The statistics", sort_key=0)
DEFAULT_LOG = "./log"
"""Where `--all` writes where no folder is named."""


def visualize(
    model: SourceArgument,
    /,
    *,
    log_path: Annotated[
        str | None,
        parameter(
            name=["--log_path", "--log-path"],
            group=STATISTICS,
            metavar="DIR",
            help="Write the graph and the totals for TensorBoard into this folder.",
        ),
    ] = None,
    load_input_data: Annotated[
        Path | None,
        parameter(
            name=["--load_input_data", "--load-input-data"],
            group=STATISTICS,
            metavar="FILE",
            help="Count with inputs shaped as the arrays in this file: .npy, .npz, or a pickle of a numpy array or of a "
            "dict of them by name.",
        ),
    ] = None,
    cal_params: Annotated[
        bool, parameter(name=["--cal_params", "--cal-params"], group=STATISTICS, help="Parameters.")
    ] = False,
    cal_flops: Annotated[bool, parameter(name=["--cal_flops", "--cal-flops"], group=STATISTICS, help="FLOPs.")] = False,
    cal_activations: Annotated[
        bool,
        parameter(
            name=["--cal_activations", "--cal-activations"],
            group=STATISTICS,
            help="Activations. Without any of the three, all of them.",
        ),
    ] = False,
    logging_to_stdout: Annotated[
        bool,
        parameter(
            name=["--logging_to_stdout", "--logging-to-stdout"],
            group=STATISTICS,
            help="Print every line, not only the summary.",
        ),
    ] = False,
    everything: Annotated[
        bool,
        parameter(
            name="--all",
            group=STATISTICS,
            help=f"All statistics, every line, and the log (in {DEFAULT_LOG} without --log_path).",
        ),
    ] = False,
    bar_length_max: Annotated[
        int,
        parameter(
            name=["--bar_length_max", "--bar-length-max"],
            group=STATISTICS,
            metavar="N",
            show_default=True,
            help="Characters of the longest bar.",
        ),
    ] = 20,
    convention: Annotated[
        Literal["opcost", "megengine"],
        parameter(
            group=STATISTICS,
            show_default=True,
            help="opcost: every operator, the batch as it is, weights once, receptive fields that know pooling; or the rules "
            "of MegEngine's own tool.",
        ),
    ] = "opcost",
    choice: CountChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Print the statistics of a model and write its graph for TensorBoard."""
    from opcost.compat.megengine.network_visualize import counting, dump_path, find_records
    from opcost.compat.megengine.tables import Wanted, tell
    from opcost.frontends.input_data import read_input_data
    from opcost.frontends.inputs import spelled_out
    from opcost.frontends.source import resolve

    choice = choice or CountChoice()
    if load_input_data is not None and choice.model.inputs:
        raise InputError("both --load_input_data and --input were given", hint="give one of them")
    found = resolve(model, parse_settings(choice.model.settings, "--set"))
    told = counting(None if load_input_data is None else read_input_data(load_input_data))
    if dump_path(found) is not None:
        told.pop("dtypes", None)  # they are fixed in the file
    report = report_of(found, choice, quiet=quiet, data=told)
    shapes = told.get("shapes", spelled_out(list(choice.model.inputs) or None, None)[0])
    wanted_all = everything or not (cal_params or cal_flops or cal_activations)
    wanted = Wanted(
        cal_params=cal_params or wanted_all,
        cal_flops=cal_flops or wanted_all,
        cal_activations=cal_activations or wanted_all,
        logging_to_stdout=logging_to_stdout or everything,
        bar_length_max=bar_length_max,
        fields=True,
    )
    tell(find_records(found, report, shapes, convention=convention, with_values=wanted.cal_params), wanted)
    folder = log_path or (DEFAULT_LOG if everything else None)
    if folder is not None:
        say(f"log: {report.to_tensorboard(folder)}")
        say(f"look at it with: tensorboard --logdir {folder}")
    return 0
