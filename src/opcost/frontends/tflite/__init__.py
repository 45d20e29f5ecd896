"""TensorFlow Lite models, read without TensorFlow: the graph is walked, weights are never loaded, and nothing runs."""

from pathlib import Path

from opcost.frontends.inputs import DIM
from opcost.frontends.options import FrontendOption
from opcost.frontends.registry import FileFrontEnd, FrontEnd

_SIGNATURE = "Which signature of a TensorFlow Lite model is counted; by default the first."


class TfliteFrontEnd(FileFrontEnd):
    """Files (`*.tflite`) of any size, plain or quantized."""

    name, what = "tflite", "a TensorFlow Lite model"
    framework = "tensorflow"
    suffixes = (".tflite", ".lite")
    options = (DIM, FrontendOption("signature", str, _SIGNATURE, "NAME"))
    understands = frozenset({"sizes"})

    def sniff(self, head: bytes, path: Path) -> bool:
        return head[4:8] == b"TFL3"


FRONTEND: FrontEnd = TfliteFrontEnd()
