"""A pass of a language model as a serving engine runs it, from the operators that transformers runs.

What an engine such as vLLM does otherwise shows in what reads what, whatever the parts of a model are called: projections of one
input are one product; the simple operators after a product, with normalisations and rotary positions among them, are one kernel;
keys and values are added to a cache in blocks instead of being joined with it, and attention reads them there, without repeated
heads or masks. What depends on positions alone is known before. Other operators stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import hypot
from typing import NamedTuple

from opcost.analysis.prediction.predict import UNCHECKED, Predicted
from opcost.core.devices import Device
from opcost.core.graph import ZERO, Attrs, Cost, Memory, MemoryPart, Note, Op, TensorSpec
from opcost.core.report import Report, Row
from opcost.core.units import format_bytes
from opcost.errors import counted, some

SIMPLE = frozenset(
    {"elementwise", "copy", "norm", "softmax", "reduce", "create", "random", "gather", "scatter", "sort"}
)
"""Kinds that an engine merges; the last three are those of routing to experts."""
KNOWN = frozenset({"matmul", "attention", "embedding"})  # kernels that the engine has, too
BLOCK = 16  # tokens of a block of the cache
UTILIZATION = 0.9  # the share of a device's memory that the engine takes
LARGE = 70 << 30  # devices with so much memory read more tokens in a step
SCORES = "scores as float32"  # the first kernel that chooses the next tokens
_SCALARS = 2  # elements of a constant that is an argument of a kernel and not read by it
_NAMED = 3  # operators of a kernel that are named
_BATCH_HEADS_TOKENS_FEATURES = 4


class Limits(NamedTuple):
    """How much an engine does in one step, by default."""

    tokens: int
    sequences: int


def limits(device: Device) -> Limits:
    """The defaults of vLLM's server, which depend on the device."""
    large = device.memory is not None and device.memory >= LARGE and not device.name.startswith("a100")
    return Limits(8192, 1024) if large else Limits(2048, 256)


def served(report: Report) -> Report:
    """The same pass as an engine runs it; a note names operators that no engine is known to run otherwise."""
    engine = _Engine(report)
    for row in report.rows:
        engine.add(row)
    rows = engine.rows()
    others = Counter(row.op.raw for row in rows if row.op.kind not in KNOWN and row.rule != _RULE)
    others += Counter(row.op.raw for row in rows if row.op.kind == "matmul" and row.op.id in engine.unknown)
    notes = report.notes
    if others:
        names = ", ".join(some([f"{raw} ({count}x)" for raw, count in sorted(others.items())]))
        notes = (*notes, Note("engine", f"taken as transformers runs them: {names}"))
    return replace(report, rows=tuple(rows), notes=notes)


_RULE = "merged"


@dataclass(slots=True, eq=False)
class _ServedKernel:
    """Operators that the engine runs as one."""

    level: int  # how many products and others are before it
    make: str  # how its row is made: "as it is", "joined", "simple"
    steps: list[_ServedStep] = field(default_factory=list)


class _ServedStep(NamedTuple):
    """An operator in its kernel, with the values that it reads and makes; views of a value are that value."""

    row: Row
    reads: Mapping[int, TensorSpec]
    makes: Mapping[int, TensorSpec]
    kernel: _ServedKernel


class _Cached(NamedTuple):
    """Keys or values of all tokens, as they are joined, and those that a pass adds."""

    row: Row
    new: tuple[int, TensorSpec]


