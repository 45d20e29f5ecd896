"""Which numbers no test derives: changes one at a time, runs the tests, and lists the changes that no test notices.

    python benchmarks/mutate.py                              every room below, all changes
    python benchmarks/mutate.py onnx memory --sample 60      60 changes of each of two rooms, drawn by chance
    python benchmarks/mutate.py --seconds 300                at most five minutes for each room
    python benchmarks/mutate.py src/opcost/rules/movement.py --tests tests/rules

A room is a part of the package with the tests of its own. A change is one of: a whole number becomes the next one, any other its
double; an arithmetic operator, a comparison, `min` or `max` becomes its opposite; the two sides of a condition change places; an
entry of a table takes what its neighbour has. In a JSON table each operator in turn means what the entry before its own means.
The tests are collected and run once, which also shows the functions that each of them enters. For each change a process is
forked, which imports the package again with the one file as if it lay there changed, and runs the tests that enter the changed
function; nothing is written. The first that fails ends the attempt. EQUIVALENT lists the changes that cannot change any number,
with the reason. At the end is what was noticed in each room; less than 95 % in one of them is an error.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import math
import os
import random
import re
import resource
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from itertools import accumulate, pairwise
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("opcost.core", "opcost.errors", "opcost.version", "opcost.frontends.aten.call")
"""What is not imported again: the tests hold objects of these classes."""


class Room(NamedTuple):
    """What is changed, and the words for pytest that name its tests."""

    sources: str
    tests: str


_ANALYSIS = "aggregate bound breakdown busy communication gains launches utilization".split()
_KINETO = "device_use idle launches".split()
ROOMS = {
    "rules": Room("src/opcost/rules", "tests/rules --ignore=tests/rules/test_docs.py"),
    "aten": Room(
        "src/opcost/frontends/aten",
        "tests/frontends/aten tests/frontends/torch/aten tests/traces/test_one_cost.py tests/traces/test_profiler_words.py "
        "-k 'not every_pointwise and not run_has and not loads_nothing and not samples_reach'",
    ),
    "nodes": Room(
        " ".join(f"src/opcost/frontends/nodes/{name}.py" for name in ("meaning", "operators", "model")),
        " ".join(f"tests/frontends/{name}/test_{name}_rows.py" for name in ("onnx", "tflite", "coreml")),
    ),
    "onnx": Room(
        " ".join(
            f"src/opcost/frontends/onnx/{name}.py"
            for name in ("operators", "reductions", "products", "runtime", "walk")
        ),
        "tests/frontends/onnx --ignore=tests/frontends/onnx/test_onnx_nodes.py -k 'not gigabyte and not loads_neither'",
    ),
    "tflite": Room(
        "src/opcost/frontends/tflite/operators.py src/opcost/frontends/tflite/products.py", "tests/frontends/tflite"
    ),
    "coreml": Room("src/opcost/frontends/coreml/operators.py", "tests/frontends/coreml"),
    "mxnet": Room(
        "src/opcost/frontends/mxnet/ops",
        "tests/frontends/mxnet/test_mxnet_rows.py tests/frontends/mxnet/test_operators.py tests/frontends/mxnet/test_graphs.py",
    ),
    "megengine": Room(
        "src/opcost/frontends/megengine/operators",
        " ".join(
            f"tests/frontends/megengine/test_{name}.py"
            for name in ("meanings", "megengine_rows", "operators", "contractions")
        ),
    ),
    "traces": Room(
        " ".join(
            [f"src/opcost/analysis/{name}.py" for name in _ANALYSIS]
            + [f"src/opcost/traces/kineto/{name}.py" for name in _KINETO]
        ),
        " ".join(f"tests/analysis/test_{name}.py" for name in ("trace_rows", "bound", "launches", "sheets", "query"))
        + " tests/traces/test_device_use.py tests/traces/test_verdicts.py tests/traces/test_replays.py "
        "-k 'not real_trace and not command and not ranks_that and not ranks_differ'",
    ),
    "memory": Room(
        "src/opcost/analysis/memory.py src/opcost/devices/allocator.py src/opcost/devices/neighbours.py",
        "tests/analysis/test_memory.py tests/analysis/test_memory_rows.py tests/devices",
    ),
    "prediction": Room(
        "src/opcost/analysis/prediction",
        " ".join(
            f"tests/analysis/test_{name}.py"
            for name in ("work_rows", "h200_rows", "prediction", "lengths", "together", "executions", "workspaces")
        ),
    ),
}
GOAL = 0.95
"""The share of changes of a room that its tests notice."""
PATIENCE = 100
"""Seconds of CPU time, and thrice as many of any, after which an attempt is ended: an endless loop is noticed."""

OPPOSITES: dict[type[ast.AST], Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip

EQUIVALENT: dict[str, str] = {
    "attention: batch = prod(q.dims[:-1]) // q.dims[along] * sequences if q.dims[along] else 0 [0 → 1]": (
        "without queries there are no pairs, whatever they are multiplied with"
    ),
    "signal: levels = sum(log2(length) for length in lengths if length > 1) [length > 1 → (length >= 1)]": (
        "the logarithm of 1 is 0"
    ),
    'norm: "weight": Norm(2, 1, 5, 0),  # square, add; multiply by g / |v|; Σ g v (2), subtract, two products [0 → 1]': (
        "has neither weight nor bias, as _affine says"
    ),
    'norm: "lp": Norm(2, 1, 5, 0),  # power, add; divide [0 → 1]': "has neither weight nor bias, as _affine says",
    'pool: window = integer(op, "window") if per_window else 0 [0 → 1]': "is multiplied by nothing",
    "strides: strides = [0] * len(shape) [0 → 1]": "each is written before they are handed out",
    "products: own = zip((1,) * missing + tuple(x.shape[:-2]), (0,) * missing + tuple(x.stride()[:-2]), batch, strict=True) "
    "[1 → 2]": ("an axis that is not there has the stride 0 whatever its extent is taken for"),
    "move: longer, shorter = (extents, shape) if len(extents) >= len(shape) else (shape, extents) "
    "[len(extents) >= len(shape) → (len(extents) > len(shape))]": "of two that are equally long either may be the longer",
    "move: rest = None if extent is None else extent - sum(n for n in call[1].integers if n >= 0) [n >= 0": "adds nothing",
    "move: rest = None if extent is None else extent - sum(n for n in call[1].integers if n >= 0) [0 →": "adds nothing",
    'contraction: pads: Sequence[int] = at["padding"] or (0,) * (2 * rank) [2 → 3]': "the last zeros are never read",
    "reduce: spread, pads = (1,) * len(window), (0,) * (2 * len(window)) [2 → 3]": "the last zeros are never read",
    'reduce: pads = call.attrs["padding"] or (0,) * (2 * len(window)) [2 → 3]': "the last zeros are never read",
    "recurrent: places = range(first, first + 17) [17 → 18]": "the last is never read",
    "recurrent: normalizers=_at(call, *range(normalizers, normalizers + 4)) if normalizers else (), [4 → 5]": (
        "no such node has another input"
    ),
    "recurrent: layers = [_lstm_layer(call, 1, None, 41), _lstm_layer(call, 18, None, 45)]  # of the forget gate [4": (
        "the weight of the next gate has the same shape"
    ),
    "meanings: return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) [abs(a) // abs(b) * ": "1 and -1 are their inverses",
    "meanings: return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) [a < 0": "0 has no sign",
    "meanings: return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) [b < 0": "nothing is divided by 0",
    "meanings: return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) [0 → 1]": "0 has no sign, and divides nothing",
    "meanings: if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 64: [1 → 2]": (
        "a power of more than 64 bits is not kept"
    ),
    "meanings: if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 64: [64 → 65]": (
        "a power of more than 64 bits is not kept"
    ),
    "meanings: part = content.taken(x.content, axis, range(begin, begin + (length or 0))) if x.content else None [0 → 1]": (
        "where elements are known, lengths are"
    ),
    "meanings: begin += length or 0 [0 → 1]": "where elements are known, lengths are",
    "meanings: out = sliced(here, [axis], [each.begin], [end], [1 if each.gone else each.step]).outs[0] [1 → 2]": (
        "one element is taken, by any step"
    ),
    "windows: if min(self.stride, default=1) < 1: [1 → 2]": "without axes no stride is too small",
    "content: for block in range(before if any(part.items for part in several) else 0): [0 → 1]": "there is nothing to join",
    "content: size = len(part.items) // before if before else 0 [0 → 1]": "there is nothing to join",
    "attention: elif call.at(1) is None:  # (tokens, heads, 3, features) [1 → 2]": "keys come with values",
    "attention: if call.at(1) is None: [1 → 2]": "keys come with values",
    'attention: pack = 8 // call.whole("expert_weight_bits", 4) if quantized else 1 [8 → 9]': "weights have 4 or 8 bits",
    'elementwise: return pointwise("where", call.given, "where", call[1].dtype) [1 → 2]': "both have one type",
    "fused: angles, q, k = call[0], call[1], call[3] [": "a tensor and its turned halves have one shape",
    "fused: gate, up = _each(call, fn, made[0]), made[1] [0 → 1]": "both have one shape",
    "move: None if step < 0 and (extent := x.dims[axis]) is not None and last < -extent else last [step < 0": (
        "a step 0 is refused"
    ),
    "move: None if step < 0 and (extent := x.dims[axis]) is not None and last < -extent else last [0": "a step 0 is refused",
    "move: widths[axis] = (pads[place], pads[place + len(axes)]) [place + len(axes)": "the second half, counted from behind",
    "reduce: around = [pads[at] + pads[at + len(kernel)] for at in range(len(kernel))] [at + len(kernel)": (
        "the second half, counted from behind"
    ),
    'reduce: stride, pads = call.integers("strides") or (1,) * len(kernel), call.integers("pads") or (0,) * 2 * len(kernel) [2': (
        "the last zeros are never read"
    ),
    "move: ends = [*ends, replace(ends[0], content=Content((), (1,)))] [0 → 1]": "only its content is read",
    "move: return counted(ends, call[0].dtype) [0 → 1]": "all have one type",
    "reduce: x, mean = call[0], call[3] [3 → 4]": "mean and variance have one shape",
    "reduce: if len(call.node.outputs) > 1:  # mean and inverse deviation [len(call.node.outputs) > 1": (
        "results that a node does not name are dropped"
    ),
    "state: decay = _gate(call, decay, call.at(8), call.at(7)) [7 → 8]": "both have a number for each head",
    "state: decay, rate = _gate(call, call[0], call[1], call[2]), call.at(3) [1 → 2]": "both have a number for each head",
    "memory: NEVER = -1 [1 → 2]": "no operator has a negative number",
    "memory: most = begun + ": "chooses how numbers are packed, of which each has room enough in every case",
    "neighbours: LEAF = 12  # so few are looked at one by one [12 → 13]": "what is found is the same",
    "neighbours: if high - low <= LEAF: [high - low <= LEAF → (high - low < LEAF)]": "what is found is the same",
    "neighbours: _ROUNDING = 1 - 1e-9  # a distance may come out that much too small [1e-9 → 2e-09]": (
        "any share above the rounding of a distance"
    ),
    "neighbours: if len(best) < count or abs(offset) * _ROUNDING <= best[-1][0]: [abs(offset) * _ROUNDING → "
    "(abs(offset) // _ROUNDING)]": "more is looked at, and what is found is the same",
    "neighbours: if len(best) < count or abs(offset) * _ROUNDING <= best[-1][0]: [abs(offset) * _ROUNDING <= best[-1][0] → "
    "(abs(offset) * _ROUNDING < best[-1][0])]": "what is as far is not less by the rounding",
    "memory: changes = packed([0], most) * (len(ops) + 1) [1 → 2]": "the last is never read",
    "memory: changes[part] = packed([0], most) * (steps + 1) [1 → 2]": "the last is never read",
    'memory: changes.setdefault("gradients", packed([0], most) * (steps + 1))[0] += sum( [1 → 2]': "the last is never read",
    'memory: trains = len(ops) > 0 and ops[-1].phase != "forward" [0 → 1]': "nothing is saved for the first operator",
    "allocator: PASSES = 3 [3 → 4]": "by the third pass memory is as it stays",
    "allocator: self.most_reserved = 0 [0 → 1]": "it is never less than a segment",
    "allocator: place = bisect_left(free, (size, -1)) [1 → 2]": "no address is negative",
    "indexing: yield Index(axis_of(axis if isinstance(axis, int) else 0, rank), places[0], places[1], places[2], places[3]) "
    "[0 → 1]": "the reader of files makes whole numbers of all axes",
    "move: place = axis if isinstance(axis, int) else 0 [0 → 1]": "the reader of files makes whole numbers of all axes",
    "linear: if pack > 1: [1 → 2]": "packs are of four or eight",
    "pool: window = 1 if y is None else prod(adaptive_windows(x[2:], y[2:])[0]) [1 → 2]": (
        "without the shape of the result nothing is counted"
    ),
    "gains: if wait and last is not None: [wait and last is not None → (wait or last is not None)]": (
        "a rank that waits is one of those of which the last is the largest, and a wait of nothing is left out"
    ),
    "idle: if starts[place] > reached: [starts[place] > reached → (starts[place] >= reached)]": (
        "adds a gap of no length"
    ),
    "idle: return min(found, end - start) [end - start → (end + start)]": (
        "waits of one process do not overlap, so their sum is never longer than the time"
    ),
    "launches: start, end = spans.get(row.step, (row.host_start_ns, 0)) [0 → 1]": (
        "the row itself ends later, unless it takes no time at the very beginning"
    ),
    "idle: if self._load_starts[place] >= end: [self._load_starts[place] >= end → (self._load_starts[place] > end)]": (
        "a wait that begins there has nothing before it"
    ),
    "aggregate: return weighted[-1][0] [1 → 2]": "no place is beyond the last",
    "device_use: if (owner := linked.owner[place]) >= 0 and phases[owner] == RECOMPUTE [(owner := linked.owner[place]) >= 0": (
        "what is recomputed lies within a backward pass, whose row comes before"
    ),
    "idle: for place in range(max(bisect_right(self._load_starts, start) - 1, 0), len(self._load_starts)): [1 → 2]": (
        "a wait that ended before has nothing in this time"
    ),
    "idle: (cause for cause, time in times.items() if 10 * time >= whole > 0), key=lambda cause: -times[cause] [0 → 1]": (
        "an event is longer than a nanosecond"
    ),
    "speeds: score = 2 * common + (dtype == work.dtype) [2 → 3]": "a word in common is worth more than the type either way",
    "speeds: best, most = None, 0 [0 → 1]": "a word in common gives two at least",
    "lengths: return weights((self.first, self.last) if self.first < self.last else (self.first, self.first + 1), tokens) "
    "[1 → 2]": "both ends are the same step",
    "lengths: elif last - first > 1 and piece.holds(middle, report(middle)): [last - first → (last + first)]": (
        "of two steps the first is the middle, and both are counted themselves"
    ),
    "predict: self.device += weight * (row.device_ns or 0) [0 → 1]": "every row of a prediction has a time",
    "predict: self.host += weight * (row.host_ns or 0) [0 → 1]": "without times of the host their sum is not reported",
    'predict: lists = max(1, round(given / max(1, len(outs)))) + (not raw.endswith("_")) [1 → 2]': (
        "a single tensor takes as many kernels in any number of lists"
    ),
}
"""Changes that cannot be noticed, by how they are listed or how that begins, and why."""


# -- changes -----------------------------------------------------------------------------------------------------------


class Mutant(NamedTuple):
    """One change of a file: these bytes become others."""

    path: Path
    start: int
    end: int
    new: str

    @property
    def source(self) -> bytes:
        return self.path.read_bytes()

    @property
    def place(self) -> str:
        """Line and column."""
        begin = self.source.rfind(b"\n", 0, self.start) + 1
        return (
            f"{self.source.count(bytes((10,)), 0, self.start) + 1}:{len(self.source[begin : self.start].decode()) + 1}"
        )

    @property
    def name(self) -> str:
        line = self.source.decode().splitlines()[int(self.place.partition(":")[0]) - 1].strip()
        old = " ".join(self.source[self.start : self.end].decode().split())
        return f"{self.path.stem}: {line} [{old} → {self.new}]"

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")

    def code(self) -> Any:
        return compile(self.source[: self.start] + self.new.encode() + self.source[self.end :], str(self.path), "exec")


class Changed(NamedTuple):
    """One change of a JSON table."""

    path: Path
    place: str
    what: str
    table: Any

    @property
    def name(self) -> str:
        return f"{self.path.stem}: {self.what}"


def changed_tables(path: Path) -> Iterator[Changed]:
    """All changes of a table: entries with operators under `ops`, operators by what is said of them, or numbers."""
    text = path.read_text("utf-8")
    table = json.loads(text)

    def place(name: str) -> str:
        return f"{1 + text.count(chr(10), 0, text.index(json.dumps(name)))}:1"

    if isinstance(table, dict) and not all(isinstance(each, list) for each in table.values()):
        for found in re.finditer(r"(?<=[\[ ])\d+(?=[,\]}])", text):
            changed = json.loads(text[: found.start()] + str(int(found[0]) + 1) + text[found.end() :])
            line = text.count("\n", 0, found.start())
            yield Changed(path, f"{line + 1}:1", f"{text.splitlines()[line].strip()} [{found[0]} + 1]", changed)
        return
    if isinstance(table, dict):
        for before, (key, operators) in zip([*table][-1:] + [*table][:-1], table.items(), strict=True):
            for operator in operators:
                others = {**table, key: [each for each in operators if each != operator]}
                changed = {**others, before: [*others[before], operator]}
                yield Changed(path, place(operator), f"{operator} [{key} → {before}]", changed)
        return
    for number, entry in enumerate(table):
        said = {key: value for key, value in entry.items() if key != "ops"}
        for operator in entry["ops"]:
            others = {**entry, "ops": [each for each in entry["ops"] if each != operator]}
            instead = {**table[number - 1], "ops": [operator]}
            changed = [*table[:number], others, *table[number + 1 :], instead]
            yield Changed(path, place(operator), f"{operator} [no longer {json.dumps(said)}]", changed)


def mutants(path: Path) -> list[Mutant] | list[Changed]:
    """All changes of one file, in the order of its lines."""
    if path.suffix == ".json":
        return list(changed_tables(path))
    source = path.read_bytes()
    begins = list(accumulate((len(line) for line in source.splitlines(keepends=True)), initial=0))

    def at(node: Any) -> tuple[int, int]:
        return begins[node.lineno - 1] + node.col_offset, begins[node.end_lineno - 1] + node.end_col_offset

    tree = ast.parse(source)
    texts = {inner for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    nodes = [node for node in ast.walk(tree) if node not in texts]
    return sorted(Mutant(path, *at(node), new) for outer in nodes for node, new in _changes(outer))


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What of a node becomes which text."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield node, str(value + 1)
        case ast.Constant(value=float(value)):
            yield node, repr(2 * value or 1.0)
        case ast.BinOp(left, op, right) if type(op) in OPPOSITES:
            yield node, f"({ast.unparse(ast.BinOp(left, OPPOSITES[type(op)](), right))})"
        case ast.AugAssign(target, op, value) if type(op) in OPPOSITES:
            yield node, ast.unparse(ast.AugAssign(target, OPPOSITES[type(op)](), value))
        case ast.BoolOp(op, values):
            yield node, f"({ast.unparse(ast.BoolOp(OPPOSITES[type(op)](), values))})"
        case ast.Compare(left, [op], right) if type(op) in OPPOSITES:
            yield node, f"({ast.unparse(ast.Compare(left, [OPPOSITES[type(op)]()], right))})"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            yield node.func, "max" if name == "min" else "min"
        case ast.IfExp(test, body, orelse):
            yield node, f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.If(test) if not isinstance(test, ast.Compare):  # whose opposite is tried
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Dict(values=values):
            for before, value in pairwise(values):
                if isinstance(value, (ast.Name, ast.Attribute)) and ast.dump(before) != ast.dump(value):
                    yield value, ast.unparse(before)


# -- attempts ----------------------------------------------------------------------------------------------------------


class Trying:
    """A plug-in of pytest that, instead of running the tests once, runs them for every change."""

    def __init__(self, found: list[Mutant | Changed], seconds: float, log: Path | None) -> None:
        self.found, self.seconds, self.log = found, seconds, log
        self.words: dict[str, Counter[str]] = {}
        self.entered: dict[tuple[str, int], list[pytest.Item]] = {}
        """The tests that enter a function, by its file and first line."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        settings.register_profile("trying", settings.default, phases=[Phase.explicit, Phase.generate], database=None)
        settings.load_profile("trying")
        # in this process, so that what tests keep of PyTorch's is there in all that are forked
        if _failing(session.items, self._watched):
            sys.exit("the tests fail without any change")
        items = self._unmoved(session.items)
        lines = {path: _functions(path) for path in {mutant.path for mutant in self.found} if path.suffix == ".py"}
        ends = time.monotonic() + self.seconds
        for mutant in self.found:
            if time.monotonic() > ends:
                print(f"the time is over: {sum(sum(each.values()) for each in self.words.values())} changes were tried")
                break
            word = "equivalent" if mutant.name.startswith((*EQUIVALENT,)) else "survived"
            if word == "survived" and self.noticed(self._tests_of(mutant, items, lines), mutant):
                word = "noticed"
            self.words.setdefault(mutant.path.name, Counter())[word] += 1
            if word == "survived":
                print(f"{mutant.place:>7} {mutant.name}", flush=True)
        return True

    def _watched(self, item: pytest.Item) -> Callable[[FrameType, str, Any], None]:
        """What notes the functions that a test enters."""
        files = {str(mutant.path) for mutant in self.found}

        def note(frame: FrameType, event: str, arg: Any) -> None:
            code = frame.f_code
            if code.co_filename in files:
                tests = self.entered.setdefault((code.co_filename, code.co_firstlineno), [])
                if not tests or tests[-1] is not item:
                    tests.append(item)

        return note

    def _unmoved(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """The tests that pass after the package was imported again, unchanged: others hold objects of the first import."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            try:
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                _import_again(None)
                failed = [str(place) for place, item in enumerate(items) if _hangs_or_fails(item)]
                os.write(writing, " ".join(failed).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            failed = {int(place) for place in answer.read().split()}
        os.waitpid(child, 0)
        if failed:
            print(
                f"{len(failed)} tests are left out, which hold objects of the package: {items[min(failed)].nodeid}, ..."
            )
        return [item for place, item in enumerate(items) if place not in failed]

    def _tests_of(
        self, mutant: Mutant | Changed, items: list[pytest.Item], lines: dict[Path, list[tuple[int, int, int]]]
    ) -> list[pytest.Item]:
        """The tests that can notice a change: those that enter a function around it; all, of what runs at import."""
        line = int(mutant.place.partition(":")[0])
        around = [begin for first, last, begin in lines.get(mutant.path, ()) if first <= line <= last]
        if not around or isinstance(mutant, Changed):
            return _ordered(items, mutant.path.stem)
        entering = {id(item) for begin in around for item in self.entered.get((str(mutant.path), begin), ())}
        return [item for item in items if id(item) in entering]

    def noticed(self, items: list[pytest.Item], mutant: Mutant | Changed) -> bool:
        """Whether a test fails with this change, in a process of its own."""
        if not items:
            return False
        child = os.fork()
        if child:
            return os.waitpid(child, 0)[1] != 0
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
            signal.alarm(3 * PATIENCE)
            target = os.open(self.log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, 1)
            os.dup2(target, 2)
            _import_again(mutant)
            code = _failing(items)
        except BaseException as exc:
            print(repr(exc), flush=True)
        finally:
            os._exit(code)


def _hangs_or_fails(item: pytest.Item) -> bool:
    """Whether a test cannot run in a process that was forked, as some that start processes of their own."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, end)
    signal.alarm(PATIENCE // 5)
    try:
        return bool(_failing([item]))
    except TimeoutError:
        return True
    finally:
        signal.alarm(0)


def _functions(path: Path) -> list[tuple[int, int, int]]:
    """Of every function, and every lambda within one, the first and last line of its body, and the line where it begins."""
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef):
            begin = min([node.lineno, *[each.lineno for each in node.decorator_list]])
            found.append((node.body[0].lineno, node.end_lineno or node.lineno, begin))
            inner = [each for each in ast.walk(node) if isinstance(each, ast.Lambda)]
            found += [(each.lineno, each.end_lineno or each.lineno, each.lineno) for each in inner]
    return found


def _failing(
    items: list[pytest.Item], watched: Callable[[pytest.Item], Callable[[FrameType, str, Any], None]] | None = None
) -> int:
    for item, following in pairwise([*items, None]):
        assert item is not None
        before = sys.gettrace()
        if watched is not None:
            sys.settrace(watched(item))
        reports = runtestprotocol(item, log=False, nextitem=following)
        sys.settrace(before)
        for report in reports:
            if report.failed:
                print(item.nodeid, report.longrepr, flush=True)
                return 1
    return 0


def _import_again(mutant: Mutant | Changed | None) -> None:
    """The package, one file of it changed, and the tests' names for its parts."""
    old = {name: module for name, module in sys.modules.items() if _is_renewed(name)}
    for name in old:
        del sys.modules[name]
    plugin = importlib.import_module("opcost.core.plugin")
    for value in vars(plugin).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    ordinary = SourceFileLoader.get_code
    SourceFileLoader.get_code = lambda self, name: (  # type: ignore[method-assign]
        mutant.code() if isinstance(mutant, Mutant) and name == mutant.module else ordinary(self, name)
    )
    if isinstance(mutant, Changed):
        resources = importlib.import_module("opcost.core.parsing")
        read, changed = resources.table, (mutant.path.name, mutant.table)
        resources.table = lambda package, name: changed[1] if name == changed[0] else read(package, name)
    package = importlib.import_module("opcost")
    for name in [name for name in KEPT if name in sys.modules]:
        setattr(package, name.removeprefix("opcost."), sys.modules[name])
    where = {(key, id(value)): name for name, module in old.items() for key, value in vars(module).items()}
    for tests in [*sys.modules.values()]:
        if str(getattr(tests, "__file__", None)).startswith(str(ROOT / "tests")):
            for key, value in [*vars(tests).items()]:
                if isinstance(value, ModuleType) and value.__name__ in old:
                    setattr(tests, key, importlib.import_module(value.__name__))
                elif (key, id(value)) in where:
                    setattr(tests, key, getattr(importlib.import_module(where[key, id(value)]), key))


def _is_renewed(name: str) -> bool:
    return name == "opcost" or (name.startswith("opcost.") and not name.startswith(KEPT))


def _ordered(items: list[pytest.Item], stem: str) -> list[pytest.Item]:
    """The tests of the files that name the changed file come first."""
    word = re.compile(rf"\b_?{stem}\b")
    rank = {
        path: (stem not in path.stem, -len(word.findall(path.read_text()))) for path in {item.path for item in items}
    }
    return sorted(items, key=lambda item: (*rank[item.path], str(item.path)))


def _files(paths: Iterable[Path]) -> list[Path]:
    return [
        file.resolve()
        for path in paths
        for file in (sorted((*path.rglob("*.json"), *path.rglob("*.py"))) if path.is_dir() else [path])
    ]


def _tried(name: str, room: Room, options: argparse.Namespace) -> Counter[str]:
    """Try the changes of one room, in a process of its own."""
    found = [
        each for file in _files(map(Path, room.sources.split())) for each in mutants(file) if options.only in each.name
    ]
    possible = len(found)
    if options.sample is not None:
        found = sorted(random.Random(options.seed).sample(found, min(options.sample, possible)))
    if options.list:
        for mutant in found:
            print(f"{mutant.place:>7} {mutant.name}")
        return Counter()
    print(f"-- {name}: {len(found)} of {possible} changes", flush=True)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        trying = Trying(found, options.seconds, options.log)
        words = ["-q", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider", *shlex.split(room.tests)]
        try:
            pytest.main(words, plugins=[trying])
            for file, counts in trying.words.items():
                print(f"   {file:<20}" + "".join(f"{word} {counts[word]:<8}" for word in WORDS))
            os.write(writing, json.dumps(sum(trying.words.values(), Counter())).encode())
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        total = Counter(json.loads(answer.read() or "{}"))
    os.waitpid(child, 0)
    return total


WORDS = ("noticed", "equivalent", "survived")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", default=[], help=f"{', '.join(ROOMS)}; or files and folders, with --tests")
    parser.add_argument("--tests", help="words for pytest")
    parser.add_argument("--sample", type=int, help="try this many of each room, drawn by chance")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop trying after this time in each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="changes whose name contains this text")
    parser.add_argument("--list", action="store_true", help="name the changes and try none")
    parser.add_argument("--log", type=Path, help="keep what the last attempt printed")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    rooms = {name: ROOMS[name] for name in options.rooms or ROOMS if name in ROOMS}
    if paths := [name for name in options.rooms if name not in ROOMS]:
        if not options.tests:
            parser.error(f"{paths[0]} is none of {', '.join(ROOMS)}: name its tests by --tests")
        rooms["files"] = Room(" ".join(paths), options.tests)
    totals, taken = {}, {}
    for name, room in rooms.items():
        began = time.monotonic()
        totals[name] = _tried(name, room, options)
        taken[name] = time.monotonic() - began
    failed = False
    for name, total in totals.items():
        share = (total["noticed"] + total["equivalent"]) / total.total() if total.total() else 0.0
        failed = failed or (share < GOAL and not options.list)
        counts = "".join(f"{word} {total[word]:<7}" for word in WORDS)
        print(f"{name:<12}{counts}{share:7.1%} in {taken[name]:.0f} s{'' if share >= GOAL else '   below 95 %'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
