"""The operators that models call, and which of them a calibration times, the ones that matter most first.

    python benchmarks/operators.py sample SAMPLES.jsonl [--only PATTERN] [--rounds 0:3] [--jobs N] [--seconds S]
    python benchmarks/operators.py choose CASES.gz --samples SAMPLES.jsonl
    python benchmarks/measure_gpu.py calibration OUT.json --rows CASES.gz     on the GPU
    python benchmarks/operators.py extend MORE.gz --cases CASES.gz
    python benchmarks/operators.py order PLAN.gz --cases MORE.gz --seconds 158

`sample` counts models of timm, torchvision and transformers without data, one of each family in turn, and writes a line for each:
the distinct operators of its passes as they were called, and about which share of the time each takes. `choose` makes cases of
them, by how many families they matter to and without those that a prediction cannot tell apart, each also in float32. `extend`
adds what the sample lacks: the convolutions of the calibration of an H200, forward and backward, whose calls are made of their
sizes, and quantized products. `order` is the plan of `opcost calibrate`: the coarsest cover of all operators first, then finer
ones, as far as the seconds reach that each takes on an H200 (TRIED). The plan of the package was extended from one of 8,267 cases
whose sample is not kept.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import logging
import math
import multiprocessing
import random
import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from fit_laws import calibrated
from harness import HERE, arguments, load_torchvision
from opcost.analysis.costing import apply_rule
from opcost.analysis.prediction.work import Work, work_of
from opcost.core.graph import TensorSpec
from opcost.devices.calibration import Measured
from opcost.frontends.options import CountOptions
from opcost.frontends.torch import FRONTEND
from opcost.recorders.calibration.plan import Case, packed, unpacked
from opcost.recorders.calibration.replay import calls_of
from opcost.recorders.calibration.run import DTYPES
from opcost.rules import default_rules
from opcost.rules.registry import OpView

IMAGE_PASSES: tuple[dict[str, Any], ...] = (
    {"batch": 1, "dtype": "bf16"},
    {"batch": 32, "dtype": "bf16"},
    {"batch": 16, "dtype": "bf16", "backward": True},
    {"batch": 8, "backward": True},
)
TEXT_PASSES: tuple[dict[str, Any], ...] = (
    {"batch": 4, "dtype": "bf16"},
    {"batch": 8, "dtype": "bf16", "backward": True},
    {"batch": 4},
    {"batch": 1, "dtype": "bf16", "prefill": 1000},
    {"batch": 1, "dtype": "bf16", "decode": 1, "cache": 500},
    {"batch": 16, "dtype": "bf16", "decode": 1, "cache": 500},
)
FAR = 40 << 20
"""A tensor that was last touched this many bytes ago comes from memory, and not from the cache."""
CLOSER = {"conv": 0.5}
"""The same for what neighbours say less of: convolutions, whose algorithm changes with their sizes, take most of many models."""
TWINS = 0.04  # operators nearer than this are the same to a prediction
COVERS = (1.6, 0.8, 0.5, 0.25)  # how near a timed operator is to any other, in doublings of sizes, cover after cover
LARGEST = 2**31, 10**12, 2 * 10**11  # bytes, FLOPs, FLOPs in float32
UNKNOWN = 3  # families of a case that is not known to be of any
READS_SIZES = {
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_consecutive",
    "histc",
    "repeat_interleave",
}
"""Operators whose results depend on numbers, or that check them: they cannot be timed on any."""
START_NS, PEAK, PEAK32, BANDWIDTH = 2_000, 300e12, 40e12, 3.5e12  # for a rough time


# -- the sample ---------------------------------------------------------------------------------------------------------


def sources() -> dict[str, list[str]]:
    """Models by family: the module in timm and torchvision that defines them, the class in transformers."""
    import timm
    import torchvision

    from library_inputs import transformers_classes

    families: dict[str, list[str]] = defaultdict(list)
    for name in timm.list_models():
        families[timm.models._registry._model_to_module[name]].append(f"timm:{name}")  # noqa: SLF001 - no public function says it
    for name in torchvision.models.list_models(module=torchvision.models):
        module = torchvision.models.get_model_builder(name).__module__
        families[f"torchvision {module.rpartition('.')[2]}"].append(f"torchvision:{name}")
    for name in transformers_classes():
        families[f"hf {name}"].append(f"hf:{name}")
    return families


def in_turn(families: dict[str, list[str]]) -> Iterator[list[tuple[str, str]]]:
    """Rounds of one model of each family, in a random order that is always the same."""
    rng = random.Random(0)
    for models in families.values():
        rng.shuffle(models)
    for number in range(max(map(len, families.values()))):
        found = [(family, models[number]) for family, models in families.items() if number < len(models)]
        rng.shuffle(found)
        yield found


class Calls:
    """What the recorder was called with, for each operator that it wrote down."""

    def __init__(self) -> None:
        self.calls: dict[int, dict[str, Any]] = {}
        self.clock = 0  # bytes that were touched so far
        self._touched: dict[int, int] = {}

    def recorded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The recorder's method, which also notes its calls here."""

        def dispatched(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
            before = len(recorder.ops)
            read: list[int] = []
            try:
                given = {"call": str(func), "args": self._written(recorder, args, read)}
                given["kwargs"] = {name: self._written(recorder, each, read) for name, each in kwargs.items()}
            except TypeError:
                given = {}
            result = original(recorder, func, args, kwargs)
            if given and len(recorder.ops) == before + 1:
                op = recorder.ops[-1]
                self.calls[before] = given
                if op.kind != "view":
                    self._touched.update(dict.fromkeys(read, self.clock))
                for value in op.outputs:
                    self.clock += recorder.specs[value].nbytes if op.kind != "view" else 0
                    self._touched[recorder.storages[value]] = self.clock
            return result

        return dispatched

    def _written(self, recorder: Any, arg: Any, read: list[int]) -> Any:
        """An argument as JSON has it."""
        if isinstance(arg, torch.Tensor):
            return self._tensor(recorder, arg, read)
        if isinstance(arg, (list, tuple)):
            return [self._written(recorder, each, read) for each in arg]
        if isinstance(arg, torch.device):
            return {"device": True}
        if isinstance(arg, (torch.dtype, torch.layout, torch.memory_format)):
            return {"as": str(arg).removeprefix("torch.")}
        if isinstance(arg, float) and arg not in (float("inf"), float("-inf")) and not math.isnan(arg):
            return arg
        if isinstance(arg, float):
            return {"number": str(arg)}
        if arg is None or isinstance(arg, (int, str)):
            return arg
        raise TypeError(type(arg))

    def _tensor(self, recorder: Any, tensor: torch.Tensor, read: list[int]) -> dict[str, Any]:
        state = recorder.state(tensor) if not hasattr(tensor, "vid") else tensor
        root, sig = recorder.storages[state.vid], state.sig
        found: dict[str, Any] = {"shape": list(sig.shape), "dtype": sig.spec.dtype}
        if tuple(sig.stride) != torch.empty(sig.shape, device="meta").stride():
            found["stride"] = list(sig.stride)
        if root not in self._touched:
            found["cold"] = "first"
        elif self.clock - self._touched[root] > FAR:
            found["cold"] = True
        read.append(root)
        self.clock += sig.spec.nbytes
        return found


def settled(tree: Any, total: int) -> Any:
    """Tensors that are touched for the first time come from memory, unless all of the model fits into the cache."""
    if isinstance(tree, list):
        return [settled(each, total) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("cold") == "first":
        return {**tree, "cold": total > FAR}
    return {key: settled(each, total) for key, each in tree.items()}


def rough_ns(row: Any) -> float:
    """About what an operator takes: enough to say which matter."""
    moved = sum(spec.nbytes for spec in (*row.ins, *row.outs) if spec.known)
    flops = 0 if row.cost is None else 2 * row.cost.macs
    peak = PEAK if row.ins and row.ins[0].dtype == "bfloat16" else PEAK32
    return float((START_NS + max(flops / peak, moved / BANDWIDTH) * 1e9) * row.op.repeat)


def operators(source: str, how: dict[str, Any]) -> list[dict[str, Any]]:
    """The distinct operators of one pass with their shares of the time."""
    import library_inputs
    import opcost
    from opcost.frontends.torch.recording.recorder import DatalessRecorder

    calls, original = Calls(), DatalessRecorder._dispatched  # noqa: SLF001 - where all operators pass
    DatalessRecorder._dispatched = calls.recorded(original)  # noqa: SLF001
    try:
        if source.startswith("hf:"):
            settings = {"library": "transformers", "name": source[3:], "few": True}
            report = opcost.count(f"{library_inputs.__file__}:model", set=settings, device="h200", **how)
        else:
            report = opcost.count(source, device="h200", **how)
    finally:
        DatalessRecorder._dispatched = original  # noqa: SLF001
    times = {row.op.id: rough_ns(row) for row in report.rows if row.op.kind != "view" and row.op.repeat}
    found: dict[str, dict[str, Any]] = {}
    for row in report.rows:
        if row.op.id not in calls.calls or row.op.id not in times or row.op.phase == "update":
            continue
        case = settled(calls.calls[row.op.id], calls.clock)
        ins, outs = ([[spec.shape, spec.dtype] for spec in side if spec.known] for side in (row.ins, row.outs))
        known = {
            **case,
            "kind": row.op.kind,
            "raw": row.op.raw,
            "attrs": row.op.attrs,
            "ins": ins,
            "outs": outs,
            "share": 0.0,
        }
        found.setdefault(json.dumps(case), known)["share"] += times[row.op.id] / sum(times.values())
    return list(found.values())


def child(source: str, to: Connection) -> None:
    """The passes of one model in a process of its own, because some take the process down."""
    found = []
    for how in TEXT_PASSES if source.startswith("hf:") else IMAGE_PASSES:
        try:
            found.append({"pass": how, "operators": operators(source, how)})
        except Exception as exc:
            found.append({"pass": how, "error": f"{type(exc).__name__}: {str(exc)[:150]}"})
    to.send(json.dumps(found))


def sample(options: argparse.Namespace) -> None:
    """Go on with the file, several models at once, none longer than the limit."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    load_torchvision()
    for source in ("timm:resnet18", "hf:GPT2LMHeadModel"):  # common imports, once
        operators(source, {"backward": True})
    first, last = map(int, options.rounds.split(":"))
    done = {json.loads(line)["source"] for line in options.out.open()} if options.out.exists() else set()
    rounds = itertools.islice(in_turn(sources()), first, last)
    waiting = [each for one in rounds for each in one if re.search(options.only, each[1]) and each[1] not in done]
    fork, running, end = multiprocessing.get_context("fork"), {}, time.monotonic() + options.seconds
    waiting.reverse()
    while running or (waiting and time.monotonic() < end):
        while waiting and len(running) < options.jobs and time.monotonic() < end:
            mine, its = multiprocessing.Pipe(duplex=False)
            family, source = waiting.pop()
            process = fork.Process(target=child, args=(source, its))
            process.start()
            its.close()
            running[mine] = family, source, process, time.monotonic() + options.limit
        ready = wait(list(running), timeout=1)
        for mine, (family, source, process, stop) in list(running.items()):
            if mine not in ready and time.monotonic() < stop:
                continue
            try:
                passes = json.loads(mine.recv()) if mine in ready else []
            except EOFError:
                passes = []
            process.kill()
            process.join()
            del running[mine]
            with options.out.open("a") as file:
                file.write(json.dumps({"family": family, "source": source, "passes": passes}) + "\n")
            print(source, [len(each.get("operators", ())) or each["error"] for each in passes], flush=True)


# -- which of them -----------------------------------------------------------------------------------------------------


def give_bounds(call: str, args: list[Any]) -> None:
    """Say of indices below which number they are, and of rows of experts which is the last."""
    name = call.split(".")[1].rstrip("_")
    size = args[0]["shape"] if args and isinstance(args[0], dict) and "shape" in args[0] else []
    bounds: list[tuple[Any, int]] = []
    if name == "_grouped_mm" and len(args) > 2 and args[2] is not None:
        args[2]["ends"] = size[0]
    elif name == "embedding":
        bounds = [(args[1], size[0])]
    elif name == "embedding_dense_backward":
        bounds = [(args[1], args[2])]
    elif name in ("index", "index_put", "_unsafe_index", "_index_put_impl", "_unsafe_index_put"):
        bounds = list(zip(args[1], size, strict=False))
    elif name in ("index_select", "gather", "index_fill") or name.startswith(("scatter", "index_")):
        bounds = [(args[2], size[args[1]])] if size else []
    elif name.startswith("nll_loss"):
        classes = args[1 if "backward" in name else 0]["shape"]
        bounds = [(args[2 if "backward" in name else 1], classes[min(1, len(classes) - 1)])]
    elif name == "max_pool2d_with_indices_backward":
        height, width = args[1]["shape"][-2:]
        bounds = [(each, height * width) for each in args[2:]]
    for index, below in bounds:
        if isinstance(index, dict) and str(index.get("dtype")).startswith("int"):
            index["below"] = below


def case_of(found: dict[str, Any]) -> tuple[Case, Work] | None:
    """An operator of the sample as a case, and as a prediction sees it; None where it cannot be timed."""
    if found["call"].split(".")[1].rstrip("_") in READS_SIZES:
        return None
    give_bounds(found["call"], found["args"])
    ins, outs = (tuple(TensorSpec(tuple(shape), dtype) for shape, dtype in found[side]) for side in ("ins", "outs"))
    attrs = {name: tuple(each) if isinstance(each, list) else each for name, each in found["attrs"].items()}
    cost, _, _ = apply_rule(default_rules(), OpView(found["kind"], found["raw"], ins, outs, attrs))
    work = work_of(found["kind"], found["raw"], attrs, ins, outs, cost)
    call = (found["call"], found["args"], found["kwargs"])
    case = Case(*call, found["kind"], found["raw"], attrs, ins, outs, work.flops)
    nbytes, flops, flops32 = LARGEST
    empty = any(0 in (spec.shape or ()) for spec in (*ins, *outs))
    large = case.nbytes > nbytes or work.flops > (flops32 if case.dtype == "float32" else flops)
    return None if empty or large or case.dtype not in DTYPES["cuda"] else (case, work)


class Cover:
    """Operators such that no two of a family are nearer than a radius."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)

    def add(self, work: Work, radius: float) -> bool:
        """Add one if nothing in the cover is as near; says whether it was added."""
        places = self._places[work.family, work.dtype]
        if any(math.dist(place, work.place) < radius for place in places):
            return False
        places.append(work.place)
        return True


def choose(options: argparse.Namespace) -> None:
    """By the sum over families of the share in their models."""
    shares: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    models: Counter[str] = Counter()
    known: dict[str, dict[str, Any]] = {}
    for line in options.samples.open():
        model = json.loads(line)
        models[model["family"]] += 1
        for found in (found for each in model["passes"] for found in each.get("operators", ())):
            key = json.dumps([found["call"], found["args"], found["kwargs"]])
            known.setdefault(key, found)
            shares[key][model["family"]] += found["share"]
    weights = {key: sum(share / models[family] for family, share in each.items()) for key, each in shares.items()}
    cover, cases = Cover(), []
    for key in sorted(known, key=weights.__getitem__, reverse=True):
        made = case_of(known[key])
        if made is not None and cover.add(made[1], TWINS):
            cases.append(made[0])
    cases += [twin for case in cases if (twin := in_float32(case))]
    options.out.write_bytes(packed(cases))
    print(f"{len(known):,} operators of {models.total()} models, {len(cases):,} cases")


# -- operators that the sample lacks -----------------------------------------------------------------------------------


def counted(call: str, *args: Any, **kwargs: Any) -> tuple[Case, Work] | None:
    """The case of a call, with the operator that a count of it finds."""
    given = Case(call, list(args), kwargs, "", "", {}, (), (), 0)
    graph = FRONTEND.load(calls_of(given, torch.device("meta"), 1)[0], CountOptions(inputs=()))
    op = next(op for op in reversed(graph.ops) if op.kind != "view")
    ins, outs = ([graph.values[i].spec for i in ids] for ids in (op.inputs, op.outputs))
    found = given._replace(kind=op.kind, raw=op.raw, attrs=dict(op.attrs), ins=tuple(ins), outs=tuple(outs))
    return case_of(found._asdict() | sides(found))


def tensor(*shape: int, dtype: str, **how: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype, **how}


LINEAR = [(4096, 4096), (4096, 1024), (4096, 14336), (14336, 4096), (4096, 28672), (4096, 128256), (3584, 18944), (18944, 3584),
          (2048, 2048), (2048, 8192), (8192, 2048), (1024, 3072), (1024, 1024), (5120, 27648)]  # fmt: skip
"""Layers of language models: what they read and make."""
ROWS = (1, 4096, 64, 8, 1024, 16, 2, 8192, 32, 4, 256, 2048, 128)
EXPERTS = [(128, 2048, 1536), (128, 768, 2048), (8, 4096, 28672), (8, 14336, 4096), (64, 2048, 2048), (64, 1024, 2048)]
"""Of mixtures: how many, and what each reads and makes."""


def quantized() -> Iterator[tuple[Case, Work] | None]:
    """Products with weights of fewer bits, and of experts, in language models."""
    for rows, (k, n) in itertools.product(ROWS, LINEAR):
        if rows * n > 2**28:
            continue
        x = tensor(rows, k, dtype="bfloat16")
        down = {"stride": [1, k], "cold": True}  # columns side by side
        fp8 = tensor(rows, k, dtype="float8_e4m3fn"), tensor(k, n, dtype="float8_e4m3fn", **down)
        for scales in (((1,), (1,)), ((rows, 1), (1, n))):
            made = (tensor(*shape, dtype="float32") for shape in scales)
            yield counted("aten._scaled_mm.default", *fp8, *made, out_dtype={"as": "bfloat16"})
        packed = tensor(n // 8, k // 64, 32, 2, dtype="int32", cold=True)
        scales_of_groups = tensor(k // 128, n, 2, dtype="bfloat16", cold=True)
        yield counted("aten._weight_int4pack_mm.default", x, packed, 128, scales_of_groups)
        if rows <= 64:  # more are multiplied naively, at 1 TFLOP/s on an H200
            of_rows = tensor(n, k, dtype="int8", cold=True), tensor(n, dtype="bfloat16", cold=True)
            yield counted("aten._weight_int8pack_mm.default", x, *of_rows)
        if rows > 16:  # fewer are refused
            int8 = tensor(rows, k, dtype="int8"), tensor(k, n, dtype="int8", **down)
            yield counted("aten._int_mm.default", *int8)
    for rows, (experts, k, n) in itertools.product(ROWS, EXPERTS):
        weight = tensor(experts, k, n, dtype="bfloat16", stride=[k * n, 1, k], cold=True)
        ends = tensor(experts, dtype="int32", ends=8 * rows)
        yield counted("aten._grouped_mm.default", tensor(8 * rows, k, dtype="bfloat16"), weight, ends)


def convolution(row: Measured, *, backward: bool) -> tuple[Case, Work] | None:
    """A forward convolution of a calibration, or the backward one of a step on 16 images, or on 8 in float32."""
    (x, w, *bias), (y,) = row.ins, row.outs
    step, spread = (list(row.attrs[name]) for name in ("stride", "dilation"))
    reach = [apart * (size - 1) + 1 for apart, size in zip(spread, w.dims[2:], strict=True)]
    sides_of = list(zip(x.dims[2:], y.dims[2:], step, reach, strict=True))
    padding = [max(0, -(-((made - 1) * by + window - size) // 2)) for size, made, by, window in sides_of]
    if any(
        (size + 2 * more - window) // by + 1 != made
        for more, (size, made, by, window) in zip(padding, sides_of, strict=True)
    ):
        return None  # padded on one side
    batch = (16 if x.dtype == "bfloat16" else 8) if backward else x.dims[0]

    def image(spec: TensorSpec, **how: Any) -> dict[str, Any]:
        _, channels, *places = spec.dims
        if row.attrs.get("channels_last") and len(places) == 2:
            how["stride"] = [channels * math.prod(places), 1, channels * places[1], channels]
        return tensor(batch, *spec.dims[1:], dtype=spec.dtype, **how)

    weight = tensor(*w.dims, dtype=w.dtype, cold=True)
    added = tensor(*bias[0].dims, dtype=bias[0].dtype, cold=True) if bias else None
    settings = (step, padding, spread, False, [0] * len(step), x.dims[1] // w.dims[1])
    if not backward:
        return counted("aten.convolution.default", image(x), weight, added, *settings)
    wanted = [x.dims[1] > 4, True, bool(bias)]  # an image needs no gradient
    sizes = list(bias[0].dims) if bias else [0]
    return counted("aten.convolution_backward.default", image(y), image(x, cold=True), weight, sizes, *settings, wanted)


def identity(case: Any) -> str:
    """What is the same of a case, of its twin in float32, and of their rows in a calibration."""
    shapes = [[spec.shape for spec in side] for side in (case.ins, case.outs)]
    return repr((case.raw, sorted(case.attrs.items()), shapes))


def extend(options: argparse.Namespace) -> None:
    """The given cases, the convolutions of the calibration and quantized products, by the number of families they are of."""
    families = json.loads(gzip.decompress((HERE / "h200_families.json.gz").read_bytes()))["of"]
    rows = list(zip(calibrated("h200").rows, map(len, families), strict=True))
    known: Counter[str] = Counter()
    for row, count in rows:
        known[identity(row)] = max(known[identity(row)], count)
    found = [(known[identity(case)] or UNKNOWN, case) for case in unpacked(options.cases.read_bytes())]
    for row, count in rows:
        if row.raw == "aten::convolution" and count and not row.attrs.get("transposed"):
            made = (convolution(row, backward=backward) for backward in (True, False))
            found += [(count, each[0]) for each in made if each is not None]
    found += [(UNKNOWN, each[0]) for each in quantized() if each is not None]
    found.sort(key=lambda each: -each[0])
    cases = list({repr(case): case for _, case in found}.values())
    options.out.write_bytes(packed(cases))
    print(f"{len(cases):,} cases")


def in_float32(case: Case) -> Case | None:
    """The same operator on other numbers: an inference in float32 is not in the sample."""
    if (
        case.dtype != "bfloat16"
        or case.kind == "attention"
        or case.raw in ("aten::_to_copy", "aten::convolution_backward")
    ):
        return None

    def other(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {k: "float32" if each == "bfloat16" else other(each) for k, each in tree.items()}
        return [other(each) for each in tree] if isinstance(tree, list) else tree

    ins, outs = (
        tuple(TensorSpec(spec.shape, "float32" if spec.dtype == "bfloat16" else spec.dtype) for spec in side)
        for side in (case.ins, case.outs)
    )
    return case._replace(args=other(case.args), kwargs=other(case.kwargs), ins=ins, outs=outs)


def order(options: argparse.Namespace) -> None:
    """Cover after cover, as far as the seconds reach."""
    cases = list(unpacked(options.cases.read_bytes()))
    works = [found for case in cases if (found := case_of(case._asdict() | sides(case)))]
    cover, plan, left = Cover(), [], options.seconds
    for radius in COVERS:
        for case, work in works:
            seconds = TRIED.get(case.raw, 0.008)
            if left > seconds and cover.add(work, radius * CLOSER.get(case.kind, 1)):
                plan.append(case)
                left -= seconds
    options.out.write_bytes(packed(plan))
    print(f"{len(plan):,} of {len(cases):,} cases")


def sides(case: Case) -> dict[str, Any]:
    """Tensors as the sample has them."""
    return {side: [[spec.shape, spec.dtype] for spec in getattr(case, side)] for side in ("ins", "outs")}


TRIED = {"aten::convolution_backward": 0.045, "aten::convolution": 0.015}
"""Seconds that a case takes on an H200, where cuDNN chooses its algorithm without trying all; of others 8 milliseconds."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=("sample", "choose", "extend", "order"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--samples", type=Path, help="choose: what sample wrote")
    parser.add_argument("--cases", type=Path, help="extend, order: what choose or extend wrote")
    parser.add_argument("--only", default="", help="sample: a regular expression")
    parser.add_argument("--rounds", default="0:3", help="sample: from which round to which")
    parser.add_argument("--jobs", type=int, default=2, help="sample: models at once")
    parser.add_argument("--limit", type=float, default=60, help="sample: seconds for a model")
    parser.add_argument(
        "--seconds", type=float, default=1800, help="sample: when to stop; order: what a calibration takes"
    )
    options = parser.parse_args()
    {"sample": sample, "choose": choose, "extend": extend, "order": order}[options.what](options)


if __name__ == "__main__":
    main()
