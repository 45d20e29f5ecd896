"""Live MXNet objects, through the same path as files: the symbol's text and the shapes of the parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from opcost.errors import InputError
from opcost.frontends.mxnet.dialect import upgraded
from opcost.frontends.mxnet.load import Opened, Saved, dtype_name, given_inputs
from opcost.frontends.mxnet.symbol import parse_symbol
from opcost.frontends.options import CountOptions


def open_object(source: Any, options: CountOptions) -> Opened:
    """A `Symbol`, or a gluon block that can be traced with symbols."""
    import mxnet

    if options.own:
        raise InputError(
            f"an object of type {type(source).__name__} has its weights, so {' and '.join(options.own)} cannot be given",
            hint="leave it out, or count the checkpoint",
        )
    if isinstance(source, mxnet.symbol.Symbol):
        return _open(source, options, {}, source.name or "symbol")
    traced, names = _trace(source, options)
    shapes, dtypes = given_inputs(options)
    if not isinstance(shapes, dict):
        if isinstance(dtypes, (list, tuple)):
            dtypes = dict(zip(names, dtypes, strict=False))
        options = replace(options, inputs=None, kwargs={}, shapes=dict(zip(names, shapes, strict=False)), dtypes=dtypes)
    saved = dict(_parameters(source.collect_params().values()))
    return _open(traced, options, saved, type(source).__name__)


def _open(symbol: Any, options: CountOptions, saved: dict[str, Saved], label: str) -> Opened:
    text = symbol.tojson(remove_amp_cast=False)
    return Opened(upgraded(parse_symbol(text, label)), saved, label, options)


def _trace(block: Any, options: CountOptions) -> tuple[Any, list[str]]:
    """Call a block with variables in place of arrays; the first is called `data`, as `export` calls it."""
    import mxnet

    if not isinstance(block, mxnet.gluon.HybridBlock):
        raise InputError(
            f"{type(block).__name__} is a gluon Block, which runs Python code that cannot be turned into a symbol",
            hint="derive it from HybridBlock",
        )
    shapes, _ = given_inputs(options)
    count = max(len(shapes), 1)
    names = list(shapes) if isinstance(shapes, dict) else ["data"] if count == 1 else [f"data{i}" for i in range(count)]
    try:
        answer = block(*(mxnet.symbol.var(name) for name in names))
    except Exception as exc:
        raise InputError(
            f"{type(block).__name__} cannot be called with {count} symbols: {type(exc).__name__}: {exc}",
            hint="give as many shapes as the block has inputs",
        ) from exc
    heads = list(_symbols(answer))
    return (heads[0] if len(heads) == 1 else mxnet.symbol.Group(heads)), names


def _symbols(answer: Any) -> Iterable[Any]:
    if isinstance(answer, (list, tuple)):
        for item in answer:
            yield from _symbols(item)
    else:
        yield answer


def _parameters(parameters: Iterable[Any]) -> Iterable[tuple[str, Saved]]:
    """The parameters whose shapes are known; the others are worked out. Their place in the graph tells auxiliary states."""
    for parameter in parameters:
        shape = parameter.shape
        if shape is not None and all(extent > 0 for extent in shape):
            trainable = parameter.grad_req != "null"
            yield parameter.name, Saved(tuple(shape), dtype_name(parameter.dtype), state=False, trainable=trainable)
