"""Measure on the GPU at hand what predict.py compares with predictions: times, peak memory, operators, batches, counters.

    python benchmarks/measure_gpu.py models OUT.json [--only a,b] [--rows FILE] [--operators FILE] [--seconds 400]
                                                      whole models; --operators: the kernels of each operator by its shapes
    python benchmarks/measure_gpu.py choose ROWS.json --seed N     models by a random seed, none that was measured before
    python benchmarks/measure_gpu.py language OUT.json     prefill, and one more token with a cache, of transformers' models
    python benchmarks/measure_gpu.py steps OUT.json        training steps: peak memory, and operators; needs PyTorch alone
    python benchmarks/measure_gpu.py fit OUT.json          the largest batch that runs within 24 GiB, found by trying
    python benchmarks/measure_gpu.py counters OUT.json     operations and bytes by Nsight Compute; needs `ncu`
    python benchmarks/measure_gpu.py calibration OUT.json --rows CASES.gz
                                                      the operators that operators.py has chosen

Random weights, `cudnn.benchmark` on, but off for the memory of inference; times are medians of 9 replays of a CUDA graph and of 9
eager runs, kernels are summed by torch.profiler. A training step of `models` is one of Adam on the sum of what the model
returns. `fit` limits PyTorch's allocator to 24 GiB; a batch runs if three passes, or steps with AdamW, run. `counters`: every
operator runs once under the profiler with empty caches, and a kernel between two operators separates them. With `--quick` only
the first row or two.
"""

from __future__ import annotations

import argparse
import copy
import csv
import gzip
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpu_models import (
    LANGUAGE,
    MIXED,
    OPERATORS,
    STEP_NETS,
    STEPS,
    inputs,
    language_model,
    made,
)
from harness import HERE, arguments, load_torchvision
from measure_compiled import REPLAYS, captured, replayed_ms

Call = Callable[[], Any]
Row = dict[str, Any]


# -- timing ---------------------------------------------------------------------------------------------------------------


def graph_ms(call: Call) -> float:
    """The median of the replays of a CUDA graph."""
    return replayed_ms(*captured(call))


