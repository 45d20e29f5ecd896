"""Live MXNet objects, through the same path as files: the symbol's text and the shapes of the parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from opcost.errors import InputError
from opcost.frontends.inputs import arguments, arrays_in, parse_dtype, requested_inputs
from opcost.frontends.mxnet.dialect import upgraded
from opcost.frontends.mxnet.load import Opened, Saved
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
    names = _names(options)
    asked = requested_inputs(options, names)
    options = replace(options, inputs=None, kwargs={}, shapes=asked.shapes, dtypes=asked.dtypes)
    saved = dict(_parameters(source.collect_params().values()))
    return _open(_trace(source, names), options, saved, type(source).__name__)


def _open(symbol: Any, options: CountOptions, saved: dict[str, Saved], label: str) -> Opened:
    text = symbol.tojson(remove_amp_cast=False)
    return Opened(upgraded(parse_symbol(text, label)), saved, label, options)


def _names(options: CountOptions) -> list[str]:
    """What the variables are called: as their shapes are, else `data`, or `data0` and so on, as `export` calls them."""
    ordered, named = arrays_in(options)
    trees, by_name = arguments(options.shapes, None, ())
    count = len(ordered) + len(trees)
    called = ["data"] if count + len(named) + len(by_name) < 2 else [f"data{place}" for place in range(count)]
    return [*named, *by_name] if not count and (named or by_name) else [*called, *named, *by_name]


def _trace(block: Any, names: list[str]) -> Any:
    """Call a block with variables in place of arrays."""
    import mxnet

    if not isinstance(block, mxnet.gluon.HybridBlock):
        raise InputError(
            f"{type(block).__name__} is a gluon Block, which runs Python code that cannot be turned into a symbol",
            hint="derive it from HybridBlock",
        )
    try:
        answer = block(*(mxnet.symbol.var(name) for name in names))
    except Exception as exc:
        raise InputError(
            f"{type(block).__name__} cannot be called with {len(names)} symbols: {type(exc).__name__}: {exc}",
            hint="give as many shapes as the block has inputs",
        ) from exc
    heads = list(_symbols(answer))
    return heads[0] if len(heads) == 1 else mxnet.symbol.Group(heads)


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
            yield parameter.name, Saved(tuple(shape), parse_dtype(parameter.dtype), state=False, trainable=trainable)
