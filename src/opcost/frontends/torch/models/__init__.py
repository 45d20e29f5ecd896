"""The model to count: recognised, unwrapped or made without weights, its lazy parts initialized, its inputs made.

Whether an object can be counted is decided here by what is already loaded, without importing torch.
"""

import sys

from opcost.frontends.registry import FUNCTIONS


def is_countable(obj: object) -> bool:
    """Whether an object is a module, a function, an exported program or a pipeline's schedule; torch must be loaded."""
    return isinstance(obj, sys.modules["torch"].nn.Module) or is_function(obj) or is_exported(obj) or is_schedule(obj)


def is_function(obj: object) -> bool:
    """Whether an object is a function rather than a model; one compiled by torch is still a function."""
    return isinstance(obj, (*FUNCTIONS, sys.modules["torch"].jit.ScriptFunction))


def is_exported(obj: object) -> bool:
    """Whether this is what `torch.export.export` returns."""
    export = sys.modules.get("torch.export")
    return export is not None and isinstance(obj, export.ExportedProgram)


def is_schedule(obj: object) -> bool:
    """Whether this is what runs the stages of a pipeline."""
    schedules = sys.modules.get("torch.distributed.pipelining.schedules")
    return schedules is not None and isinstance(obj, schedules._PipelineSchedule)
