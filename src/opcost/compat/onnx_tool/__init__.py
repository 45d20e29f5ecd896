"""onnx-tool: what each node of an ONNX model costs.

from opcost.compat.onnx_tool import model_profile
"""

from __future__ import annotations

from opcost.compat.onnx_tool.profile import NoMacsOps, model_profile

__all__ = ["NoMacsOps", "model_profile"]
