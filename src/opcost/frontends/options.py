"""What `opcost.count` was told, as one value that travels to the front end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """Inputs and what to run. `inputs`: a tuple holds the positional arguments, anything else is the one argument."""

    inputs: Any = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shapes: Any = None
    """One shape, a list of shapes, or a mapping from argument names to shapes."""
    dtypes: Any = None
    """One element type for all, a list as long as the shapes, or a mapping from argument names."""
    backward: bool = False
    optimizer: Any = None
    """True for SGD, the name of a class in `torch.optim`, or a function of the parameters that makes one."""
    real: bool = False
    """Run the model on its own weights instead of without data."""
    mode: str | None = None
    """`train` or `eval` to count the model in that mode; None: as it is."""
    params: str | Path | None = None
    """The file of weights, where they lie apart from the model (MXNet)."""
    epoch: int | None = None
    """The same, by the number in its name."""
