"""Predictions against measurements: time, memory, operators and the largest batch, of an H200, and time of the processor at hand.

    python benchmarks/predict.py left_out [WORD]    times of whole models (h200_models.json), each by laws fitted without
                                                    its family of models; WORD: only names that contain it;
                                                    --first 2500: by what a calibration of three minutes times
    python benchmarks/predict.py blind [WORD]       models that a random seed chose (h200_blind.json), measured after the fit
    python benchmarks/predict.py gains [WORD]       what a change saves, in pairs of the same models
    python benchmarks/predict.py memory [WORD]      their peak memory, and that of h200_workspaces.json.gz, also without families;
                                                    --every: all of these
    python benchmarks/predict.py language [WORD]    prefill and decode of language models (h200_language.json)
    python benchmarks/predict.py steps [WORD]       training steps (tests/data/h200_steps.json): peak memory and operators
    python benchmarks/predict.py fit [WORD]         the largest batch within 24 GiB (h200_fit.json)
    python benchmarks/predict.py hardware [WORD]    operations and bytes by Nsight Compute (tests/data/h200_counters.json)
    python benchmarks/predict.py processor [WORD] --calibration FILE
                                                    times on this processor; first: opcost calibrate --device cpu -o FILE

measure_gpu.py wrote the measured files on an H200. The calibration timed single operators of many models, those of
h200_models.json among them, which is why `left_out` leaves families out. Only `processor` measures anything here: the fastest
of several runs, on the threads of the calibration.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import left_out
import opcost
from gpu_models import OPERATORS, STEP_NETS, inputs, language_model, made
from harness import ERRORS, HERE, ROOT, Table, arguments, error_row
from opcost.advising import Alternative
from opcost.analysis.prediction.predict import predict_report
from opcost.analysis.prediction.speeds import Speeds, fit_laws
from opcost.analysis.prediction.workspaces import Workspaces
from opcost.devices.allocator import allocated_blocks
from opcost.devices.calibration import DOCUMENT, shipped
from opcost.rules import default_rules

FILES = {
    "blind": HERE / "h200_blind.json",
    "models": HERE / "h200_models.json",
    "workspaces": HERE / "h200_workspaces.json.gz",
    "language": HERE / "h200_language.json",
    "fit": HERE / "h200_fit.json",
    "steps": ROOT / "tests/data/h200_steps.json",
    "hardware": ROOT / "tests/data/h200_counters.json",
}


def content(kind: str) -> dict[str, Any]:
    found = FILES[kind].read_bytes()
    file: dict[str, Any] = json.loads(gzip.decompress(found) if FILES[kind].suffix == ".gz" else found)
    return file


def table_of(name: str, kind: str, columns: Sequence[str], detail_columns: Sequence[str] = ()) -> Table:
    """A table with the machine on which the file of a kind was measured."""
    found = content(kind)
    text = found["measured"].partition(";")[0] if "measured" in found else f"{found['device']}, torch {found['torch']}"
    return Table(name, columns, detail_columns, machine=f"{text} (measured)")


def measured(kind: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = content(kind)["models" if kind == "workspaces" else "rows"]
    chosen = [row for row in rows if options.word in row.get("name", row.get("net"))]
    return chosen[:2] if options.quick else chosen


# -- whole models ---------------------------------------------------------------------------------------------------------


def counted(row: dict[str, Any], *, training: bool) -> opcost.Report:
    """A pass, or a step with Adam, as an H200 runs it."""
    try:
        with torch.device("meta"):
            model = made(row["name"])
    except NotImplementedError:  # its constructor reads values
        model = made(row["name"])
    dtype = getattr(torch, row["dtype"])
    model = model.to(dtype).train(training)
    args, kwargs = inputs(row, dtype, next(model.parameters()).device)
    with torch.set_grad_enabled(training):
        return opcost.count(model, args, kwargs=kwargs, optimizer="Adam" if training else None, device="h200")


ROOFLINE = "CUDA graph, by the roofline of the data sheet"


def whole_models(options: argparse.Namespace, name: str, kind: str) -> None:
    """Without the graphs of transformers' models: during capture they build masks that an eager run leaves out."""
    columns = ("model", "batch", "type", "what", "measured ms", "predicted ms", "error", "in interval")
    table = table_of(name, kind, ERRORS, columns)
    errors: dict[str, list[float]] = {
        "CUDA graph": [], ROOFLINE: [], "kernels of an eager run": [],
        "kernels of a training step": [], "eager run": [], "eager training step": [],
    }  # fmt: skip
    inside: dict[str, list[bool]] = {"CUDA graph": [], "eager run": [], "eager training step": []}
    given = Speeds(fit_laws(DOCUMENT.load(options.calibration), default_rules())) if options.calibration else None
    host = json.loads(FILES[kind].read_text()).get("host")  # its calibration, where the models ran with it
    for row in sorted(measured(kind, options), key=left_out.group) if name == "left_out" else measured(kind, options):
        speeds = left_out.speeds(row, options.first) if name == "left_out" else given or Speeds(shipped("h200"))
        passes = [(counted(row, training=False), "eager run", "kernels of an eager run", "")]
        if "train_kernel_ms" in row:
            passes.append((counted(row, training=True), "eager training step", "kernels of a training step", "train_"))
        for report, eagerly, kernels, which in passes:
            graph = predict_report(report, speeds, {"device": "h200"}, calibrated=True)
            cases = [(kernels, row[f"{which}kernel_ms"], graph.kernel_ns, None)]
            if "graph_ms" in row and not which and not row["name"].startswith("hf/"):
                cases.append(("CUDA graph", row["graph_ms"], graph.latency_ns, graph.band_ns))
                if name == "left_out":
                    cases.append((ROOFLINE, row["graph_ms"], graph.ideal_ns, None))
            if host is not None:
                whole = eager_prediction(report, host)
                cases.append((eagerly, row["train_ms" if which else "eager_ms"], whole.latency_ns, whole.band_ns))
            for what, true, found, band in cases:
                errors[what].append(found / 1e6 / true - 1)
                hit = ""
                if band is not None:
                    inside[what].append(band[0] <= true * 1e6 <= band[1])
                    hit = "yes" if inside[what][-1] else "no"
                if "roofline" not in what:
                    model = (row["name"], row["batch"], row["dtype"], what)
                    table.detail(*model, round(true, 3), round(found / 1e6, 3), f"{errors[what][-1]:+.1%}", hit)
    for what, those in errors.items():
        if those:
            table.add(*error_row(what, those))
    for what, hits in inside.items():
        if hits:
            table.add(f"80 % interval, {what}", len(hits), f"{sum(hits) / len(hits):.0%} inside", "", "", "")
    table.finish(options)


