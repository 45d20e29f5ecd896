"""`visualize`: the statistics of a model file, printed as MegEngine prints them, and a log for TensorBoard."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.api import count
from opcost.compat.megengine.counted import megengine_records_of, records_of
from opcost.compat.megengine.dump import count_dump, values_of
from opcost.compat.megengine.records import Records
from opcost.compat.megengine.tables import Wanted, stats_details, tell, total_stats
from opcost.core.dtype import INTEGER
from opcost.core.harmless import printable
from opcost.core.report import Report
from opcost.errors import InputError, OpcostError, UnknownName
from opcost.frontends.input_data import read_input_data
from opcost.frontends.source import ModelFile, Source, resolve

CONVENTIONS = ("megengine", "opcost")


def visualize(
    model_path: str | Path,
    log_path: str | Path | None,
    input: Any = None,
    inp_dict: Mapping[str, Any] | None = None,
    cal_params: bool = True,
    cal_flops: bool = True,
    cal_activations: bool = True,
    logging_to_stdout: bool = True,
    bar_length_max: int = 20,
    *,
    convention: str = "megengine",
) -> tuple[total_stats, stats_details]:
    """Print the statistics of a model and, where `log_path` is given, write its graph for TensorBoard.

    The model is a dump (`.mge`) or anything else that `opcost.count` takes by its name. `input` and `inp_dict` say with
    which shapes it is counted: arrays, or anything else with a shape and a dtype.
    """
    check_convention(convention)
    given = _given(input, inp_dict)
    told = counting(given)
    model = resolve(str(model_path))
    dump = dump_path(model)
    if dump is not None:
        told.pop("dtypes", None)  # they are fixed in the file
    report = None
    if log_path or convention == "opcost" or dump is None:
        report = count(model, **told)
    shapes = told.get("shapes")
    records = find_records(model, report, shapes, convention=convention, with_values=cal_params)
    wanted = Wanted(cal_params, cal_flops, cal_activations, logging_to_stdout, bar_length_max, fields=True)
    found = tell(records, wanted)
    if log_path:
        assert report is not None
        report.to_tensorboard(str(log_path))
    return found


def check_convention(convention: str) -> None:
    """Raise for a convention that nobody knows."""
    if convention not in CONVENTIONS:
        raise UnknownName("convention", convention, CONVENTIONS)


def find_records(source: Source, report: Report | None, shapes: Any, *, convention: str, with_values: bool) -> Records:
    """What is listed of a model: by MegEngine's rules of a dump from the file itself, else from the report."""
    dump = dump_path(source)
    if convention == "megengine" and dump is not None:
        only = shapes[0] if isinstance(shapes, list) and len(shapes) == 1 else shapes
        return count_dump(dump, only, with_values=with_values)
    assert report is not None
    values = values_of(dump) if dump is not None and with_values else {}
    return records_of(report, values) if convention == "opcost" else megengine_records_of(report, values)


def dump_path(source: Source) -> Path | None:
    """The path of a source that is a dump of MegEngine's."""
    return source.path if isinstance(source, ModelFile) and source.frontend.name == "megengine" else None


def counting(given: Any) -> dict[str, Any]:
    """What `opcost.count` is told about input data: shapes, and types where they are not the model's own floats."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        dtypes = {name: dtype for name, array in given.items() if (dtype := _integer(array)) is not None}
        return {"shapes": {name: tuple(array.shape) for name, array in given.items()}, "dtypes": dtypes}
    dtype = _integer(given)
    return {"shapes": [tuple(given.shape)], "dtypes": None if dtype is None else [dtype]}


def _given(input: Any, inp_dict: Mapping[str, Any] | None) -> Any:
    if input is not None and inp_dict is not None:
        raise InputError("both input and inp_dict were given", hint="pass one of them")
    given = inp_dict if input is None else input
    for array in given.values() if isinstance(given, Mapping) else () if given is None else (given,):
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise InputError(f"input data of the type {type(array).__name__} is not an array")
    return given


def _integer(array: Any) -> str | None:
    """The element type of an array of integers or truth values; floats become what the model computes in."""
    dtype = str(array.dtype).removeprefix("torch.")
    return dtype if dtype in INTEGER else None


def main(argv: Sequence[str] | None = None) -> None:
    """MegEngine's command line: `python -m opcost.compat.megengine.network_visualize net.mge --log_path log --all`."""
    parser = argparse.ArgumentParser(
        prog="network_visualize", description="Statistics of a model, and a TensorBoard log."
    )
    parser.add_argument("model_path", help="a dump, or another source that opcost reads")
    parser.add_argument("--log_path", help="folder for the TensorBoard log")
    parser.add_argument("--load_input_data", help=".npy, .npz, or a pickle of a numpy array or a dict of them")
    parser.add_argument("--bar_length_max", type=int, default=20, help="characters of the longest bar")
    for flag in ("cal_params", "cal_flops", "cal_activations", "logging_to_stdout", "all"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = vars(parser.parse_args(argv))
    data = options.pop("load_input_data")
    if options.pop("all"):
        options |= dict.fromkeys(("cal_params", "cal_flops", "cal_activations", "logging_to_stdout"), True)
        options["log_path"] = options["log_path"] or "./log"
    try:
        found = read_input_data(data) if data else None
        given = {"inp_dict": found} if isinstance(found, dict) else {"input": found}
        visualize(**options, **given)
    except OpcostError as exc:
        parser.exit(exc.exit_code, printable(f"network_visualize: {exc}\n", keep="\n"))


if __name__ == "__main__":
    main()
