"""A small profile with everything in it, made by hand."""

from __future__ import annotations

import pytest

from opcost.core.graph import TensorSpec
from opcost.core.profile import Kernel, ProfileRow
from opcost.profiles import Profile

US = 1000


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype)


@pytest.fixture
def profile() -> Profile:
    """Two convolutions, a product with two kernels, a view without device time, and a kernel without an operator."""
    conv = {
        "type": "aten::conv2d",
        "kind": "conv",
        "ins": (spec(1, 4, 8, 8), spec(2, 4, 3, 3)),
        "outs": (spec(1, 2, 8, 8),),
    }
    rows = (
        ProfileRow(
            id=0,
            name="a.conv",
            module="a.conv",
            rank=0,
            step=0,
            host_start_ns=0,
            host_ns=7 * US,
            host_self_ns=5 * US,
            device="gpu:0",
            device_ns=30 * US,
            kernels=(Kernel("winograd", "gpu:0", "7", 10 * US, 30 * US),),
            **conv,
        ),
        ProfileRow(
            id=1,
            name="b.conv",
            module="b.conv",
            rank=0,
            step=1,
            host_start_ns=20 * US,
            host_self_ns=3 * US,
            device="gpu:0",
            device_ns=10 * US,
            kernels=(Kernel("winograd", "gpu:0", "7", 40 * US, 10 * US),),
            **conv,
        ),
        ProfileRow(
            id=2,
            name="b.fc",
            type="aten::addmm",
            kind="matmul",
            module="b.fc",
            rank=1,
            step=1,
            host_start_ns=30 * US,
            host_self_ns=4 * US,
            device="gpu:0",
            device_ns=50 * US,
            kernels=(Kernel("gemm", "gpu:0", "7", 50 * US, 40 * US), Kernel("splitk", "gpu:0", "8", 60 * US, 10 * US)),
            ins=(spec(16, 32, dtype="float16"), spec(32, 8, dtype="float16")),
            outs=(spec(16, 8, dtype="float16"),),
            attrs={"depth": 32},
        ),
        ProfileRow(id=3, name="b.view", type="aten::view", kind="view", module="b", host_self_ns=1 * US, device_ns=0),
        ProfileRow(
            id=4, name="b.custom", type="mine::op", module="b", host_self_ns=2 * US, device="gpu:0", device_ns=20 * US
        ),
    )
    loose = (Kernel("graph", "gpu:0", "7", 200 * US, 15 * US),)
    return Profile(meta={"source": "hand", "format": "test"}, rows=rows, unattributed=loose, wall_ns=300 * US)