def eager_prediction(report: opcost.Report, host: dict[str, Any]) -> Any:
    """What a report would take on the H200, started by a calibrated host."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "host.json"
        path.write_text(json.dumps(host))
        return opcost.predict(report, device="h200", execution="eager", host=path)


def gains(options: argparse.Namespace) -> None:
    """What `opcost advise` says of bfloat16 and of the largest measured batch, with its error, for models of images."""
    columns = ("model", "type", "batch", "measured", "predicted", "error", "within it")
    table = table_of("gains", "models", ("change", "gains", "within the error", "certain", "of these right"), columns)
    found: dict[str, dict[tuple[int, str], tuple[float, Alternative]]] = {}
    for row in measured("models", options):
        if not row["name"].startswith("hf/"):
            predicted = opcost.predict(counted(row, training=False), device="h200")
            trial = Alternative((), predicted, "image", row["batch"])
            found.setdefault(row["name"], {})[row["batch"], row["dtype"]] = row["graph_ms"] / row["batch"], trial
    results: dict[str, list[tuple[bool, bool, bool]]] = {"bfloat16": [], "batch": []}
    for name, known in found.items():
        most = {dtype: max(batch for batch, each in known if each == dtype) for _, dtype in known}
        for (batch, dtype), (time_ms, before) in known.items():
            for change, other in (("bfloat16", (batch, "bfloat16")), ("batch", (most[dtype], dtype))):
                if other in known and other != (batch, dtype):
                    after_ms, after = known[other]
                    true, gain, error = 1 - after_ms / time_ms, after.gain(before), after.error(before)
                    inside = abs(true - gain) <= error
                    results[change].append((inside, abs(gain) > error, gain * true > 0))
                    shown = [f"{100 * share:.1f} %" for share in (true, gain, error)]
                    table.detail(name, dtype, f"{batch} to {other[0]}", *shown, "yes" if inside else "no")
    for change, those in results.items():
        certain = [right for _, is_certain, right in those if is_certain]
        table.add(change, len(those), sum(inside for inside, *_ in those), len(certain), sum(certain))
    table.finish(options)


def without_family(options: argparse.Namespace) -> None:
    whole_models(options, "left_out", "models")


def blind(options: argparse.Namespace) -> None:
    whole_models(options, "blind", "blind")


SAMPLED = 6  # of the passes over images one; all take half an hour


def memory(options: argparse.Namespace) -> None:
    """What a pass, or a step with Adam, adds to what was allocated before; images also without their model's family."""
    columns = ("model", "batch", "type", "what", "measured MiB", "estimated MiB", "ratio")
    table = table_of("memory", "models", [*ERRORS, "within 6 %"], columns)
    texts, steps = "peak of a pass, texts", "peak of a step with Adam"
    images, without = "peak of a pass, images", "the same without the family"
    errors: dict[str, list[float]] = {images: [], without: [], texts: [], steps: []}

    def compare(row: dict[str, Any], what: str, added: int, before: int, peak: int) -> None:
        true = peak - before
        errors[what].append(added / true - 1)
        sizes = (round(true / 2**20, 1), round(added / 2**20, 1), f"{added / true:.2f}")
        table.detail(row["name"], row["batch"], row["dtype"], what, *sizes)

    chosen = measured("workspaces", options)[:: 1 if options.every else SAMPLED]
    for row in sorted(chosen, key=left_out.group):
        report, (_, before), (_, peak) = counted(row, training=False), row["base_bytes"], row["peak_bytes"]
        compare(row, images, added_bytes(report), before, peak)
        compare(row, without, added_bytes(report, left_out.workspaces(row)), before, peak)
    for row in measured("models", options):
        if row["name"].startswith("hf/") and "infer_peak_bytes" in row:
            added = added_bytes(counted(row, training=False))
            compare(row, texts, added, row["infer_base_bytes"], row["infer_peak_bytes"])
        if "train_peak_bytes" in row:
            added = added_bytes(counted(row, training=True))
            compare(row, steps, added, row["train_base_bytes"], row["train_peak_bytes"])
    for what, those in errors.items():
        if those:
            table.add(*error_row(what, those), f"{sum(abs(each) <= 0.06 for each in those)}")
    table.finish(options)


