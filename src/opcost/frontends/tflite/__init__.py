"""TensorFlow Lite models, read without TensorFlow: the graph is walked, weights are never loaded, and nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.frontends.inputs import DIM
from opcost.frontends.options import Option
from opcost.frontends.registry import FrontEnd

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions


_SIGNATURE = "Which signature of a TensorFlow Lite model is counted; by default the first."


class TfliteFrontEnd(FrontEnd):
    """Files (`*.tflite`) of any size, plain or quantized."""

    name = "tflite"
    framework = "tensorflow"
    suffixes = (".tflite", ".lite")
    options = (DIM, Option("signature", str, _SIGNATURE, "NAME"))
    understands = frozenset({"sizes"})

    def sniff(self, head: bytes, path: Path) -> bool:
        return head[4:8] == b"TFL3"

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.tflite.walk import load

        return load(Path(source), options)


FRONTEND: FrontEnd = TfliteFrontEnd()
