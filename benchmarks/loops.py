"""Models that loop in Python: what a count of them takes, in seconds and memory, and what the loop alone takes.

    python benchmarks/loops.py [--models "a|b"] [--against SRC | --listed] [--no-floor]

Each count runs in a process of its own, cold. Beside it stands the same forward on the meta device: as plain tensors, and under
a dispatch mode that only passes every operator on. `--against` names the `src` of another checkout, measured in turn; `--listed`
measures in turn a count that dispatches and lists every operator, as short runs do. Two models of real size run only when named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import Subject, prepare
from speed import peak_kib


def _mamba(layers: int = 32, tokens: int = 512, **sizes: int) -> Subject:
    """Mamba without its kernels: every token of every layer is a turn of a loop. Without sizes it is narrow."""
    import torch

    prepare()
    from transformers import MambaConfig, MambaForCausalLM

    with torch.device("meta"):
        config = MambaConfig(
            state_size=16, num_hidden_layers=layers, **(sizes or {"hidden_size": 64, "vocab_size": 1000})
        )
        model = MambaForCausalLM(config).eval()
    return Subject(model, (), {"input_ids": torch.zeros(1, tokens, dtype=torch.int64), "use_cache": False})


def _generation(layers: int = 8, **sizes: int) -> Subject:
    """128 tokens of a Llama, one at a time, with a cache that grows. Without sizes it is narrow."""
    import torch

    prepare()
    from transformers import LlamaConfig, LlamaForCausalLM

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

    narrow = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    with torch.device("meta"):
        config = LlamaConfig(num_hidden_layers=layers, **(sizes or {**narrow, "vocab_size": 1000}))
        model = LlamaForCausalLM(config).eval()
    return Subject(Generate(model), (torch.zeros(1, 16, dtype=torch.int64),), {})


def _mamba_2_8b() -> Subject:
    return _mamba(64, 2048, hidden_size=2560, vocab_size=50280)


def _llama_8b() -> Subject:
    return _generation(
        32,
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
    )


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


MODELS: dict[str, Callable[[], Subject]] = {
    "mamba": _mamba,
    "generation": _generation,
    "lstm-cell": _cell,
    "100,000 operators": _many,
    "mamba-2.8b": _mamba_2_8b,
    "llama-8b": _llama_8b,
}
LARGE = ("mamba-2.8b", "llama-8b")


def floor(subject: Subject, *, dispatched: bool) -> float:
    """CPU seconds of the forward on the meta device, plain or with every operator passing through Python."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Pass(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    model = subject.model.to("meta")
    args = [a.to("meta") for a in subject.args]
    kwargs = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in subject.kwargs.items()}
    start = time.process_time()
    with torch.no_grad():
        if dispatched:
            with Pass():
                model(*args, **kwargs)
        else:
            model(*args, **kwargs)
    return time.process_time() - start


def measure(name: str, what: str) -> dict[str, Any]:
    """One count, or the floor, in this process."""
    import torch

    torch.set_num_threads(1)
    subject = MODELS[name]()
    if what in ("plain", "dispatched"):
        return {"seconds": floor(subject, dispatched=what == "dispatched")}
    import opcost

    if what == "listed":
        from opcost.frontends.torch.recording import recorder

        recorder.REPLAYS_AFTER = sys.maxsize
    opcost.count(torch.nn.Linear(3, 4), torch.zeros(2, 3))
    memory = peak_kib()
    start = time.process_time()
    report = opcost.count(subject.model, *subject.args, kwargs=subject.kwargs)
    seconds = time.process_time() - start
    return {"seconds": seconds, "MB": (peak_kib() - memory) / 1024, "rows": len(report.rows), "totals": report.totals}


def _in_process(name: str, what: str, source: str | None) -> dict[str, Any]:
    path = str(Path(source).resolve()) if source else os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [sys.executable, __file__, "--measure", name, what],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _best(name: str, what: str, source: str | None, earlier: dict[str, Any] | None) -> dict[str, Any]:
    found = _in_process(name, what, source)
    return found if earlier is None or found["seconds"] < earlier["seconds"] else earlier


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="|".join(name for name in MODELS if name not in LARGE))
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--against", help="the src folder of another checkout")
    against.add_argument("--listed", action="store_true", help="against a count that dispatches every operator")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-floor", action="store_true", help="leave the meta device out")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return 0
    print(f"CPU seconds (best of {options.repeat} processes) and MB on top\n")
    print("| model | rows | on meta | dispatched | before | now | quicker |")
    print("|---" * 7 + "|")
    for name in options.models.split("|"):
        runs: list[tuple[str, str | None]] = [] if options.no_floor else [("plain", None), ("dispatched", None)]
        runs += [("count", None)]
        runs += [("count", options.against)] if options.against else [("listed", None)] if options.listed else []
        found: dict[Any, dict[str, Any]] = {}
        for _ in range(options.repeat):
            for run in runs:
                found[run] = _best(name, *run, found.get(run))
        now = found["count", None]
        floors = [found.get((what, None)) for what in ("plain", "dispatched")]
        cells = [f"{now['rows']:,}", *(f"{each['seconds']:.2f}" if each else "" for each in floors)]
        before = found.get(("count", options.against)) if options.against else found.get(("listed", None))
        cells.append(f"{before['seconds']:.2f} s, {before['MB']:.0f} MB" if before else "")
        cells.append(f"**{now['seconds']:.2f} s, {now['MB']:.0f} MB**")
        cells.append(f"{before['seconds'] / now['seconds']:.1f}×" if before else "")
        if before and before["totals"] != now["totals"]:
            cells.append(f"TOTALS DIFFER: {before['totals']} {now['totals']}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