def added_bytes(report: opcost.Report, workspaces: Workspaces | None = None) -> int:
    """How far the peak is above what was there before, as counted or with other workspaces."""
    memory = report.memory
    lives = memory.lives
    if workspaces is None or lives is None:
        return memory.peak_bytes - memory.base_bytes
    lives = replace(lives, workspaces=[workspaces.of(row) if row.op.repeat else 0 for row in report.rows])
    blocks = allocated_blocks(lives)
    changes = [0] * (len(lives.workspaces) + 1)
    for born, dead, size in zip(lives.births, lives.deaths, blocks.sizes, strict=True):
        changes[born] += size
        changes[min(dead, len(lives.workspaces))] -= size
    return max(map(sum, zip(accumulate(changes), blocks.workspaces, strict=False)))


# -- language models --------------------------------------------------------------------------------------------------------


def language(options: argparse.Namespace) -> None:
    """By the kernels of an eager run; with a cache of fixed length masks are always built, and graphs are compared, too."""
    table = table_of(
        "language",
        "language",
        ERRORS,
        ("model", "batch", "pass", "measured ms", "predicted ms", "error", "in interval"),
    )
    errors: dict[str, list[float]] = {}
    inside: list[bool] = []
    models: dict[str, Any] = {}
    for row in measured("language", options):
        if "generate" in row:
            continue
        if row["name"] not in models:
            models = {row["name"]: language_model(row["name"], "meta")}
        passed = {name: row[name] for name in ("prefill", "decode", "cache", "static") if name in row}
        found = opcost.predict(models[row["name"]], batch=row["batch"], device="h200", **passed)
        what = "kernels of a prefill" if "prefill" in row else "kernels of a decode step"
        error = found.kernel_ns / 1e6 / row["kernel_ms"] - 1
        errors.setdefault(what, []).append(error)
        # The interval is that of the latency; it is scaled by the share of the kernels.
        low, high = (edge * found.kernel_ns / found.latency_ns / 1e6 for edge in found.band_ns)
        inside.append(low <= row["kernel_ms"] <= high)
        if "static" in row and "graph_ms" in row:
            graph = found.latency_ns / 1e6 / row["graph_ms"] - 1
            errors.setdefault("CUDA graph, static cache", []).append(graph)
        words = " ".join(f"{name}={size}" for name, size in passed.items())
        times = (row["kernel_ms"], round(found.kernel_ns / 1e6, 3))
        table.detail(row["name"], row["batch"], words, *times, f"{error:+.1%}", "yes" if inside[-1] else "no")
    for what, those in errors.items():
        table.add(*error_row(what, those))
    if inside:
        table.add("80 % interval, kernels", len(inside), f"{sum(inside) / len(inside):.0%} inside", "", "", "")
    table.finish(options)


