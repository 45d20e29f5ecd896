"""What ONNX's operators mean: a handler for each, entered in the table by the module of its family."""

from opcost.frontends.onnx.operators import attention, blocked, contraction, elementwise, fused, move, reduce, state

__all__ = ["attention", "blocked", "contraction", "elementwise", "fused", "move", "reduce", "state"]
