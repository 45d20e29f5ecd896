"""Operators of the newest versions of ONNX and ONNX Runtime, with the numbers that follow from their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_making import Written, helper, integers, onnx, tensor, weight

import opcost
from opcost.core.report import Report
from opcost.errors import InputError

MICROSOFT = "com.microsoft"
PREVIEW, TRAINING = "ai.onnx.preview", "ai.onnx.preview.training"


def single(
    written: Written, op: str, inputs: dict[str, tuple[int, ...]], outputs: int = 1, domain: str = "", **more: Any
) -> Report:
    """The count of one node that reads these inputs; an empty shape name leaves one out."""
    names = [name if not name.startswith("-") else "" for name in inputs]
    outs = [f"y{n}" for n in range(outputs)]
    stored = more.pop("stored", [])
    node = helper.make_node(op, names, outs, domain=domain, **more)
    fixed = {each.name for each in stored}
    given = [tensor(name, *shape) for name, shape in inputs.items() if name not in fixed and not name.startswith("-")]
    ends = [helper.make_empty_tensor_value_info(name) for name in outs]
    report = opcost.count(written([node], given, stored, ends))
    assert not report.totals.uncounted
    return report


def shapes(report: Report) -> list[Any]:
    return [output.shape for output in report.outputs]


# -- linear attention ---------------------------------------------------------------------------------------------------

B, T, HEADS, GROUPS, DEEP, WIDE = 2, 5, 4, 2, 3, 7
QKV = {"q": (B, T, HEADS * DEEP), "k": (B, T, GROUPS * DEEP), "v": (B, T, GROUPS * WIDE)}
SIZES = {"q_num_heads": HEADS, "kv_num_heads": GROUPS}


def test_a_rule_that_does_not_exist_is_refused(written: Written) -> None:
    with pytest.raises(InputError, match="update rule is 'delat'"):
        single(written, "LinearAttention", QKV, 2, update_rule="delat", **SIZES)


# -- causal convolutions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_a_causal_convolution_keeps_what_the_next_call_needs(written: Written, activation: str) -> None:
    channels, kernel = 6, 4
    inputs = {"x": (B, channels, T), "w": (channels, 1, kernel), "b": (channels,), "past": (B, channels, kernel - 1)}
    stored = [weight("w", channels, 1, kernel), weight("b", channels)]
    report = single(written, "CausalConvWithState", inputs, 2, stored=stored, activation=activation)
    elements = B * channels * T
    assert report.totals.macs == elements * kernel
    assert report.totals.flops == 2 * elements * kernel + elements * (1 + 5 * (activation == "silu"))
    assert report.totals.params == channels * kernel + channels
    assert shapes(report) == [(B, channels, T), (B, channels, kernel - 1)]


# -- attention ----------------------------------------------------------------------------------------------------------

FLEX = {"q": (B, HEADS, T, DEEP), "k": (B, GROUPS, 9, DEEP), "v": (B, GROUPS, 9, WIDE)}


def test_graphs_inside_flexible_attention_are_counted(written: Written) -> None:
    def graph(op: str) -> Any:
        node = helper.make_node(op, ["scores"], ["changed"])
        return helper.make_graph(
            [node], op, [tensor("scores", None, None, None, None)], [helper.make_empty_tensor_value_info("changed")]
        )

    plain = single(written, "FlexAttention", FLEX, 1, PREVIEW).totals
    report = single(written, "FlexAttention", FLEX, 1, PREVIEW, score_mod=graph("Tanh"), prob_mod=graph("Relu"))
    scores = B * HEADS * T * 9
    assert (report.totals.macs, report.totals.flops) == (plain.macs, plain.flops + scores * (5 + 1))
    assert shapes(report) == [(B, HEADS, T, WIDE)]


# -- functions of each element, optimizers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "states", "step", "more", "attrs"),
    [
        ("Adam", 2, 14, 0, {}),
        ("Adam", 2, 14, 2 + 1, {"norm_coefficient": 0.1, "norm_coefficient_post": 0.1}),
        ("Adagrad", 1, 6, 0, {}),
        ("Momentum", 1, 4, 0, {"alpha": 0.9, "beta": 1.0, "norm_coefficient": 0.0, "mode": "standard"}),
        ("Momentum", 1, 4, 2 + 1 + 2, {"alpha": 0.9, "beta": 0.5, "norm_coefficient": 0.1, "mode": "nesterov"}),
    ],
)
def test_optimizers_step_for_all_parameters(
    written: Written, op: str, states: int, step: int, more: int, attrs: dict[str, Any]
) -> None:
    both = {"x": (3, 4), "z": (5,)}
    inputs: dict[str, tuple[int, ...]] = {"rate": (), "count": ()}
    for part in ("", "g", *[f"s{n}" for n in range(states)]):
        inputs |= {f"{name}{part}": shape for name, shape in both.items()}
    report = single(written, op, inputs, 2 * (1 + states), TRAINING, **attrs)
    assert report.totals.flops == (3 * 4 + 5) * (step + more)
    assert shapes(report) == [(3, 4), (5,)] * (1 + states)


# -- products -----------------------------------------------------------------------------------------------------------


def test_packed_projections_share_a_normalization(written: Written) -> None:
    deep, q, kv, block = 64, 32, 16, 32
    weights = {"q": q, "k": kv, "v": kv}
    inputs: dict[str, tuple[int, ...]] = {"x": (B, T, deep), "skip": (B, T, deep), "norm": (deep,)}
    stored = [weight("norm", deep)]
    for name, width in weights.items():
        inputs |= {f"{name}w": (), f"{name}s": (), f"-{name}b": ()}
        stored += [
            weight(f"{name}w", width, deep // block, block // 2, dtype=np.uint8),
            weight(f"{name}s", width * deep // block),
        ]
    report = single(
        written, "MatMulNBitsQkv", inputs, 4, MICROSOFT, stored=stored, K=deep, Nq=q, Nkv=kv, block_size=block, bits=4
    )
    assert report.totals.macs == B * T * deep * (q + 2 * kv)
    assert report.totals.flops == 2 * report.totals.macs + B * T * deep * (1 + 4)
    assert report.totals.params == deep + deep * (q + 2 * kv)
    assert shapes(report) == [(B, T, q), (B, T, kv), (B, T, kv), (B, T, deep)]


def test_a_packed_gated_block_multiplies_gate_and_up(written: Written) -> None:
    deep, wide, block = 64, 48, 32
    names = ["gw", "gs", "uw", "us"]
    inputs = {"x": (B, T, deep), "-skip": (), "-norm": (), "gw": (), "gs": (), "-gb": (), "uw": (), "us": ()}
    stored = [
        weight(n, wide, deep // block, block // 2, dtype=np.uint8) if n[1] == "w" else weight(n, wide * deep // block)
        for n in names
    ]
    attrs = {"K": deep, "N": wide, "block_size": block, "activation": "silu"}
    report = single(written, "MatMulNBitsMlp", inputs, 1, MICROSOFT, stored=stored, **attrs)
    assert report.totals.macs == 2 * B * T * deep * wide
    assert report.totals.flops == 2 * report.totals.macs + B * T * wide * (5 + 1)
    assert report.totals.params == 2 * deep * wide


def test_weights_of_four_bits_are_counted_as_they_are_meant(written: Written) -> None:
    deep, wide = 64, 48
    stored = [weight("w", wide, deep // 2, dtype=np.uint8), weight("s", wide, deep // 16, dtype=np.uint8)]
    inputs = {"x": (B, deep), "w": (), "s": (), "g": ()}
    report = single(written, "MatMulBlockQuantizedFp4Weight", inputs, 1, MICROSOFT, stored=stored)
    assert (report.totals.macs, report.totals.params) == (B * deep * wide, deep * wide)


# -- graphs -------------------------------------------------------------------------------------------------------------


def test_a_graph_runs_for_every_tensor_of_a_sequence(written: Written) -> None:
    body = helper.make_graph(
        [helper.make_node("MatMul", ["item", "w"], ["product"])],
        "body",
        [tensor("item", None, 4), tensor("w", 4, 3)],
        [helper.make_empty_tensor_value_info("product")],
    )
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["both"]),
        helper.make_node("SequenceMap", ["both", "w"], ["made"], body=body),
        helper.make_node("SequenceAt", ["made", "second"], ["y"]),
    ]
    path = written(nodes, [tensor("a", 2, 4), tensor("b", 5, 4)], [weight("w", 4, 3), integers("second", 1)])
    report = opcost.count(path)
    assert (report.totals.macs, shapes(report)) == ((2 + 5) * 4 * 3, [(5, 3)])


# -- what PyTorch's newer exporter says ---------------------------------------------------------------------------------


def test_constants_that_are_no_parameters_of_the_module_are_known_by_its_signature(written: Written) -> None:
    """A Linear whose weight was turned, a scale with axes around it, a table that was looked up in, and a constant mask."""
    deep, wide, tokens = 6, 4, 3

    def node(op: str, inputs: list[str], output: str, traced: str, path: str) -> Any:
        made = helper.make_node(op, inputs, [output], output)
        made.metadata_props.add(key="pkg.torch.onnx.fx_node", value=f"%{output} = call_function[](args = ({traced}))")
        made.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(["", path, output]))
        return made

    nodes = [
        node("MatMul", ["x", "val_0"], "val_1", "%x, %p_fc_weight, %p_fc_bias", "fc"),
        node("Add", ["val_1", "fc.bias"], "linear", "%x, %p_fc_weight, %p_fc_bias", "fc"),
        node("Mul", ["linear", "view"], "mul", "%linear, %view", "scale"),
        node("Add", ["mul", "index"], "add", "%mul, %index", "bias"),
        node("Add", ["add", "mask"], "masked", "%add, %c_mask", "mask"),
        node("Sub", ["masked", "mean"], "y", "%masked, %b_mean", ""),
    ]
    stored = [
        weight("val_0", deep, wide), weight("fc.bias", wide), weight("view", 1, wide), weight("index", tokens, wide),
        weight("mask", tokens, wide), weight("mean", wide),
    ]  # fmt: skip
    path = written(nodes, [tensor("x", tokens, deep)], stored)
    model = onnx.load(path)
    signature = "# inputs\n" + "\n".join(
        f"{called}: {part} target='{target}'{more}"
        for called, part, target, more in (
            ("p_fc_weight", "PARAMETER", "fc.weight", ""),
            ("p_fc_bias", "PARAMETER", "fc.bias", ""),
            ("p_scale_gamma", "PARAMETER", "scale.gamma", ""),
            ("p_bias_table", "PARAMETER", "bias.table", ""),
            ("b_mean", "BUFFER", "mean", " persistent=True"),
        )
    )
    model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
    path.write_bytes(model.SerializeToString())
    report = opcost.count(path)
    assert report.totals.params == deep * wide + wide + wide
    assert report.totals.buffers == wide
    notes = [note.text for note in report.notes if note.code == "folded-weights"]
    assert notes == ["parameters that the exporter folded into constants or merged with equal ones: bias.table"]


def test_a_long_signature_is_read(written: Written) -> None:
    """It is in a field that is too large to be read for nothing."""
    path = written([helper.make_node("Add", ["x", "w"], ["y"])], [tensor("x", 4)], [weight("w", 4)])
    model = onnx.load(path)
    lines = "".join(f"p_{n}: PARAMETER target='block.{n}.weight'\n" for n in range(5000))
    model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=lines)
    path.write_bytes(model.SerializeToString())
    report = opcost.count(path)
    assert report.totals.params == 0
    assert "block.0.weight" in report.notes[0].text