def eager_ms(call: Call) -> float:
    taken = []
    for _ in range(REPLAYS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def kernel_sum(call: Call) -> tuple[float, int]:
    """Milliseconds and number of the kernels of an eager run."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    found = [event for event in profiler.key_averages() if event.self_device_time_total > 0]
    return sum(event.self_device_time_total for event in found) / 1e3, sum(event.count for event in found)


def timed(row: Row, call: Call) -> Row:
    """Add the times of a call to a row; an error of one of them is stored in its place."""
    for _ in range(3):
        call()
    for name, measure in (("eager", eager_ms), ("graph", graph_ms)):
        try:
            row[f"{name}_ms"] = round(measure(call), 4)
        except Exception as exc:
            row[f"{name}_error"] = f"{type(exc).__name__}: {exc}"[:200]
            torch.cuda.synchronize()
    milliseconds, row["kernels"] = kernel_sum(call)
    row["kernel_ms"] = round(milliseconds, 4)
    return row


def allocated(call: Call) -> tuple[int, int]:
    """Bytes that were allocated before a call, and at its peak."""
    torch.cuda.synchronize()
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    del result
    return base, peak


def usually_allocated(call: Call) -> tuple[int, int]:
    """The same as PyTorch runs by default: the workspaces of kernels that were not found by trying."""
    torch.backends.cudnn.benchmark = False
    try:
        call()
        return allocated(call)
    finally:
        torch.backends.cudnn.benchmark = True


def write_rows(path: Path, rows: list[Row]) -> None:
    transformers = sys.modules.get("transformers")
    words = [torch.cuda.get_device_name(), f"torch {torch.__version__}", f"cuDNN {torch.backends.cudnn.version()}"]
    words += [f"transformers {transformers.__version__}"] if transformers else []
    how = f"cudnn.benchmark on, for memory off; medians of {REPLAYS} replays of a CUDA graph; kernels by torch.profiler"
    text = f"{', '.join(words)}, {how}"
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    path.write_text(f'{{"measured": {json.dumps(text)}, "rows": [\n  {lines}\n]}}\n')


def collect(options: argparse.Namespace, rows: Iterator[Callable[[], Row | list[Row]]]) -> None:
    """Measure one after another until the time is up, and write after each; one that fails does not stop the others."""
    found: list[Row] = []
    end = time.monotonic() + options.seconds
    for measure in itertools.islice(rows, 1 if options.quick else None):
        if time.monotonic() > end:
            break
        try:
            new = measure()
            found += new if isinstance(new, list) else [new]
            print(json.dumps(found[-1]), flush=True)
        except Exception as exc:
            print(f"{type(exc).__name__}: {str(exc)[:300]}", file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
        write_rows(options.out, found)


# -- whole models ---------------------------------------------------------------------------------------------------------

IMAGES = (
    "tv/resnet18 tv/resnet50 tv/mobilenet_v3_large tv/efficientnet_b0 tv/vit_b_16 tv/swin_t tv/vgg16 tv/regnet_y_8gf "
    "tv/squeezenet1_1 tv/maxvit_t tv/inception_v3 tv/convnext_tiny tv/densenet121 tv/shufflenet_v2_x1_0 tv/alexnet "
    "tv/efficientnet_v2_s tv/swin_v2_t timm/mobilenetv4_conv_medium timm/efficientvit_b1 timm/eva02_small_patch14_224 "
    "timm/nfnet_f0 timm/pvt_v2_b1"
).split()
TEXTS = "hf/bert-base hf/gpt2 hf/qwen2-0.5b hf/whisper-tiny-encdec hf/clip-text hf/modernbert".split()


def models(options: argparse.Namespace) -> None:
    """All models at all sizes in a random order, or those of the known rows whose name contains one of the words of --only."""
    if options.rows:
        rows = json.loads(options.rows.read_text())
    elif options.only:
        known = json.loads((HERE / "h200_models.json").read_text())["rows"]
        rows = [row for row in known if any(word in row["name"] for word in options.only.split(","))]
    else:
        rows = [
            {"name": name, "batch": batch, "dtype": dtype}
            for names, batches in ((IMAGES, (1, 8, 32, 64)), (TEXTS, (1, 8)))
            for name, batch, dtype in itertools.product(names, batches, ("bfloat16", "float32"))
        ]
        random.Random(0).shuffle(rows)
    operators: dict[str, Any] = {}
    kept = operators if options.operators else None

    def measures() -> Iterator[Callable[[], Row]]:
        for row in rows[options.skip :]:
            train = row.get("train", "train_kernel_ms" in row if options.only else row["batch"] in (8, 32))
            chosen = {key: row[key] for key in ("name", "batch", "dtype", "image", "tokens") if key in row}
            yield lambda chosen=chosen, train=train: one_model(chosen, kept, train=train)

    collect(options, measures())
    if options.operators:
        options.operators.write_text(json.dumps(operators))


IMAGE_MODELS, TEXT_MODELS = 15, 5
CHOSEN_SIZES = 3e6, 150e6  # parameters
CHOSEN_TOKENS = 256
MEASURED = ("h200_models.json", "h200_blind.json", "h200_kernels.json.gz", "h200_host.json")


def choose(options: argparse.Namespace) -> None:
    """Models of timm and torchvision, and of transformers with their own configurations; no GPU is needed."""
    load_torchvision()
    import timm
    import torchvision
    import transformers

    import opcost

    known = set()
    for name in MEASURED:
        content = (HERE / name).read_bytes()
        file = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
        known |= {row["name"] for row in file["rows"]}
    draw = random.Random(options.seed)
    images = [f"timm/{name}" for name in timm.list_models()]
    images += [f"tv/{name}" for name in torchvision.models.list_models(torchvision.models)]
    texts = [
        f"hf/{name}"
        for name in dir(transformers)
        if name.endswith(("Model", "ForCausalLM")) and "PreTrained" not in name
    ]
    rows: list[Row] = []
    for names, wanted in ((images, IMAGE_MODELS), (texts, TEXT_MODELS)):
        draw.shuffle(names)
        found: list[Row] = []
        for name in names:
            if name in known or len(found) == wanted:
                continue
            try:
                with torch.device("meta"):
                    model = made(name).eval()
                size = {"tokens": CHOSEN_TOKENS} if names is texts else {"image": image_size(model)}
                row = {"name": name, **size}
                args, kwargs = inputs({**row, "batch": 1}, torch.float32, torch.device("meta"))
                report = opcost.count(model, args, kwargs=kwargs)
            except Exception as exc:  # of other inputs, or too large to be made here
                print(f"{name}: {type(exc).__name__}", file=sys.stderr)
                continue
            if CHOSEN_SIZES[0] <= report.totals.params <= CHOSEN_SIZES[1]:
                found.append(row)
        rows += found
    draw.shuffle(rows)
    sizes = (("bfloat16", 16), ("bfloat16", 1), ("float32", 8))  # if the time is up, what is missing is of all models
    every = [{**row, "dtype": dtype, "batch": batch, "train": batch == 16} for dtype, batch in sizes for row in rows]
    options.out.write_text("[\n" + ",\n".join(map(json.dumps, every)) + "\n]\n")


def image_size(model: Any) -> int:
    """The extent of the images that a model is made for."""
    return int(getattr(model, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[-1])


def one_model(row: Row, operators: dict[str, Any] | None, *, train: bool) -> Row:
    dtype = getattr(torch, row["dtype"])
    with torch.device("cuda"):
        model = made(row["name"])
    model = model.to("cuda", dtype).eval()
    args, kwargs = inputs(row, dtype, torch.device("cuda"))
    row = {**row, "params": sum(p.numel() for p in model.parameters())}

    def forward() -> Any:
        return model(*args, **kwargs)

    def list_operators(what: str, call: Call) -> None:
        if operators is not None:
            operators[f"{row['name']} {row['batch']} {row['dtype']} {what}"] = launched(call)

    with torch.no_grad():
        for _ in range(3):
            forward()
        row["infer_base_bytes"], row["infer_peak_bytes"] = usually_allocated(forward)
        timed(row, forward)
        list_operators("infer", forward)
    if train:
        model.train()
        optimizer = torch.optim.Adam(model.parameters())

        def step() -> None:
            found = [t for t in tree_leaves(forward()) if isinstance(t, Tensor) and t.requires_grad]
            torch.autograd.backward(found, [torch.ones_like(t) for t in found])
            del found
            optimizer.step()
            optimizer.zero_grad()

        for _ in range(3):
            step()
        row["train_base_bytes"], row["train_peak_bytes"] = allocated(step)
        row["train_ms"] = round(eager_ms(step), 4)
        milliseconds, row["train_kernels"] = kernel_sum(step)
        row["train_kernel_ms"] = round(milliseconds, 4)
        list_operators("train", step)
    return row


def launched(call: Call) -> list[list[Any]]:
    """The operators that launch kernels with the shapes of their inputs: calls, microseconds and names of the kernels."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        call()
        torch.cuda.synchronize()
    found: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0, ""])
    for event in profiler.events():
        if event.kernels:
            outer = event
            while outer.cpu_parent is not None and outer.cpu_parent.name.startswith("aten::"):
                outer = outer.cpu_parent
            name = event.name if outer is event else f"{outer.name} > {event.name}"
            row = found[f"{name} {json.dumps(outer.input_shapes)}"]
            row[0] += 1
            row[1] += sum(kernel.duration for kernel in event.kernels)
            row[2] = "; ".join(kernel.name[:60] for kernel in event.kernels)
    return [[name, *row] for name, row in found.items()]


