"""Functions of torch that are written in Python (`F.relu`, `torch.norm`): no operators, but they call some.

Each begins with a question: is there a tensor subclass, or a mode, that wants to see this call?

    def relu(input, inplace=False):
        if has_torch_function_unary(input):
            return handle_torch_function(relu, (input,), input, inplace=inplace)
        ...

A mode that is asked, and wants to see the operators further down, must stay in place while the function runs; then the answer
to the question is yes again, and the mode is handed the same call for ever. So the function runs as a twin: the same code,
which finds a `has_torch_function` that says no. The function itself is not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def unasked(function: FunctionType) -> Callable[..., Any]:
    """A twin of the function that goes straight to its work."""
    names = {**function.__globals__, **{question: _no for question in _QUESTIONS if question in function.__globals__}}
    twin = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def _no(*_: object) -> bool:
    return False
