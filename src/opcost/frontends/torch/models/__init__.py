"""The model to count: recognised, unwrapped or made without weights, its lazy parts initialized, its inputs made.

Whether an object can be counted is decided here by what is already loaded, without importing torch.
"""

import sys

from opcost.frontends.registry import FUNCTIONS


def is_countable(obj: object) -> bool:
    """Whether an object is a module, a function or an exported program; torch must be loaded."""
    return isinstance(obj, sys.modules["torch"].nn.Module) or is_function(obj) or is_exported(obj)


def is_function(obj: object) -> bool:
    """Whether an object is a function rather than a model; one compiled by torch is still a function."""
    return isinstance(obj, (*FUNCTIONS, sys.modules["torch"].jit.ScriptFunction))


def is_exported(obj: object) -> bool:
    """Whether this is what `torch.export.export` returns."""
    export = sys.modules.get("torch.export")
    return export is not None and isinstance(obj, export.ExportedProgram)
