"""PyTorch: any module, scripted, exported, compiled or wrapped, and functions. Importing this package does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.frontends.torch.models.recognise import is_countable

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions


class TorchFrontEnd:
    """Live `torch.nn.Module` objects, functions of tensors, and exported programs in memory."""

    name = "torch"
    framework = "torch"
    suffixes = ()

    def sniff(self, head: bytes, path: Path) -> bool:
        return False

    def owns(self, obj: object) -> bool:
        return is_countable(obj)

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.torch.load import load

        return load(source, options)


FRONTEND = TorchFrontEnd()


def build(factory: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """Call a factory so that large tensors are made without memory; small ones stay real."""
    from opcost.core.interrupts import held_back, let_through
    from opcost.errors import SourceError
    from opcost.frontends.torch.models.weightless import weightless

    try:
        with held_back(), weightless(), let_through():
            return factory(*args, **(kwargs or {}))
    except (RuntimeError, TypeError, NotImplementedError) as exc:
        if "meta" not in str(exc):
            raise
        name = getattr(factory, "__qualname__", repr(factory))
        raise SourceError(
            f"{name} asks for the values of its weights while it is being made, and they have none here: {exc}",
            hint="make the model with its weights and pass it, or on the command line count with --real",
        ) from exc
