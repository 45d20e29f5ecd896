"""What a package can add to opcost, and what each part must have: the protocols, and the data that they speak of.

| entry-point group | the entry names | protocol |
|---|---|---|
| `opcost.rules` | a function that adds rules to a table | `AddRules` |
| `opcost.frontends` | an object that reads models, runs them, or reads checkpoints | `FrontEnd`, `Recorder`, `CheckpointReader` |
| `opcost.traces` | an object that reads traces | `Reader` |
| `opcost.views` | an object that shows results | `View` |

`examples/plugin` is a package with one part of most kinds.
"""

from opcost.core.graph import Cost, Graph, Module, ModuleCall, Note, Op, TensorSpec, Value
from opcost.core.profile import Answer, AnswerLine, Kernel, Profile, ProfileRow
from opcost.core.report import Report
from opcost.core.results import Comparison
from opcost.core.scan import Scan
from opcost.errors import InputError, SourceError
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, Raw
from opcost.frontends.options import CountOptions, FrontendOption
from opcost.frontends.registry import FrontEnd
from opcost.recorders.registry import ProfileOptions, Recorder
from opcost.rules.registry import AddRules, OpView, Rule, Rules
from opcost.traces.file import TraceFile
from opcost.traces.registry import Reader
from opcost.views.view import Renders as View

__all__ = [
    "AddRules", "Answer", "AnswerLine", "CheckpointReader", "Comparison", "Contents", "Cost", "CountOptions",
    "FrontEnd", "FrontendOption", "Graph", "InputError", "Kernel", "Module", "ModuleCall", "Note", "Op",
    "OpView", "Profile", "ProfileOptions", "ProfileRow", "Raw", "Reader", "Recorder", "Report", "Rule",
    "Rules", "Scan", "SourceError", "TensorSpec", "TraceFile", "Value", "View",
]  # fmt: skip
