"""One operator has one price: what a count says of a call, a trace of the same call says too, or it says nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from profiler_event import C_TYPES, SCALAR_TYPES, Written, event_of
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_samples import samples

from opcost.analysis.join import with_costs
from opcost.core.cost import Cost
from opcost.core.graph import TensorSpec
from opcost.core.profile import Profile, ProfileRow
from opcost.frontends.aten.promotion import promoted
from opcost.frontends.aten.tensor import Described
from opcost.frontends.torch.operators.translate import translate
from opcost.rules import default_rules
from opcost.rules.registry import OpView
from opcost.traces.kineto.arguments import DTYPES
from opcost.traces.kineto.arguments import SCALAR_TYPES as OWN_SCALAR_TYPES
from opcost.traces.kineto.meaning import meaning

RULES = default_rules()
SAMPLES = 2

UNTOLD = {
    "a text is not written": "gelu gelu_backward index_reduce linalg_qr scatter_reduce segment_reduce _segment_reduce_backward",
    "types in lists of tensors are not written": "_chunk_cat block_diag cat stack",
    "lists of tensors that may be absent are not written": "_unsafe_masked_index _unsafe_masked_index_put_accumulate "
    "index index_put",
    "how large the result is stands in the data": "_unique _unique2 masked_select nonzero unique_consecutive "
    "_histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors histogram unique_dim",
    "how much of a tensor is stored is not written": "_sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward _to_dense "
    "_to_sparse sparse_mask sparse_sampled_addmm",
    "no tensor is returned": "allclose equal",
    "nobody has said what it makes": "_ctc_loss _embedding_bag _embedding_bag_backward "
    "_embedding_bag_per_sample_weights_backward _linalg_solve_ex as_strided_copy diagonal_copy fill "
    "linalg_eig linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_solve "
    "linalg_pinv linalg_solve_triangular lu_unpack masked_scatter_backward narrow_copy split_with_sizes_copy squeeze_copy "
    "triangular_solve unbind_copy unfold_copy unsqueeze_copy view_copy",
}
"""Operators of which no trace tells the price, and why."""


class Counted(NamedTuple):
    """One call as a count sees it, and as the profiler writes it."""

    name: str
    written: Written
    kind: str
    cost: Cost | None


def counted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Counted:
    """What the table and the rules say of a call that was made."""
    given, outs = (
        tuple(t for t in tree_leaves(part) if isinstance(t, torch.Tensor)) for part in ((args, kwargs), result)
    )
    found = translate(func, args, kwargs, outs)
    ins = tuple(map(_spec, given if found.ins is None else found.ins))
    written = tuple(map(_spec, outs if found.outs is None else found.outs))
    name = func._schema.name
    cost = None if found.kind == "unknown" else RULES[found.kind](OpView(found.kind, name, ins, written, found.attrs))
    return Counted(name, event_of(func, args, kwargs), found.kind, cost)


def _spec(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


class Catch(TorchDispatchMode):
    """Notes every distinct call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, Counted] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        key = (func, repr(event_of(func, args, kwargs)))  # before it runs: in place shapes may change
        result = func(*args, **kwargs)
        if key not in self.calls:
            self.calls[key] = counted(func, args, kwargs, result)
        return result


@pytest.fixture(scope="module")
def calls() -> list[Counted]:
    """What PyTorch's own samples of its whole public surface call, forward and backward."""
    catch = Catch()
    for run in samples(SAMPLES):
        with catch:
            run()
    return list(catch.calls.values())


def traced(name: str, written: Written) -> ProfileRow:
    """The row of a trace with this event, priced as every trace is."""
    found = meaning(name, *written.spelled())
    row = ProfileRow(id=0, name=name, type=name, kind=found.kind, ins=found.ins, outs=found.outs, attrs=found.attrs)
    return with_costs(Profile(meta={}, rows=(row,)), RULES).rows[0]


