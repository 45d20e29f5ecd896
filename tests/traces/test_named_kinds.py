"""Kinds by name alone come from the table that counts the same operators, or stand once where there is none."""

from __future__ import annotations

import subprocess
import sys

from opcost.core.kinds import KINDS
from opcost.frontends.mxnet.infer import kind_of
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.table import SymbolCall
from opcost.traces import openvino
from opcost.traces.mxnet import mxnet_kind
from opcost.traces.openvino import openvino_kind

KNOWN_ONLY_IN_A_GRAPH = {
    "_CachedOp", "_CachedOpThreadSafe", "_NDArray", "_Native", "_cond", "_foreach", "_npi_Custom", "_npi_einsum", "_npx_cond",
    "_npx_foreach", "_npx_while_loop", "_while_loop", "Custom",
}  # fmt: skip
"""Operators that run other graphs, or code of the user's; and `einsum`, which may be everything."""


def test_every_operator_of_the_front_end_has_a_kind_by_its_name() -> None:
    without = {name for name in all_operators() if not mxnet_kind(name) and not name.startswith("_sg_")}
    assert without == KNOWN_ONLY_IN_A_GRAPH


def test_a_name_has_the_kind_that_the_front_end_gives_it_whatever_the_call() -> None:
    nothing: SymbolCall | None = None
    compared = 0
    for name, operator in all_operators().items():
        try:
            kind, _ = operator.meaning(nothing)  # type: ignore[arg-type]  # what looks at the call fails
        except (AttributeError, TypeError):
            continue
        compared += 1
        assert kind_of(name) == ("" if kind == "unknown" else kind), name
    assert compared >= 1000


def test_an_attribute_that_must_be_there_does_not_hide_the_kind() -> None:
    names = {
        "Convolution": "conv", "Deconvolution": "conv", "FullyConnected": "matmul", "Pooling": "pool", "RNN": "recurrent",
        "Activation": "elementwise", "LeakyReLU": "elementwise", "LRN": "norm", "UpSampling": "resize", "topk": "sort",
        "Cast": "copy", "_contrib_interleaved_matmul_selfatt_qk": "matmul", "scatter_nd": "scatter", "gather_nd": "gather",
    }  # fmt: skip
    assert {name: mxnet_kind(name) for name in names} == names


def test_dropout_that_took_time_drew_numbers() -> None:
    assert mxnet_kind("Dropout") == "random"


def test_a_gradient_has_the_kind_of_its_operator_and_an_old_name_that_of_the_new_one() -> None:
    assert mxnet_kind("_backward_Convolution") == "conv"
    assert mxnet_kind("_PlusScalar") == mxnet_kind("_plus_scalar") == "elementwise"
    assert not mxnet_kind("WaitForVar")


def test_what_is_known_only_in_a_run_is_beside_the_table() -> None:
    """A graph hands the same tensor on; where that took time, it was a copy. oneDNN names what it fused by the main part."""
    assert (kind_of("identity"), mxnet_kind("identity")) == ("view", "copy")
    assert (kind_of("_sg_onednn_conv"), mxnet_kind("_sg_onednn_conv")) == ("", "conv")


def test_openvino_has_each_name_once_and_of_a_kind_that_there_is() -> None:
    names = [name for names in openvino._NAMES.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert set(openvino.KINDS.values()) <= set(KINDS)
    assert (openvino_kind("ReduceMean"), openvino_kind("Subgraph")) == ("reduce", "")


def test_a_trace_of_another_framework_does_not_load_the_table_of_mxnet() -> None:
    code = "import sys, opcost.traces.mxnet; sys.exit(any(name.startswith('opcost.frontends.mxnet') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
