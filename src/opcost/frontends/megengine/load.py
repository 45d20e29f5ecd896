"""From a file or a live module to a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opcost.core.graph import Graph
from opcost.errors import InputError
from opcost.frontends.megengine.graph import build_graph
from opcost.frontends.megengine.model import read_model
from opcost.frontends.options import CountOptions


def load(source: Any, options: CountOptions) -> Graph:
    """Read a dump, or trace a module, and make it ready to be counted."""
    is_file = isinstance(source, (str, Path))
    for asked, what in (
        (options.backward or options.optimizer, "a backward pass"),
        (options.mode == "train" and is_file, "a training mode"),
        (options.real and is_file, "a run on real weights"),
    ):
        if asked:
            whose = f"{source} is a dump of the forward pass" if is_file else "MegEngine records the forward pass only"
            raise InputError(f"{whose}; {what} cannot be counted from it", hint="count it without that option")
    if not is_file:
        from opcost.frontends.megengine.live import load_module

        return load_module(source, options)
    return build_graph(read_model(source), options)