# -- language models --------------------------------------------------------------------------------------------------------

LONGEST = {"gpt2": 1024, "opt-125m": 2048, "gpt-neox-410m": 2048}
"""Tokens that their positions reach."""
DECODES = [(batch, cache) for batch in (1, 8, 64) for cache in (128, 1000, 4000)]
PREFILLS = [(1, 128), (1, 1000), (8, 500), (32, 128)]
STATIC = [(1, 1000), (8, 4000)]


def filled(model: Any, batch: int, tokens: int, longest: int | None) -> Any:
    """A cache of this many tokens, dynamic or of a fixed length."""
    from transformers.cache_utils import DynamicCache, StaticCache

    config = model.config
    cache = DynamicCache(config=config) if longest is None else StaticCache(config=config, max_cache_len=longest)
    if longest is not None or batch * tokens <= 2**14:
        ids = torch.zeros(batch, tokens, dtype=torch.int64, device=model.device)
        model(input_ids=ids, past_key_values=cache, logits_to_keep=1)
        return cache
    one = filled(model, 1, tokens, None)
    for layer in one.layers:
        for name in ("keys", "values"):
            setattr(layer, name, getattr(layer, name).expand(batch, -1, -1, -1).contiguous())
    return one


def language(options: argparse.Namespace) -> None:
    options.seconds = float("inf")
    with torch.no_grad():
        collect(options, (lambda name=name: passes(name, quick=options.quick) for name in LANGUAGE))


