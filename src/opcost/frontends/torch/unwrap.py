"""The model inside a wrapper: data parallel, compiled, exported."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from opcost.errors import UnknownSource


def unwrap(source: Any) -> nn.Module:
    """The module that does the work."""
    export = sys.modules.get("torch.export")
    if export is not None and isinstance(source, export.ExportedProgram):
        return source.module()  # type: ignore[no-any-return]
    dynamo = sys.modules.get("torch._dynamo")
    while True:
        if isinstance(source, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            source = source.module
        elif dynamo is not None and isinstance(source, dynamo.OptimizedModule):
            source = source._orig_mod
        else:
            break
    if not isinstance(source, torch.nn.Module):
        raise UnknownSource(f"an object of type {type(source).__name__} is not a PyTorch module")
    return source
