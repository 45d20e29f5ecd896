"""What the pages of these tests are made of: small and large, tame and hostile, all without a framework."""

from __future__ import annotations

from typing import Any

from opcost.analysis.query import query
from opcost.core.graph import Cost, Memory, Note, Op, PeakHolder, Phase, TensorSpec
from opcost.core.limits import QUANTITIES
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.report import Coverage, ModuleCost, Report, Row, Stats, Uncounted, stats_of
from opcost.core.results import Compared, Comparison, Entry, Point, Sweep
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
