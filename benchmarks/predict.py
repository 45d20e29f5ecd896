"""Predicted against measured times of whole models on an H200, beside the plain roofline of the data sheet.

    python benchmarks/predict.py            every row of h200_models.json, and what they add up to
    python benchmarks/predict.py resnet     only those whose name has this in it

The measured rows were taken on a device of that kind with the models of torchvision, timm and transformers, random weights;
none of them was calibrated on: the calibration times single operators of sizes drawn by chance. Nothing here needs a GPU.
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import opcost
from opcost.frontends.zoo import declare_torchvision_operators

declare_torchvision_operators()

import timm  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402

ROWS = json.loads((Path(__file__).parent / "h200_models.json").read_text())["rows"]

LANGUAGE: dict[str, tuple[Callable[[], Any], int]] = {
    "distilbert": (lambda: transformers.DistilBertModel(transformers.DistilBertConfig()), 256),
    "opt-125m": (lambda: transformers.OPTForCausalLM(transformers.OPTConfig()), 512),
    "llama-tiny": (
        lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=1024,
                intermediate_size=2816,
                num_hidden_layers=12,
                num_attention_heads=16,
                num_key_value_heads=8,
            )
        ),
        1024,
    ),
    "t5-small-enc": (lambda: transformers.T5EncoderModel(transformers.T5Config()), 256),
    "roberta": (lambda: transformers.RobertaModel(transformers.RobertaConfig()), 128),
    "bert-base": (lambda: transformers.BertModel(transformers.BertConfig()), 128),
    "gpt2": (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()), 1024),
    "qwen2-0.5b": (
        lambda: transformers.Qwen2ForCausalLM(
            transformers.Qwen2Config(
                hidden_size=896,
                intermediate_size=4864,
                num_hidden_layers=24,
                num_attention_heads=14,
                num_key_value_heads=2,
                vocab_size=151936,
            )
        ),
        1024,
    ),
    "clip-text": (lambda: transformers.CLIPTextModel(transformers.CLIPTextConfig()), 77),
    "modernbert": (lambda: transformers.ModernBertModel(transformers.ModernBertConfig()), 512),
    "whisper-tiny-encdec": (lambda: transformers.WhisperModel(transformers.WhisperConfig()), 32),
}
"""How each was made and the length of its text."""


def made(name: str) -> Any:
    library, _, model = name.partition("/")
    if library == "hf":
        return LANGUAGE[model][0]()
    if library == "timm":
        return timm.create_model(model)
    wishes = {"init_weights": False} if model == "googlenet" else {}
    return torchvision.models.get_model(model, **wishes)


def inputs(row: dict[str, Any], dtype: torch.dtype, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    library, _, model = row["name"].partition("/")
    if library == "hf":
        ids = torch.zeros(row["batch"], LANGUAGE[model][1], dtype=torch.int64, device=device)
        if model.startswith("whisper"):
            sound = torch.zeros(row["batch"], 80, 3000, dtype=dtype, device=device)
            return (), {"input_features": sound, "decoder_input_ids": ids}
        return (), {"input_ids": ids}
    extent = row.get("image", 224)
    return (torch.empty(row["batch"], 3, extent, extent, dtype=dtype, device=device),), {}


def counted(row: dict[str, Any], *, training: bool) -> opcost.Report:
    """A pass, or a step with Adam, as an H200 runs it."""
    try:
        with torch.device("meta"):
            model = made(row["name"])
    except NotImplementedError:  # it looks at numbers while it is made
        model = made(row["name"])
    dtype = getattr(torch, row["dtype"])
    model = model.to(dtype).train(training)
    args, kwargs = inputs(row, dtype, next(model.parameters()).device)
    with torch.set_grad_enabled(training):
        return opcost.count(model, args, kwargs=kwargs, optimizer="Adam" if training else None, device="h200")


def other_operators(row: dict[str, Any]) -> bool:
    """Whether the graph is not what was counted.

    While transformers' encoders are captured they build masks that they leave out in an eager run, and in bfloat16 their
    attention then takes another way.
    """
    return row["name"].startswith("hf/") and row["dtype"] == "bfloat16"


def summary(name: str, errors: list[float]) -> None:
    misses = sorted(abs(error) for error in errors)
    ninth = misses[int(0.9 * (len(misses) - 1))]
    print(
        f"{name:44} {len(misses):4} rows   median {statistics.median(misses):6.1%}   mean {statistics.mean(misses):6.1%}   "
        f"nine of ten within {ninth:6.1%}   bias {statistics.mean(errors):+6.1%}"
    )


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    graph: list[float] = []
    ideal: list[float] = []
    kernels: list[float] = []
    training: list[float] = []
    inside: list[bool] = []
    eager: list[float] = []
    eagerly_inside: list[bool] = []
    print(f"{'model':32} {'batch':>5} {'type':9} {'measured':>10} {'predicted':>10} {'error':>7}   in the band")
    for row in ROWS:
        if wanted not in row["name"]:
            continue
        report = counted(row, training=False)
        found = opcost.predict(report, device="h200")
        host = opcost.predict(report, device="h200", execution="eager")
        eager.append(host.latency_ns / 1e6 / row["eager_ms"] - 1)
        eagerly_inside.append(host.band_ns[0] <= row["eager_ms"] * 1e6 <= host.band_ns[1])
        error = found.latency_ns / 1e6 / row["graph_ms"] - 1
        kernels.append(found.kernel_ns / 1e6 / row["kernel_ms"] - 1)
        held = found.band_ns[0] <= row["graph_ms"] * 1e6 <= found.band_ns[1]
        if not other_operators(row):
            graph.append(error)
            inside.append(held)
            ideal.append(found.ideal_ns / 1e6 / row["graph_ms"] - 1)
        mark = "other operators" if other_operators(row) else "yes" if held else "no"
        print(
            f"{row['name']:32} {row['batch']:5} {row['dtype']:9} {row['graph_ms']:7.3f} ms {found.latency_ns / 1e6:7.3f} ms "
            f"{error:+7.1%}   {mark}",
            flush=True,
        )
        if "train_kernel_ms" in row:
            step = opcost.predict(counted(row, training=True), device="h200")
            training.append(step.kernel_ns / 1e6 / row["train_kernel_ms"] - 1)
            print(
                f"{'  a training step, kernels':48} {row['train_kernel_ms']:7.3f} ms {step.kernel_ns / 1e6:7.3f} ms "
                f"{training[-1]:+7.1%}"
            )
    print()
    summary("latency of a CUDA graph", graph)
    summary("the same by the data sheet's roofline", ideal)
    summary("kernels of an eager run", kernels)
    if training:
        summary("kernels of a training step with Adam", training)
    summary("latency of an eager run", eager)
    print(f"inside the band that shall hold four of five: {sum(inside) / len(inside):.0%}, ", end="")
    print(f"of eager runs {sum(eagerly_inside) / len(eagerly_inside):.0%}")


if __name__ == "__main__":
    main()
