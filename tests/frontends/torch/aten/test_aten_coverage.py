from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives  # it registers operators of its own

from opcost.core.kinds import KINDS, _sides
from opcost.frontends.aten.call import HANDLERS, Constant
from opcost.frontends.aten.schema import UNKNOWN as NO_HANDLER
from opcost.frontends.aten.schema import find_handler, parse

UNKNOWN = {
    "_sparse_sparse_matmul": "its products depend on where the values of both operands are",
    "_foobar": "PyTorch's own tests",
    "_test_autograd_multiple_dispatch": "PyTorch's own tests",
    "_test_functorch_fallback": "PyTorch's own tests",
    "_test_optional_filled_intlist": "PyTorch's own tests",
    "_test_optional_floatlist": "PyTorch's own tests",
    "_test_optional_intlist": "PyTorch's own tests",
    "_test_parallel_materialize": "PyTorch's own tests",
    "_test_warn_in_autograd": "PyTorch's own tests",
}
"""Operators of aten that are not translated, and why."""

ELSEWHERE = {
    "_C": "of vLLM",
    "_C_cache_ops": "of vLLM",
    "aiter": "of aiter",
    "sgl_kernel": "of SGLang",
    "sglang": "of SGLang",
    "vllm": "of vLLM",
    "ao": "registered when activations are offloaded",
    "bitsandbytes": "of bitsandbytes",
    "bucketing": "registered by compilation",
    "c10d_functional": "of an earlier PyTorch",
    "flash_attn": "of flash-attn",
    "flex_lib": "registered with flex attention's gradient",
    "fsdp": "registered when parameters are sharded",
    "higher_order": "has no schema",
    "opcost": "registered when an optimizer with state of eight bits is counted",
    "mkl": "only in builds with MKL",
    "mkldnn": "only in builds with oneDNN",
    "mkldnn_prepacked": "only in builds with oneDNN",
    "onednn": "only in builds with oneDNN",
    "quantized_decomposed": "registered when quantized programs are exported",
    "semi_structured": "registered when a 2:4 sparse tensor is counted",
    "streams": "registered by compilation",
    "symm_mem": "only in builds with distributed support",
    "torch_attn": "registered when first used",
    "torch_nn": "registered when first used",
    "torchao": "of torchao",
    "torchvision": "of torchvision",
    "transformers": "of transformers",
}
"""Libraries whose operators need not be there in every process."""


def _schemas() -> Iterator[Any]:
    dispatched = set(torch._C._dispatch_get_all_op_names())
    for schema in torch._C._jit_get_all_schemas():
        full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        if full in dispatched:
            yield schema, full


def test_every_operator_that_can_reach_a_dispatch_mode_is_translated_or_excluded_with_a_reason() -> None:
    unknown = set()
    for schema, full in _schemas():
        if not schema.name.startswith("aten::"):
            continue
        # a composite operator is taken apart above every dispatch mode, so only its parts arrive
        if torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"):
            continue
        handler = find_handler(parse(str(schema)))[1]
        if handler is NO_HANDLER:
            unknown.add(schema.name.removeprefix("aten::"))
    assert unknown == set(UNKNOWN)


@pytest.mark.parametrize(
    "name",
    [
        "linear", "matmul", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "einsum", "bilinear", "tensordot",
        "scaled_dot_product_attention", "layer_norm", "batch_norm", "group_norm", "rms_norm", "instance_norm", "lstm",
        "gru", "rnn_tanh", "lstm_cell", "dropout", "max_pool2d", "adaptive_avg_pool2d", "softmax", "log_softmax",
        "cross_entropy_loss", "embedding", "reshape", "contiguous", "to", "flatten", "item", "pad", "fft_rfft", "stft",
        "relu6", "selu", "grid_sampler", "cdist", "square", "outer", "chunk",
    ],
)  # fmt: skip
def test_composite_operators_that_traces_name_are_translated(name: str) -> None:
    for schema, _ in _schemas():
        if schema.name == f"aten::{name}":
            assert find_handler(parse(str(schema)))[1] is not NO_HANDLER


def test_every_entry_of_the_table_is_an_operator() -> None:
    existing = set()
    for full in torch._C._dispatch_get_all_op_names():
        name = full.partition(".")[0]
        plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        existing |= {name, plain, plain.replace("::_foreach_", "::"), full}
    missing = {name for name in HANDLERS if name not in existing and name.partition("::")[0] not in ELSEWHERE}
    assert not missing


def test_fixed_entries_are_what_their_kind_says() -> None:
    faults = {}
    for name, handler in HANDLERS.items():
        if isinstance(handler, Constant):
            kind, attrs = KINDS[handler.kind], handler.attrs
            marked = (form for form in kind.forms[1:] if attrs.get(form.marked_by) not in (None, False))
            form = next(marked, kind.forms[0])
            (_, ins, _), (_, outs, _) = _sides(form.tensors)
            faults[name] = kind.fault(attrs, ins, outs)
    assert len(faults) > 900
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_an_operator_of_a_stranger_is_unknown(translated: Any, meta: Any) -> None:
    library = torch.library.Library("opcost_test_stranger", "FRAGMENT")
    library.define("mystery(Tensor x) -> Tensor")
    library.define("looks(Tensor(a) x) -> Tensor(a)")
    library.define("checks(Tensor x) -> bool")
    operators = torch.ops.opcost_test_stranger
    assert translated(operators.mystery.default, meta(2), outs=((2,),)).kind == "unknown"
    assert translated(operators.looks.default, meta(2), outs=((2,),)).kind == "view", "its schema says so"
    assert translated(operators.checks.default, meta(2)).kind == "unknown"


def test_importing_the_translation_loads_nothing_slow() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import opcost.frontends.torch.operators.calls; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in done.stdout.split(), "no part of torch that `import torch` does not load"