class _Engine:
    def __init__(self, report: Report) -> None:
        self._inputs = frozenset(report.input_values)
        self._moving = set(report.input_values)  # values that depend on the texts
        self._weights = {value for each in report.parameters if not each.buffer for value in each.values}
        self._results = report.output_values
        self._tokens = int(report.meta["batch"]) * int(report.meta["text_tokens"])
        self._same: dict[int, int] = {}  # of a view, the value that it shows
        self._made_by: dict[int, Row] = {}
        self._cached: dict[int, _Cached] = {}
        self._before = _ServedKernel(0, "")
        self._after: dict[int, _ServedKernel] = {}  # the last kernel but simple ones that a value depends on
        self._joined: dict[tuple[object, ...], _ServedKernel] = {}
        self._simple: dict[tuple[_ServedKernel, int], _ServedKernel] = {}
        self._steps: list[_ServedStep] = []
        self._table: TensorSpec | None = None  # of the first embedding
        self._attended: set[int] = set()  # results of attention
        self.unknown: set[int] = set()  # products of two results that belong to no attention

    def _root(self, value: int) -> int:
        return self._same.get(value, value)

    def add(self, row: Row) -> None:
        op = row.op
        self._made_by.update(dict.fromkeys(op.outputs, row))
        ins = {self._root(value): spec for value, spec in zip(op.inputs, row.ins, strict=False)}
        if op.kind == "view" or (op.kind == "copy" and self._attended.issuperset(ins)):
            # Attention writes its results as they are read.
            self._same.update(dict.fromkeys(op.outputs, next(iter(ins))) if ins else {})
        elif not all(spec.known for spec in (*row.ins, *row.outs)):  # sizes that depend on data
            self._own(row, ins)
        elif self._lengthens_cache(row):
            self._cached[op.outputs[0]] = _Cached(row, (self._root(op.inputs[1]), row.ins[1]))
            self._put_after(op.outputs, self._latest(ins))
        elif op.kind in SIMPLE and not self._moving.intersection(ins):
            # Of weights or positions alone: made once, or within what reads it
            of_weights = [value for value in ins if value in self._weights]
            self._same.update(dict.fromkeys(op.outputs, of_weights[0]) if of_weights else {})
        elif op.kind in SIMPLE:
            latest = self._latest(ins)
            kernel = self._simple.setdefault((latest, op.repeat), _ServedKernel(latest.level, "simple"))
            whole = {value: self._whole(value, spec) for value, spec in ins.items()} if op.kind != "gather" else ins
            self._step(row, whole, kernel, latest)
        elif op.kind == "attention":
            self._attention(row, op.inputs[:3], row.ins[:3], row.cost)
        elif op.kind == "matmul" and len(ins) > 1:
            self._product(row, ins)
        else:
            if op.kind == "embedding" and self._table is None:
                self._table = row.ins[0]
            self._own(row, ins)

    def _lengthens_cache(self, row: Row) -> bool:
        """It joins keys or values of tokens before, of which there may be none, with those of new ones."""
        if row.op.raw.rpartition("::")[2] != "cat" or len(row.ins) != len(("before", "new")):
            return False
        before, new = row.op.inputs[:2]
        empty = not row.ins[0].numel and self._root(before) not in self._moving
        fits = all(len(spec.dims) == _BATCH_HEADS_TOKENS_FEATURES for spec in (row.ins[1], row.outs[0]))
        return fits and self._root(new) in self._moving and (empty or self._root(before) in self._inputs)

    def _whole(self, value: int, seen: TensorSpec) -> TensorSpec:
        """A value of which a part, or the same part several times, is seen."""
        row = self._made_by.get(value)
        return seen if row is None else row.outs[row.op.outputs.index(value)]

    def _latest(self, values: Iterable[int]) -> _ServedKernel:
        known = (self._after[value] for value in values if value in self._after)
        return max(known, key=lambda kernel: kernel.level, default=self._before)

    def _put_after(self, values: Iterable[int], kernel: _ServedKernel) -> None:
        for value in values:
            self._moving.add(value)
            self._after[value] = kernel

    def _step(
        self, row: Row, reads: Mapping[int, TensorSpec], kernel: _ServedKernel, after: _ServedKernel | None = None
    ) -> None:
        makes = dict(zip(row.op.outputs, row.outs, strict=False))
        step = _ServedStep(row, reads, makes, kernel)
        kernel.steps.append(step)
        self._steps.append(step)
        self._put_after(makes, after or kernel)

    def _own(self, row: Row, reads: Mapping[int, TensorSpec]) -> _ServedKernel:
        kernel = _ServedKernel(1 + self._latest(reads).level, "as it is")
        self._step(row, reads, kernel)
        return kernel

    def _product(self, row: Row, ins: dict[int, TensorSpec]) -> None:
        op = row.op
        (x, given), (weight, matrix) = list(ins.items())[:2]
        if weight in self._weights and len(matrix.dims) == len("KN"):
            # Projections of one module that read the same input
            key = (x, op.module.rpartition(".")[0], op.attrs.get("depth"), op.repeat, row.outs[0].dims[:-1])
            kernel = self._joined.get(key)
            if kernel is None:
                self._joined[key] = self._own(row, ins)
                self._joined[key].make = "joined"
            else:
                self._step(row, ins, kernel)
        elif weight in self._weights:  # a matrix for each expert
            source = self._made_by.get(x)
            if source is not None and source.op.kind == "gather":  # it picks the tokens of an expert itself
                x = self._root(source.op.inputs[0])
            touched = _touched(matrix, given.dims[-2] / self._tokens, self._tokens)
            changed = row._replace(ins=(given, touched, *row.ins[2:]))
            others = {value: spec for value, spec in list(ins.items())[1:] if value != weight}
            self._own(_costed(changed), {x: given, weight: touched, **others})
        elif (scores := self._scores(op.inputs[0])) is not None:
            first = scores.row
            specs = first.ins[0], first.ins[1], row.ins[1]
            costs = [each.cost or ZERO for each in (first, row)]
            values = first.op.inputs[0], first.op.inputs[1], op.inputs[1]
            self._attention(row, values, specs, costs[0] + costs[1])
        else:
            self.unknown.add(op.id)
            self._own(row, ins)

    def _scores(self, value: int) -> _ServedStep | None:
        """The product of queries and keys from whose softmax alone a value comes."""
        kernel = self._after.get(self._root(value))
        if kernel is None or len(kernel.steps) != 1 or kernel.steps[0].row.op.id not in self.unknown:
            return None
        step = kernel.steps[0]
        after = self._simple.get((kernel, step.row.op.repeat))
        if after is None or all(each.row.op.kind != "softmax" for each in after.steps):
            return None
        self.unknown.discard(step.row.op.id)
        return step

    def _attention(self, row: Row, values: tuple[int, ...], specs: tuple[TensorSpec, ...], cost: Cost | None) -> None:
        sources = [self._source(value, spec) for value, spec in zip(values, specs, strict=True)]
        added = [self._cached.pop(value) for value, _ in sources if value in self._cached]
        if added:  # a kernel of its own writes the new keys and values into their blocks
            new = dict(each.new for each in added)
            outputs = tuple(each.row.op.outputs[0] for each in added)
            put = added[0].row.op._replace(
                kind="elementwise", raw="write to the cache", inputs=tuple(new), outputs=outputs, attrs=_MERGED
            )
            self._own(_costed(Row(put, tuple(new.values()), tuple(new.values()), None, _RULE)), new)
        ins = tuple(spec for _, spec in sources)
        attrs: Attrs = {"causal": True} if ins[0].dims[-2] > 1 else {}
        op = row.op._replace(kind="attention", raw="paged attention", attrs=attrs, outputs=row.op.outputs[:1])
        self._own(_costed(Row(op, ins, row.outs[:1], cost, _RULE)), dict(sources))
        self._attended.update(op.outputs)

    def _source(self, value: int, spec: TensorSpec) -> tuple[int, TensorSpec]:
        """What attention reads: a value before its heads are repeated or its axes turned for a product."""
        value = self._root(value)
        while value not in self._cached and value in self._made_by:
            row = self._made_by[value]
            if row.op.kind not in ("view", "copy") or len(row.op.inputs) != 1:
                break
            value, given = self._root(row.op.inputs[0]), row.ins[0]
            if len(given.dims) == _BATCH_HEADS_TOKENS_FEATURES and given.numel <= spec.numel:
                spec = given
        return value, self._cached[value].row.outs[0] if value in self._cached else spec

    def rows(self) -> list[Row]:
        """The operators of the engine, in the order in which they end."""
        for each in self._cached.values():  # of attention that is not known
            self._own(each.row, dict(zip(map(self._root, each.row.op.inputs), each.row.ins, strict=False)))
        self._steps.sort(key=lambda step: step.row.op.id)
        wanted = {self._root(value) for value in self._results}
        kept: list[_ServedStep] = []
        for step in reversed(self._steps):
            if wanted.intersection(step.makes):
                kept.append(step)
                wanted.update(step.reads)
        readers: dict[int, set[_ServedKernel]] = {}
        steps: dict[_ServedKernel, list[_ServedStep]] = {}
        for step in reversed(kept):
            steps.setdefault(step.kernel, []).append(step)
            for value in step.reads:
                readers.setdefault(value, set()).add(step.kernel)
        results = {self._root(value) for value in self._results}
        found = []
        for kernel, inside in steps.items():
            made = {value: spec for step in inside for value, spec in step.makes.items()}
            read = {value: spec for step in inside for value, spec in step.reads.items() if value not in made}
            seen = {v: spec for v, spec in made.items() if v in results or readers.get(v, set()) - {kernel}}
            found.append((inside[-1].row.op.id, _one(kernel.make, inside, read, seen)))
        rows = [row for _, row in sorted(found, key=lambda each: each[0])]
        return [*rows, *self._sampling(rows)]

    def _sampling(self, rows: list[Row]) -> Iterator[Row]:
        """The choice of the next token from scores for each word that the model knows."""
        last = rows[-1] if rows else None
        if last is None or self._table is None or not last.outs or not last.outs[0].known:
            return
        if last.outs[0].dims[-1:] != self._table.dims[:1]:
            return
        scores, numbers = last.outs[0], TensorSpec(last.outs[0].dims, "float32")
        chosen = TensorSpec(scores.dims[:-1], "int64")
        for number, (raw, given, made) in enumerate(
            ((SCORES, scores, numbers), ("the highest score", numbers, chosen)), 1
        ):
            op = Op(last.op.id + number, "elementwise", raw, (), (), _MERGED, last.op.module)
            yield _costed(Row(op, (given,), (made,), None, _RULE))


