"""PyTorch: any module, scripted, exported, compiled or wrapped, and functions. Importing this package does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opcost.frontends.registry import FrontEnd
from opcost.frontends.torch.models import is_countable

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions


class TorchFrontEnd(FrontEnd):
    """Live `torch.nn.Module` objects, functions of tensors, and exported programs in memory."""

    name = "torch"
    framework = "torch"
    understands = frozenset({"sizes", "dtype", "text", "running"})

    def owns(self, obj: object) -> bool:
        return is_countable(obj)

    def build(self, factory: Callable[..., object], kwargs: Mapping[str, object]) -> object:
        """Large tensors are made without memory; small ones stay real."""
        from opcost.core.interrupts import allow_signals, defer_signals
        from opcost.errors import SourceError
        from opcost.frontends.torch.models.weights import weightless

        try:
            with defer_signals(), weightless(), allow_signals():
                return factory(**kwargs)
        except (RuntimeError, TypeError, NotImplementedError) as exc:
            if "meta" not in str(exc):
                raise
            name = getattr(factory, "__qualname__", repr(factory))
            raise SourceError(
                f"{name} asks for the values of its weights while it is being made, and here they have no values: {exc}",
                hint="make the model with its weights and pass it, or on the command line count with --real",
            ) from exc

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.torch.load import load

        return load(source, options)


FRONTEND: FrontEnd = TorchFrontEnd()