# -- training steps -------------------------------------------------------------------------------------------------------

_VIEWS = set(
    "detach t view _unsafe_view alias transpose permute expand unsqueeze select empty empty_like ones_like".split()
)


def work(op: str) -> str | None:
    """An operator by what it computes, whichever kernel does it; None of one that only views or allocates a tensor."""
    name, *read = op.removeprefix("aten::").split()
    if name in _VIEWS:
        return None
    for kernel, kind in (("_scaled_dot_product", "attention"), ("batch_norm", "batch_norm")):
        if kernel in name:
            return f"{kind}{' backward' if 'backward' in name else ''} {read[0]}"
    return " ".join([name, *read])


def estimated_step(row: dict[str, Any]) -> tuple[int, Counter[str]]:
    """What opcost estimates of a measured step without a GPU: the peak above what was allocated, and the operators."""
    make, given = STEP_NETS[row["name"]]
    report = opcost.count(
        make().train(),
        given(),
        optimizer="AdamW",
        precision=row["precision"],
        checkpoint="blocks.*" if row["recompute"] else (),
        accumulate=row["accumulate"],
        zero_grad=row["zero_grad"],
        device="h200",
    )
    ops: Counter[str] = Counter()
    for each in report.rows:
        found = work(" ".join([each.op.raw, *[spec.dtype for spec in each.ins]]))
        if found is not None and each.op.phase != "update":
            ops[found] += each.op.repeat
    return report.memory.peak_bytes - report.memory.base_bytes, ops


def measured_operators(row: dict[str, Any], ops: list[str]) -> Counter[str]:
    return Counter(found for op in row["ran"] if (found := work(ops[op])) is not None)


def steps(options: argparse.Namespace) -> None:
    columns = (
        "net",
        "precision",
        "checkpoints",
        "passes",
        "zero_grad",
        "measured MiB",
        "estimated MiB",
        "ratio",
        "operators",
    )
    table = table_of("steps", "steps", ("net", "steps", "operators equal", "peak, lowest ratio", "highest"), columns)
    ops = json.loads(FILES["steps"].read_text())["ops"]
    ratios: dict[str, list[float]] = {}
    equal: Counter[str] = Counter()
    for row in measured("steps", options):
        added, mine = estimated_step(row)
        true, real = row["peak"] - row["base"], measured_operators(row, ops)
        different = (real - mine).total() + (mine - real).total()
        ratios.setdefault(row["name"], []).append(added / true)
        equal[row["name"]] += not different
        words = (row["name"], row["precision"], "yes" if row["recompute"] else "", row["accumulate"], row["zero_grad"])
        sizes = (round(true / 2**20, 1), round(added / 2**20, 1), f"{added / true:.3f}")
        table.detail(*words, *sizes, f"{different} of {real.total()} differ" if different else "equal")
    for name, those in ratios.items():
        table.add(name, len(those), equal[name], f"{min(those):.3f}", f"{max(those):.3f}")
    table.finish(options)


# -- the largest batch, counters, processors --------------------------------------------------------------------------------


def fit(options: argparse.Namespace) -> None:
    columns = ("net", "pass", "largest that ran", "estimated", "ratio", "peak GiB", "estimated GiB", "counts")
    table = table_of("fit", "fit", columns)
    limit = json.loads(FILES["fit"].read_text())["limit"]
    for row in measured("fit", options):
        training: dict[str, Any] = {"backward": True, "optimizer": "adamw"} if row["training"] else {}
        source = f"torchvision:{row['net']}"
        found = opcost.fit(source, memory=limit, device="h200", advise=False, **training)
        peak = opcost.count(source, batch=row["largest"], device="h200", **training).memory.peak_bytes
        ratio = f"{found.largest / row['largest']:.3f}"
        sizes = (round(row["allocated"] / 2**30, 2), round(peak / 2**30, 2), len(found.counted))
        table.add(row["net"], "train" if training else "infer", row["largest"], found.largest, ratio, *sizes)
    table.finish(options)


