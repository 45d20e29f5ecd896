"""How long one count takes: against other counters, step by step in a fresh process, and of models that loop in Python.

    python benchmarks/speed.py [--models a,b] [--repeat N]     exits with 1 if another counter is faster
    python benchmarks/speed.py --loops [--models "a|b"] [--against SRC] [--no-floor]

Counters: CPU seconds of the best of N counts after one that is not timed (the caches of every tool are warm), on one thread.
Every tool gets each model with its weights and without them (on the meta device), and its faster time counts.
Loops: each count runs in a process of its own, cold, beside a count that dispatches and lists every operator, as short runs do,
or beside that of another checkout whose `src` is given. The floor is the same forward on the meta device: as plain tensors, and
under a dispatch mode that only passes every operator on. Two models of real size run only when named.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from harness import Table, arguments, best, load_torchvision, peak_bytes, silent, with_bytecode


class Subject(NamedTuple):
    """A model in eval mode and the arguments of its forward."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


# -- models; large ones have shapes but no weights ------------------------------------------------------------------------


def _image(name: str) -> Subject:
    import torch

    load_torchvision()
    import timm

    return Subject(timm.create_model(name).eval(), (torch.zeros(1, 3, 224, 224),), {})


def _language(kind: str, tokens: int, *, device: str = "meta", **sizes: int) -> Subject:
    import torch

    load_torchvision()
    import transformers

    with torch.device(device):
        config = getattr(transformers, f"{kind}Config")(**sizes)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    return Subject(model, (), {"input_ids": torch.zeros(1, tokens, dtype=torch.int64)})


def _mamba(tokens: int, **sizes: int) -> Subject:
    """Mamba without its kernels: every token of every layer is an iteration of a loop."""
    subject = _language("Mamba", tokens, state_size=16, **sizes)
    return subject._replace(kwargs={**subject.kwargs, "use_cache": False})


