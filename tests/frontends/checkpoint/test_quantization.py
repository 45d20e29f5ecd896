"""Quantized weights are counted as the model has them, and their scales apart; each figure is derived from its shapes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from checkpoint_making import Declared, write_safetensors

import opcost
from opcost.core.scan import Scan

IN, OUT, GROUP = 4096, 1024, 128
N = IN * OUT
NORM = {"norm.weight": ("F16", (IN,))}


def scanned(folder: Path, tensors: Declared, config: Any = None, contents: Any = None) -> Scan:
    write_safetensors(folder / "model.safetensors", {**tensors, **NORM}, contents)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return opcost.scan(folder)


def weight_of(scan: Scan) -> Any:
    (weight,) = [tensor for tensor in scan.tensors if tensor.role == "weight" and tensor.name != "norm.weight"]
    assert all(tensor.role == "scale" for tensor in scan.tensors if tensor != weight and tensor.name != "norm.weight")
    assert scan.totals.params == N + IN
    return weight


def bits_of(scan: Scan) -> float:
    """Of the quantized layer with its scales, the norm left out."""
    return 8 * (scan.totals.bytes - 2 * IN) / N


@pytest.mark.parametrize(
    "config", [None, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": GROUP}}]
)
def test_awq_packs_along_the_outputs(tmp_path: Path, config: Any) -> None:
    found = scanned(tmp_path, {
        "q.qweight": ("I32", (IN, OUT // 8)), "q.qzeros": ("I32", (IN // GROUP, OUT // 8)),
        "q.scales": ("F16", (IN // GROUP, OUT)),
    }, config)  # fmt: skip
    weight = weight_of(found)
    assert (weight.shape, weight.dtype, weight.scheme, weight.bits) == ((OUT, IN), "int4", "awq", 4)
    # four bits, and for each group of 128 a scale of sixteen bits and a zero point of four
    assert bits_of(found) == 4 + 16 / GROUP + 4 / GROUP == 4.15625
    assert found.totals.scale_bytes * 8 == N * 20 // GROUP


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq_packs_along_the_inputs(tmp_path: Path, bits: int) -> None:
    found = scanned(tmp_path, {
        "q.qweight": ("I32", (IN * bits // 32, OUT)), "q.qzeros": ("I32", (IN // GROUP, OUT * bits // 32)),
        "q.scales": ("F16", (IN // GROUP, OUT)), "q.g_idx": ("I32", (IN,)),
    })  # fmt: skip
    weight = weight_of(found)
    assert (weight.shape, weight.dtype, weight.scheme, weight.bits) == ((OUT, IN), f"int{bits}", "gptq", bits)
    assert bits_of(found) == bits + (16 + bits) / GROUP + 32 / OUT


@pytest.mark.parametrize("bits_from", ["weight_shape", "configuration"])
def test_compressed_tensors_of_four_bits(tmp_path: Path, bits_from: str) -> None:
    config = {"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": GROUP}}}}}
    found = scanned(
        tmp_path,
        {
            "q.weight_packed": ("I32", (OUT, IN // 8)), "q.weight_scale": ("BF16", (OUT, IN // GROUP)),
            "q.weight_shape": ("I64", (2,)),
        },
        config if bits_from == "configuration" else None,
        {"q.weight_shape": struct.pack("<2q", OUT, IN)} if bits_from == "weight_shape" else None,
    )  # fmt: skip
    weight = weight_of(found)
    assert (weight.shape, weight.dtype, weight.scheme) == ((OUT, IN), "int4", "compressed-tensors")
    assert bits_of(found) - 16 * 8 / N == 4 + 16 / GROUP == 4.125  # and the sixteen bytes of the shape


def test_a_row_that_does_not_fill_its_last_word_has_its_true_length(tmp_path: Path) -> None:
    write_safetensors(
        tmp_path / "m.safetensors",
        {"q.weight_packed": ("I32", (5, 3)), "q.weight_scale": ("F16", (5, 1)), "q.weight_shape": ("I64", (2,))},
        {"q.weight_shape": struct.pack("<2q", 5, 17)},
    )
    assert opcost.scan(tmp_path / "m.safetensors").totals.params == 5 * 17


def test_compressed_tensors_of_eight_bits_and_of_fp8(tmp_path: Path) -> None:
    for kind, dtype in (("I8", "int8"), ("F8_E4M3", "float8_e4m3fn")):
        found = scanned(
            tmp_path,
            {"q.weight": (kind, (OUT, IN)), "q.weight_scale": ("BF16", (OUT, 1)), "q.input_scale": ("F32", (1,))},
        )
        assert weight_of(found).dtype == dtype
        assert bits_of(found) == 8 + (16 * OUT + 32) / N


@pytest.mark.parametrize("scheme", ["compressed-tensors", "nvfp4"])
def test_nvfp4_has_a_scale_of_eight_bits_for_sixteen_weights(tmp_path: Path, scheme: str) -> None:
    names = {"compressed-tensors": ("weight_packed", "weight_global_scale"), "nvfp4": ("weight", "weight_scale_2")}[
        scheme
    ]
    found = scanned(tmp_path, {
        f"q.{names[0]}": ("U8", (OUT, IN // 2)), "q.weight_scale": ("F8_E4M3", (OUT, IN // 16)), f"q.{names[1]}": ("F32", (1,)),
        "q.input_scale": ("F32", (1,)),
    })  # fmt: skip
    weight = weight_of(found)
    assert (weight.shape, weight.dtype, weight.scheme) == ((OUT, IN), "nvfp4", scheme)
    assert bits_of(found) - 2 * 32 / N == 4 + 8 / 16 == 4.5  # and two numbers for the whole


def test_mxfp4_of_gpt_oss_has_blocks_of_32(tmp_path: Path) -> None:
    experts, rows, blocks = 8, OUT // 8, IN // 32
    found = scanned(tmp_path, {
        "mlp.experts.gate_up_proj_blocks": ("U8", (experts, rows, blocks, 16)),
        "mlp.experts.gate_up_proj_scales": ("U8", (experts, rows, blocks)),
    }, {"model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2})  # fmt: skip
    weight = weight_of(found)
    assert (weight.shape, weight.dtype, weight.scheme) == ((experts, rows, IN), "mxfp4", "mxfp4")
    assert bits_of(found) == 4 + 8 / 32 == 4.25
    assert found.totals.active_params == IN + N * 2 // 8


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_bitsandbytes_of_four_bits_with_nested_scales(tmp_path: Path, kind: str) -> None:
    state = json.dumps(
        {"quant_type": kind, "blocksize": 64, "dtype": "bfloat16", "shape": [OUT, IN], "nested_blocksize": 256}
    ).encode()
    found = scanned(
        tmp_path,
        {
            "q.weight": ("U8", (N // 2, 1)), "q.weight.absmax": ("U8", (N // 64,)), "q.weight.quant_map": ("F32", (16,)),
            "q.weight.nested_absmax": ("F32", (N // 64 // 256,)), "q.weight.nested_quant_map": ("F32", (256,)),
            f"q.weight.quant_state.bitsandbytes__{kind}": ("U8", (len(state),)),
        },
        contents={f"q.weight.quant_state.bitsandbytes__{kind}": state},
    )  # fmt: skip
    weight = weight_of(found)
    assert (weight.shape, weight.dtype, weight.scheme) == ((OUT, IN), kind, "bitsandbytes")
    # a scale of eight bits for 64 weights; the scales of scales and the maps hardly weigh
    small = (32 * (16 + 256) + 8 * len(state)) / N
    assert bits_of(found) == pytest.approx(4 + 8 / 64 + 32 / (64 * 256) + small)
    assert 4 + 8 / 64 == 4.125


def test_bitsandbytes_of_eight_bits(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"q.weight": ("I8", (OUT, IN)), "q.SCB": ("F32", (OUT,)), "q.weight_format": ("U8", ())})
    assert (weight_of(found).dtype, weight_of(found).scheme) == ("int8", "bitsandbytes")
    assert bits_of(found) == 8 + (32 * OUT + 8) / N


def test_fp8_with_a_scale_for_each_block(tmp_path: Path) -> None:
    found = scanned(tmp_path, {
        "q.weight": ("F8_E4M3", (OUT, IN)), "q.weight_scale_inv": ("F32", (OUT // 128, IN // 128)), "attn.k_scale": ("F32", ()),
        "attn.v_scale": ("F32", ()),
    })  # fmt: skip
    assert (weight_of(found).scheme, weight_of(found).type) == ("fp8", "float8_e4m3fn")
    assert bits_of(found) == 8 + 32 / 128**2 + 64 / N


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("config", [True, False])
def test_mlx_has_a_scale_and_a_bias_for_64_weights(tmp_path: Path, bits: int, config: bool) -> None:
    found = scanned(tmp_path, {
        "q.weight": ("U32", (OUT, IN * bits // 32)), "q.scales": ("F16", (OUT, IN // 64)), "q.biases": ("F16", (OUT, IN // 64)),
    }, {"quantization": {"bits": bits, "group_size": 64}} if config else None)  # fmt: skip
    weight = weight_of(found)
    assert (weight.shape, weight.dtype, weight.scheme) == ((OUT, IN), f"int{bits}", "mlx")
    assert bits_of(found) == bits + 16 / 64 + 16 / 64
    assert bits != 4 or bits_of(found) == 4.5


def test_a_layer_of_mlx_may_have_bits_of_its_own(tmp_path: Path) -> None:
    tensors = {
        "q.weight": ("U32", (OUT, IN * 8 // 32)),
        "q.scales": ("F16", (OUT, IN // 32)),
        "q.biases": ("F16", (OUT, IN // 32)),
    }
    found = scanned(
        tmp_path, tensors, {"quantization": {"bits": 4, "group_size": 64, "q": {"bits": 8, "group_size": 32}}}
    )
    assert weight_of(found).dtype == "int8"


def test_a_bias_that_is_called_biases_stays_a_parameter_where_nothing_is_quantized(tmp_path: Path) -> None:
    found = opcost.scan(write_safetensors(tmp_path / "m.safetensors", {
        "q.weight": ("F16", (4, 4)), "q.biases": ("F16", (4,)), "clip.logit_scale": ("F32", ()), "q.input_scale": ("F32", ()),
    }))  # fmt: skip
    assert found.totals.params == 16 + 4 + 1 + 1


def test_integers_that_fit_no_scheme_are_counted_as_stored_and_noted(tmp_path: Path) -> None:
    found = opcost.scan(write_safetensors(tmp_path / "m.safetensors", {"q.codes": ("I16", (512, 512))}))
    assert found.totals.params == 512 * 512
    assert [note.code for note in found.notes] == ["integers"]


def test_a_checkpoint_of_four_bits_says_seventy_billion(tmp_path: Path) -> None:
    """Llama 3 of 70B in AWQ: embeddings and head of 128,256 tokens in half, eighty layers in four bits."""
    width, inner, vocabulary = 8192, 28672, 128256
    linear = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (width, 1024), "self_attn.v_proj": (width, 1024),
              "self_attn.o_proj": (width, width), "mlp.gate_proj": (width, inner), "mlp.up_proj": (width, inner),
              "mlp.down_proj": (inner, width)}  # fmt: skip
    tensors: dict[str, Any] = {"model.embed_tokens.weight": ("F16", (vocabulary, width)),
                               "lm_head.weight": ("F16", (vocabulary, width)),
                               "model.norm.weight": ("F16", (width,))}  # fmt: skip
    for layer in range(80):
        for name, (inputs, outputs) in linear.items():
            stem = f"model.layers.{layer}.{name}"
            tensors[f"{stem}.qweight"] = ("I32", (inputs, outputs // 8))
            tensors[f"{stem}.qzeros"] = ("I32", (inputs // 128, outputs // 8))
            tensors[f"{stem}.scales"] = ("F16", (inputs // 128, outputs))
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = ("F16", (width,))
    found = opcost.scan(write_safetensors(tmp_path / "model.safetensors", tensors))
    weights = 80 * sum(inputs * outputs for inputs, outputs in linear.values())
    assert found.totals.params == weights + 2 * vocabulary * width + (2 * 80 + 1) * width == 70_553_706_496
    table = found.render("table", width=80)
    assert "model.layers.{0..79}.mlp.*" in table
    assert max(map(len, table.splitlines())) <= 80
    assert "70.55 G" in table
    (line,) = [line for line in found.by_layer() if line.name == "model.layers.{0..79}.mlp.*"]
    assert line.params == 80 * 3 * width * inner
    assert line.bits == 4.15625
