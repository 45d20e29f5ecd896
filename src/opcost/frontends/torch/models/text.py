"""Inputs of one pass of a language model over a text: its first tokens, or the next ones against a cache of those before.

The content of a cache is not known from outside: heads may share it, layers may keep a window, a compressed form or a state of
fixed size. So the model is run once on a few tokens, and its calls of the cache are repeated on another one, with more tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from opcost.core.graph import Graph, Note, nbytes
from opcost.core.option import Text
from opcost.errors import InputError
from opcost.frontends.options import CountOptions
from opcost.frontends.torch.default_inputs.engine import Inputs, comes_from
from opcost.frontends.torch.default_inputs.transformers import Configuration
from opcost.frontends.torch.models.inputs import argument_names
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.tree import tensors_in

Run = Callable[[dict[str, Any]], None]  # Runs the model once without data, on these arguments

_CACHES = ("past_key_values", "cache_params")  # Names of the argument that is the cache
_WITH_TOKENS = ("update", "update_indexer")  # Methods that take something for each token, on the last axis but one
_WATCHED = (*_WITH_TOKENS, "update_conv_state", "update_recurrent_state")
_NOWHERE = torch.device("meta")
_FEW = 2  # Tokens of the run that only finds out what goes into a cache


_CacheCall = tuple[str, tuple[Any, ...], dict[str, Any]]
"""One call of a cache: method and arguments, with shape and element type in the place of tensors."""


class CachedText:
    """The passes of one language model over a batch of texts."""

    def __init__(self, model: nn.Module, given: nn.Module, options: CountOptions, run: Run) -> None:
        for name in ("inputs", "shapes"):
            if getattr(options, name) is not None:
                raise InputError(f"prefill or decode was requested, and {name} were given too", hint="give one of them")
        if options.sizes.tokens is not None or options.sizes.image is not None:
            raise InputError("prefill and decode give the number of tokens", hint="leave tokens and image out")
        names = argument_names(model)
        config: Any = getattr(model, "config", None)
        kind = type_name(model)
        cache = next((name for name in _CACHES if name in names), None)
        if not comes_from(model, "transformers") or cache is None or "input_ids" not in names:
            raise InputError(
                f"{kind} is not a language model of transformers that reads tokens and keeps a cache, and only of such "
                "prefill and decode are known",
                hint="count it on inputs of your own, the cache among them: inputs=..., kwargs=...",
            )
        if getattr(config, "is_encoder_decoder", False):
            fault = f"{kind} reads one text and writes another; prefill and decode are those of models of a single text"
            raise InputError(fault, hint="count it on inputs of your own")
        self.model, self.names, self.config = model, names, config
        # `model` may be a copy in another element type, made for this count alone.
        self._seen = _seen.setdefault(given, {})
        self.batch, self.static = options.sizes.batch or 1, options.text.static
        self._autocast = options.precision.autocast
        self._rank = str(options.sharding)  # which has its own heads alone
        self._cache_name, self._run = cache, run

    def inputs(self, text: Text, more: Mapping[str, Any]) -> Inputs:
        """What the model is called with for this pass, and `more` arguments."""
        before = text.cache or 0
        new = text.prefill or text.decode or 1
        tokens = before + new
        if self.static is not None and tokens > self.static:
            raise InputError(f"{tokens} tokens do not fit into a static cache of {self.static}", hint="make it longer")
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Embedding) and ("pos" in name or name.endswith("wpe")):
                positions = module.num_embeddings - int(getattr(module, "offset", 0))
                if positions < tokens:
                    fault = f"{type_name(self.model)} has positions for {positions} tokens ({name})"
                    raise InputError(f"{fault}, and {tokens} were requested")
        given = self._given(new, self.filled(before) if before else self._watched())
        if text.prefill and "logits_to_keep" in self.names:
            given["logits_to_keep"] = 1
        given.update(more)
        return Inputs((), given)

    def nbytes(self, tokens: int, dtype: str | None) -> int:
        """The bytes of a cache of some tokens, in its own element type or in another; what only counts them has no axes."""
        total = 0
        for layer in self.filled(tokens).layers:
            for tensor in tensors_in(vars(layer)):
                if tensor.dim():
                    own = str(tensor.dtype).removeprefix("torch.")
                    total += nbytes(tensor.numel(), dtype if dtype and tensor.is_floating_point() else own)
        return total

    def filled(self, tokens: int) -> Any:
        """A cache of some tokens, without data."""
        cache = self._empty()
        if self._key() not in self._seen:
            self._run(self._given(_FEW, self._watched()))
        for method, args, kwargs in self._seen[self._key()]:
            made = partial(_made, tokens=tokens if method in _WITH_TOKENS else None)
            getattr(cache, method)(*map(made, args), **{name: made(value) for name, value in kwargs.items()})
        for layer in cache.layers:
            if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                layer.cumulative_length = torch.tensor(tokens)
            if getattr(layer, "device", None) == _NOWHERE:  # where a model without data is counted
                layer.device = torch.device("cpu")
        return cache

    def _given(self, tokens: int, cache: Any) -> dict[str, Any]:
        ids = torch.full((self.batch, tokens), Configuration(self.model).word(), dtype=torch.int64)
        given = {"input_ids": ids, self._cache_name: cache}
        return {**given, "use_cache": True} if "use_cache" in self.names else given

    def _empty(self) -> Any:
        from transformers.cache_utils import DynamicCache, StaticCache

        if self.static is None:
            return DynamicCache(config=self.config)
        return StaticCache(config=self.config, max_cache_len=self.static)

    def _key(self) -> tuple[Any, ...]:
        dtype = next((tensor.dtype for tensor in self.model.parameters() if tensor.is_floating_point()), None)
        return (self.config.to_json_string(), self.batch, self.static is not None, self._autocast, self._rank, dtype)

    def _watched(self) -> Any:
        """An empty cache that records its calls."""
        cache = self._empty()
        calls: list[_CacheCall] = []
        kind = type(cache)
        watching = {name: _noting(getattr(kind, name), calls) for name in _WATCHED if hasattr(kind, name)}
        # With the module of transformers' class it is restored after the run, as nothing of opcost's own is.
        cache.__class__ = type(kind.__name__, (kind,), {**watching, "__module__": kind.__module__})
        self._seen[self._key()] = calls
        return cache


_seen: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], list[_CacheCall]]] = WeakKeyDictionary()
"""The calls of models to their caches: many lengths of one model are counted one after another."""


def _noting(method: Callable[..., Any], calls: list[_CacheCall]) -> Callable[..., Any]:
    def noted(cache: Any, *args: Any, **kwargs: Any) -> Any:
        specs = {name: _spec(value) for name, value in kwargs.items()}
        calls.append((method.__name__, tuple(map(_spec, args)), specs))
        return method(cache, *args, **kwargs)

    return noted


def _spec(value: Any) -> Any:
    return (torch.Size(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value


def _made(value: Any, tokens: int | None) -> Any:
    match value:
        case torch.Size() as shape, torch.dtype() as dtype:
            shape = shape if tokens is None else (*shape[:-2], tokens, *shape[-1:])
            return torch.empty(shape, dtype=dtype, device=_NOWHERE)
    return value


def with_cache(graph: Graph, text: Text, passes: CachedText) -> Graph:
    """The graph of a pass, with the size of its cache afterwards."""
    new = text.prefill or text.decode or 1
    tokens = (text.cache or 0) + new
    size = passes.nbytes(tokens, text.cache_dtype)
    grows = passes.static is None  # a static cache has its full length from the start
    meta = {
        "text": text.described, "text_tokens": new, "batch": passes.batch, "cache_tokens": tokens, "cache_bytes": size,
        "cache_bytes_per_token": passes.nbytes(tokens + 1, text.cache_dtype) - size if grows else 0,
    }  # fmt: skip
    notes = graph.notes
    if text.cache_dtype is not None:
        what = f"reported in {text.cache_dtype}; the operators are those of a cache in the model's own type"
        notes = (*notes, Note("cache-type", f"the cache is {what}"))
    return replace(graph, meta={**graph.meta, **{name: str(value) for name, value in meta.items()}}, notes=notes)


def windows(model: nn.Module) -> tuple[int, ...]:
    """Lengths of a cache at which a step may change, because the window of a layer is full then."""
    entries = (entry for place in Configuration(model).places["text"] for entry in vars(place).items())
    found = {value for name, value in entries if ("window" in name or "chunk" in name) and type(value) is int}
    return tuple(sorted({value + more for value in found for more in (-1, 0, 1)}))
