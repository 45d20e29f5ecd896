"""One run of the user's model, as often as wanted, with everything of the user's left as it came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.core.interrupts import allow_signals, defer_signals
from opcost.errors import ForwardError, InputError, OpcostError
from opcost.frontends.torch.ledger.subclass import has_data
from opcost.frontends.torch.load import device_of, in_mode, shapes_returned
from opcost.frontends.torch.models.inputs import as_dtype, attempts_of, make_inputs
from opcost.frontends.torch.models.lazy import is_waiting, settled_apart
from opcost.frontends.torch.models.recognise import is_exported
from opcost.frontends.torch.models.retype import retyped
from opcost.frontends.torch.models.unwrap import type_name, unwrap
from opcost.frontends.torch.recording.failure import forward_error
from opcost.frontends.torch.recording.quiet import checkpoints_for_grad
from opcost.frontends.torch.recording.scope import Paths, intercept_calls
from opcost.frontends.torch.recording.training import loss_of
from opcost.frontends.torch.tree import map_tensors, tensors_in
from opcost.frontends.torch.unchanged.runs import real_runs
from opcost.recorders.options import ProfileOptions
from opcost.recorders.torch.nesting import BACKWARD, MODULE

Scope = Callable[[str], Any]
"""Makes the context manager of an annotation."""


class Runner:
    """A model with its inputs, ready to run."""

    def __init__(self, source: Any, options: ProfileOptions) -> None:
        inner = unwrap(source)
        if options.dtype is not None:
            source = inner = _in_type(source, inner, options.dtype)
        if is_waiting(inner):
            source = settled_apart(source, inner)  # the first run gives the lazy ones a shape: the user's stay lazy
            inner = unwrap(source)
        self.model = inner if is_exported(source) else source
        """What is called: with its wrapper, if it has one (a compiled model runs compiled)."""
        self.inner = inner
        self.device = device_of(inner)
        self.label = type_name(inner)
        self._options = options
        self._paths = Paths(inner)
        self._places = Counter(id(module) for _, module in self._paths.all)
        """Under how many paths each module of the model stands."""
        self._known: dict[int, tuple[str, str]] = {}
        self._numbers: dict[str, int] = {}
        self.paths: list[str] = []
        """Module paths by the number that annotations carry."""
        self._running = ""
        for name, tensor in (*inner.named_parameters(), *inner.named_buffers()):
            if not has_data(tensor):
                raise InputError(
                    f"{name} has no data (it lies on the meta device or is fake), so the model cannot run",
                    hint="make the model with its weights; the time on other data would be the same",
                )
        made = make_inputs(inner, options, self.device, shapes_returned)
        generator = torch.Generator().manual_seed(0)
        attempts = attempts_of(inner, made, training=options.backward)
        self.args, given = map_tensors(
            (made.args, [attempt.kwargs for attempt in attempts]), lambda tensor: self._own(tensor, generator)
        )
        self.kwargs, *self._others = given
        self._on_trial = [attempt.on_trial for attempt in attempts]
        """Whether labels among each of these must give a loss."""

    def _own(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """A copy of the user's tensor, or, where only a shape was given, reproducible noise on the model's device."""
        if has_data(tensor):
            own = tensor.detach().clone()
            if self._options.inputs is None:  # made from shapes, on the CPU
                own = own.to(self.device)
            return own.requires_grad_() if tensor.requires_grad else own
        noise = torch.randn(tensor.shape, dtype=torch.float32, generator=generator)
        return noise.to(device=self.device, dtype=tensor.dtype)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """The model in the wanted mode, after a first run; on leaving, it and the process are as they were."""
        with real_runs(self.inner, self.model) as first_run, ExitStack() as undo:
            undo.enter_context(in_mode(self.inner, self._options.mode))
            undo.enter_context(torch.set_grad_enabled(self._options.backward))
            if self._options.backward:
                undo.enter_context(checkpoints_for_grad())
            with first_run(), allow_signals():
                self._first()
            yield

    def _first(self) -> None:
        """The run that finds out whether the model takes these inputs: of those that were guessed there may be others."""
        while True:
            try:
                self._told(self._forward_and_backward, _no_scope, self.inner)
                return
            except ForwardError:
                if not self._others:
                    raise
                self.kwargs = self._others.pop(0)
                self._on_trial.pop(0)

    def run(self, scope: Scope | None = None, *, modules: bool = False) -> Any:
        """One forward pass, and the backward pass where it is wanted; with `modules`, each module call is annotated."""
        if scope is None or not modules:
            return self._told(self._forward_and_backward, scope or _no_scope, self.model)
        self._running = ""
        with defer_signals(), intercept_calls(partial(self._enter, scope), engine=True), allow_signals():
            return self._told(self._forward_and_backward, scope, self.model)

    def _told(self, run: Callable[[Scope, Any], Any], scope: Scope, model: Any) -> Any:
        """What the user's model raises is told as such."""
        try:
            return run(scope, model)
        except OpcostError:
            raise
        except Exception as exc:
            raise forward_error(exc, None, self.inner) from exc

    def _forward_and_backward(self, scope: Scope, model: Any) -> Any:
        result = model(*self.args, **self.kwargs)
        if not self._options.backward:
            return result
        outputs = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
        loss = loss_of(result, labelled=self.kwargs.get("labels") is not None)
        if loss is None and self._on_trial[0]:
            raise ForwardError("the model makes no loss of the labels")
        outputs = outputs if loss is None else [loss]
        leaves = [p for p in self.inner.parameters() if p.requires_grad]
        leaves += [tensor for tensor in tensors_in((self.args, self.kwargs)) if tensor.requires_grad]
        if not outputs or not leaves:
            raise ForwardError(
                "there is nothing to differentiate: "
                + ("no output" if leaves else "no parameter")
                + " requires a gradient",
                hint="profile without backward, or unfreeze a parameter",
            )
        with scope(BACKWARD):
            return torch.autograd.grad(
                outputs, leaves, grad_outputs=[torch.ones_like(output) for output in outputs], allow_unused=True
            )

    def _enter(self, scope: Scope, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in place of every module call; what it costs is added to every call, so the usual case is looked up."""
        outer = self._running
        known = self._known.get(id(module))
        path, name = known if known is not None else self._named(module, outer)
        self._running = path
        try:
            with scope(name):
                return module._wrapped_call_impl(*args, **kwargs)
        finally:
            self._running = outer

    def _named(self, module: nn.Module, outer: str) -> tuple[str, str]:
        """The path of a module that is called from inside `outer`, and the name of its annotation."""
        path = outer if self._is_shell(module) else self._paths.path(module, outer)
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self.paths)
            self.paths.append(path)
        named = path, f"{MODULE}{number}"
        if self._places[id(module)] == 1:  # it stands in the model, and under no other path
            self._known[id(module)] = named
        return named

    def _is_shell(self, module: nn.Module) -> bool:
        """Whether this is no module of the model's but what a compiler or another wrapper put around it."""
        if module is self.model:
            return module is not self.inner
        return isinstance(module, torch.fx.GraphModule) and not self._places[id(module)]


def _in_type(source: Any, inner: nn.Module, dtype: str) -> nn.Module:
    """The model in another floating type, beside the user's own."""
    if source is not inner:
        raise InputError(
            f"a {type(source).__name__} has its own element types",
            hint="make the model in that type before it is wrapped",
        )
    return retyped(inner, as_dtype(dtype), real=True)


class _NoScope:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


_NOTHING = _NoScope()


def _no_scope(name: str) -> _NoScope:
    return _NOTHING
