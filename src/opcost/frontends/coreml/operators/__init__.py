"""What Core ML's operators mean: a handler for each, entered in the table by the module of its family."""

from opcost.frontends.coreml.operators import contraction, elementwise, move, reduce

__all__ = ["contraction", "elementwise", "move", "reduce"]
