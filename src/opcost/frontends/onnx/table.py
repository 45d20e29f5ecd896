"""The table of what ONNX's operators mean, which the families of operators fill."""

from __future__ import annotations

from opcost.frontends.nodes.call import Table, entering

TABLE: Table = {}
handles = entering(TABLE)

MICROSOFT = "com.microsoft"
NCHWC = "com.microsoft.nchwc"
PREVIEW, TRAINING = "ai.onnx.preview", "ai.onnx.preview.training"