def _whole_number_of(call: Counted) -> int:
    """Bytes of a tensor without axes that the trace takes for a number of the program's, because it looks the same."""
    widths = {"long int": 8, "double": 8, "c10::complex<double>": 16}
    takes_numbers = call.name.removesuffix("_") in ("aten::add", "aten::sub", "aten::mul", "aten::div")
    return widths.get(call.written.types[1], 0) if takes_numbers and call.written.dims[1] == [] else 0


@pytest.mark.slow
def test_a_trace_tells_the_price_that_a_count_tells_or_none(calls: list[Counted]) -> None:
    both, silent = set(), set()
    for call in calls:
        if call.cost is None:
            continue
        row = traced(call.name, call.written)
        if row.cost is None:
            silent.add(call.name)
            assert row.kind in (call.kind, ""), call
            continue
        if row.cost != call.cost:
            less = call.cost.bytes_read - row.cost.bytes_read
            assert less == _whole_number_of(call), (call, row)
            assert replace(row.cost, bytes_read=call.cost.bytes_read) == call.cost, (call, row)
        assert row.kind == call.kind, call
        both.add(call.name)
    print(*sorted(both), sep="\n")
    print(len(both), "operators have one price")
    assert len(both) > 400, "PyTorch has samples of far more, and what a trace tells is enough for most"
    expected = {f"aten::{name}" for names in UNTOLD.values() for name in names.split()}
    assert {name for name in silent - both if name.startswith("aten::")} <= expected


# -- operators of other devices, whose results PyTorch works out without running them -----------------------------------


def _meta(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _device_calls() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    ops = torch.ops.aten
    q, k = _meta(2, 4, 50, 16), _meta(2, 4, 30, 16)
    below_q, below_k = _meta(2, 50, 4, 16), _meta(2, 30, 4, 16)
    x, w = _meta(4, 8, 6, 6, dtype=torch.float32), _meta(8, dtype=torch.float32)
    yield ops._scaled_dot_product_flash_attention.default, (q, k, k, 0.0, True)
    yield ops._scaled_dot_product_efficient_attention.default, (q, k, k, None, True)
    yield ops._scaled_dot_product_efficient_attention.default, (q, k, k, _meta(2, 4, 50, 30), False, 0.0, True)
    yield ops._scaled_dot_product_cudnn_attention.default, (q, k, k, None, True, 0.0, True)
    yield ops._flash_attention_forward.default, (below_q, below_k, below_k, None, None, 50, 30, 0.0, True, False)
    yield ops._efficient_attention_forward.default, (below_q, below_k, below_k, *[None] * 5, 0.0, 1, True)
    yield ops.cudnn_batch_norm.default, (x, w, w, w, w, True, 0.1, 1e-5)
    yield ops.miopen_batch_norm.default, (x, w, w, w, w, True, 0.1, 1e-5)
    yield ops._batch_norm_with_update.default, (x, w, w, w, w, 0.1, 1e-5)
    yield ops.native_layer_norm.default, (_meta(4, 8), [8], _meta(8), _meta(8), 1e-5)
    yield ops._fused_rms_norm.default, (x, [6], w[:6], 1e-5)
    yield ops.native_dropout.default, (x, 0.5, True)
    yield ops._fused_dropout.default, (x, 0.5)
    weights = [_meta(24, 8), _meta(24, 6), _meta(24), _meta(24)]
    rest = (2, 6, 0, 1, False, 0.0, True, False, [], None)
    yield ops._cudnn_rnn.default, (_meta(5, 2, 8), weights, 4, None, _meta(1, 2, 6), _meta(1, 2, 6), *rest)
    single = [
        _meta(*shape, dtype=torch.float32) for shape in ((5, 2, 8), (24, 8), (24, 6), (24,), (24,), (2, 6), (2, 6))
    ]
    yield ops.mkldnn_rnn_layer.default, (*single, False, [], 2, 6, 1, True, False, False, False)
    yield ops._int_mm.default, (_meta(32, 32, dtype=torch.int8), _meta(32, 16, dtype=torch.int8))
    yield ops._addmm_activation.default, (_meta(4), _meta(3, 5), _meta(5, 4))
    yield ops.conv_tbc.default, (_meta(5, 2, 8), _meta(3, 8, 4), _meta(4), 1)


@pytest.mark.parametrize(("func", "args"), _device_calls(), ids=lambda value: getattr(value, "__name__", ""))
def test_operators_of_other_devices_have_one_price_too(func: Any, args: tuple[Any, ...]) -> None:
    call = counted(func, args, {}, func(*args))
    row = traced(call.name, call.written)
    assert (row.kind, row.cost) == (call.kind, call.cost)


BATCH, CHANNELS, FILTERS, SIDE, KERNEL = 2, 6, 4, 9, 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cudnn_convolution", ("x", "w", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False", "True")),
        ("mkldnn_convolution", ("x", "w", None, "[1, 1]", "[2, 2]", "[1, 1]", "1")),
        ("miopen_convolution", ("x", "w", None, "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False")),
        ("_slow_conv2d_forward", ("x", "w", "[3, 3]", None, "[2, 2]", "[1, 1]")),
        ("thnn_conv2d", ("x", "w", "[3, 3]", None, "[2, 2]", "[1, 1]")),
        ("convolution", ("x", "w", None, "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")),
        ("conv2d", ("x", "w", None, "[2, 2]", "[1, 1]", "[1, 1]", "1")),
    ],
)
def test_every_spelling_of_a_convolution_is_the_same_product(name: str, values: tuple[str | None, ...]) -> None:
    shapes = {"x": [BATCH, CHANNELS, SIDE, SIDE], "w": [FILTERS, CHANNELS, KERNEL, KERNEL]}
    row = traced(f"aten::{name}", _written(values, shapes))
    side = (SIDE + 2 - KERNEL) // 2 + 1
    outputs, depth = BATCH * FILTERS * side * side, CHANNELS * KERNEL * KERNEL
    read = 4 * (BATCH * CHANNELS * SIDE * SIDE + FILTERS * depth)
    assert row.cost == Cost(macs=outputs * depth, flops=2 * outputs * depth, bytes_read=read, bytes_written=4 * outputs)


