"""What the pages of these tests are made of: small and large, tame and hostile, all without a framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from opcost import read_profile
from opcost.analysis.query import query
from opcost.core.graph import Cost, Memory, Note, Op, PeakHolder, Phase, TensorSpec
from opcost.core.limits import QUANTITIES, parse_limit
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.report import Coverage, ModuleCost, Report, Row, Stats, Uncounted, stats_of
from opcost.core.results import (
    Advice,
    Compared,
    Comparison,
    Counted,
    Entry,
    Fit,
    LimitCheck,
    ModelCheck,
    Point,
    Recomputation,
    StepCost,
    Sweep,
    Verdict,
)
from opcost.core.scan import Scan, StoredTensor, Totals
from opcost.profiles import with_default_costs
from opcost.views.html import HTML

HOSTILE = "</script><script>document['title']='taken'</script><img src=x onerror=alert(1)>\"'&amp;`${1}\u2028javascript:alert(2)"


def report(blocks: int = 4, ops: int = 6, *, word: str = "", uncounted: bool = False) -> Report:
    """Blocks of layers, each with some operators; layer `n` of a block costs `n + 1` thousand MACs for each operator."""
    spec = TensorSpec((1, 8, 4))
    paths = ["", *(f"block{b}{word}" for b in range(blocks))]
    leaves = [f"block{b}{word}.layer{n}{word}" for b in range(blocks) for n in range(3)]
    rows, own = [], dict.fromkeys((*paths, *leaves), Stats())
    for place, leaf in enumerate(leaves):
        new = []
        for _ in range(ops):
            number = len(rows) + len(new)
            cost = None if uncounted and number == 1 else Cost(1000 * (place % 3 + 1), 2000 * (place % 3 + 1), 64, 128)
            kind = ("conv", "norm", "elementwise")[number % 3]
            op = Op(number, kind, f"{kind}_op{word}", (number,), (number + 1,), {}, leaf)
            new.append(Row(op, (spec,), (spec,), cost, "rule", 32, 128))
        own[leaf] = stats_of(new) + Stats(
            params=10 * (place + 1), trainable_params=10 * (place + 1), param_bytes=40 * (place + 1)
        )
        rows += new
    ordered = sorted(
        own,
        key=lambda path: (paths + leaves).index(path) if "." not in path else paths.index(path.partition(".")[0]) + 0.5,
    )
    modules = []
    for path in ordered:
        below = [own[other] for other in own if not path or other == path or other.startswith(f"{path}.")]
        total = Stats()
        for each in below:
            total += each
        modules.append(
            ModuleCost(
                path=path,
                type=f"{'Net' if not path else 'Layer' if '.' in path else 'Block'}{word}",
                depth=path.count(".") + 1 if path else 0,
                calls=1,
                own=own[path],
                total=total,
                extra=word,
                inputs=(spec,),
                outputs=(spec,),
            )
        )
    missed = (Uncounted(f"odd{word}", 1, (leaves[0],), f"no rule{word}"),) if uncounted else ()
    curve = [1000 + 10 * (number % 50) for number in range(len(rows))]
    return Report(
        meta={"source": f"net{word}", "framework": f"torch{word}", "version": "2", "mode": "eval", "device": f"cpu{word}"},
        rows=rows, modules=tuple(modules), parameters=(), totals=modules[0].total, phases={"forward": Cost(1, 2, 3, 4)},
        memory=Memory(
            peak_bytes=max(curve), base_bytes=1000, at=curve.index(max(curve)), how="lifetimes", curve=curve,
            parts={"weights": 1000, "temporary": max(curve) - 1000},
            holders=(PeakHolder(module=leaves[0], bytes=max(curve) - 1000, tensors=2),),
        ),
        coverage=Coverage(len(rows) - len(missed), missed), inputs=((f"x{word}", spec),), outputs=(spec,),
        notes=(Note("n", f"a note{word}", f"here{word}"),) if word else (),
    )  # fmt: skip


def many(modules: int, ops: int) -> Report:
    """As `report`, with `modules` of one level and `ops` operators."""
    spec = TensorSpec((1, 8, 4))
    paths = [f"layer{number}" for number in range(modules)]
    rows = [
        Row(
            Op(n, "matmul", "mm", (n,), (n + 1,), {}, paths[n % modules]),
            (spec,),
            (spec,),
            Cost(10, 20, 30, 40),
            "r",
            1,
            4,
        )
        for n in range(ops)
    ]
    each = stats_of(rows[::modules])
    whole = stats_of(rows)
    root = ModuleCost(path="", type="Net", depth=0, calls=1, own=Stats(), total=whole)
    leaves = (ModuleCost(path=path, type="Layer", depth=1, calls=1, own=each, total=each) for path in paths)
    return Report(
        meta={"source": "large"}, rows=rows, modules=(root, *leaves), parameters=(), totals=whole,
        phases={"forward": Cost(0, 0, 0, 0)},
        memory=Memory(peak_bytes=9, base_bytes=1, at=0, how="lifetimes", curve=[9] * ops, parts={"weights": 9}),
        coverage=Coverage(ops),
    )  # fmt: skip


BLOCKS = 32


def stack() -> Report:
    """A training step of equal blocks; `mix` of each does 100 MACs forward, `out` 1000 forward and 2000 backward."""
    full, half = TensorSpec((1, 8)), TensorSpec((1, 8), "float16")
    parts: dict[str, list[tuple[str, int, Phase, TensorSpec]]] = {
        "mix": [("attention", 100, "forward", full)],
        "out": [("matmul", 1000, "forward", half), ("norm", 0, "forward", half), ("matmul", 2000, "backward", half)],
    }
    rows: list[Row] = []
    own = {"": Stats(), "layers": Stats()}
    types = ("Net", "ModuleList", "Block", "Part")
    for block in range(BLOCKS):
        own[f"layers.{block}"] = Stats()
        for part, operators in parts.items():
            path, first = f"layers.{block}.{part}", len(rows)
            for kind, macs, phase, given in operators:
                at = len(rows)
                op = Op(at, kind, f"{kind}_op", (at,), (at + 1,), {}, path, phase=phase)
                rows.append(Row(op, (given,), (full,), Cost(macs, 2 * macs + 8, 16, 32), "rule", 8, 32))
            own[path] = stats_of(rows[first:]) + Stats(params=10, trainable_params=10, param_bytes=40)
    modules = []
    for path, stats in own.items():
        total = Stats()
        for below, found in own.items():
            if not path or below == path or below.startswith(f"{path}."):
                total += found
        depth = path.count(".") + bool(path)
        modules.append(ModuleCost(path=path, type=types[depth], depth=depth, calls=1, own=stats, total=total))
    return Report(
        meta={"source": "stack"}, rows=rows, modules=tuple(modules), parameters=(), totals=modules[0].total,
        phases={"forward": Cost(0, 0, 0, 0), "backward": Cost(0, 0, 0, 0)}, memory=None, coverage=Coverage(len(rows)),
    )  # fmt: skip


def profile(count: int = 30, *, word: str = "") -> Profile:
    rows = tuple(
        ProfileRow(
            id=n, name=f"part{n % 3}{word}.op{n}{word}", type=f"aten::op{word}", kind="matmul", module=f"part{n % 3}{word}",
            host_start_ns=n * 1000, host_ns=400, host_self_ns=300, device_ns=500, ins=(TensorSpec((4, 4)),),
            cost=Cost(64, 128, 64, 64),
            kernels=(Kernel(f"kernel{n % 2}{word}", f"gpu:0{word}", f"7{word}", n * 1000 + 450, 500, n * 1000 + 10),),
        )
        for n in range(count)
    )  # fmt: skip
    lost = (Kernel(f"lost{word}", f"gpu:0{word}", f"7{word}", 5, 3),)
    meta: dict[str, Any] = {"source": f"run{word}", "format": "kineto", "device": f"gpu{word}", f"x{word}": word}
    return Profile(meta=meta, rows=rows, unattributed=lost, wall_ns=count * 1000, notes=(Note("n", f"noted{word}"),))


def page_of(profile: Profile) -> str:
    """The page of a profile as `opcost view` makes it."""
    return HTML.render(query(profile), profile=with_default_costs(profile))


def comparison(word: str = "") -> Comparison:
    """Two sources, of which the second does three times as much; module `a` does less of it."""
    entries = [
        Entry(part=part, name=name, quantity=QUANTITIES["macs"], amounts=amounts, present=(True, True), partial=(False, False))
        for part, name, amounts in (
            ("total", "", (1000, 3000)), ("module", "a", (900, 500)), ("module", "a.x", (900, 500)), ("module", "b", (100, 100)),
        )
    ]  # fmt: skip
    sources = tuple(Compared(label=label, facts={}) for label in ("one", f"two{word}"))
    return Comparison(sources=sources, entries=tuple(entries))


def sweep(word: str = "") -> Sweep:
    """Three sizes of each of two variables."""
    points = tuple(Point((a, b), {"flops": a * b, "macs": a + b}, counted=b < 3) for a in (1, 2, 4) for b in (1, 2, 3))
    return Sweep(source=f"net{word}", variables=(f"batch{word}", "image"), points=points)


def checkpoint(word: str = "") -> Scan:
    """Three tensors in as many modules."""
    tensors = tuple(
        StoredTensor(
            name=f"part{n}{word}.weight{word}", shape=(4, 4), dtype=f"type{word}", params=16, bytes=64, file=word
        )
        for n in range(3)
    )
    totals = Totals(tensors=3, params=48, bytes=192)
    return Scan(
        source=f"net{word}", format=f"form{word}", files=(word,), tensors=tensors, totals=totals, details={word: word}
    )


def step() -> Report:
    """Of 30 operators, 4 are of the forward pass, 6 of the backward pass, and 20 update parameters."""
    plain = report(blocks=2, ops=5)
    phases: list[Phase] = ["forward"] * 4 + ["backward"] * 6 + ["update"] * 20  # type: ignore[assignment]
    rows = [row._replace(op=row.op._replace(phase=phase)) for row, phase in zip(plain.rows, phases, strict=True)]
    return replace(plain, rows=rows, phases=dict.fromkeys(phases, Cost(1, 2, 3, 4)))


def sharded() -> Report:
    """The same on one of eight ranks: the first operator of each phase gathers, scatters or sums over the ranks."""
    rows = list(step().rows)
    for place, fn, axis in ((0, "all_gather", "fsdp"), (4, "reduce_scatter", "fsdp"), (10, "all_reduce", "tp")):
        attrs = {"fn": fn, "group": 8, "axis": axis}
        rows[place] = rows[place]._replace(
            op=rows[place].op._replace(kind="collective", raw=f"c10d::{fn}", attrs=attrs)
        )
    return replace(step(), rows=rows)


AMOUNTS = {"params": (100, 200, 400, 300), "macs": (1000, 4000, 2000, 500)}


def four() -> Comparison:
    """Four sources; the module `a` has all MACs, and is not in the last of them."""
    sources = tuple(Compared(label=label, facts={}) for label in ("one", "two", f"nets/three{HOSTILE}", "four"))
    totals = [
        Entry(
            part="total", name="", quantity=QUANTITIES[name], amounts=amounts, present=(True,) * 4, partial=(False,) * 4
        )
        for name, amounts in AMOUNTS.items()
    ]
    present = (True, True, True, False)
    module = Entry(
        part="module", name="a", quantity=QUANTITIES["macs"], amounts=(1000, 4000, 2000, 0), present=present, partial=(False,) * 4
    )  # fmt: skip
    return Comparison(sources=sources, entries=(*totals, module))


GIB = 2**30


def fit() -> Fit:
    """Of a limit of 10 GiB, 8 are used at batch 8 and the allocator holds 1 more."""
    counted = tuple(Counted(size, size * GIB, size * GIB <= 9 * GIB) for size in (1, 2, 8, 9))
    return Fit(
        source="net", vary="batch", largest=8, peak_bytes=8 * GIB, next_peak_bytes=9 * GIB, limit_bytes=10 * GIB,
        reserved_bytes=9 * GIB, next_reserved_bytes=11 * GIB, device="h200", parts={"weights": 3 * GIB, "saved": 5 * GIB},
        counted=counted, advice=(Advice(option="precision", value="bfloat16", largest=16, peak_bytes=8 * GIB),),
    )  # fmt: skip


def recomputation() -> Recomputation:
    """Two blocks of four are recomputed, which frees 4 of 11 GiB."""
    before, after = (
        StepCost(
            peak_bytes=peak * GIB, reserved_bytes=(peak + 1) * GIB, flops=flops * 10**12,
            latency_ns=ms * 10**6, band_ns=((ms - 1) * 10**6, (ms + 1) * 10**6),
        )
        for peak, flops, ms in ((11, 6, 40), (7, 7, 45))
    )  # fmt: skip
    return Recomputation(
        source="net", vary="batch", size=64, inputs="x 64x3 float32", checkpoint=("blocks.[0-1]",),
        modules=("blocks.0", "blocks.1"), before=before, after=after, limit_bytes=10 * GIB, device="h200",
        options={"optimizer": "adamw"}, parts={"weights": 3 * GIB, "saved": 4 * GIB}, notes=("a note of a recomputation",),
    )  # fmt: skip


def timed_sweep() -> Sweep:
    """Batches on a device, of which the largest does not fit; the image has one size."""
    points = tuple(
        Point(
            (batch, 224), {"flops": batch * 10**9, "peak_bytes": batch * GIB},
            latency_ns=batch * 10**6, item="image", items=batch, band_ns=(batch * 9 * 10**5, batch * 11 * 10**5), fits=batch < 8,
        )
        for batch in (1, 2, 4, 8)
    )  # fmt: skip
    return Sweep(source="net", variables=("batch", "image"), device="h200", points=points, notes=("a note",))


def verdict() -> Verdict:
    """A budget that is not kept."""
    line = LimitCheck(
        model="net", quantity=QUANTITIES["macs"], amount=200, partial=False, before=100,
        limit=parse_limit("macs", "<=150"), word="EXCEEDED",
    )  # fmt: skip
    return Verdict(models=(ModelCheck(name="net", source="net.py", inputs="x", lines=(line,)),), baseline="before.json")


def trace() -> str:
    """The page of the trace among the examples."""
    found = read_profile(Path(__file__).parents[2] / "examples" / "trace.json.gz", timeline=True)
    return HTML.render(query(found, aggregate_by=("type",)), profile=found)


PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: HTML.render(report(blocks=2, ops=2, uncounted=True)),
    "blocks": lambda: HTML.render(stack()),
    "training": lambda: HTML.render(step()),
    "sharded": lambda: HTML.render(sharded()),
    "profile": lambda: page_of(profile(count=4)),
    "trace": trace,
    "comparison": lambda: comparison().render("html"),
    "four": lambda: four().render("html"),
    "sweep": lambda: sweep().render("html"),
    "timed sweep": lambda: timed_sweep().render("html"),
    "fit": lambda: fit().render("html"),
    "recomputation": lambda: recomputation().render("html"),
    "verdict": lambda: verdict().render("html"),
    "checkpoint": lambda: checkpoint().render("html"),
}
"""A page of each kind of result, and of those that look unlike others of their kind."""