def _one(make: str, steps: list[_ServedStep], read: Mapping[int, TensorSpec], seen: Mapping[int, TensorSpec]) -> Row:
    """The row of a kernel: with what it reads of others, and what others see of it."""
    last = steps[-1].row
    op = last.op._replace(inputs=tuple(read), outputs=tuple(seen))
    if make == "joined" and len(steps) > 1:
        n = sum(step.row.outs[0].dims[-1] for step in steps)
        x, out = last.ins[0], last.outs[0]
        given = [TensorSpec((*spec.dims[:-1], n), spec.dtype) for spec in last.ins[1:]]
        made = TensorSpec((*out.dims[:-1], n), out.dtype)
        cost = sum((step.row.cost or ZERO for step in steps), ZERO)
        names = [step.row.op.module.rpartition(".")[2] for step in steps]
        module = last.op.module.rpartition(".")[0]
        return _costed(Row(op._replace(module=f"{module}.{'+'.join(names)}"), (x, *given), (made,), cost, _RULE))
    if make != "simple":
        return last._replace(op=op)
    names = list(dict.fromkeys(step.row.op.raw.rpartition("::")[2] for step in steps))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    if len(names) > 1:
        op = op._replace(kind="elementwise", raw=f"merged {', '.join(names[:_NAMED])}{more}", attrs=_MERGED)
    flops = sum((step.row.cost or ZERO).flops for step in steps)
    ins = tuple(spec for spec in read.values() if spec.known and spec.numel >= _SCALARS)
    return _costed(Row(op, ins, tuple(seen.values()), Cost(0, flops), _RULE))


