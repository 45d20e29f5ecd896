"""Recurrent layers as one operator each, instead of hundreds of small ones for every time step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from opcost.frontends.torch.recorder import Recorder

_LAYERS = {
    name: (getattr(torch.ops.aten, name).input, getattr(torch.ops.aten, name).data)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
}


class whole_layers(TorchFunctionMode):  # noqa: N801 - used as a context manager
    """Catches the call that `nn.LSTM`, `nn.GRU` and `nn.RNN` make, before PyTorch takes it apart into time steps."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        overloads = _LAYERS.get(getattr(func, "__name__", ""))
        if overloads is None or kwargs:
            return func(*args, **(kwargs or {}))
        # The packed form has the batch sizes as its second argument, and so one tensor more before the weights.
        packed = isinstance(args[3], (list, tuple)) and isinstance(args[3][0], torch.Tensor)
        overload = overloads[1] if packed else overloads[0]
        with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
            return self._recorder.__torch_dispatch__(overload, (), args)
