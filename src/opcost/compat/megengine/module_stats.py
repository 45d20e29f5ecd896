"""`module_stats`: the statistics of a live model, of MegEngine or of PyTorch."""

import sys
from typing import Any

from opcost.compat.megengine.layer_costs import register_flops, register_hook_module
from opcost.compat.megengine.network_visualize import check_convention
from opcost.compat.megengine.tables import Records, StatsOptions, print_stats, records_of, stats_details, total_stats
from opcost.errors import InputError, UnknownSource

__all__ = ["module_stats", "register_flops", "register_hook_module"]


def module_stats(
    model: Any, inputs: Any = None, input_shapes: Any = None, cal_params: bool = True, cal_flops: bool = True,
    cal_activations: bool = True, logging_to_stdout: bool = True, bar_length_max: int = 20, *,
    convention: str = "megengine",
) -> tuple[total_stats, stats_details]:  # fmt: skip
    """Print and return the parameters, FLOPs and activations of a model, layer by layer.

    `inputs` is an array, or a list or tuple of the positional arguments; `input_shapes` one shape, or a list of them.
    `convention="opcost"` lists every operator with opcost's own numbers instead.
    """
    check_convention(convention)
    if inputs is None:
        # One shape, flat, or a list of shapes
        if input_shapes is None or (isinstance(input_shapes, (tuple, list)) and not input_shapes):
            raise InputError("neither inputs nor input_shapes were given", hint="pass input_shapes=[(1, 3, 224, 224)]")
        several = [input_shapes] if all(isinstance(extent, int) for extent in input_shapes) else input_shapes
        for shape in several:
            if not isinstance(shape, (tuple, list)) or any(not isinstance(n, int) or n < 0 for n in shape):
                raise InputError(
                    f"{shape!r} is not a shape", hint="a shape is a tuple of integers, as (1, 3, 224, 224)"
                )
        input_shapes = [tuple(shape) for shape in several]
    with_values = inputs is not None and cal_activations and convention == "megengine"
    records = _records(model, inputs, input_shapes, with_values=with_values, convention=convention)
    options = StatsOptions(
        cal_params, cal_flops, cal_activations, logging_to_stdout, bar_length_max, convention == "opcost", with_values
    )
    return print_stats(records, options)


def _records(model: Any, inputs: Any, input_shapes: Any, *, with_values: bool, convention: str) -> Records:
    def is_of(package: str) -> bool:
        """Whether the model's class is built on `Module` of this package, which is loaded if the model is."""
        loaded = sys.modules.get(package)
        return loaded is not None and isinstance(model, loaded.Module)

    if is_of("megengine.module"):
        from opcost.compat.megengine import megengine_layers

        args = megengine_layers.megengine_inputs(inputs, input_shapes)
        if convention == "opcost":
            return records_of(*megengine_layers.traced(model, args))
        return megengine_layers.megengine_records(model, args, with_values=with_values)
    if is_of("torch.nn"):
        from opcost.compat.megengine import torch_layers

        args = torch_layers.torch_inputs(model, inputs, input_shapes)
        records, report = torch_layers.torch_records(model, args, with_values=with_values)
        if convention == "opcost":
            known = torch_layers.parameter_values(model)
            values = {v: known[p.name] for p in report.parameters for v in p.values if p.name in known}
            return records_of(report, values)
        return records
    raise UnknownSource(
        f"module_stats counts a model of MegEngine or PyTorch, not an object of the type {type(model).__name__}",
        hint="visualize counts model files",
    )
