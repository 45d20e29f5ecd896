"""What a neural network costs, and where its time goes: `print(opcost.count(model, inputs))`."""

from typing import TYPE_CHECKING, Any

from opcost.version import __version__

if TYPE_CHECKING:
    from opcost.analysis.query import query
    from opcost.api import count, load_report, profile, read_profile, recording, scan
    from opcost.comparing import check, compare
    from opcost.core.graph import Cost, Graph, Op, TensorSpec
    from opcost.core.option import Step, Text
    from opcost.core.report import Report, Row, Stats
    from opcost.errors import OpcostError
    from opcost.predicting import calibrate, predict
    from opcost.recorders.measure import measure
    from opcost.rules.registry import OpView
    from opcost.sizing import fit, sweep
    from opcost.utilizing import StepMeter

_HOMES = {
    "analysis.query": "query", "api": "count load_report profile read_profile recording scan", "comparing": "check compare",
    "core.graph": "Cost Graph Op TensorSpec", "core.option": "Step Text", "core.report": "Report Row Stats",
    "errors": "OpcostError", "predicting": "calibrate predict", "recorders.measure": "measure", "rules.registry": "OpView",
    "sizing": "fit sweep", "utilizing": "StepMeter",
}  # fmt: skip

__all__ = [
    "Cost", "Graph", "Op", "OpView", "OpcostError", "Report", "Row", "Stats", "Step", "StepMeter", "TensorSpec", "Text",
    "__version__", "calibrate", "check", "compare", "count", "fit", "load_report", "measure", "predict", "profile", "query",
    "read_profile", "recording", "scan", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import opcost` costs nothing."""
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module 'opcost' has no attribute {name!r}")
    from importlib import import_module
    from types import FunctionType

    value = getattr(import_module(f"opcost.{home}"), name)
    if isinstance(value, FunctionType):
        from opcost.core.tracebacks import trims_traceback

        value = trims_traceback(value)
        value.__module__ = "opcost"  # where pickle finds it
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
