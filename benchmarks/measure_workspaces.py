"""Measure on the GPU at hand the memory that convolutions take beside their results, and the peak memory of whole models.

    python benchmarks/measure_workspaces.py choose CASES.json.gz         which ones: needs timm and torchvision, and no GPU
    python benchmarks/measure_workspaces.py measure OUT.json.gz [--cases CASES.json.gz] [--seconds 75] [--jobs 12]

`cudnn.benchmark` is off, as PyTorch has it: what a convolution takes is then the same in every run. Several processes share the
GPU, for nothing is timed. Two fifths of the seconds are for convolutions, the rest for models in eager inference; what matters
most is first, and what is not reached is left out.

Bytes are those requested of PyTorch's allocator, and those of its blocks. A convolution is what `aten::convolution` is called
with, its type, whether its image (1) or image and weight (2) are channels-last, and which gradients are wanted, forward none.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpu_models import inputs, made
from harness import HERE, arguments, load_torchvision

FOR_CONVOLUTIONS = 0.4
GRACE = 8  # seconds that a process may take longer
KEPT = 2 << 30  # of freed memory, by each process
LARGEST = 1 << 30  # bytes of image and result
HIGHEST = 6  # operators of a model that are listed, those at which most memory is in use
ERRORS = (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, ImportError, AssertionError)


class Convolution(NamedTuple):
    """As it is called, without its numbers."""

    image: list[int]
    weight: list[int]
    bias: int
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: int
    output_padding: list[int]
    groups: int
    dtype: str
    layout: int
    wanted: list[int] | None


# -- which ones -----------------------------------------------------------------------------------------------------------

SEEN = ("h200_models.json", "h200_blind.json")
OTHER_MODELS = 150
SIZES = ((1, "bfloat16"), (1, "float32"), (8, "bfloat16"), (8, "float32"), (32, "bfloat16"), (32, "float32"))
BACKWARD_SIZES = ((16, "bfloat16"), (8, "float32"))
LAST_SIZES = ((2, "bfloat16"), (64, "bfloat16"), (2, "float32"))


class Convolutions(TorchDispatchMode):
    """The convolutions that a model calls."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Convolution] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            image, weight, bias, stride, padding, dilation, transposed, more, groups = args
            case = Convolution(
                list(image.shape), list(weight.shape), int(bias is not None), list(stride), list(padding), list(dilation),
                int(transposed), list(more), groups, "float32", last(image) * (1 + last(weight)), None,
            )  # fmt: skip
            self.found.setdefault(json.dumps(case), case)
        return func(*args, **(kwargs or {}))


def last(tensor: Any) -> int:
    """Whether its channels are side by side."""
    if tensor.dim() != 4 or tensor.is_contiguous():
        return 0
    return int(tensor.is_contiguous(memory_format=torch.channels_last))


