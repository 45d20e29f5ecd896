"""ONNX models, read without ONNX: the graph is walked, weights are never loaded, and nothing runs."""

from pathlib import Path

from opcost.frontends.inputs import DIM
from opcost.frontends.registry import FileFrontEnd, FrontEnd


class OnnxFrontEnd(FileFrontEnd):
    """Files (`*.onnx`) of any size, with their weights inside or beside them."""

    name, what = "onnx", "an ONNX model"
    framework = "onnx"
    suffixes = (".onnx",)
    options = (DIM,)
    understands = frozenset({"sizes"})

    def sniff(self, head: bytes, path: Path) -> bool:
        """The first field of a model is its version, the producer or a graph."""
        if not head or head[0] not in b"\x08\x12\x1a\x3a\x42":
            return False
        from opcost.frontends.protobuf import second_begins

        # The producer's name is text; what comes through a pipe may be another format that begins as this one does.
        return path.suffix.lower() == ".onnx" or second_begins(head) not in (b"\n", b"\xa2")


FRONTEND: FrontEnd = OnnxFrontEnd()
