"""`opcost.visualize`: statistics of any model as MegEngine's network_visualize prints them, and a log for TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opcost.api import count, resolve_source
from opcost.compat.megengine.network_visualize import check_convention, counting, dump_path, find_records
from opcost.compat.megengine.tables import Records, StatsOptions, print_stats, stats_details, total_stats
from opcost.core.option import takes
from opcost.core.report import Report
from opcost.errors import InputError
from opcost.frontends.inputs import spelled_out
from opcost.options import Costing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from typing_extensions import Unpack


class Visualized(NamedTuple):
    """What was printed, and the log if one was written."""

    totals: total_stats
    details: stats_details
    log: str | None


@takes(Costing)
def visualize(
    source: Any, inputs: Any = None, *, log_path: str | PathLike[str] | None = None, cal_params: bool = True,
    cal_flops: bool = True, cal_activations: bool = True, logging_to_stdout: bool = False, bar_length_max: int = 20,
    convention: str = "opcost", **options: Unpack[Costing],
) -> Visualized:  # fmt: skip
    """Print the statistics of a model and, where `log_path` names a folder, write its graph there for TensorBoard.

    The model is given as to `opcost.count`; `inputs` is an array or a mapping of arrays by name, of which only shapes and element
    types matter. `logging_to_stdout` prints every line and not only the summary; `convention="megengine"` follows the rules of
    MegEngine's own tool.
    """
    records, report = records_of(source, inputs, options, convention=convention, with_values=cal_params)
    wanted = StatsOptions(cal_params, cal_flops, cal_activations, logging_to_stdout, bar_length_max, fields=True)
    return write(records, report, wanted, log_path)


def records_of(
    source: Any, inputs: Any, options: Mapping[str, Any], *, convention: str, with_values: bool
) -> tuple[Records, Report]:
    """What is listed of a model, counted with these options of `opcost.count`, and its report."""
    check_convention(convention)
    if inputs is not None and options.get("shapes") is not None:
        hint = "give one of them (on the command line --load_input_data or --input)"
        raise InputError("both inputs and shapes are given", hint=hint)
    given: dict[str, Any] = {**options}
    named = resolve_source(source, given.pop("set", None))
    found = source if named is None else named
    data = counting(inputs)
    if dump_path(found) is not None:
        data.pop("dtypes", None)  # they are fixed in the file
    report = count(found, **{**given, **data})
    shapes = data.get("shapes", spelled_out(given.get("shapes"), None)[0])
    return find_records(found, report, shapes, convention=convention, with_values=with_values), report


def write(records: Records, report: Report, wanted: StatsOptions, log_path: str | PathLike[str] | None) -> Visualized:
    """Print the statistics, and write the log."""
    totals, details = print_stats(records, wanted)
    return Visualized(totals, details, None if log_path is None else str(report.to_tensorboard(str(log_path))))
