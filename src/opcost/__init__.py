"""What a neural network costs, and where its time goes: `print(opcost.count(model, inputs))`."""

from __future__ import annotations

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
    "query": "opcost.analysis.query",
    "check": "opcost.comparing",
    "compare": "opcost.comparing",
    "count": "opcost.api",
    "load_report": "opcost.api",
    "read_profile": "opcost.api",
    "calibrate": "opcost.predicting",
    "predict": "opcost.predicting",
    "profile": "opcost.api",
    "recording": "opcost.api",
    "scan": "opcost.api",
    "measure": "opcost.recorders.measure",
    "Step": "opcost.core.option",
    "Text": "opcost.core.option",
    "Cost": "opcost.core.graph",
    "Graph": "opcost.core.graph",
    "Op": "opcost.core.graph",
    "TensorSpec": "opcost.core.graph",
    "Report": "opcost.core.report",
    "Row": "opcost.core.report",
    "Stats": "opcost.core.report",
    "OpcostError": "opcost.errors",
    "OpView": "opcost.rules.registry",
    "fit": "opcost.sizing",
    "sweep": "opcost.sizing",
    "StepMeter": "opcost.utilizing",
}

__all__ = [
    "Cost", "Graph", "Op", "OpView", "OpcostError", "Report", "Row", "Stats", "Step", "StepMeter", "TensorSpec", "Text",
    "__version__", "calibrate", "check", "compare", "count", "fit", "load_report", "measure", "predict", "profile", "query",
    "read_profile", "recording", "scan", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import opcost` costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'opcost' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
