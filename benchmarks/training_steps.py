"""Training steps as they are run (mixed precision, checkpoints, several passes, zeros for gradients) against an H200.

    python benchmarks/training_steps.py                 what is told against tests/data/h200_steps.json; needs no GPU
    python benchmarks/training_steps.py measure FILE    writes such a file on a GPU, with PyTorch alone

A step is the third one of AdamW. Compared are the peak above what was there before the step, and the operators of forward and
backward with the element types that they read.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

MEASURED = Path(__file__).parents[1] / "tests/data/h200_steps.json"
MIXED = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Stage(nn.Module):
    """A block of convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.group = nn.BatchNorm2d(width), nn.GroupNorm(8, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.group(self.second(F.relu(self.norm(self.first(x))))))


class Blocks(nn.Module):
    """Blocks one after another, with checkpoints of their own where they are told so."""

    recompute = False

    def through(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x


class Decoder(Blocks):
    """A language model with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8192, 512)
        self.blocks = nn.ModuleList(Block(512) for _ in range(4))
        self.head = nn.Linear(512, 8192, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.through(self.embed(tokens))).flatten(0, 1), tokens.flatten())


class Convolutions(Blocks):
    """A network for images with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3)
        self.blocks = nn.ModuleList(Stage(64) for _ in range(3))
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        y = self.head(self.through(self.stem(images)).mean((2, 3))).softmax(-1)
        return F.mse_loss(y, torch.zeros_like(y))


NETS: dict[str, tuple[Callable[[], Blocks], Callable[[], Tensor]]] = {
    "decoder": (Decoder, lambda: torch.zeros(8, 512, dtype=torch.int64)),
    "convolutions": (Convolutions, lambda: torch.zeros(16, 3, 128, 128)),
}
STEPS = [
    {"precision": precision, "recompute": recompute, "accumulate": accumulate, "zero_grad": zero_grad}
    for precision in ("float32", "bfloat16", *MIXED)
    for recompute in (False, True)
    for accumulate, zero_grad in ((1, "none"), (1, "zero"), (2, "none"))
]


# -- on a GPU -------------------------------------------------------------------------------------------------------------


class Seen(TorchDispatchMode):
    """The operators that run, and the element types that they read."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = [str(t.dtype)[6:] for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self.ops.append(" ".join([func._schema.name, *read]))  # noqa: SLF001 - there is no other way to its name
        return func(*args, **(kwargs or {}))


def measured(name: str, precision: str, accumulate: int, zero_grad: str, *, recompute: bool) -> dict[str, Any]:
    make, given = NETS[name]
    whole = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model, x = make().cuda().to(whole), given().cuda()
    x = x.to(whole) if x.is_floating_point() else x
    model.recompute = recompute
    optimizer = torch.optim.AdamW(model.parameters())

    def passes() -> None:
        for _ in range(accumulate):
            with torch.autocast("cuda", MIXED[precision]) if precision in MIXED else nullcontext():
                loss = model(x)
            loss.backward()
            del loss

    base = peak = 0
    for _ in range(3):
        torch.cuda.synchronize()
        base = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        passes()
        optimizer.step()
        peak = torch.cuda.max_memory_allocated()
        optimizer.zero_grad(set_to_none=zero_grad == "none")
    with Seen() as seen:
        passes()
    return {"base": base, "peak": peak, "ops": seen.ops}


def measure(path: str) -> None:
    torch.backends.cudnn.benchmark = True
    known: dict[str, int] = {}
    rows = []
    for name in NETS:
        for step in STEPS:
            found = measured(name, **step)
            ran = [known.setdefault(op, len(known)) for op in found.pop("ops")]
            rows.append({"name": name, **step, **found, "ran": ran})
            torch.cuda.empty_cache()
    text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    head = f'{{"device": "h200", "torch": "{torch.__version__}",\n"ops": {json.dumps(list(known))}'
    Path(path).write_text(f'{head},\n"rows": [\n{text}\n]}}\n')


# -- anywhere -------------------------------------------------------------------------------------------------------------

_LOOKS = set(
    "detach t view _unsafe_view alias transpose permute expand unsqueeze select empty empty_like ones_like".split()
)


def work(op: str) -> str | None:
    """An operator by what it does, whichever kernel does it; None of one that only looks at a tensor or takes memory."""
    name, *read = op.removeprefix("aten::").split()
    if name in _LOOKS:
        return None
    for kernel, kind in (("_scaled_dot_product", "attention"), ("batch_norm", "batch_norm")):
        if kernel in name:
            return f"{kind}{' backward' if 'backward' in name else ''} {read[0]}"
    return " ".join([name, *read])


def told(row: dict[str, Any]) -> tuple[int, Counter[str]]:
    """What opcost tells of a measured step without a GPU: the peak above what was there, and the operators."""
    import opcost

    make, given = NETS[row["name"]]
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


def ran(row: dict[str, Any], ops: list[str]) -> Counter[str]:
    return Counter(found for op in row["ran"] if (found := work(ops[op])) is not None)


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2])
        return
    data = json.loads(MEASURED.read_text())
    print(f"{'step':<52} {'measured':>9} {'told':>9} MiB  ratio  operators")
    for row in data["rows"]:
        added, ops = told(row)
        true, real = row["peak"] - row["base"], ran(row, data["ops"])
        differ = (real - ops).total() + (ops - real).total()
        same = "the same" if not differ else f"{differ} of {real.total()} differ"
        recompute = "checkpoints" if row["recompute"] else ""
        step = (
            f"{row['name']:<12} {row['precision']:<10} {recompute:<11} {row['accumulate']} pass(es), {row['zero_grad']}"
        )
        print(f"{step:<52} {true / 2**20:>9,.1f} {added / 2**20:>9,.1f}      {added / true:.3f}  {same}", flush=True)


if __name__ == "__main__":
    main()
