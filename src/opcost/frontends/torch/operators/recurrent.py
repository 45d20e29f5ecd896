"""Recurrent layers as one operator each, instead of hundreds of small ones for every time step."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from opcost.frontends.torch.ledger.ledger import Ledger
from opcost.frontends.torch.operators.call import Call, Trial
from opcost.frontends.torch.operators.describe import record
from opcost.frontends.torch.operators.packed import readable
from opcost.frontends.torch.operators.without_data import work_out

_LAYERS = {
    name: (getattr(torch.ops.aten, name).input, getattr(torch.ops.aten, name).data)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
}


class whole_layers(TorchFunctionMode):  # noqa: N801 - used as a context manager
    """Catches the call that `nn.LSTM`, `nn.GRU` and `nn.RNN` make, before PyTorch takes it apart into time steps.

    With `apart` it does take it apart, so that every step has its gradient; then it must read the batch sizes itself.
    """

    def __init__(self, ledger: Ledger, *, apart: bool = False) -> None:
        super().__init__()
        self._ledger = ledger
        self._apart = apart

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        overloads = _LAYERS.get(getattr(func, "__name__", ""))
        if overloads is None or kwargs:
            return func(*args, **(kwargs or {}))
        # The packed form has the batch sizes as its second argument, and so one tensor more before the weights.
        packed = isinstance(args[3], (list, tuple)) and isinstance(args[3][0], torch.Tensor)
        if self._apart:
            return func(args[0], readable(args[1]), *args[2:]) if packed else func(*args)
        overload = overloads[1] if packed else overloads[0]
        with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
            return self._ledger.__torch_dispatch__(overload, (), args)


def whole_layer(call: Call) -> Any:
    """Record a whole stack of layers. Its results have the shapes of its inputs and states, so no step is run.

    PyTorch has no kernel for the stack: running it without data would take it apart into time steps.
    """
    trial = call.on_meta()
    given = _by_name(call, trial)
    hidden = given["hx"] if isinstance(given["hx"], (list, tuple)) else [given["hx"]]
    x = given["input"] if "input" in given else given["data"]
    width = hidden[0].shape[-1] * (2 if given["bidirectional"] else 1)
    if given.get("batch_first"):  # the steps are made one after another and then seen with the batch first
        batch, steps = x.shape[:2]
        y = x.new_empty((steps, batch, width)).transpose(0, 1)
    else:
        y = x.new_empty((*x.shape[:-1], width))
    return record(call, trial, (y, *[torch.empty_like(state) for state in hidden]))


def cudnn(call: Call) -> Any:
    """cuDNN's whole stack. Weights that lie apart are put into one memory, which the gradient asks for."""
    trial = call.on_meta()
    *made, together = call.func(*trial.args)
    if together is None:
        weights = trial.args[1]
        together = weights[0].new_empty(sum(weight.numel() for weight in weights))
    return record(call, trial, (*made, together))


def cudnn_gradient(call: Call) -> Any:
    """The gradients of cuDNN's whole stack, as large as what they are taken of; PyTorch has no kernel that says so."""
    trial = call.on_meta()
    given = _by_name(call, trial)
    of_states = [None if given[name] is None else torch.empty_like(given[name]) for name in ("hx", "cx")]
    of_weights = [torch.empty_like(weight) for weight in given["weight"]] if given["output_mask"][3] else []
    return record(call, trial, (torch.empty_like(given["input"]), *of_states, of_weights))


def onednn_gradient(call: Call) -> Any:
    """The gradients of oneDNN's layer, worked out anew each time: what is asked of it, no argument tells."""
    return call.ledger.emit(work_out(call), call.states)


def _by_name(call: Call, trial: Trial) -> dict[str, Any]:
    return dict(zip([argument.name for argument in call.func._schema.arguments], trial.args, strict=True))


WHOLE_LAYERS = tuple(overload for pair in _LAYERS.values() for overload in pair)
