"""A fixture that writes ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx_making import Written, helper


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes a model of these nodes."""

    def write(
        nodes: list[Any], inputs: list[Any], stored: list[Any] = (), outputs: list[Any] = (), **more: Any
    ) -> Path:  # type: ignore[assignment]
        ends = outputs or [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
        graph = helper.make_graph(nodes, "net", inputs, ends, list(stored))
        domains = [helper.make_opsetid("", more.pop("opset", 18)), helper.make_opsetid("com.microsoft", 1)]
        path = tmp_path / "net.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=domains, **more).SerializeToString())
        return path

    return write
