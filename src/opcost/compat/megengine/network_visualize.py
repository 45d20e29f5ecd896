"""`visualize`: the statistics of a model file, printed as MegEngine prints them, and a log for TensorBoard."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from opcost.api import count
from opcost.compat.megengine import tables
from opcost.compat.megengine.tables import Records, Shape, StatsOptions
from opcost.core.escaping import printable
from opcost.core.graph import INTEGER, TensorSpec
from opcost.core.report import Report
from opcost.errors import InputError, OpcostError, UnknownName
from opcost.frontends.flatbuffer import Pages, pages_of
from opcost.frontends.input_data import read_input_data
from opcost.frontends.megengine.model import HOLDERS, DumpedTensor, FileOperator, Model, input_names, read_model
from opcost.frontends.megengine.walk import DumpWalk
from opcost.frontends.source import ModelFile, Source, resolve

CONVENTIONS = ("megengine", "opcost")


def visualize(
    model_path: str | Path, log_path: str | Path | None, input: Any = None,
    inp_dict: Mapping[str, Any] | None = None, cal_params: bool = True, cal_flops: bool = True,
    cal_activations: bool = True, logging_to_stdout: bool = True, bar_length_max: int = 20, *,
    convention: str = "megengine",
) -> tuple[tables.total_stats, tables.stats_details]:  # fmt: skip
    """Print the statistics of a model and, where `log_path` is given, write its graph for TensorBoard.

    The model is a dump (`.mge`) or anything else that `opcost.count` takes by its name. `input` and `inp_dict` say with
    which shapes it is counted: arrays, or anything else with a shape and a dtype.
    """
    check_convention(convention)
    if input is not None and inp_dict is not None:
        raise InputError("both input and inp_dict were given", hint="pass one of them")
    given = inp_dict if input is None else input
    for array in given.values() if isinstance(given, Mapping) else () if given is None else (given,):
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise InputError(f"input data of the type {type(array).__name__} is not an array")
    counted = counting(given)
    model = resolve(str(model_path))
    dump = dump_path(model)
    if dump is not None:
        counted.pop("dtypes", None)  # they are fixed in the file
    report = None
    if log_path or convention == "opcost" or dump is None:
        report = count(model, **counted)
    shapes = counted.get("shapes")
    records = find_records(model, report, shapes, convention=convention, with_values=cal_params)
    options = StatsOptions(cal_params, cal_flops, cal_activations, logging_to_stdout, bar_length_max, fields=True)
    found = tables.print_stats(records, options)
    if log_path:
        assert report is not None
        report.to_tensorboard(str(log_path))
    return found


def check_convention(convention: str) -> None:
    """Raise for an unknown convention."""
    if convention not in CONVENTIONS:
        raise UnknownName("convention", convention, CONVENTIONS)


def find_records(source: Source, report: Report | None, shapes: Any, *, convention: str, with_values: bool) -> Records:
    """What is listed of a model: by MegEngine's rules of a dump from the file itself, else from the report."""
    dump = dump_path(source)
    if convention == "megengine" and dump is not None:
        only = shapes[0] if isinstance(shapes, list) and len(shapes) == 1 else shapes
        return count_dump(dump, only, with_values=with_values)
    assert report is not None
    values: dict[int, tuple[float, float] | None] = {}  # mean and deviation of the tensors of a dump, by variable
    if dump is not None and with_values:
        with pages_of(dump) as data:
            stored = read_model(dump).brought_in(*HOLDERS)
            values = {variable: _values(tensor, data) for _, variable, tensor in stored}
    return tables.records_of(report, values) if convention == "opcost" else tables.megengine_records_of(report, values)


def dump_path(source: Source) -> Path | None:
    """The path of a source that is a dump of MegEngine's."""
    return source.path if isinstance(source, ModelFile) and source.frontend.name == "megengine" else None


def counting(given: Any) -> dict[str, Any]:
    """What `opcost.count` takes of input data: shapes, and types where they are not the model's own floats."""
    if given is None:
        return {}
    arrays = given if isinstance(given, Mapping) else {0: given}
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    dtypes = {name: str(array.dtype).removeprefix("torch.") for name, array in arrays.items()}
    dtypes = {name: dtype for name, dtype in dtypes.items() if dtype in INTEGER}
    if isinstance(given, Mapping):
        return {"shapes": shapes, "dtypes": dtypes}
    return {"shapes": [shapes[0]], "dtypes": [dtypes[0]] if dtypes else None}


# -- a dump counted by the operators that the file lists, constants included -------------------------------------------
#
# The rules, and what is odd about them, are those of MegEngine's `network_visualize`; docs/compat.md names them. A batch of
# one is forced on every input, constants are the parameters, every operator's first output is an activation, and FLOPs are
# multiply-adds.

_PARAMETER = "ImmutableTensor"
_CONVOLUTIONS = ("Convolution", "ConvBias")
_CLASS_NAMES = {
    "BatchedMatrixMul": "BatchedMatmul", "ConvolutionBackwardData": "ConvTranspose", "NMSKeepMGB": "NMSKeep",
    "Softmax": "SoftmaxForward",
}  # fmt: skip
"""Where `network_visualize` calls an operator by another name than the file."""


_Field: TypeAlias = "dict[str, tuple[int, ...]]"  # Receptive field and stride, height and width
Given: TypeAlias = "Mapping[str, tuple[int, ...]] | tuple[int, ...] | None"
"""Shapes of input data: by name, or the one of a model's only input."""


