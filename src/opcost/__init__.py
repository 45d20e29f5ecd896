"""What a neural network costs, and where its time goes: `print(opcost.count(model, inputs))`."""

from typing import TYPE_CHECKING, Any

from opcost.version import __version__

if TYPE_CHECKING:
    from opcost.advising import advise
    from opcost.analysis.query import query
    from opcost.api import analyze, count, load_report, profile, read_profile, recording, scan
    from opcost.comparing import check, compare
    from opcost.compat.visualizing import visualize
    from opcost.compiling import compiled
    from opcost.core.graph import Cost, Graph, Op, TensorSpec
    from opcost.core.option import Step, Text
    from opcost.core.report import Report, Row, Stats
    from opcost.core.results import Comparison, Fit, LayoutPlan, Recomputation, Sweep, Verdict
    from opcost.core.scan import Scan
    from opcost.distributed.mesh import Mesh
    from opcost.errors import OpcostError
    from opcost.installed import doctor
    from opcost.planning import plan
    from opcost.predicting import predict
    from opcost.profiles import Prediction, Profile
    from opcost.recorders.measure import measure
    from opcost.rules import described_rules as rules
    from opcost.rules.registry import OpView
    from opcost.sizing import fit, sweep
    from opcost.utilizing import StepMeter, mfu
    from opcost.viewing import view

_HOMES = {
    "advising": "advise", "analysis.query": "query", "api": "analyze count load_report profile read_profile recording scan",
    "compat.visualizing": "visualize", "comparing": "check compare", "compiling": "compiled",
    "core.graph": "Cost Graph Op TensorSpec",
    "core.option": "Step Text", "core.report": "Report Row Stats",
    "core.results": "Comparison Fit LayoutPlan Recomputation Sweep Verdict",
    "core.scan": "Scan", "distributed.mesh": "Mesh", "errors": "OpcostError", "installed": "doctor", "predicting": "predict",
    "calibrating": "calibrate", "planning": "plan",
    "profiles": "Prediction Profile", "recorders.measure": "measure", "rules": "rules", "rules.registry": "OpView",
    "sizing": "fit sweep", "utilizing": "StepMeter mfu", "viewing": "view",
}  # fmt: skip

__all__ = [
    "Comparison", "Cost", "Fit", "Graph", "LayoutPlan", "Mesh", "Op", "OpView", "OpcostError", "Prediction", "Profile",
    "Recomputation", "Report", "Row", "Scan", "Stats", "Step", "StepMeter", "Sweep", "TensorSpec", "Text", "Verdict",
    "__version__", "advise", "analyze", "calibrate", "check", "compare", "compiled", "count", "doctor", "fit", "load_report",
    "measure", "mfu", "plan", "predict", "profile", "query", "read_profile", "recording", "rules", "scan", "sweep", "view",
    "visualize",
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
