"""Whatever a caller names (a symbol, a block, a file, a checkpoint's prefix) with MXNet's ways to say shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opcost.errors import InputError
from opcost.frontends.mxnet.load import Opened
from opcost.frontends.options import CountOptions


def opened(symbol: Any, data_shapes: Any) -> Opened:
    """Whatever the caller named, with the shapes it gave."""
    from opcost.frontends.mxnet import FRONTEND
    from opcost.frontends.mxnet.live import open_object
    from opcost.frontends.mxnet.load import open_file
    from opcost.frontends.source import ModelFile, resolve

    options = CountOptions(shapes=_shapes_by_name(data_shapes))
    if not isinstance(symbol, (str, Path)):
        return open_object(symbol, options)
    found = resolve(str(symbol))
    if not isinstance(found, ModelFile) or found.frontend.name != FRONTEND.name:
        raise InputError(f"{symbol} is not an MXNet symbol", hint="name a *-symbol.json, or the prefix of a checkpoint")
    return open_file(found.path, options)


def _shapes_by_name(shapes: Any) -> Any:
    """MXNet's ways to say shapes, as `opcost.count` takes them."""
    if shapes is None or isinstance(shapes, Mapping):
        return shapes
    pairs = list(shapes)
    if pairs and all(isinstance(pair, (tuple, list)) and len(pair) >= 2 and isinstance(pair[0], str) for pair in pairs):
        return {pair[0]: tuple(pair[1]) for pair in pairs}
    return tuple(pairs)