def count_dump(path: str | Path, given: Given = None, *, with_values: bool = True) -> Records:
    """The records of a dump, counted with the shapes of input data; `with_values` adds mean and deviation."""
    model = read_model(path)
    found = _infer(model, given)
    records = Records(ops=len(model.operators))
    fields: dict[int, _Field] = {}
    with pages_of(path) as data:
        for op in _in_order_of_use(model):
            name = op.name or model.variables[op.outputs[0]].name or f"{op.type}[{op.index}]"
            class_name = _CLASS_NAMES.get(op.type, op.type)
            shown = op.outputs[-1 if op.type == "BatchNorm" else 0]
            spec = TensorSpec(found.tensor(shown).shape, found.tensor(shown).dtype)
            records.add_activation(name, class_name, spec)
            field = _field(op, found, [fields[i] for i in op.inputs])
            fields |= dict.fromkeys(op.outputs, field)
            if op.type in _FLOPS:
                ins, outs = ([found.tensor(i).shape for i in places] for places in (op.inputs, op.outputs))
                numel, factor = tables.elements(outs[0]), _FLOPS[op.type](op, ins)
                flops = None if numel is None or factor is None else numel * factor
                widened = field if op.type in _CONVOLUTIONS else {}
                records.add_operation(name, class_name, ins, outs, flops, **widened)
            if op.type == _PARAMETER:
                values = _values(op.tensors[0], data) if with_values else None
                records.add_param(name, spec, *(values or ()))
    return records


def _in_order_of_use(model: Model) -> Iterable[FileOperator]:
    """The operators as MegEngine lists them: a tensor of the file just before the first operator that reads it."""
    holders = {v: op for op in model.operators if op.type in HOLDERS for v in op.outputs}
    listed: dict[int, FileOperator] = {}
    for op in model.operators:
        if op.type not in HOLDERS and op.outputs:
            for each in (*(holders[v] for v in op.inputs if v in holders), op):
                listed.setdefault(each.index, each)
    for op in model.operators:
        if op.type in HOLDERS:
            listed.setdefault(op.index, op)
    return listed.values()


def _infer(model: Model, given: Given) -> DumpWalk:
    names = input_names(model)
    if isinstance(given, tuple) and len(names) == 1:
        given = dict.fromkeys(names, given)
    if isinstance(given, Mapping) and sorted(given) == sorted(names):
        return DumpWalk(model, {names[name]: shape for name, shape in given.items()}).run()
    if given is not None:
        given_for = ", ".join(given if isinstance(given, Mapping) else ()) or "one without a name"
        takes = f"{model.path} takes {', '.join(names) or 'no input'}"
        raise InputError(f"{takes}, and data was given for {given_for}", hint="give data for every input, by its name")
    stored = {v: tensor.shape for op in model.operators for v, tensor in zip(op.outputs, op.tensors, strict=False)}
    single = {v: (1, *stored[v][1:]) for v in names.values() if stored[v] and stored[v][0] != 1}
    try:
        return DumpWalk(model, single).run()
    except InputError:  # the batch is written into the dump, so that no other is possible
        return DumpWalk(model).run()


def _conv(op: FileOperator, ins: list[Shape]) -> int | None:
    weight = ins[1] if len(ins) > 1 else None
    if weight is None or len(weight) < 4:
        return None
    used = tables.elements((weight[2] if len(weight) == 5 else weight[1], *weight[-2:]))
    return None if used is None else used + (op.type == "ConvBias")


def _depth(ins: list[Shape], axis: int) -> int | None:
    """What a product of matrices adds up over."""
    first = ins[0] if ins else None
    return first[axis] if first is not None and len(first) == axis + 1 else None


_FLOPS: dict[str, Callable[[FileOperator, list[Shape]], int | None]] = {
    "Convolution": _conv, "ConvBias": _conv, "Elemwise": lambda op, ins: 1, "ElemwiseMultiType": lambda op, ins: 1,
    "MatrixMul": lambda op, ins: _depth(ins, 1), "BatchedMatrixMul": lambda op, ins: _depth(ins, 2),
}  # fmt: skip
"""FLOPs for each element of the first output; every other operator is free."""


def _field(op: FileOperator, found: DumpWalk, before: list[_Field]) -> _Field:
    """The largest of the inputs' fields, widened by a convolution; pooling widens nothing here."""
    size, stride = (
        tuple(max((field[name][axis] for field in before), default=1) for axis in (0, 1))
        for name in ("receptive_field", "stride")
    )
    if op.type in _CONVOLUTIONS and len(op.inputs) > 1:
        weight = found.tensor(op.inputs[1]).shape or ()
        kernel = weight[-2:] if len(weight) >= 4 else (1, 1)
        size = tuple(s + ((k or 1) - 1) * step for s, k, step in zip(size, kernel, stride, strict=True))
        steps = (op.param.get("stride_h", 1), op.param.get("stride_w", 1))
        stride = tuple(s * (step if isinstance(step, int) else 1) for s, step in zip(stride, steps, strict=True))
    return {"receptive_field": size, "stride": stride}


def _values(tensor: DumpedTensor, data: Pages) -> tuple[float, float] | None:
    """Mean and deviation of a stored tensor, a quantized one as the numbers that it represents."""
    found = tables.mean_and_std(data.piece(tensor.offset, tensor.nbytes), tables.dtype_name(tensor.dtype.name))
    if found is None or tensor.dtype.scale is None:
        return found
    mean, std = found
    return (mean - (tensor.dtype.zero_point or 0)) * tensor.dtype.scale, std * tensor.dtype.scale


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
