"""Parts of ONNX models that tests write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL

Written = Callable[..., Path]
"""Writes a model of some nodes."""


def weight(name: str, *shape: int, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.arange(np.prod(shape), dtype="int64").reshape(shape).astype(dtype), name)


def integers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, "int64"), name)


def tensor(name: str, *shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))
