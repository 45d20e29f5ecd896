"""Times whole models on the GPU at hand, and what memory they take: the rows that predict.py and memory.py are held against.

    python benchmarks/measure_models.py OUT.json [--seconds 400]              a list of models at several sizes
    python benchmarks/measure_models.py OUT.json --only regnet,mixer          those of all rows with such a name
    python benchmarks/measure_models.py OUT.json --only t5 --operators FILE   and the kernels of each operator by its shapes

Random weights, `cudnn.benchmark` on. A training step is one of Adam on the sum of what the model returns.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from language_steps import eager_ms, graph_ms
from predict import ROWS, inputs, made

IMAGES = (
    "tv/resnet18 tv/resnet50 tv/mobilenet_v3_large tv/efficientnet_b0 tv/vit_b_16 tv/swin_t tv/vgg16 tv/regnet_y_8gf "
    "tv/squeezenet1_1 tv/maxvit_t tv/inception_v3 tv/convnext_tiny tv/densenet121 tv/shufflenet_v2_x1_0 tv/alexnet "
    "tv/efficientnet_v2_s tv/swin_v2_t timm/mobilenetv4_conv_medium timm/efficientvit_b1 timm/eva02_small_patch14_224 "
    "timm/nfnet_f0 timm/pvt_v2_b1"
).split()
TEXTS = "hf/bert-base hf/gpt2 hf/qwen2-0.5b hf/whisper-tiny-encdec hf/clip-text hf/modernbert".split()


def wanted() -> list[dict[str, Any]]:
    """Every model at every size, in an order that is a fair sample wherever it is cut short."""
    rows = [
        {"name": name, "batch": batch, "dtype": dtype}
        for names, batches in ((IMAGES, (1, 8, 32, 64)), (TEXTS, (1, 8)))
        for name, batch, dtype in itertools.product(names, batches, ("bfloat16", "float32"))
    ]
    random.Random(0).shuffle(rows)
    return rows


def taken(call: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that were there before, and at the most."""
    torch.cuda.synchronize()
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    del result
    return base, peak


def launched(call: Callable[[], Any]) -> Iterator[tuple[str, list[Any], list[tuple[str, float]]]]:
    """The operators that start kernels, with the shapes that they are given and the kernels with their microseconds."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        call()
        torch.cuda.synchronize()
    for event in profiler.events():
        if event.kernels:
            outer = event
            while outer.cpu_parent is not None and outer.cpu_parent.name.startswith("aten::"):
                outer = outer.cpu_parent
            name = event.name if outer is event else f"{outer.name} > {event.name}"
            yield name, outer.input_shapes, [(kernel.name, kernel.duration) for kernel in event.kernels]


def kernels(call: Callable[[], Any], operators: list[Any] | None) -> tuple[float, int]:
    """Milliseconds of all kernels and how many they are; into `operators` goes what each one took."""
    if operators is not None:
        summed: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0, ""])
        for name, shapes, found in launched(call):
            row = summed[f"{name} {json.dumps(shapes)}"]
            row[0] += 1
            row[1] += sum(each for _, each in found)
            row[2] = "; ".join(kernel[:60] for kernel, _ in found)
        operators += [[name, *row] for name, row in summed.items()]
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        call()
        torch.cuda.synchronize()
    every = [event for event in profiler.key_averages() if event.self_device_time_total > 0]
    return sum(event.self_device_time_total for event in every) / 1e3, sum(event.count for event in every)


def measured(row: dict[str, Any], operators: dict[str, Any] | None, *, train: bool) -> dict[str, Any]:
    dtype = getattr(torch, row["dtype"])
    with torch.device("cuda"):
        model = made(row["name"])
    model = model.to("cuda", dtype).eval()
    args, kwargs = inputs(row, dtype, torch.device("cuda"))
    row = {**row, "params": sum(p.numel() for p in model.parameters())}

    def forward() -> Any:
        return model(*args, **kwargs)

    def kept(what: str) -> list[Any] | None:
        name = f"{row['name']} {row['batch']} {row['dtype']} {what}"
        return None if operators is None else operators.setdefault(name, [])

    with torch.no_grad():
        for _ in range(3):
            forward()
        row["infer_base_bytes"], row["infer_peak_bytes"] = taken(forward)
        row["eager_ms"] = round(eager_ms(forward), 4)
        taken_ms, row["kernels"] = kernels(forward, kept("infer"))
        row["kernel_ms"] = round(taken_ms, 4)
        try:
            row["graph_ms"] = round(graph_ms(forward), 4)
        except Exception as exc:  # what cannot be captured has no time of a graph; the rest is measured all the same
            row["graph_error"] = f"{type(exc).__name__}: {exc}"[:200]
            torch.cuda.synchronize()
    if train:
        model.train()
        optimizer = torch.optim.Adam(model.parameters())

        def step() -> None:
            found = [t for t in tree_leaves(forward()) if isinstance(t, torch.Tensor) and t.requires_grad]
            torch.autograd.backward(found, [torch.ones_like(t) for t in found])
            del found
            optimizer.step()
            optimizer.zero_grad()

        for _ in range(3):
            step()
        row["train_base_bytes"], row["train_peak_bytes"] = taken(step)
        row["train_ms"] = round(eager_ms(step), 4)
        taken_ms, row["train_kernels"] = kernels(step, kept("train"))
        row["train_kernel_ms"] = round(taken_ms, 4)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--operators", type=Path)
    parser.add_argument("--skip", type=int, default=0, help="rows that were measured before")
    parser.add_argument("--seconds", type=float, default=400)
    asked = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    told = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, cudnn.benchmark "
        "on; medians of 9 replays of a CUDA graph; kernels by torch.profiler; a training step with Adam"
    )
    names = asked.only.split(",")
    chosen = [row for row in (ROWS if asked.only else wanted()) if any(name in row["name"] for name in names)]
    rows: list[dict[str, Any]] = []
    operators: dict[str, Any] | None = {} if asked.operators else None
    end = time.monotonic() + asked.seconds
    for row in chosen[asked.skip :]:
        if time.monotonic() > end:
            break
        asked_for = {key: row[key] for key in ("name", "batch", "dtype", "image") if key in row}
        train = "train_kernel_ms" in row if asked.only else row["batch"] in (8, 32)
        try:
            rows.append(measured(asked_for, operators, train=train))
        except Exception as exc:  # one model that fails leaves the others
            print(f"{row['name']}: {type(exc).__name__}: {str(exc)[:300]}", file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        asked.out.write_text(f'{{"measured": {json.dumps(told)}, "rows": [\n  {lines}\n]}}\n')
    if asked.operators:
        asked.operators.write_text(json.dumps(operators))


if __name__ == "__main__":
    main()
