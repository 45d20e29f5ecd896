"""The profiler's words and numbers: what it writes of a call, and under which names and numbers element types go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from profiler_event import C_TYPES, SCALAR_TYPES, Written, event_of
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from opcost.frontends.aten.tensor import Described, promoted
from opcost.traces.kineto.operators import DTYPES
from opcost.traces.kineto.operators import SCALAR_TYPES as OWN_SCALAR_TYPES


def _recorded(run: Callable[[], Any], folder: Path) -> list[dict[str, Any]]:
    """The outermost events of a run."""
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run()
    path = folder / "trace.json"
    recorded.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"]
    found, end = [], -1.0
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= end:
            found.append(event)
            end = event["ts"] + event["dur"]
    return found


def test_events_are_made_as_the_profiler_writes_them(tmp_path: Path) -> None:
    ops = torch.ops.aten
    x, index = torch.randn(4, 8), torch.zeros(4, 8, dtype=torch.int64)
    samples: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (ops.gelu.default, (x,), {"approximate": "tanh"}),
        (ops.div.Tensor_mode, (x, x), {"rounding_mode": "floor"}),
        (ops.add.Tensor, (x, x), {"alpha": 2}),
        (ops.add.Tensor, (x, 1), {}),
        (ops.mul.Tensor, (x, 2.5), {}),
        (ops.clamp.default, (x, 0), {}),
        (ops.clamp.Tensor, (x, None, x), {}),
        (ops.where.self, (x > 0, x, x), {}),
        (ops.cat.default, ([x, x], 1), {}),
        (ops.sum.dim_IntList, (x, [0, 1], True), {"dtype": torch.float64}),
        (ops.var.correction, (x, [0]), {"correction": 1}),
        (ops.topk.default, (x, 2), {}),
        (ops.index.Tensor, (x, [None, index[0]]), {}),
        (ops.zeros.default, ([3, 4],), {"dtype": torch.int16, "device": "cpu", "layout": torch.strided}),
        (ops.clone.default, (x.t(),), {"memory_format": torch.contiguous_format}),
        (ops.scatter_reduce.two, (x, 0, index, x, "sum"), {}),
        (ops.native_layer_norm.default, (x, [8], None, None, 1e-5), {}),
        (ops.constant_pad_nd.default, (x, [1, 2], -0.5), {}),
        (ops.upsample_nearest1d.vec, (x[None], None, [2.0]), {}),
    ]  # fmt: skip
    events = _recorded(lambda: [func(*args, **kwargs) for func, args, kwargs in samples], tmp_path)
    assert [event["name"] for event in events] == [func._schema.name for func, _, _ in samples]
    for event, (func, args, kwargs) in zip(events, samples, strict=True):
        written = Written(
            *(event["args"][key] for key in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides"))
        )
        assert event_of(func, args, kwargs) == written, event["name"]


@pytest.mark.parametrize(
    "settings",
    [
        {"with_stack": True},
        {"with_flops": True, "with_modules": True, "profile_memory": True},
        {"experimental_config": _ExperimentalConfig(verbose=True, capture_overload_names=True)},
    ],
    ids=["stack", "flops", "verbose"],
)
def test_no_setting_makes_the_profiler_write_texts_types_in_lists_and_indices(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Were this to fail, `gelu`, `cat` and `index` could have a cost in a trace."""
    x = torch.randn(4, 8)
    runs: dict[str, Callable[[], Any]] = {
        "aten::gelu": lambda: torch.nn.functional.gelu(x, approximate="tanh"),
        "aten::cat": lambda: torch.cat([x, x]),
        "aten::index": lambda: x[torch.tensor([0, 1])],
    }
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True, **settings) as recorded:
        for run in runs.values():
            run()
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"]
    written = {
        name: next(
            (e["args"]["Input type"], e["args"]["Concrete Inputs"]) for e in events if e["name"].startswith(name)
        )
        for name in runs
    }
    assert written["aten::gelu"] == (["float", ""], ["", ""])
    assert written["aten::cat"] == (["TensorList", "Scalar"], ["", "0"])
    assert written["aten::index"] == (["float", ""], ["", ""])


def test_element_types_go_by_the_names_and_numbers_of_the_profiler(tmp_path: Path) -> None:
    types = [dtype for dtype in SCALAR_TYPES if not str(dtype).startswith(("torch.q", "torch.complex32"))]
    types += [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
    tensors = [torch.zeros(3, dtype=dtype) for dtype in types]
    events = _recorded(lambda: [torch.ops.aten.zeros_like(x, dtype=x.dtype) for x in tensors], tmp_path)
    for event, dtype in zip(events, types, strict=True):
        name = str(dtype).removeprefix("torch.")
        word, number = event["args"]["Input type"][0], event["args"]["Concrete Inputs"][1]
        assert OWN_SCALAR_TYPES[int(number)] == name
        if word in DTYPES or dtype in C_TYPES:
            assert DTYPES[word] == name


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("long", "int64"), ("long long", "int64"), ("__int64", "int64"), ("short", "int16"), ("char", "int8"),
        ("unsigned short", "uint16"), ("unsigned int", "uint32"), ("unsigned long", "uint64"),
        ("c10::complex<c10::Half>", "complex32"), ("c10::qint8", "qint8"), ("c10::quint8", "quint8"),
        ("c10::qint32", "qint32"), ("c10::Float8_e4m3fnuz", "float8_e4m3fnuz"), ("c10::Float8_e5m2fnuz", "float8_e5m2fnuz"),
        ("c10::Float8_e8m0fnu", "float8_e8m0fnu"), ("c10::Float8_e4m3fn", "float8_e4m3fn"), ("c10::Float8_e5m2", "float8_e5m2"),
    ],
)  # fmt: skip
def test_element_types_of_other_compilers_and_machines(word: str, name: str) -> None:
    assert DTYPES[word] == name
    assert hasattr(torch, name)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (12, "qint8"), (13, "quint8"), (14, "qint32"), (8, "complex32"), (25, "float8_e5m2fnuz"),
        (26, "float8_e4m3fnuz"), (44, "float8_e8m0fnu"),
    ],
)  # fmt: skip
def test_numbers_of_element_types_that_no_plain_operator_makes(number: int, name: str) -> None:
    assert OWN_SCALAR_TYPES[number] == name


ARITHMETIC = [dtype for dtype in SCALAR_TYPES if not str(dtype).startswith("torch.q")]


def test_types_are_promoted_as_pytorch_promotes_them() -> None:
    """All pairs of types, with axes and without, and with every sort of number."""

    def described(x: Any) -> Any:
        return Described(tuple(x.shape), x.stride(), str(x.dtype)[6:]) if isinstance(x, torch.Tensor) else x

    tensors = [torch.empty(shape, dtype=dtype, device="meta") for dtype in ARITHMETIC for shape in ((2,), ())]
    for a in tensors:
        for b in (*tensors, True, 1, 1.0, 1j):
            assert promoted(described(a), described(b)) == str(torch.result_type(a, b))[6:], (a, b)