def _written(values: tuple[str | None, ...], shapes: dict[str, list[int]], dtype: str = "float") -> Written:
    """An event whose tensors are named; None is nothing, other words are numbers."""
    written = Written([], [], [], [])
    for value in values:
        is_tensor = value in shapes
        kind = "" if value is None else dtype if is_tensor else "ScalarList" if value.startswith("[") else "Scalar"
        entry = (shapes[str(value)] if is_tensor else [], kind, "" if is_tensor or value is None else value, [])
        for part, each in zip(written, entry, strict=True):
            part.append(each)
    return written


# -- what a trace tells, and what it does not ---------------------------------------------------------------------------

SHAPE = [128, 512]
ELEMENTS = 128 * 512


@pytest.mark.parametrize(
    ("name", "values", "flops", "read", "made"),
    [
        ("clamp", ("x", "0", None), 1, 4, 4),  # max
        ("clamp", ("x", "0", "1"), 2, 4, 4),  # max, min
        ("add", ("x", "y", "1"), 1, 8, 4),
        ("add", ("x", "y", "2"), 2, 8, 4),  # multiply, add
        ("div", ("x", "y"), 1, 8, 4),
        ("div", ("x", "y", None), 2, 8, 4),  # divide, floor: without a rounding mode this overload is not called
        ("pow", ("x", "2"), 1, 4, 4),
        ("cumsum", ("x", "0", None), 1, 4, 4),
        ("clamp_min_", ("x", "0"), 1, 4, 4),
        ("gt", ("x", "0"), 1, 4, 1),  # truths take a byte
    ],
)
def test_arguments_decide_what_is_computed(
    name: str, values: tuple[str | None, ...], flops: int, read: int, made: int
) -> None:
    row = traced(f"aten::{name}", _written(values, {"x": SHAPE, "y": SHAPE}))
    expected = Cost(macs=0, flops=flops * ELEMENTS, bytes_read=read * ELEMENTS, bytes_written=made * ELEMENTS)
    assert row.cost == expected