def passes(name: str, *, quick: bool) -> list[Row]:
    from transformers.cache_utils import DynamicCache

    model = language_model(name, "cuda")
    row, rows = {"name": name, "dtype": "bfloat16"}, []
    longest = LONGEST.get(name, 2**31)

    def ids(batch: int, tokens: int) -> Tensor:
        return torch.zeros(batch, tokens, dtype=torch.int64, device="cuda")

    for batch, tokens in PREFILLS[: 1 if quick else None]:
        if tokens < longest:
            given = ids(batch, tokens)

            def prefill(given: Tensor = given) -> Any:
                return model(input_ids=given, past_key_values=DynamicCache(config=model.config), logits_to_keep=1)

            rows.append(timed({**row, "batch": batch, "prefill": tokens}, prefill))
    wanted = [(batch, tokens, None) for batch, tokens in DECODES]
    if name.startswith(("llama", "qwen")):
        wanted += [(batch, tokens, tokens + 64) for batch, tokens in STATIC]
    for batch, tokens, fixed in wanted[: 1 if quick else None]:
        if tokens >= longest:
            continue
        cache, given = filled(model, batch, tokens, fixed), ids(batch, 1)

        def decode(cache: Any = cache, given: Tensor = given) -> Any:
            again = copy.copy(cache)  # as it was before the call: layers of their own with the same tensors
            again.layers = [copy.copy(layer) for layer in cache.layers]
            return model(input_ids=given, past_key_values=again)

        static = {"static": fixed} if fixed else {}
        rows.append(timed({**row, "batch": batch, "decode": 1, "cache": tokens, **static}, decode))
        del cache, decode
        torch.cuda.empty_cache()
    if name in ("gpt2", "llama-tiny") and not quick:
        settings = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
        for _ in range(2):
            torch.cuda.synchronize()
            start = time.perf_counter()
            model.generate(ids(1, 100) + 1, **settings)
            torch.cuda.synchronize()
            taken = (time.perf_counter() - start) * 1e3
        rows.append({**row, "batch": 1, "prefill": 100, "generate": 64, "eager_ms": round(taken, 3)})
    return rows


# -- training steps -------------------------------------------------------------------------------------------------------


