"""onnx-tool: what each node of an ONNX model costs.

from opcost.compat.onnx_tool import model_profile
"""

from __future__ import annotations

from opcost.compat.onnx_tool.profile import Graph, Model, NoMacsOps, loadmodel, model_profile

__all__ = ["Graph", "Model", "NoMacsOps", "loadmodel", "model_profile"]
