"""Operators as a compiler sees them: pieces of a kernel that it writes itself, and calls of libraries.

Simple operators have no memory of their own: each is calculated where it is read, from what it reads itself, until a library, a
sum or the caller needs its result in memory. It is also written where too many would calculate it again: the limits are those of
PyTorch's inductor. Sums along an axis are pieces with two extents, and what a normalisation or softmax does with its sums is
simple again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from opcost.analysis.compiled.limits import (
    ALIGNED,
    COMPUTE_BOUND,
    HALF,
    MOVING,
    READS_AGAIN,
    READS_ONCE,
    STEPS,
    STEPS_OF,
    SUMMED,
    TWICE,
    UNROLLED,
    channels_last,
    convolves,
    in_halves,
    parts_of,
    simply_read,
    small_window,
    statistics,
)
from opcost.core.graph import TensorSpec
from opcost.core.report import Row

SIMPLE = frozenset({"elementwise", "copy", "create", "random", "gather", "embedding", "resize"})
LOOKED_UP = frozenset({"gather", "embedding"})  # of the first tensor that they read, only what is looked up
LIBRARY_READERS = frozenset({"conv", "matmul", "pool"})
"""Of several readers of a result, one of these wants it in memory."""

_IN_PLACE_LAYOUT = frozenset(
    "view _unsafe_view reshape unsqueeze squeeze alias detach flatten lift_fresh _reshape_alias".split()
)
"""Views of all elements in their order."""


class Read(NamedTuple):
    """Part of a tensor in memory that a piece reads."""

    root: int  # the value in memory
    shown: int  # the view of it; the value itself if all of it is read in order
    spec: TensorSpec

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes


@dataclass(slots=True)
class Piece:
    """A loop that a compiler writes, or a library's kernel."""

    number: int
    rows: list[Row]
    reads: dict[tuple[int, int], Read]
    writes: dict[int, TensorSpec]
    runs: tuple[str, int]  # in which phase, and how often
    extent: tuple[int, int] = (1, 1)  # elements of the result, and how many are summed for each
    library: bool = False
    cut: bool = False  # it makes parts of sums, in an order of its own


@dataclass(slots=True)
class _Unwritten:
    """A result that has no memory yet: what it is calculated from."""

    spec: TensorSpec
    rows: dict[int, Row]
    reads: dict[tuple[int, int], Read]
    runs: tuple[str, int]
    steps: int = 0