class Operators(TorchDispatchMode):
    """The operators that run, and the element types that they read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = [str(t.dtype)[6:] for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self.names.append(" ".join([func._schema.name, *read]))  # noqa: SLF001 - the only source of its name
        return func(*args, **(kwargs or {}))


def steps(options: argparse.Namespace) -> None:
    known: dict[str, int] = {}
    rows = []
    for name, step in itertools.product(STEP_NETS, STEPS[: 1 if options.quick else None]):
        found = one_step(name, **step)
        ran = [known.setdefault(op, len(known)) for op in found.pop("ops")]
        rows.append({"name": name, **step, **found, "ran": ran})
        torch.cuda.empty_cache()
    text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    head = f'{{"device": "h200", "torch": "{torch.__version__}",\n"ops": {json.dumps(list(known))}'
    options.out.write_text(f'{head},\n"rows": [\n{text}\n]}}\n')


def one_step(name: str, precision: str, accumulate: int, zero_grad: str, *, recompute: bool) -> Row:
    """The third step with AdamW, and the operators of forward and backward of the next."""
    make, given = STEP_NETS[name]
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model, x = make().cuda().to(dtype), given().cuda()
    x = x.to(dtype) if x.is_floating_point() else x
    model.recompute = recompute
    optimizer = torch.optim.AdamW(model.parameters())

    def backward() -> None:
        for _ in range(accumulate):
            with torch.autocast("cuda", MIXED[precision]) if precision in MIXED else nullcontext():
                loss = model(x)
            loss.backward()
            del loss

    def step() -> None:
        backward()
        optimizer.step()

    for _ in range(3):
        base, peak = allocated(step)
        optimizer.zero_grad(set_to_none=zero_grad == "none")
    with Operators() as operators:
        backward()
    return {"base": base, "peak": peak, "ops": operators.names}


# -- the largest batch ----------------------------------------------------------------------------------------------------

LIMIT = 24 << 30
FIT = {
    ("resnet50", True): 290,
    ("vit_b_16", True): 190,
    ("convnext_tiny", True): 228,
    ("efficientnet_b0", True): 281,
    ("resnet50", False): 2300,
    ("vit_b_16", False): 2950,
}
"""Nets, whether they train, and the batch that is tried first."""


def fit(options: argparse.Namespace) -> None:
    torch.cuda.set_per_process_memory_fraction(LIMIT / torch.cuda.mem_get_info()[1])
    rows = []
    for (name, training), first in itertools.islice(FIT.items(), 1 if options.quick else None):
        model = made(f"tv/{name}").cuda().train(training)
        rows.append({"net": name, "training": training, **largest(model, training=training, first=first)})
        print(rows[-1], flush=True)
    device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "limit": LIMIT, "rows": rows}
    options.out.write_text(json.dumps(device, indent=1) + "\n")


def largest(model: Any, *, training: bool, first: int) -> dict[str, int]:
    """The largest batch that runs, such that the next one does not, and its peak memory."""
    optimizer = torch.optim.AdamW(model.parameters()) if training else None
    peaks: dict[int, tuple[int, int]] = {}

    def step(images: Tensor) -> None:
        with torch.set_grad_enabled(training):
            if optimizer is None:
                model(images)
                return
            model(images).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    def runs(batch: int) -> bool:
        torch.cuda.empty_cache()
        try:
            for _ in range(3):
                torch.cuda.reset_peak_memory_stats()
                step(torch.randn(batch, 3, 224, 224, device="cuda"))
        except torch.OutOfMemoryError:
            model.zero_grad(set_to_none=True)
            return False
        peaks[batch] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return True

    stride = max(1, first // 32)
    low = high = first
    while not runs(low):
        high, low, stride = low, max(1, low - stride), 2 * stride
    while high == low:
        high, stride = low + stride, 2 * stride
        if runs(high):
            low = high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return {"largest": low, "allocated": peaks[low][0], "reserved": peaks[low][1]}


# -- counters of the hardware -----------------------------------------------------------------------------------------------

BETWEEN = "bitwise_not"
"""The kernel between two operators."""
FP32 = {
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 2,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 1,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": 1,
}
"""Instructions of single threads, and the operations of each."""
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
TENSOR = "sm__ops_path_tensor_src_"
"""Each counts the operations on one type of elements; others count the same again by instruction."""


def run_operators(_: argparse.Namespace) -> None:
    """Every operator once, after a kernel that marks its begin; this is what runs under ncu."""
    between = torch.zeros(1, dtype=torch.uint8, device="cuda")
    ready = []
    with torch.no_grad():
        for make in OPERATORS.values():
            call, given = make("cuda")
            for _ in range(3):
                call(*given)
            ready.append((call, given))
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for call, given in ready:
            torch.bitwise_not(between)
            call(*given)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def counters(options: argparse.Namespace) -> None:
    names = subprocess.run(["ncu", "--query-metrics"], check=True, capture_output=True, text=True).stdout
    found = (line.split()[0] for line in names.splitlines() if line.startswith(TENSOR) and "sparsity" not in line)
    tensor = sorted(set(found))
    metrics = [*(f"{name}.sum" for name in tensor), *FP32, *DRAM]
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"]
    command += ["--metrics", ",".join(metrics), sys.executable, __file__, "run_operators", "-"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if not lines:
        raise SystemExit(f"ncu reports nothing: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    cases: list[list[dict[str, str]]] = []
    for kernel in list(csv.DictReader(lines))[1:]:  # the first line below the names has the units
        if BETWEEN in kernel["Kernel Name"]:
            cases.append([])
        else:
            cases[-1].append(kernel)
    rows = {name: summed(kernels, tensor) for name, kernels in zip(OPERATORS, cases, strict=True)}
    text = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Nsight Compute"
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()]
    options.out.write_text(f'{{"measured": {json.dumps(text)}, "rows": {{\n' + ",\n".join(lines) + "\n}}\n")


def summed(kernels: list[dict[str, str]], tensor: list[str]) -> Row:
    def total(metric: str) -> int:
        return sum(round(float(kernel[metric].replace(",", "") or 0)) for kernel in kernels if kernel.get(metric))

    used = {name.removeprefix(TENSOR): total(f"{name}.sum") for name in tensor}
    return {
        "kernels": [kernel["Kernel Name"][:80] for kernel in kernels],
        "tensor": {name: number for name, number in used.items() if number},
        "fp32": sum(each * total(metric) for metric, each in FP32.items()),
        "read": total(DRAM[0]),
        "written": total(DRAM[1]),
    }


# -- calibration ----------------------------------------------------------------------------------------------------------


def calibration(options: argparse.Namespace) -> None:
    """Rows of a calibration: the operators in a file of cases, beside those of the package."""
    from opcost.devices.calibration import Calibration, Measured, dumps
    from opcost.recorders.calibration.plan import plan
    from opcost.recorders.calibration.run import machine, run

    device = torch.device("cuda")
    rows: list[Measured] = []
    failed: Counter[str] = Counter()
    seconds = 5 if options.quick else options.seconds

    def keep(_: int, name: str, row: Measured | None) -> None:
        rows.extend([row] if row else [])
        failed[name] += row is None

    run(device, seconds, options.skip, keep, cases=plan(options.rows))
    options.out.write_text(dumps(Calibration(device="h200", meta=machine(device), position=0, rows=tuple(rows))))
    print(f"{len(rows)} operators; failed: {dict(+failed)}")


CASES = {case.__name__: case for case in (models, choose, language, steps, fit, counters, calibration, run_operators)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--only", default="", help="models: those of the known rows whose name contains one of these words"
    )
    parser.add_argument("--operators", type=Path, help="models: write the kernels of each operator into this file")
    parser.add_argument("--rows", type=Path, help="models: a JSON list of rows; calibration: cases")
    parser.add_argument("--seed", type=int, default=0, help="choose: another seed, other models")
    parser.add_argument("--skip", type=int, default=0, help="models: rows that were measured before")
    parser.add_argument("--seconds", type=float, default=400, help="models, calibration: when to stop")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    CASES[options.case](options)


if __name__ == "__main__":
    main()
