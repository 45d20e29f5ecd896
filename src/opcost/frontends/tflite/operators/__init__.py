"""What TensorFlow Lite's operators mean: a handler for each, entered in the table by the module of its family."""

from opcost.frontends.tflite.operators import contraction, elementwise, move, recurrent, reduce

__all__ = ["contraction", "elementwise", "move", "recurrent", "reduce"]
