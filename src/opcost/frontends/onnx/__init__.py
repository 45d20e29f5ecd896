"""ONNX models, read without ONNX: the graph is walked, weights are never loaded, and nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.frontends.options import Option
from opcost.frontends.registry import FrontEnd

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions


class OnnxFrontEnd(FrontEnd):
    """Files (`*.onnx`) of any size, with their weights inside or beside them."""

    name = "onnx"
    framework = "onnx"
    suffixes = (".onnx",)
    options = (
        Option(
            "dim", str, "Sizes that an ONNX model leaves open, by name: batch=1,seq=128. Others are 1.", "NAME=SIZE"
        ),
    )

    def sniff(self, head: bytes, path: Path) -> bool:
        """The first field of a model is its version, the producer or a graph."""
        return bool(head) and head[0] in b"\x08\x12\x1a\x3a\x42"

    def owns(self, obj: object) -> bool:
        return False

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.onnx.load import load

        return load(Path(source), options)


FRONTEND: FrontEnd = OnnxFrontEnd()
