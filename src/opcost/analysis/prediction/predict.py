"""A report and the speeds of a device, put together: a profile of what was never run, with a band around its sum."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt
from typing import NamedTuple

from opcost.analysis.part import check_keys, label, parts_of, usual_side
from opcost.analysis.prediction.fusion import PlacedKernel, compiled
from opcost.analysis.prediction.host import TRAINING, Host, hosted, started_ns
from opcost.analysis.prediction.lengths import StepRange
from opcost.analysis.prediction.network import Network
from opcost.analysis.prediction.pipelines import pipelined
from opcost.analysis.prediction.speeds import GUESS, OperatorTime, Speeds
from opcost.analysis.prediction.work import Work, work_of
from opcost.core.devices import HOST
from opcost.core.graph import ZERO, Cost, Note
from opcost.core.overlap import BESIDE, Timeline, timeline
from opcost.core.profile import Profile, ProfileRow
from opcost.core.report import Report, Row
from opcost.options import Execution

GAP_NS = 400
"""Between the end of one kernel and the start of the next in a replayed graph: what was timed has it, a sum of kernels not."""
PRODUCTS = frozenset({"conv", "matmul", "attention"})
PRODUCT_NS, OTHER_NS = 900, 300
"""What a product, or another operator, starts later in a model, where another kernel ran before it, than called again and again:
its instructions and small tensors are no longer in the cache. Fitted to whole models, as `GAP_NS`."""
COMPILED_NS = 500
"""The same for a product between kernels of a compiler, which are few and large."""
WHOLE = 0.09
"""How far whole models are off beyond what their operators' spreads add up to: of 245 graphs and 104 training steps, each
predicted without its family of models, 83 % are inside the band."""
ELSEWHERE = 0.25
"""The same for a device that was not calibrated: the printed peaks with the shares that another device reaches of its own."""
ON_A_PROCESSOR = 0.1
"""How far a processor is off besides: its caches are shared, and large products are not timed on it."""
OF_A_RUN = 0.08
"""How far off a rank of many is on devices whose runs were published: of 42 that nothing was fitted to 37 are inside the band."""
UNCHECKED = 0.2  # how far what was checked with few measured models may be off besides: what a compiler merges


SENDING = 0.3
"""How far off the time may be in which operators wait for collectives: assumed, as none was measured."""
TOGETHER = 0.1  # the spread of an operator over many tensors at once, which only moves memory
SAMPLES = 9  # steps of a piece whose times are predicted; between two of them they are on a line


class Predicted(NamedTuple):
    """What a model would take."""

    profile: Profile
    latency_ns: int  # kernels and the gaps between them; run eagerly also the waiting for the host
    kernel_ns: int
    band_ns: tuple[int, int]  # 80 % of the measured models are inside such a band
    ideal_ns: int  # at the printed peaks of the device, every operator at its roofline
    bounds: Mapping[str, int]  # the time of what waits for each: compute, memory, launch, host
    likened_ns: int  # the time of operators like which nothing was timed: that of what is most like them
    timeline: Timeline | None = None  # of one rank of many: its collectives, and what waits for them


def predict_report(
    report: Report, speeds: Speeds, meta: Mapping[str, str], *, calibrated: bool, execution: Execution = "graph",
    host: Host | None = None, network: Network | None = None, kernels: Sequence[PlacedKernel] | None = None, longer: float = 1.0,
) -> Predicted:  # fmt: skip
    """What the operators of a report would take, one after another; of a `host`, run eagerly by it.

    With a `network`, collectives run beside them, and each takes as long as operators wait for it. Compiled, they are these
    `kernels`, or those of the whole. Operators take some times `longer` in a long run.
    """
    running: Sequence[Row] = report.rows
    if execution == "compiled":
        running, speeds = [kernel.row for kernel in kernels or compiled(report)], speeds.merging()
    given = running if network is None else [row for row in running if row.op.kind != "collective"]
    rows: list[ProfileRow] = []
    guessed: dict[str, list[int]] = {}
    bounds = {"compute": 0, "memory": 0, "launch": 0, "host": 0}
    variance, ideal, gaps = 0.0, 0.0, 0.0
    on_host = speeds.device.name == HOST
    for row, found in timed(given, speeds):
        op, times = row.op, row.op.repeat
        later = 0 if on_host or op.phase == "update" else _later(op.kind, execution)
        taken = round((found.device_ns + later) * times * longer)
        variance += (found.spread * found.device_ns) ** 2 * times if found.known else 0.0
        bounds[found.bound] += taken
        ideal += found.ideal_ns * times
        gaps += (GAP_NS + later) * found.kernels * times * longer
        if not found.known:
            guessed.setdefault(op.raw, []).append(taken)
        rows.append(
            ProfileRow(
                id=op.id, name=op.module or op.raw, type=op.raw, kind=op.kind, module=op.module, phase=op.phase,
                device=meta["device"], device_ns=taken, device_total_ns=taken, ins=row.ins, outs=row.outs,
                attrs={**op.attrs, "bound": found.bound, "ideal_ns": round(found.ideal_ns * times)},
                cost=row.cost, count=times,
            )
        )  # fmt: skip
    work = latency = sum(row.device_ns or 0 for row in rows)
    whole = WHOLE + (0 if calibrated else ELSEWHERE)
    compared = network is not None and speeds.device.draw is not None
    whole = OF_A_RUN if compared else whole
    whole += ON_A_PROCESSOR if on_host else 0
    likened = sum(map(sum, guessed.values()))  # which may all be off in the same direction
    unsure = (whole * work) ** 2 + 1.6 * variance + (GUESS * likened) ** 2
    in_time: Timeline | None = None
    started = started_ns(report, host) if host is not None else {}
    waited = 0
    if network is not None:
        alone = {row.id: float(row.device_ns or 0) for row in rows}
        launched = {number: reached for number, (_, reached) in started.items()}
        if report.pipeline:
            in_time = pipelined(report, partial(_taken, speeds=speeds, execution=execution, longer=longer), network)
        else:
            parts = network.in_parts
            in_time = timeline(running, report.input_values, alone, network.taken_ns, launched, BESIDE, parts)
        rows = network.beside(rows, in_time, meta["device"])
        latency, waited = round(in_time.end_ns), round(in_time.host_ns)
        for bound in (*bounds, "network"):
            bounds[bound] = sum(row.device_ns or 0 for row in rows if row.attrs["bound"] == bound)
        unsure += (SENDING * bounds["network"]) ** 2
        if report.pipeline:  # stages wait for as much longer as others take
            bounds["bubble"] = round(in_time.bubble_ns)
            unsure *= (latency / max(1, latency - bounds["bubble"])) ** 2
    elif host is not None:
        rows, latency = hosted(rows, started)
        waited = latency - work
    if host is not None:
        bounds["host"] = waited
        training = any(row.op.phase != "forward" for row in report.rows)
        unsure += (host.spread**2 + (TRAINING**2 if training else 0)) * waited**2
    if execution == "compiled" and not compared:
        unsure += (UNCHECKED * work) ** 2
    notes = _notes(report, speeds, guessed, calibrated=calibrated, merges=execution == "compiled")
    profile = Profile(
        meta={**report.meta, **meta, "subject": report.subject, "inputs": report.run_on, "format": "prediction"},
        rows=tuple(rows),
        notes=(*report.notes, *notes),
    )
    band = (round(max(ideal, latency - sqrt(unsure))), round(latency + sqrt(unsure)))
    return Predicted(profile, latency, max(0, work - round(gaps)), band, round(ideal), bounds, likened, in_time)


def _taken(report: Report, speeds: Speeds, execution: Execution, longer: float) -> dict[int, float]:
    """What the operators of another rank take."""
    rows = [row for row in report.rows if row.op.kind != "collective"]
    return {
        row.op.id: (found.device_ns + (0 if row.op.phase == "update" else _later(row.op.kind, execution)))
        * row.op.repeat * longer
        for row, found in timed(rows, speeds)
    }  # fmt: skip


def _later(kind: str, execution: Execution) -> int:
    """How much later an operator starts than when it was timed; what a compiler writes, and convolutions, were within models."""
    if execution == "compiled":
        return COMPILED_NS if kind in PRODUCTS - {"conv"} else 0
    return PRODUCT_NS if kind in PRODUCTS else OTHER_NS


def ideal_of(row: ProfileRow) -> int:
    """What a row would take at the printed peaks of the device."""
    found = row.attrs.get("ideal_ns")
    return found if isinstance(found, int) else 0


def predict_steps(
    pieces: Sequence[StepRange], speeds: Speeds, meta: Mapping[str, str], *, calibrated: bool, execution: Execution,
    host: Host | None = None,
) -> Predicted:  # fmt: skip
    """What many steps take together, each row standing for all of its executions."""
    every: list[Predicted] = []
    for piece in pieces:
        found = [
            (
                predict_report(piece.at(tokens), speeds, meta, calibrated=calibrated, execution=execution, host=host),
                weight,
            )
            for tokens, weight in piece.samples(SAMPLES)
        ]
        last = found[-1][0].profile
        sums: dict[int, list[int]] = {}  # twice what one row of a step comes to in all steps of the piece
        for each, weight in found:
            for row in each.profile.rows:
                cost = row.cost or ZERO
                costs = cost.macs, cost.flops, cost.bytes_read, cost.bytes_written
                amounts = row.device_ns or 0, row.host_ns or 0, ideal_of(row), *costs
                total = sums.setdefault(row.id, [0] * len(amounts))
                sums[row.id] = [old + weight * new for old, new in zip(total, amounts, strict=True)]
        rows = []
        for row in last.rows:  # times are those of all executions, costs those of one, as in every profile
            device, on_host, ideal, *totals = sums[row.id]
            host_ns = on_host // 2 if row.host_ns is not None else None
            rows.append(
                row._replace(
                    device_ns=device // 2, device_total_ns=device // 2, host_ns=host_ns, host_self_ns=host_ns,
                    attrs={**row.attrs, "ideal_ns": ideal // 2}, count=row.count * piece.steps,
                    cost=None if row.cost is None else Cost(*(total // (2 * piece.steps) for total in totals)),
                )
            )  # fmt: skip
        every.append(_added(found, 2, replace(last, rows=tuple(rows))))
    return joined(every)


def _added(found: Sequence[tuple[Predicted, int]], divisor: int, profile: Profile) -> Predicted:
    """The sum of predictions by their weights, divided."""
    times = [(each.latency_ns, each.kernel_ns, *each.band_ns, each.ideal_ns, each.likened_ns) for each, _ in found]
    names = dict.fromkeys(name for each, _ in found for name in each.bounds)

    def added(numbers: Iterable[int]) -> int:
        return sum(weight * number for (_, weight), number in zip(found, numbers, strict=True)) // divisor

    latency, kernels, low, high, ideal, likened = map(added, zip(*times, strict=True))
    bounds = {name: added([each.bounds.get(name, 0) for each, _ in found]) for name in names}
    return Predicted(profile, latency, kernels, (low, high), ideal, bounds, likened)


def joined(found: Sequence[Predicted]) -> Predicted:
    """Several passes one after another as one."""
    rows = [row for each in found for row in each.profile.rows]
    notes = tuple(dict.fromkeys(note for each in found for note in each.profile.notes))
    numbered = tuple(row._replace(id=number) for number, row in enumerate(rows))
    return _added([(each, 1) for each in found], 1, replace(found[-1].profile, rows=numbered, notes=notes))


_ONE_EACH = ("optimizer_update_32bit", "optimizer_update_8bit_blockwise")
"""Updates of bitsandbytes, which start a kernel for each parameter."""


def timed(rows: Iterable[Row], speeds: Speeds) -> Iterable[tuple[Row, OperatorTime]]:
    """Every operator that runs, with its time; an optimizer's are started once for all parameters, not once for each."""
    update: dict[tuple[str, str], list[tuple[Row, int]]] = {}
    one_by_one = speeds.device.name == HOST
    # Equal operators share attributes, tensors' sizes and costs. The row is kept, so that the identities remain theirs.
    known: dict[object, tuple[Work, Row]] = {}
    for row in rows:
        op = row.op
        if op.kind == "view" or not op.repeat:
            continue
        key = (op.kind, op.raw, id(op.attrs), id(row.cost), len(row.ins), *map(id, row.ins), *map(id, row.outs))
        if key not in known:
            known[key] = work_of(op.kind, op.raw, op.attrs, row.ins, row.outs, row.cost), row
        work, _ = known[key]
        if op.phase != "update" or one_by_one or op.raw.rpartition("::")[2] in _ONE_EACH:
            yield row, speeds.time(work)
        elif op.kind != "create" or op.raw.endswith("_"):
            # An optimizer's state is made in the first step, and there in others.
            update.setdefault((op.raw, work.dtype), []).append((row, work.nbytes))
    for (raw, _), found in update.items():
        outs = [spec for row, _ in found for spec in row.outs if spec.known]
        given = sum(spec.known and spec.numel > 1 for row, _ in found for spec in row.ins)  # a number is no list
        lists = max(1, round(given / max(1, len(outs)))) + (not raw.endswith("_"))
        moved = sum(nbytes for _, nbytes in found)
        itemsize = max((spec.nbytes // max(1, spec.numel) for spec in outs), default=4)
        sizes = [spec.numel for spec in outs]
        taken = multi_tensor_ns(raw, sizes, lists, moved, itemsize, speeds.reached)
        kernels = sum(1 for _ in multi_tensor_launches(sizes, lists)) / len(found)
        for row, nbytes in found:
            share = nbytes / moved if moved else 1 / len(found)
            ideal = nbytes / speeds.device.bandwidth * 1e9
            yield row, OperatorTime(taken * share, TOGETHER, "memory", ideal, known=True, kernels=kernels)


def _notes(
    report: Report, speeds: Speeds, guessed: Mapping[str, list[int]], *, calibrated: bool, merges: bool
) -> Iterable[Note]:
    for raw, taken in sorted(guessed.items(), key=lambda item: -sum(item[1])):
        how = "nothing like it in size was timed on this device; its time is that of what is most like it"
        yield Note("guessed-time", f"{raw} ({len(taken)}x): {how}")
    for missed in report.coverage.uncounted:
        how = "has no cost model: its time is a guess from the memory it moves"
        yield Note("uncosted", f"{missed.raw} ({missed.count}x) {how}")
    if merges:
        few = "predictions of merged operators were compared with few measured ones: the band is wider"
        yield Note("unchecked-band", few)
    if calibrated:
        return
    name = speeds.device.name
    yield Note(
        "estimate", f"nothing was timed on {name}: this is an estimate from its printed peaks, with a wider band"
    )
    multiplied = {row.ins[0].dtype for row in report.rows if row.ins and row.cost is not None and row.cost.macs}
    for dtype in sorted(multiplied):
        if speeds.device.peak_flops(dtype) is None:
            yield Note("estimate", f"no peak of {name} for products of {dtype} is printed: that of float32 is taken")


# -- together: One simple operator over many tensors at once, as optimizers update all parameters of a model.
#
# PyTorch cuts the tensors into chunks, one for each block of threads, and starts a kernel for as many tensors or chunks as its
# arguments have room for. A kernel takes at least as long as one block takes for the largest chunk, however few there are.

CHUNK = 65_536  # elements that one block of threads goes through
CHUNKS = 320  # chunks that one kernel takes
TENSORS = (110, 64, 48, 36, 30)  # tensors that one kernel takes, where they come in one list, in two, and so on
START_NS = 2_500
BLOCK_NS = {"plain": 15_000, "expensive": 26_000}
"""What a block takes for a whole chunk; fitted to Adam of half of the measured models, and checked with the others."""
REACHED = {("plain", 2): 0.6, ("plain", 4): 0.8, ("expensive", 2): 0.4, ("expensive", 4): 0.7}
"""The share of the bandwidth of an H200 that is reached, by the bytes of an element."""
EXPENSIVE = frozenset({"sqrt", "div", "addcdiv", "pow", "exp", "reciprocal", "rsqrt"})  # roots and quotients


def multi_tensor_ns(
    raw: str, sizes: Sequence[int], lists: int, moved: int, itemsize: int, reached: Callable[[float], float]
) -> float:
    """The time of all kernels of an operator over tensors of these sizes, which moves this many bytes."""
    name = raw.rpartition("::")[2].removeprefix("_foreach_").rstrip("_")
    cost = "expensive" if name in EXPENSIVE else "plain"
    rate = reached(REACHED[cost, 2 if itemsize <= 2 else 4])
    each = moved / max(1, sum(sizes))
    return sum(
        max(START_NS + BLOCK_NS[cost] * largest / CHUNK, elements * each / rate * 1e9)
        for elements, largest in multi_tensor_launches(sizes, lists)
    )


def multi_tensor_launches(sizes: Iterable[int], lists: int) -> Iterator[tuple[int, int]]:
    """The elements that each kernel goes through, and those of its largest chunk."""
    most = TENSORS[min(lists, len(TENSORS)) - 1]
    tensors = chunks = elements = largest = 0
    for size in sizes:
        tensors += 1
        for begin in range(0, max(1, size), CHUNK):
            chunk = min(CHUNK, size - begin)
            chunks += 1
            elements += chunk
            largest = max(largest, chunk)
            ends = begin + CHUNK >= size
            if chunks == CHUNKS or (ends and tensors == most):
                yield elements, largest
                chunks = elements = largest = 0
                tensors = 0 if ends else 1
    if chunks:
        yield elements, largest


# -- shares: What the parts of a prediction wait for, and how far each is from what its device could do.


@dataclass(slots=True)
class Share:
    """All operators of one module, type, kind or name."""

    key: str
    time_ns: int = 0
    ideal_ns: int = 0  # at the printed peaks of the device
    bounds: dict[str, int] = field(default_factory=dict)  # its time by what the operators wait for


def shares(profile: Profile, by: str, depth: int | None) -> tuple[Share, ...]:
    """The rows added up by a key, the longest first."""
    check_keys((by,))
    found: dict[str, Share] = {}
    for part in parts_of(profile, usual_side(profile), "time"):
        key = label(part, by, depth)
        share = found.setdefault(key, Share(key))
        if part.row is not None:
            bound = str(part.row.attrs.get("bound", ""))
            share.time_ns += part.time_ns
            share.ideal_ns += ideal_of(part.row)
            share.bounds[bound] = share.bounds.get(bound, 0) + part.time_ns
    return tuple(sorted(found.values(), key=lambda share: -share.time_ns))