def test_a_choice_is_of_the_type_of_what_is_chosen_from() -> None:
    written = _written(("condition", "x", "y"), {"condition": SHAPE, "x": SHAPE, "y": SHAPE})
    written.types[0] = "bool"
    row = traced("aten::where", written)
    assert row.cost == Cost(macs=0, flops=ELEMENTS, bytes_read=9 * ELEMENTS, bytes_written=4 * ELEMENTS)


@pytest.mark.parametrize("name", ["gelu", "cat", "index"])
def test_what_a_trace_does_not_tell_has_a_kind_and_no_price(name: str) -> None:
    written = Written([SHAPE, []], ["float", ""], ["", ""], [[], []])
    if name == "cat":
        written = Written([[SHAPE, SHAPE], []], ["TensorList", "Scalar"], ["", "0"], [[], []])
    row = traced(f"aten::{name}", written)
    assert (row.kind, row.cost) == ({"gelu": "elementwise", "cat": "copy", "index": "gather"}[name], None)


@pytest.mark.parametrize(
    "name", ["add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide"]
)
@pytest.mark.parametrize(
    ("number", "made"), [("long int", "int32"), ("double", "float32"), ("c10::complex<double>", "complex64")]
)
def test_a_number_in_the_place_of_a_tensor_is_not_read_and_decides_the_type_by_its_category(
    name: str, number: str, made: str
) -> None:
    alpha = ["1"] if name in ("add", "sub", "subtract") else []
    entries = [[], *([[]] if alpha else [])]
    written = Written(
        [SHAPE, *entries], ["int", number, *["Scalar"] * len(alpha)], ["", "", *alpha], [[512, 1], *entries]
    )
    row = traced(f"aten::{name}", written)
    divides = name in ("div", "divide", "true_divide")
    assert row.ins == (TensorSpec((128, 512), "int32"),)
    assert row.outs == (TensorSpec((128, 512), "float32" if divides and made == "int32" else made),)


def test_all_tensors_of_a_recurrent_layer_are_of_one_type() -> None:
    steps, batch, size, hidden = 5, 2, 8, 6
    states, weights = [[1, batch, hidden]] * 2, [[4 * hidden, size], [4 * hidden, hidden], [4 * hidden], [4 * hidden]]
    flags = ["True", "1", "0.", "True", "False", "False"]
    written = Written(
        [[steps, batch, size], states, weights, *[[]] * 6],
        ["c10::Half", "TensorList", "TensorList", *["Scalar"] * 6],
        ["", "", "", *flags],
        [[]] * 9,
    )
    row = traced("aten::lstm", written)
    assert row.cost is not None
    assert row.cost.macs == steps * batch * 4 * hidden * (size + hidden)
    elements = steps * batch * size + 2 * batch * hidden + 4 * hidden * (size + hidden + 2)
    assert row.cost.bytes_read == 2 * elements
    assert row.cost.bytes_written == 2 * (steps * batch * hidden + 2 * batch * hidden)


def test_results_that_are_written_where_they_are_told_have_the_type_of_that_place() -> None:
    written = Written(
        [SHAPE, [], [], [], [0]],
        ["float", "ScalarList", "Scalar", "", "double"],
        ["", "[1]", "False", "", ""],
        [[]] * 5,
    )
    row = traced("aten::sum", written)
    assert row.outs == (TensorSpec((128,), "float64"),)


def test_lists_in_a_trace_without_values_are_not_taken_for_nothing() -> None:
    """Otherwise the sum over an axis would be one over all axes."""
    row = traced("aten::sum", Written([SHAPE, [], [], []], ["float", "", "Scalar", ""], [], []))
    assert (row.kind, row.outs, row.cost) == ("reduce", (), None)


# -- words and numbers that PyTorch uses --------------------------------------------------------------------------------


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