def convolutions(name: str, image: int | None) -> tuple[list[Convolution], int]:
    """Those of a model on one image, and the extent of that."""
    try:
        with torch.device("meta"):
            model = made(name).eval()
    except NotImplementedError:  # its constructor reads numbers
        model = made(name).eval().to("meta")
    with torch.device("meta"), torch.no_grad():
        size = image or getattr(model, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[-1]
        with Convolutions() as mode:
            model(torch.empty(1, 3, size, size))
    return list(mode.found.values()), size


def choose(options: argparse.Namespace) -> None:
    """The convolutions of measured models, of one model of each family in turn, and the models whose peak is measured."""
    load_torchvision()
    from operators import in_turn, sources

    rows = [row for file in SEEN for row in json.loads((HERE / file).read_text())["rows"]]
    sized = {(row["name"], row.get("image")): None for row in rows if not row["name"].startswith("hf/")}
    family = {name: group for group, names in sources().items() for name in names}
    families: dict[str, set[str]] = {}
    cases: dict[str, Convolution] = {}

    def add(name: str, image: int | None = None) -> int:
        group = family[name.replace("tv/", "torchvision:").replace("timm/", "timm:")]
        try:
            found, extent = convolutions(name, image)
        except Exception as exc:  # of inputs of another size, or of what meta tensors cannot do
            print(f"{name}: {type(exc).__name__}: {str(exc)[:100]}", file=sys.stderr)
            return 0
        for case in found:
            cases.setdefault(json.dumps(case), case)
            families.setdefault(json.dumps(case), set()).add(group)
        return extent

    for name, image in sized:
        add(name, image)
    seen = len(cases)
    end, others = time.monotonic() + options.seconds, dict[str, int]()
    known = {row["name"] for row in rows}
    groups = {group: names for group, names in sources().items() if not group.startswith("hf ")}
    for _, source in (each for one in in_turn(groups) for each in one):
        name = source.replace("torchvision:", "tv/").replace("timm:", "timm/")
        if time.monotonic() < end and (extent := add(name)) and name not in known:
            others[name] = extent
    names = sorted({group for groups in families.values() for group in groups})
    of = [[names.index(group) for group in sorted(families[key])] for key in cases]
    chosen = [[*case, number] for number, case in enumerated(list(cases.values()), seen)]
    models = peaks([row for row in rows if not row["name"].startswith("hf/")], others)
    file = {"families": names, "of": of, "rows": chosen, "models": models}
    options.out.write_bytes(gzip.compress(json.dumps(file, separators=(",", ":")).encode(), 9, mtime=0))
    print(f"{len(cases):,} convolutions, {seen:,} of measured models; {len(chosen):,} rows, {len(models)} models")


def enumerated(cases: list[Convolution], seen: int) -> Iterator[tuple[int, Convolution]]:
    """Each at several sizes: those of measured models first, then others in a random order; what matters most first."""
    others = list(range(seen, len(cases)))
    random.Random(0).shuffle(others)

    def each(sizes: tuple[tuple[int, str], ...]) -> Iterator[tuple[int, Convolution]]:
        for numbers in (range(seen), others):
            for batch, dtype in sizes:
                yield from ((number, sized(cases[number], batch, dtype)) for number in numbers)

    yield from each(SIZES)
    for number, case in each(SIZES[:4]):
        if len(case.image) == 4 and case.layout == 0:
            yield number, case._replace(layout=2)
    for number, case in each(BACKWARD_SIZES):
        yield number, case._replace(wanted=[int(case.image[1] > 4), 1, case.bias])
    yield from each(LAST_SIZES)


def sized(case: Convolution, batch: int, dtype: str) -> Convolution:
    """The same on more images, or as many as a model makes of them."""
    return case._replace(image=[batch * case.image[0], *case.image[1:]], dtype=dtype)


def peaks(rows: list[dict[str, Any]], others: dict[str, int]) -> list[dict[str, Any]]:
    """Models of which the peak is measured: every one once, then at other sizes, then models that nothing is known of."""
    keys = ("name", "batch", "dtype", "image")
    known = [{key: row[key] for key in keys if key in row} for row in rows]
    known = [row for number, row in enumerate(known) if row not in known[:number]]
    nth: Counter[str] = Counter()
    order = []
    for row in sorted(known, key=lambda row: (row["batch"], row["dtype"])):
        order.append((nth[row["name"]], row))
        nth[row["name"]] += 1
    ranked = [row for _, row in sorted(order, key=lambda each: each[0])]
    some = list(others.items())[:OTHER_MODELS]
    new = [
        {"name": name, "batch": batch, "dtype": dtype, "image": image}
        for batch, dtype in SIZES[:4:3]
        for name, image in some
    ]
    names, half = len({row["name"] for row in known}), len(some) // 2
    return ranked[:names] + new[:half] + ranked[names:] + new[half:]


# -- one process ----------------------------------------------------------------------------------------------------------

Bytes = tuple[int, int]
"""Requested of the allocator, and in its blocks."""


def in_use(which: str) -> Bytes:
    if not torch.cuda.is_available():
        return 0, 0
    stats = torch.cuda.memory_stats()
    return stats.get(f"requested_bytes.all.{which}", 0), stats.get(f"allocated_bytes.all.{which}", 0)


def over(call: Callable[[], Any]) -> tuple[Bytes, Bytes, Bytes, Any]:
    """What was in use before a call, at its peak and after it, and what it returns."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    before = in_use("current")
    result = call()
    return before, in_use("peak"), in_use("current"), result


def workspace(row: list[Any], device: torch.device) -> list[int]:
    """What a convolution takes, requested and in blocks."""
    case = Convolution(*row[: len(Convolution._fields)])
    dtype = getattr(torch, case.dtype)
    ordered = torch.channels_last if case.layout else torch.contiguous_format
    image = torch.empty(case.image, dtype=dtype, device=device, memory_format=ordered)
    own = torch.channels_last if case.layout == 2 else torch.contiguous_format
    weight = torch.empty(case.weight, dtype=dtype, device=device, memory_format=own)
    results = case.weight[1] * case.groups if case.transposed else case.weight[0]
    bias = torch.empty(results, dtype=dtype, device=device) if case.bias else None
    how = (case.stride, case.padding, case.dilation, bool(case.transposed), case.output_padding, case.groups)
    shape = torch.ops.aten.convolution.default(image.to("meta"), weight.to("meta"), None, *how).shape
    if (image.numel() + shape.numel()) * dtype.itemsize > LARGEST:
        raise ValueError("too large")
    if case.wanted is None:

        def call() -> Any:
            return torch.ops.aten.convolution.default(image, weight, bias, *how)
    else:
        gradient = torch.empty(shape, dtype=dtype, device=device, memory_format=ordered)
        wanted = [bool(each) for each in case.wanted]

        def call() -> Any:
            sizes = [results] if case.bias else [0]
            return torch.ops.aten.convolution_backward.default(gradient, image, weight, sizes, *how, wanted)

    call()  # the first call tries what may not fit
    before, most, after, _ = over(call)
    return [most[i] - max(before[i], after[i]) for i in (0, 1)]


class Highest(TorchDispatchMode):
    """Operators of a model, and the memory in use before, at most, and after each."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before, most, after, result = over(lambda: func(*args, **(kwargs or {})))
        shapes = [[list(each.shape), last(each)] for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
        self.found.append((most[0], [str(func), before[0], most[0], after[0], shapes]))
        return result


def peak(row: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The peak memory of a model in eager inference, and where it is."""
    dtype = getattr(torch, row["dtype"])
    with device:
        model = made(row["name"])
    model = model.to(device, dtype).eval()
    args, kwargs = inputs(row, dtype, device)
    for _ in range(2):
        model(*args, **kwargs)
    before, most, _, _ = over(lambda: model(*args, **kwargs))
    with Highest() as highest:
        model(*args, **kwargs)
    at = [each for _, each in sorted(highest.found, key=lambda each: -each[0])[:HIGHEST]]
    return {**row, "base_bytes": before, "peak_bytes": most, "at": at}


def one_process(options: argparse.Namespace) -> None:
    """Every n-th of the cases from a given one on: a line for each, so that what was measured stays if the process dies."""
    torch.backends.cudnn.benchmark = False
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_per_process_memory_fraction(0.9 / options.jobs)
        for dtype in (torch.float32, torch.bfloat16):
            square = torch.ones(64, 64, dtype=dtype, device=device)
            square @ square  # libraries take their own memory once
    file = json.loads(gzip.decompress(options.cases.read_bytes()))
    kinds: tuple[tuple[str, list[Any], float, Callable[..., Any]], ...] = (
        ("rows", file["rows"], options.begun + FOR_CONVOLUTIONS * options.seconds + GRACE, workspace),
        ("models", file["models"], options.begun + options.seconds, peak),
    )
    with options.out.open("a") as out, torch.no_grad():
        for kind, cases, end, measure in kinds:
            for number in range(options.first, len(cases), options.jobs):
                position = number + (len(file["rows"]) if kind == "models" else 0)
                if position <= options.after:
                    continue
                if time.time() > end:
                    break
                out.write(f'["{kind}", {number}, ')  # an unfinished line says which case took the process down
                out.flush()
                try:
                    found: Any = measure(cases[number], device)
                    if on_gpu and number // options.jobs % 64 == 0:
                        torch.cuda.synchronize()
                except ERRORS as exc:
                    found = f"{type(exc).__name__}: {str(exc)[:100]}"
                out.write(json.dumps(found) + "]\n")
                if on_gpu and isinstance(found, str):
                    out.flush()
                    go_on(position)
                if on_gpu and (kind == "models" or torch.cuda.memory_reserved() > KEPT):
                    torch.cuda.empty_cache()  # raises where the device can no longer be used


def go_on(position: int) -> None:
    """Begin anew behind this case if it has left the device unusable."""
    try:
        torch.cuda.synchronize()
    except ERRORS:
        os.execv(sys.executable, [sys.executable, *sys.argv, "--after", str(position)])


# -- all of them ----------------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> None:
    """Start the processes, and collect what they wrote."""
    begun = time.time()
    folder = Path(tempfile.mkdtemp())
    parts = [folder / str(first) for first in range(options.jobs)]
    command = [sys.executable, __file__, "one_process"]
    shared = ["--cases", str(options.cases), "--jobs", str(options.jobs), "--seconds", str(options.seconds)]
    shared += ["--begun", str(begun)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = []
    for first, part in enumerate(parts):
        words = [*command, str(part), "--first", str(first), *shared]
        started.append(subprocess.Popen(words, env=environment))
    for share, kills in ((FOR_CONVOLUTIONS, False), (1.0, True)):
        for process in started:
            try:
                process.wait(max(0.1, begun + share * options.seconds + GRACE - time.time()))
            except subprocess.TimeoutExpired:
                if kills:
                    process.kill()
                    process.wait()
        collect(options, parts)


def collect(options: argparse.Namespace, parts: list[Path]) -> None:
    """The cases with what was measured of them."""
    file = json.loads(gzip.decompress(options.cases.read_bytes()))
    rows, models = [], []
    failed: Counter[str] = Counter()
    for line in (line for part in parts if part.exists() for line in part.read_text().splitlines()):
        try:
            kind, number, found = json.loads(line)
        except ValueError:
            failed[f"ended in {line[:60]}"] += 1
            continue
        if isinstance(found, str):
            failed[found[:60]] += 1
        elif kind == "rows":
            rows.append((number, [*file["rows"][number][: len(Convolution._fields) + 1], *found]))
        else:
            models.append((number, found))
    words = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    words += [f"torch {torch.__version__}", f"cuDNN {torch.backends.cudnn.version()}", "cudnn.benchmark off"]
    content = {
        "measured": ", ".join(words),
        "families": file["families"],
        "of": file["of"],
        "rows": [row for _, row in sorted(rows)],
        "models": [row for _, row in sorted(models, key=lambda each: each[0])],
    }
    options.out.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0))
    print(f"{len(rows):,} of {len(file['rows']):,} convolutions, {len(models)} of {len(file['models'])} models")
    print(dict(failed.most_common(12)))


MODES = {mode.__name__: mode for mode in (choose, measure, one_process)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", type=Path, default=HERE / "h200_workspaces.json.gz")
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--after", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    MODES[options.mode](options)


if __name__ == "__main__":
    main()
