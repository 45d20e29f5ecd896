"""A forward pass that failed: what happened, in which module, on which line, and what to do."""

import re
import threading
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb

import torch
from torch import nn

from opcost.core.graph import TensorSpec
from opcost.errors import DataDependent, ForwardError
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.models.unwrap import type_name

_OPCOST = Path(__file__).resolve().parents[3]
_FOLDERS = (_OPCOST, *(Path(str(package.__file__)).resolve().parent for package in (torch, futures)))
_NOT_THE_USERS = (*map(str, _FOLDERS), threading.__file__)
_NO_MEMORY = (
    "data is not allocated", "data pointer", "doesn't have storage", "invalid python storage",
    "not supported for tensor subclasses", "without data", Recorded.__name__,
)  # fmt: skip
"""What PyTorch says when compiled code looks for the memory of a tensor that has none, or Python for what it cannot do."""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The innermost module call through which an exception passed."""

    exc: BaseException
    path: str
    module: nn.Module
    received: tuple[TensorSpec, ...]

    def __str__(self) -> str:
        module = f"module {self.path!r}" if self.path else "the model's own forward"
        given = ", ".join(f"{spec} {spec.dtype}" for spec in self.received[:4])
        more = ", ..." if len(self.received) > 4 else ""
        received = f", which received {given}{more}" if given else ""
        extra = extra_of(self.module)
        extra = extra if len(extra) <= 60 else f"{extra[:60]}..."
        return f"{module} ({type_name(self.module)}({extra})){received}"


_MOST_WORDS = 1000  # Lists of more parameters than this are not written out


def extra_of(module: nn.Module) -> str:
    """A module's own words about itself; an `extra_repr` that fails is the user's, and no reason to stop."""
    if isinstance(module, (nn.ParameterList, nn.ParameterDict)) and len(module) > _MOST_WORDS:
        return f"{len(module)} parameters"  # it would have a line for each
    try:
        return str(module.extra_repr())
    except Exception:
        return ""


def forward_error(exc: Exception, place: FailedCall | None, model: nn.Module) -> ForwardError:
    """The user's exception, with the place where it happened."""
    text = str(exc).strip().partition("\n\n")[0]
    kind = DataDependent if any(phrase in text for phrase in _NO_MEMORY) else ForwardError
    error = kind(
        f"{type_name(model)} raised {type(exc).__name__}{_line(exc)}{_in(place)}: {text}",
        module=place.path if place else "",
        hint="" if kind is DataDependent else _hint(exc, text, place),
    )
    error.received = tuple(spec.shape for spec in place.received) if place else ()
    return error


def locate(error: ForwardError, place: FailedCall | None) -> None:
    """Say in an error of ours where it happened."""
    error.module = error.module or (place.path if place else "")
    if where := f"{_line(error)}{_in(place)}":
        error.message = f"{error.message}; requested{where}"


def _in(place: FailedCall | None) -> str:
    return f" in {place}" if place else ""


def _line(exc: BaseException) -> str:
    """The last line of the user's own code that an exception passed through."""
    found = ""
    for frame, line in walk_tb(exc.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith((*_NOT_THE_USERS, "<")):
            found = f" at {Path(file).name}:{line}"
    return found


_OF_SHAPES = re.compile(
    r"\b(shapes?|sizes?|dimensions?|dims?|ndim|rank|channels?|length|numel|elements|broadcast\w*|mat1|mat2|batch1|batch2|"
    r"reshape\w*|view|[1-9]-?d|out of (range|bounds)|unpack|stride|kernel size)\b",
    re.IGNORECASE,
)
"""Words with which PyTorch, einops, numpy and Python speak of shapes that do not fit."""
_OF_TYPES = re.compile(r"\b(d?types?|scalar type|Float|Double|Half|BFloat16|Long|Int|Bool)\b")


def _hint(exc: BaseException, text: str, place: FailedCall | None) -> str:
    modules = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in walk_tb(exc.__traceback__)}
    if "triton" in modules or "triton" in str(exc).lower():  # an error of Triton's own, or of code that looks for it
        return (
            "the model runs Triton kernels, which need a GPU, and there is none here: count it where there is one, or choose the "
            "model's own implementation in PyTorch"
        )
    if "CUDA" in text or "NVIDIA" in text:
        return (
            "the model asks for CUDA, which is not here: let it follow its inputs (x.to(weight.device), zeros_like(x)), "
            "or count it where there is CUDA"
        )
    if isinstance(exc, RuntimeError) and _OF_TYPES.search(text) and "type" in text:
        given = own = None
        if place is not None and not hasattr(place.module, "num_embeddings"):
            given = next((spec.dtype for spec in place.received), None)
            own = next((str(p.dtype)[6:] for p in place.module.parameters() if p.is_floating_point()), None)
        if given and own and given != own:
            in_type = f', or count the model in {given}: dtype="{given}" (on the command line --dtype {given})'
            more = in_type if "float" in given else ""
            return f"the element types differ: the input is {given} and the weights are {own}; give the input in {own}{more}"
        return 'check the element types of the inputs; with shapes say dtypes="int64" (on the command line --input 1x128:int64)'
    if isinstance(exc, (RuntimeError, ValueError, IndexError, AssertionError)) and _OF_SHAPES.search(text):
        return "check the shapes of the inputs"
    return "check the inputs: the model alone would raise this too"