def hardware(options: argparse.Namespace) -> None:
    """Operations of tensor cores where they were used, of FP32 units elsewhere; bytes of the DRAM."""
    columns = ("operator", "counted, 10⁹", "hardware, 10⁹", "ratio", "units", "counted MB", "moved MB", "ratio")
    table = table_of(
        "hardware", "hardware", ("operators", "number", "equal", "hardware / counted", "bytes moved / counted"), columns
    )
    ratios: dict[str, list[tuple[float, float]]] = {}
    rows = json.loads(FILES["hardware"].read_text())["rows"]
    for name, row in list(rows.items())[: 2 if options.quick else None]:
        if options.word not in name:
            continue
        call, given = OPERATORS[name]("meta")
        cost = opcost.count(call, given).totals
        products = sum(row["tensor"].values())
        operations, own = (products, 2 * cost.macs) if products else (row["fp32"], cost.flops)
        units = ", ".join(row["tensor"]) or ("fp32" if row["fp32"] else "none")
        least, moved = cost.bytes_read + cost.bytes_written, row["read"] + row["written"]
        ratio = operations / max(1, own), moved / max(1, least)
        group = name.split()[0]
        ratios.setdefault(group if group in ("product", "conv", "attention") else "others", []).append(ratio)
        cells = [f"{own / 1e9:.4g}", f"{operations / 1e9:.4g}", f"{ratio[0]:.2f}", units]
        table.detail(name, *cells, f"{least / 1e6:.4g}", f"{moved / 1e6:.4g}", f"{ratio[1]:.2f}")
    for group, those in ratios.items():
        ranges = [f"{min(each):.2f} to {max(each):.2f}" for each in zip(*those, strict=True)]
        table.add(group, len(those), sum(f"{each[0]:.2f}" == "1.00" for each in those), *ranges)
    table.finish(options)


IMAGES = {
    "tv/resnet18": 1, "tv/resnet50": 1, "tv/mobilenet_v2": 1, "tv/vgg11": 1, "tv/densenet121": 1, "tv/efficientnet_b0": 1,
    "tv/shufflenet_v2_x1_0": 2, "tv/squeezenet1_1": 4, "tv/regnet_y_400mf": 2, "tv/mnasnet1_0": 4, "tv/resnet34": 2,
    "tv/convnext_tiny": 1, "tv/vit_b_32": 1, "tv/swin_t": 1, "timm/deit_tiny_patch16_224": 2, "timm/mixer_b16_224": 1,
    "timm/resnet26d": 1, "timm/resnext50_32x4d": 1, "timm/poolformer_s12": 1, "timm/ghostnet_100": 2,
}  # fmt: skip
"""Networks for images of 224 by 224, and their batches."""
TOKENS = {"hf/distilbert": (1, 64), "hf/gpt2": (1, 64), "hf/bert-base": (2, 64)}


def processor(options: argparse.Namespace) -> None:
    """On a single thread the time is the CPU time of the thread, which other work on the machine does not lengthen."""
    from opcost.devices.calibration import DOCUMENT

    torch.set_num_threads(int(DOCUMENT.load(options.calibration).meta["threads"]))
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    table = Table("processor", ERRORS, ("model", "measured ms", "predicted ms", "error"))
    errors, inside = [], []
    names = [name for name in (*IMAGES, *TOKENS) if options.word in name]
    with torch.no_grad():
        for name in names[:2] if options.quick else names:
            model = made(name).eval()
            text = name in TOKENS
            given = torch.zeros(TOKENS[name], dtype=torch.int64) if text else torch.randn(IMAGES[name], 3, 224, 224)
            model(given)
            taken = []
            for _ in range(5):
                start = now()
                model(given)
                taken.append((now() - start) * 1e3)
            found = opcost.predict(model, (given,), device="cpu", calibration=options.calibration)
            errors.append(found.latency_ns / 1e6 / min(taken) - 1)
            inside.append(found.band_ns[0] <= min(taken) * 1e6 <= found.band_ns[1])
            table.detail(name, round(min(taken), 2), round(found.latency_ns / 1e6, 2), f"{errors[-1]:+.1%}")
    table.add(*error_row("inference", errors))
    table.add("80 % interval", len(inside), f"{sum(inside) / len(inside):.0%} inside", "", "", "")
    table.finish(options)


CASES = {case.__name__: case for case in (blind, gains, memory, language, steps, fit, hardware, processor)}
CASES["left_out"] = without_family


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("word", nargs="?", default="", help="only names that contain this")
    parser.add_argument("--every", action="store_true", help="memory: all passes over images, and not each sixth")
    parser.add_argument("--first", type=int, help="left_out: by the first cases of a calibration's plan alone")
    parser.add_argument("--calibration", type=Path, help="processor, blind: a file of opcost calibrate")
    options = parser.parse_args()
    if options.case == "processor" and options.calibration is None:
        parser.error("processor needs --calibration FILE")
    if options.word:  # a part of the rows is not the result
        options.save = False
    if options.case != "processor":
        torch.set_num_threads(1)
    CASES[options.case](options)


if __name__ == "__main__":
    main()