_MERGED: Attrs = {"fn": "merged"}


def _costed(row: Row) -> Row:
    """The row with the bytes of its tensors as they are now."""
    read, written = (sum(spec.nbytes for spec in specs if spec.known) for specs in (row.ins, row.outs))
    return row._replace(cost=replace(row.cost or ZERO, bytes_read=read, bytes_written=written))


def _touched(matrices: TensorSpec, chosen: float, tokens: int) -> TensorSpec:
    """Of the matrices of experts, those that are read where each token chooses some: as many as are expected."""
    experts, *sizes = matrices.dims
    expected = experts * (1 - (1 - min(1.0, chosen / experts)) ** tokens)
    return TensorSpec((max(1, round(expected)), *sizes), matrices.dtype)


def repeated(report: Report, times: int) -> Report:
    """The same pass several times."""
    rows = (row._replace(op=row.op._replace(repeat=row.op.repeat * times)) for row in report.rows)
    return replace(report, rows=tuple(rows))


def in_steps(batch: int, tokens: int, most: int) -> tuple[tuple[int, int], ...]:
    """How many prompts of this length are read together in steps of at most `most` tokens, and how often."""
    together = min(batch, max(1, most // tokens))
    return tuple((size, times) for size, times in ((together, batch // together), (batch % together, 1)) if size)


ENGINES = {"vllm": "vLLM"}
SERVED = "in a serving engine: paged cache, CUDA graphs, weights of the same input as one"


def unsure(found: Predicted) -> Predicted:
    """With an interval as wide as what was checked with few measured engines needs."""
    more = UNCHECKED * found.latency_ns
    low, high = (
        found.latency_ns + round(side * hypot(edge - found.latency_ns, more))
        for side, edge in zip((-1, 1), found.band_ns, strict=True)
    )
    return found._replace(band_ns=(max(found.ideal_ns, low), high))


def assumptions(device: Device, batch: int, prompt: int | None, memory: Room | None) -> Iterator[Note]:
    """What is taken for granted about the engine and its requests."""
    most = limits(device)
    yield Note(
        "engine",
        "as vLLM by default, version 0.10 or later: FlashAttention on a cache in blocks of 16 tokens, a step of decoding as "
        "one CUDA graph, projections of one input as one product, the operators between products as one kernel, the word "
        "with the highest score; no speculation, no cache of earlier prompts, and without the host's work between steps",
    )
    if prompt is not None:
        together = min(batch, max(1, most.tokens // prompt))
        yield Note(
            "engine",
            f"all {counted(batch, 'text')} begin together, and {together} of their prompts are read in a step of at most "
            f"{most.tokens:,} tokens: the first token is that of the last text",
        )
    if memory is not None:
        yield Note(
            "engine",
            f"the cache has {format_bytes(memory.cache)}: {UTILIZATION * 100:.0f} % of the device's memory less weights and "
            f"{format_bytes(memory.activations)} for the results of a step",
        )


# -- memory ------------------------------------------------------------------------------------------------------------


class Room(NamedTuple):
    """The memory of an engine on a device."""

    weights: int
    activations: int  # the most that a step of as many tokens as the engine reads at once takes
    cache: int  # what is left for the cache
    per_text: int  # what one text takes of it at its end, in whole blocks
    limit: int  # all that the engine takes of the device's memory

    @property
    def largest_batch(self) -> int:
        return self.cache // max(1, self.per_text)

    def used(self, batch: int, device: Device) -> Memory:
        """The memory with this number of texts."""
        peak = self.weights + self.activations + batch * self.per_text
        parts: dict[MemoryPart, int] = {
            "weights": self.weights, "inputs": batch * self.per_text, "temporary": self.activations,
        }  # fmt: skip
        return Memory(
            peak_bytes=peak,
            base_bytes=peak - self.activations,
            at=0,
            how="last reader",
            device=device.name,
            parts=parts,
        )


def room(report: Report, device: Device) -> Room | None:
    """How much of a device's memory the weights leave for the cache of texts that end with this pass, which is `served`."""
    if device.memory is None:
        return None
    most = limits(device)
    batch, new, tokens, size = (
        int(report.meta[name]) for name in ("batch", "text_tokens", "cache_tokens", "cache_bytes")
    )
    words = max((row.outs[0].dims[-1] for row in report.rows if row.op.raw == SCORES), default=0)
    # As they are, as float32, and their logarithms
    sampling = most.sequences * words * (2 + 4 + 4)
    activations = max(sampling, _live_bytes(report.rows, words) * most.tokens // (batch * new))
    weights = report.totals.param_bytes + report.totals.buffer_bytes
    in_blocks = -(-tokens // BLOCK) * BLOCK
    limit = int(UTILIZATION * device.memory)
    left = max(0, limit - weights - activations)
    return Room(weights, activations, left, size * in_blocks // (batch * tokens), limit)


def _live_bytes(rows: Sequence[Row], words: int) -> int:
    """The most bytes of results at once, but for scores of words, each kept until its last reader."""
    read_by = {value: place for place, row in enumerate(rows) for value in row.op.inputs}
    changes = [0] * (len(rows) + 1)
    for place, row in enumerate(rows):
        for value, spec in zip(row.op.outputs, row.outs, strict=False):
            if row.op.raw != "write to the cache" and spec.known and spec.dims[-1:] != (words,):
                changes[place] += spec.nbytes
                changes[max(place, read_by.get(value, place)) + 1] -= spec.nbytes
    return max(accumulate(changes), default=0)