@dataclass(slots=True)
class _Pieces:
    """The state of the walk over the operators."""

    users: Counter[int]
    wanted: set[int]  # results that a library reads
    kept: set[int]
    channels_last: bool
    simply_read: set[int]  # results that only simple operators read
    given: set[int]  # values of the caller: weights and inputs
    copied: dict[int, int] = field(default_factory=dict)
    precise: set[int] = field(default_factory=set)  # results that are in memory as float32
    summed_up: set[int] = field(default_factory=set)  # values that are sums
    last: int = -1
    pieces: list[Piece] = field(default_factory=list)
    shown: dict[int, tuple[int, int]] = field(default_factory=dict)  # of a view: its root, and what identifies it
    unwritten: dict[int, _Unwritten] = field(default_factory=dict)

    def of(self, value: int) -> tuple[int, int]:
        return self.shown.get(value, (value, value))

    def view(self, row: Row) -> None:
        if not row.op.inputs:
            return
        root, exact = self.of(row.op.inputs[0])
        same = row.op.raw.rpartition("::")[2] in _IN_PLACE_LAYOUT
        for value in row.op.outputs:
            self.shown[value] = (root, exact if same else value)
            if root in self.unwritten and self.users[value] > 1:
                self.reused(root, self.users[value])

    def reads_of(self, row: Row) -> tuple[dict[tuple[int, int], Read], dict[int, Row], int]:
        """What an operator reads of memory, and the operators that are calculated on the way."""
        reads: dict[tuple[int, int], Read] = {}
        rows: dict[int, Row] = {}
        steps = 0
        for value, spec in zip(row.op.inputs, row.ins, strict=False):
            root, shown = self.of(value)
            source = self.unwritten.get(root)
            if source is not None and source.runs != _runs(row):
                self.write(root)
                source = None
            if row.op.kind in LOOKED_UP and value == row.op.inputs[0] and row.outs and spec.known:
                stored = min(spec, replace(row.outs[0], dtype=spec.dtype), key=lambda each: each.numel)
            else:
                stored = replace(spec, dtype="float32") if root in self.precise else spec
            if row.op.raw in MOVING:
                shown = row.op.outputs[0]
            if source is None:
                reads.setdefault((root, shown), Read(root, shown, stored))
            else:
                reads.update(_seen_as(source, spec, shown, self.summed_up) if shown != root else source.reads)
                rows.update(source.rows)
                steps += source.steps
        return reads, rows, steps

    def simple(self, row: Row) -> None:
        if not row.outs:
            return
        root, shown = self.of(row.op.inputs[0]) if row.op.inputs else (-1, -1)
        if row.op.raw == "aten::clone" and root == shown and root not in self.given:
            self.shown[row.op.outputs[0]] = (root, root)  # the compiler orders what it writes as its readers need it
            return
        if _cat(row) and self.cat(row):
            return
        if row.op.kind == "pool":
            for value in row.op.inputs:
                self.hinted(self.of(value)[0])
        if row.op.attrs.get("fn") in TWICE:
            self.reused(self.of(row.op.inputs[0])[0], 2, precisely=True)
        created = row.op.kind == "create"  # of what it is made like, nothing is read
        reads, rows, steps = ({}, {}, 0) if created else self.reads_of(row)
        self.keep(row, row.op.outputs[0], row.outs[0], reads, rows, steps)

    def keep(
        self,
        row: Row,
        value: int,
        spec: TensorSpec,
        reads: dict[tuple[int, int], Read],
        rows: dict[int, Row],
        steps: int,
    ) -> None:
        """A result that is not written unless it must be."""
        rows = {**rows, row.op.id: row}
        steps += STEPS_OF.get(str(row.op.attrs.get("fn")), 2) + len(row.ins)
        self.unwritten[value] = _Unwritten(spec, rows, dict(reads), _runs(row), steps)
        if value in self.kept:
            self.write(value)
            return
        users = self.users[value]
        if users > 1 and value in self.wanted:
            self.hinted(value)
        self.reused(value, users)
        found = self.unwritten.get(value)
        if found is not None and (len(found.reads) > READS_ONCE or found.steps > STEPS):
            self.hinted(value)

    def reused(self, root: int, users: int, *, precisely: bool = False) -> None:
        """Write what several read, if it is calculated from much; `precisely`: before it is rounded."""
        found = self.unwritten.get(root)
        if found is not None and users > 1 and (len(found.reads) > READS_AGAIN or found.steps > STEPS):
            if precisely and found.spec.dtype in HALF:
                found.spec = replace(found.spec, dtype="float32")
                self.precise.add(root)
            self.write(root)

    def hinted(self, root: int) -> None:
        found = self.unwritten.get(root)
        if found is not None and len(found.reads) > 1:
            self.write(root)

    def write(self, root: int) -> None:
        """Make a piece of a result: what calculates it ends here."""
        found = self.unwritten.pop(root, None)
        if found is None:
            return
        extent = (found.spec.numel if found.spec.known else 1, 1)
        self.add(list(found.rows.values()), found.reads, {root: found.spec}, found.runs, extent)

    def add(
        self, rows: list[Row], reads: dict[tuple[int, int], Read], writes: dict[int, TensorSpec],
        runs: tuple[str, int], extent: tuple[int, int], *, library: bool = False,
    ) -> None:  # fmt: skip
        self.pieces.append(Piece(len(self.pieces), rows, reads, writes, runs, extent, library))

    def cat(self, row: Row) -> bool:
        """Parts are put one after another by kernels of their own, unless their readers or all of them are simple."""
        unwritten = [self.of(value)[0] in self.unwritten for value in row.op.inputs]
        if all(unwritten) or (any(unwritten) and row.op.outputs[0] in self.simply_read):
            return False
        for value, spec in zip(row.op.inputs, row.ins, strict=True):
            root, shown = self.of(value)
            source = self.unwritten.get(root)
            reads = dict(source.reads) if source else {(root, shown): Read(root, shown, spec)}
            rows = [*source.rows.values()] if source else []
            self.add([*rows, row], reads, {row.op.outputs[0]: spec}, _runs(row), (spec.numel, 1))
        return True

    def summed(self, row: Row) -> None:
        """Sums along axes, and what a normalisation calculates with them."""
        if not row.ins or not row.outs or not row.ins[0].known:
            self.library(row)
            return
        op, given, out = row.op, row.ins[0], row.outs[0]
        evaluated = op.attrs.get("fn") == "batch" and not op.attrs.get("training") and not op.attrs.get("grad")
        whole = op.kind != "reduce" and not evaluated  # what is summed is read again afterwards
        if whole:
            self.reused(self.of(op.inputs[0])[0], 2, precisely=True)
        reads, rows, steps = self.reads_of(row)
        count = statistics(row)
        depth = max(1, given.numel // max(1, count))
        if evaluated or (not whole and depth <= UNROLLED):
            self.keep(row, op.outputs[0], out, reads, rows, steps)
            return
        first = {key: read for key, read in reads.items() if read.spec.numel > count} if whole else reads
        sums = self.sums(
            [*rows.values(), row], first or reads, count, depth, 3 if op.kind == "norm" else 1, across=self.across(row)
        )
        after = {(sums, sums): Read(sums, sums, TensorSpec((count,), "float32"))}
        self.keep(row, op.outputs[0], out, {**reads, **after} if whole else after, {}, 4)
        for value in op.outputs[1:]:
            self.shown[value] = (sums, sums)
            if value in self.kept:
                self.kept.add(sums)

    def sums(
        self, rows: list[Row], reads: dict[tuple[int, int], Read], count: int, depth: int, results: int, *, across: bool
    ) -> int:
        """The value of sums, which are made in two steps where they are few and long."""
        parts = parts_of(count, depth, across=across)
        if parts > 1:
            value = self.sums(rows, reads, count * parts, -(-depth // parts), results, across=across)
            self.pieces[-1].cut = True
            spec = TensorSpec((count * parts * results,), "float32")
            return self.sums(rows, {(value, value): Read(value, value, spec)}, count, parts, results, across=False)
        value = self.fresh()
        self.summed_up.add(value)
        self.add(rows, reads, {value: TensorSpec((count * results,), "float32")}, _runs(rows[-1]), (count, depth))
        return value

    def across(self, row: Row) -> bool:
        """Whether elements that are summed lie apart in memory, and their neighbours belong to other sums."""
        if row.op.attrs.get("turned"):
            return True
        given = row.ins[0].dims
        if row.op.kind == "reduce" and len(given) == 4 and self.channels_last:
            return row.outs[0].numel == given[0] * given[1]
        return row.op.kind == "reduce" and given[-1:] == row.outs[0].dims[-1:] != (1,)

    def library(self, row: Row) -> None:
        for value in row.op.inputs:
            self.write(self.of(value)[0])
        reads: dict[tuple[int, int], Read] = {}
        for value, spec in zip(row.op.inputs, row.ins, strict=False):
            root, shown = self.of(value)
            reads[root, shown] = Read(root, shown, spec)
        writes = dict(zip(row.op.outputs, row.outs, strict=False))
        self.add([row], reads, writes, _runs(row), (1, 1), library=True)

    def convolution(self, row: Row) -> None:
        """A convolution has no bias: what follows adds it. Weights, and an image of the caller, are put channels-last."""
        op = row.op
        inputs = list(op.inputs[:2])
        for place, spec in enumerate(row.ins[:2] if self.channels_last else ()):
            root, shown = self.of(inputs[place])
            if (
                root in self.given
                and not op.attrs.get("channels_last")
                and spec.dims[1] > 1
                and prod(spec.dims[2:]) > 1
            ):
                inputs[place] = self.copied.get(root) or self.copy(row, Read(root, shown, spec))
        attrs = {**op.attrs, "channels_last": True} if self.channels_last else op.attrs
        without = row._replace(op=op._replace(inputs=tuple(inputs), attrs=attrs), ins=row.ins[:2])
        self.library(without) if len(op.inputs) < 3 else self.biased(row, without, 2)

    def copy(self, row: Row, read: Read) -> int:
        """The value of what is given, in another order."""
        new = self.copied[read.root] = self.fresh()
        copying = row._replace(op=row.op._replace(id=new, kind="copy", raw="to channels_last"))
        self.add([copying], {(read.root, -1): read}, {new: read.spec}, _runs(row), (read.spec.numel, 1))
        return new

    def product(self, row: Row) -> None:
        """A product of sizes that tensor cores do not take is enlarged to some that they do, where that is worth a copy."""
        op, (left, right), result = row.op, row.ins[:2], row.outs[0]
        depth = op.attrs.get("depth")
        (m, n), k = result.dims[-2:], depth if isinstance(depth, int) else 1
        large = m * n * k > COMPUTE_BOUND * (m * k + k * n + m * n)
        if not (large and (n % ALIGNED or k % ALIGNED)) and not max(n, k) < ALIGNED:
            self.library(row)
            return
        n, k = (-(-size // ALIGNED) * ALIGNED for size in (n, k))
        inputs = list(op.inputs)
        first = result.dims[:-2]
        specs = replace(left, shape=(*first, m, k)), replace(right, shape=(*first, k, n))
        for place, (before, after) in enumerate(zip((left, right), specs, strict=True)):
            if before.numel != after.numel:
                inputs[place] = self.fresh()
                copying = row._replace(op=op._replace(id=inputs[place], kind="copy", raw="constant_pad_nd"))
                self.padded(copying, op.inputs[place], before, inputs[place], after)
        attrs = {**op.attrs, "depth": k}
        large_op = op._replace(inputs=tuple(inputs), attrs=attrs)
        self.library(row._replace(op=large_op, ins=specs, outs=(replace(result, shape=(*first, m, n)),)))

    def padded(self, row: Row, value: int, before: TensorSpec, new: int, after: TensorSpec) -> None:
        """The new value of one that is enlarged."""
        root, shown = self.of(value)
        source = self.unwritten.get(root)
        reads, rows = {(root, shown): Read(root, shown, before)}, [row]
        if source is not None:
            reads, rows = _seen_as(source, before, new, self.summed_up), [*source.rows.values(), row]
        self.add(rows, reads, {new: after}, _runs(row), (after.numel, 1))

    def unfused(self, row: Row) -> None:
        """A product with a bias, which what follows adds."""
        attrs = {name: value for name, value in row.op.attrs.items() if name != "bias"}
        op = row.op._replace(raw="aten::mm", inputs=row.op.inputs[:2], attrs=attrs)
        self.biased(row, row._replace(op=op, ins=row.ins[:2]), 2)

    def biased(self, row: Row, without: Row, bias: int) -> None:
        """A library's result, and the sum with its bias, which is simple."""
        new, spec = self.fresh(), row.outs[0]
        self.library(without._replace(op=without.op._replace(outputs=(new,))))
        root, shown = self.of(row.op.inputs[bias])
        reads = {(new, new): Read(new, new, spec), (root, shown): Read(root, shown, row.ins[bias])}
        self.keep(row, row.op.outputs[0], spec, reads, {}, 0)

    def fresh(self) -> int:
        """A value that no report has."""
        self.last -= 1
        return self.last


def pieces(rows: Iterable[Row], results: Collection[int]) -> tuple[list[Piece], set[int]]:
    """What a compiler makes of the operators, before it joins any, and the values in memory that the model hands back."""
    rows = [_decomposed(row) for row in rows if row.op.repeat > 0]
    users = Counter(value for row in rows for value in set(row.op.inputs))
    made = {value for row in rows for value in row.op.outputs}
    state = _Pieces(
        users=users,
        wanted={value for row in rows if row.op.kind in LIBRARY_READERS for value in row.op.inputs},
        kept=set(),
        channels_last=channels_last(rows),
        simply_read=simply_read(rows),
        given={value for value in users if value not in made},
    )
    shown: dict[int, int] = {}
    for row in rows:
        if row.op.kind == "view" and row.op.inputs:
            shown.update(dict.fromkeys(row.op.outputs, shown.get(row.op.inputs[0], row.op.inputs[0])))
    state.kept = {shown.get(value, value) for value in results}
    state.given |= {value for value, root in shown.items() if root in state.given}
    # Gradients, which no operator of the compiled part reads
    state.kept |= {v for row in rows if row.op.phase == "backward" for v in row.op.outputs if v not in users}
    for row in rows:
        kind = row.op.kind
        if kind == "view":
            state.view(row)
        elif row.op.phase == "update":  # the optimizer is not compiled
            state.library(row)
        elif kind in SIMPLE or (kind == "pool" and small_window(row)):
            state.simple(row)
        elif kind in SUMMED:
            state.summed(row)
        elif kind == "conv" and convolves(row):
            state.convolution(row)
        elif kind == "matmul" and in_halves(row):
            state.product(row)
        elif row.op.raw == "aten::addmm" and len(row.ins) > 2 and row.op.outputs[0] in state.simply_read:
            state.unfused(row)
        else:
            state.library(row)
    for value in list(state.unwritten):  # what has no reader is not calculated
        if value in state.kept:
            state.write(value)
    return state.pieces, state.kept


def _decomposed(row: Row) -> Row:
    """A loss of classes taken apart: numbers are looked up, and their gradient depends on the classes alone."""
    name = row.op.raw.rpartition("::")[2]
    if name in ("nll_loss_forward", "nll_loss2d_forward"):
        return row._replace(op=row.op._replace(kind="gather"))
    if name in ("nll_loss_backward", "nll_loss2d_backward"):
        op = row.op._replace(kind="elementwise", inputs=(row.op.inputs[0], *row.op.inputs[2:]))
        return row._replace(op=op, ins=(row.ins[0], *row.ins[2:]))
    return row


def _seen_as(source: _Unwritten, spec: TensorSpec, shown: int, sums: Collection[int]) -> dict[tuple[int, int], Read]:
    """The reads of a result of which a reader sees a view: of tensors as large as the result, only that part, in its order."""
    whole = source.spec.numel if source.spec.known else 1
    seen = spec.numel if spec.known else whole
    found = {}
    for (root, key), read in source.reads.items():
        if not read.spec.known or read.spec.numel < whole:
            changed = shown if root in sums else key  # in another order, they are those of other elements
            found[root, changed] = read._replace(shown=changed)
            continue
        part = read.spec if seen >= whole else TensorSpec((read.spec.numel * seen // whole,), read.spec.dtype)
        found[root, shown] = Read(root, shown, part)
    return found


def _runs(row: Row) -> tuple[str, int]:
    return row.op.phase, row.op.repeat


def _cat(row: Row) -> bool:
    return row.op.kind == "copy" and row.op.raw.rpartition("::")[2] in ("cat", "stack")