def _generation(**sizes: int) -> Subject:
    """128 tokens of a Llama, one at a time, with a cache that grows."""
    import torch

    class Generate(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            cache, token, made = None, ids, []
            for _ in range(128):
                out = self.model(input_ids=token, past_key_values=cache, use_cache=True)
                cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
                made.append(token)
            return torch.cat(made, dim=1)

    return Subject(Generate(_language("Llama", 1, **sizes).model), (torch.zeros(1, 16, dtype=torch.int64),), {})


def _cell() -> Subject:
    """An LSTM cell over 2,000 steps."""
    import torch

    class Loop(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.LSTMCell(32, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = None
            for step in range(x.shape[0]):
                state = self.cell(x[step], state)
            return state[0]

    return Subject(Loop(), (torch.zeros(2000, 4, 32),), {})


def _many() -> Subject:
    """100,000 operators, five of them in turn on tensors of one shape."""
    import torch

    class Loop(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(64, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20_000):
                x = torch.relu(x @ self.weight).mul(2.0).add(x).tanh()
            return x

    return Subject(Loop(), (torch.zeros(64, 64),), {})


_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
_70B = {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8}
_NARROW = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
MODELS: dict[str, Callable[[], Subject]] = {
    "resnet50": lambda: _image("resnet50"),
    "vit_base_patch16_224": lambda: _image("vit_base_patch16_224"),
    "swin_tiny": lambda: _image("swin_tiny_patch4_window7_224"),
    "gpt2": lambda: _language("GPT2", 128, device="cpu"),
    "llama-7b": lambda: _language("Llama", 2048),
    "llama-70b": lambda: _language("Llama", 2048, num_hidden_layers=80, **_70B),
}
LOOPS: dict[str, Callable[[], Subject]] = {
    "mamba": lambda: _mamba(512, num_hidden_layers=32, hidden_size=64, vocab_size=1000),
    "generation": lambda: _generation(num_hidden_layers=8, vocab_size=1000, **_NARROW),
    "lstm-cell": _cell,
    "100,000 operators": _many,
    "mamba-2.8b": lambda: _mamba(2048, num_hidden_layers=64, hidden_size=2560, vocab_size=50280),
    "llama-8b": lambda: _generation(num_hidden_layers=32, vocab_size=128256, **_8B),
}
LARGE = ("mamba-2.8b", "llama-8b")


# -- the counters under comparison: each returns its number of MACs, by its own convention ----------------------------------


def count_opcost(subject: Subject) -> int:
    import opcost

    return opcost.count(subject.model, subject.args, kwargs=subject.kwargs).totals.macs


def count_flop_counter_mode(subject: Subject) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        subject.model(*subject.args, **subject.kwargs)
    return counter.get_total_flops() // 2


def count_fvcore(subject: Subject) -> int:
    from fvcore.nn import FlopCountAnalysis

    return int(FlopCountAnalysis(*_positional(subject)).total())


def count_torchinfo(subject: Subject) -> int:
    import torchinfo

    data: Any = subject.kwargs or subject.args
    return int(torchinfo.summary(subject.model, input_data=data, verbose=0).total_mult_adds)


def count_ptflops(subject: Subject) -> int:
    from ptflops import get_model_complexity_info

    names = dict(zip(inspect.signature(subject.model.forward).parameters, subject.args, strict=False)) | subject.kwargs
    macs, _ = get_model_complexity_info(
        subject.model, (1,), input_constructor=lambda _: names, as_strings=False, print_per_layer_stat=False
    )
    if macs is None:
        raise RuntimeError("ptflops caught the error of the model and returned None")
    return int(macs)


def count_thop(subject: Subject) -> int:
    import thop

    macs, _ = thop.profile(*_positional(subject), verbose=False)
    return int(macs)


TOOLS: dict[str, Callable[[Subject], int]] = {
    "opcost": count_opcost,
    "FlopCounterMode": count_flop_counter_mode,
    "fvcore": count_fvcore,
    "torchinfo": count_torchinfo,
    "ptflops": count_ptflops,
    "thop": count_thop,
}


def _positional(subject: Subject) -> tuple[Any, tuple[Any, ...]]:
    """A module that takes its keyword arguments by position and returns plain tensors, and its arguments."""
    import torch

    names = tuple(subject.kwargs)

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = subject.model

        def forward(self, *args: Any) -> Any:
            if not names:
                return self.inner(*args)
            return self.inner(**dict(zip(names, args, strict=True)), use_cache=False, return_dict=False)[0]

    return Positional().eval(), (*subject.args, *subject.kwargs.values())


# -- against other counters -----------------------------------------------------------------------------------------------


def timed(count: Callable[[Subject], int], make: Callable[[], Subject], repeat: int, *, bare: bool) -> float | str:
    """CPU seconds of a warm count of a model with or without its weights, or the error that the tool raises."""
    try:
        subject = make()
        if bare:
            subject = subject._replace(model=subject.model.to("meta"))
        if count is not count_opcost:  # which takes inputs on any device
            device = next(subject.model.parameters()).device
            args = tuple(each.to(device) for each in subject.args)
            subject = Subject(subject.model, args, {name: each.to(device) for name, each in subject.kwargs.items()})
        with silent():
            count(subject)
            return best(partial(count, subject), repeat)[0]
    except Exception as exc:
        return type(exc).__name__


def compare(options: argparse.Namespace, names: list[str]) -> bool:
    """Whether opcost is the fastest on every model."""
    import torch

    torch.set_num_threads(1)
    table = Table("counters", ["model", *TOOLS])
    slower = []
    for name in names:
        found: dict[str, float | str] = {}
        for tool, count in TOOLS.items():
            meta = name.startswith("llama")  # which has no weights in any case
            tries = [timed(count, MODELS[name], options.repeat, bare=bare) for bare in (False, True)[: 2 - meta]]
            found[tool] = min((each for each in tries if isinstance(each, float)), default=tries[0])
        ours = found["opcost"]
        assert isinstance(ours, float), ours
        cells = []
        for tool, seconds in found.items():
            if isinstance(seconds, str):
                cells.append(f"fails ({seconds})")
            else:
                cells.append(f"{seconds:.3f}" + ("" if tool == "opcost" else f" ({seconds / ours:.1f}×)"))
                slower += [f"{tool} on {name}"] * (seconds < ours)
        table.add(name, *cells)
    table.finish(options)
    if slower:
        print(f"Slower than: {', '.join(slower)}")
    return not slower


def cold(options: argparse.Namespace, names: list[str]) -> None:
    """opcost alone, step by step, each model in a process of its own."""
    steps = ("import torch", "import opcost", "record", "cost", "print")
    table = Table("cold_count", ["model", *steps, "rows", "MB added"])
    for name in names:
        found = child("--parts", name)
        table.add(name, *(f"{found[step]:.3f}" for step in steps), found["rows"], round(found["MB"]))
    table.add("100,000 operators", "", "", "", f"{roll_up():.2f}", "", 100_000, "")
    table.finish(options)


def child(*words: str, source: str | None = None) -> dict[str, Any]:
    """What this script prints as JSON in a process of its own, with another `src` where one is given."""
    path = str(Path(source).resolve()) if source else os.environ.get("PYTHONPATH", "")
    command, env = [sys.executable, __file__, *words], {**with_bytecode(), "PYTHONPATH": path}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def parts(name: str) -> dict[str, float]:
    """Imports, recording, cost rules, printing and memory of one count in this process."""
    start = time.process_time()
    import torch

    imported = time.process_time()
    torch.set_num_threads(1)
    subject = MODELS[name]()
    built = time.process_time()
    from opcost.analysis.costing import cost_graph
    from opcost.core.interrupts import garbage_collector_paused
    from opcost.frontends.options import CountOptions
    from opcost.frontends.torch.load import load
    from opcost.rules import default_rules

    rules = default_rules()
    own_imports = time.process_time() - built
    memory = peak_bytes()
    options = CountOptions(inputs=subject.args or None, kwargs=subject.kwargs)
    with garbage_collector_paused():
        before = time.process_time()
        graph = load(subject.model, options)
        recorded = time.process_time()
        report = cost_graph(graph, rules)
        costed = time.process_time()
    str(report)
    printed = time.process_time()
    return {
        "import torch": imported - start,
        "import opcost": own_imports,
        "record": recorded - before,
        "cost": costed - recorded,
        "print": printed - costed,
        "rows": len(report.rows),
        "MB": (peak_bytes() - memory) / 2**20,
    }


def roll_up(rows: int = 100_000) -> float:
    """CPU seconds of the cost rules and sums of a graph with this many operators."""
    from opcost.analysis.costing import cost_graph
    from opcost.core.graph import Graph, Module, Op, TensorSpec, Value
    from opcost.rules import default_rules

    spec = TensorSpec((64, 64))
    values = [Value(0, "x", spec, "input", 0)]
    modules = [Module(path="", type="Net")]
    ops = []
    attrs = {"depth": 64}
    for i in range(rows):
        values.append(Value(i + 1, "", spec, "activation", i + 1))
        path = f"layer{i // 10}"
        if i % 10 == 0:
            modules.append(Module(path=path, type="Layer"))
        ops.append(Op(i, "matmul", "aten::mm", (i, i), (i + 1,), attrs, path))
    graph = Graph(
        source="rows", framework="none", values=tuple(values), ops=tuple(ops), modules=tuple(modules), outputs=(rows,)
    )
    rules = default_rules()
    return best(lambda: cost_graph(graph, rules), 1)[0]


# -- models that loop in Python -------------------------------------------------------------------------------------------


def floor(subject: Subject, *, dispatched: bool) -> float:
    """CPU seconds of the forward on the meta device, plain or with every operator passing through Python."""
    import contextlib

    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Pass(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    model = subject.model.to("meta")
    args = [each.to("meta") for each in subject.args]
    kwargs = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in subject.kwargs.items()}
    with torch.no_grad(), Pass() if dispatched else contextlib.nullcontext():
        return best(lambda: model(*args, **kwargs), 1)[0]


def looped(name: str, what: str) -> dict[str, Any]:
    """One count, or the floor, in this process."""
    import torch

    torch.set_num_threads(1)
    subject = LOOPS[name]()
    if what in ("plain", "dispatched"):
        return {"seconds": floor(subject, dispatched=what == "dispatched")}
    import opcost

    if what == "listed":
        from opcost.frontends.torch.recording import recorder

        recorder.REPLAYS_AFTER = sys.maxsize
    opcost.count(torch.nn.Linear(3, 4), torch.zeros(2, 3))
    memory = peak_bytes()
    seconds, report = best(lambda: opcost.count(subject.model, *subject.args, kwargs=subject.kwargs), 1)
    added = (peak_bytes() - memory) / 2**20
    return {"seconds": seconds, "MB": added, "rows": len(report.rows), "totals": report.totals}


def loops(options: argparse.Namespace, names: list[str]) -> None:
    runs = [("count", None), ("count", options.against) if options.against else ("listed", None)]
    if not options.no_floor:
        runs += [("plain", None), ("dispatched", None)]
    floors = [f"{what} on meta" for what, _ in runs[2:]]
    table = Table("loops", ["model", "rows", *floors, "before" if options.against else "listed", "now", "faster"])
    for name in names:
        found: dict[Any, dict[str, Any]] = {}
        for _ in range(options.repeat):
            for what, source in runs:
                each = child("--looped", name, what, source=source)
                if each["seconds"] < found.get((what, source), each)["seconds"] + 1e-9:
                    found[what, source] = each
        now, before = (found[run] for run in runs[:2])
        lowest = [f"{found[run]['seconds']:.2f}" for run in runs[2:]]
        times = [f"{each['seconds']:.2f} s, {each['MB']:.0f} MB" for each in (before, now)]
        table.add(name, now["rows"], *lowest, *times, f"{before['seconds'] / now['seconds']:.1f}×")
        if before["totals"] != now["totals"]:
            print(f"TOTALS DIFFER on {name}: {before['totals']} {now['totals']}")
    table.finish(options)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--loops", action="store_true", help="models that loop in Python")
    parser.add_argument("--models", default="", help="names with commas, of loops with |")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--against", metavar="SRC", help="loops: the src folder of another checkout")
    parser.add_argument("--no-floor", action="store_true", help="loops: leave the meta device out")
    parser.add_argument("--parts", help=argparse.SUPPRESS)
    parser.add_argument("--looped", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parts or options.looped:
        print(json.dumps(parts(options.parts) if options.parts else looped(*options.looped)))
        return 0
    if options.quick:
        options.models = options.models or ("lstm-cell" if options.loops else "resnet50")
        options.repeat, options.no_floor = 1, True
    if options.loops:
        loops(options, options.models.split("|") if options.models else [name for name in LOOPS if name not in LARGE])
        return 0
    names = options.models.split(",") if options.models else list(MODELS)
    fastest = compare(options, names)
    cold(options, names)
    return 0 if fastest else 1


if __name__ == "__main__":
    raise SystemExit(main())
