"""Exported programs changed at random: each one is counted, or refused with one clear error, quickly, and nothing runs.

A few hundred changes run with the tests; `make fuzz` runs OPCOST_FUZZ of them.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from opcost.analysis.price import price
from opcost.errors import OpcostError
from opcost.frontends.options import CountOptions
from opcost.frontends.pt2.load import load
from opcost.rules import default_rules

CHANGES = int(os.environ.get("OPCOST_FUZZ", "300"))
SECONDS = 1.0
MEMORY = 100 << 20
MARK = "OPCOST_FUZZ_RAN"
EVIL = f"__import__('os').environ.__setitem__({MARK!r}, '1')"

OPERATORS = (
    "aten.linear.default", "aten.einsum.default", "aten.add_.Tensor", "aten.conv2d.default", "aten.lstm.input",
    "aten._cudnn_rnn.default", "aten.from_file.default", "aten.reshape.default", "aten.batch_norm.default",
    "aten.scaled_dot_product_attention.default", "aten.cross_entropy_loss.default", "aten.one_hot.default", "aten.diff.default",
    "aten.tensordot.default", "aten.instance_norm.default", "aten.fft_rfft.default", "aten.stft.default",
    "aten.index_put.default",
    "aten._embedding_bag.default", "aten.upsample_bilinear2d.vec", "aten._upsample_bilinear2d_aa.default", "aten.topk.default",
    "aten._foreach_add.List", "aten._grouped_mm.default", "aten.linalg_multi_dot.default", "aten.max_pool2d.default",
    "aten.roll.default", "aten.gru.input", "aten._to_copy.default", "higher_order.scan", "higher_order.map_impl",
    "higher_order.cond",
    "higher_order.flex_attention", "higher_order.wrap", "torchvision.roi_align.default", "quantized.linear.default", "mylib.op",
)  # fmt: skip
WORDS = (
    "", "x", "self", "weight", "s0", "s0*2", "9**9**9", "1/0", "Symbol('s0')", "Max(s0, 1)", "Mod(s0, 0)", "u7", EVIL,
    f"exec({EVIL!r})", "_operator.add", "os.system", "NaN", "a.b.c", "L__self__,,a.B;L__self__l,l,x.Y", "\x1b[31m", "\ud800",
    *(f"torch.ops.{name}" for name in OPERATORS),
)  # fmt: skip
"""What a text may become."""

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    5,
    13,
    1 << 31,
    1 << 62,
    1 << 63,
    -(1 << 63),
    1 << 200,
    1.5,
    1e308,
    True,
    None,
    "0",
    [],
    {},
)

UNIONS = (
    {"as_int": 0}, {"as_int": 1 << 62}, {"as_int": -1}, {"as_none": True}, {"as_ints": [1, 2]}, {"as_ints": []},
    {"as_float": "NaN"}, {"as_bool": True}, {"as_string": "ij,jk->ik"}, {"as_string": EVIL},
    {"as_sym_int": {"as_name": "s0"}}, {"as_tensors": []},
    {"as_scalar_type": 7}, {"as_expr": {"expr_str": "s0*s0", "hint": None}},
    {"as_expr": {"expr_str": EVIL, "hint": {"as_int": 4}}},
    {"as_layout": 1}, {"as_optional_tensors": [{"as_none": True}]}, {"as_graph": {"name": "g", "graph": {}}},
)  # fmt: skip
"""What an argument or a size may become."""


@cache
def seeds() -> tuple[bytes, ...]:
    """Archives of small programs, of many operators; other harnesses may change them in ways of their own."""
    torch = pytest.importorskip("torch")
    nn, functional = torch.nn, torch.nn.functional
    from torch._higher_order_ops import scan

    class Of(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, function: Any, **modules: Any) -> None:
            super().__init__()
            self.function = function
            for name, module in modules.items():
                setattr(self, name, module)

        def forward(self, *args: Any) -> Any:
            return self.function(self, *args)

    rand = torch.rand
    layer = nn.Linear(4, 4)
    convolutions = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 2),
    )  # fmt: skip
    programs: list[tuple[Any, tuple[Any, ...], Any]] = [
        (convolutions.eval(), (rand(2, 3, 8, 8),), {"input": {0: torch.export.Dim("batch", min=2, max=64)}}),
        (nn.LSTM(4, 3, 2), (rand(2, 1, 4),), None),
        (Of(lambda m, q: functional.scaled_dot_product_attention(q, q, m.l(q)), l=layer), (rand(1, 2, 3, 4),), None),
        (Of(lambda m, a, b: torch.einsum("bij,bkj->bik", a, b) @ b), (rand(2, 3, 4), rand(2, 5, 4)), None),
        (Of(lambda m, x, h: scan(lambda c, y: (m.l(c) + y, c * 2), h, x), l=layer), (rand(3, 2, 4), rand(2, 4)), None),
        (
            Of(lambda m, x: torch.cond(x.sum() > 0, lambda y: m.l(y).relu(), m.l, (x,)), l=layer),
            (rand(2, 4),),
            (({0: torch.export.Dim("rows", min=2)},),),
        ),
        (
            Of(lambda m, i: m.n(m.e(i)).reshape(-1, 2).chunk(2, 1), e=nn.Embedding(9, 4), n=nn.LayerNorm(4)),
            (torch.ones(2, 3, dtype=torch.long),),
            None,
        ),
    ]  # fmt: skip
    found = []
    for model, args, shapes in programs:
        buffer = io.BytesIO()
        torch.export.save(torch.export.export(model, args, dynamic_shapes=shapes), buffer)
        found.append(buffer.getvalue())
    return tuple(found)


@cache
def described(archive: bytes) -> tuple[dict[str, bytes], str, dict[str, Any]]:
    """The small files of an archive, and which one describes the program, parsed."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = next(name for name in members if name.endswith("models/model.json"))
    return members, name, json.loads(members[name])


def changed_structure(archive: bytes, rng: random.Random) -> bytes:
    """An archive in whose description one to four fields, arguments, names or parts are others."""
    members, name, model = described(archive)
    model = copy.deepcopy(model)
    places = list(_places(model))
    targets = [(holder, key) for holder, key in places if key == "target"]
    for _ in range(rng.choice((1, 1, 2, 4))):
        holder, key = rng.choice(targets if rng.random() < 0.15 else places)
        if not _has(holder, key):
            continue
        old = holder[key]
        match rng.randrange(5):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(old, list) and old:
                old.insert(rng.randrange(len(old)), copy.deepcopy(rng.choice((rng.choice(old), rng.choice(NUMBERS)))))
            case 2:
                some = [other[k] for other, k in rng.sample(places, min(40, len(places))) if _has(other, k)]
                others = [value for value in some if type(value) is type(old)]
                holder[key] = copy.deepcopy(rng.choice(others)) if others else None
            case 3 if isinstance(old, dict) and len(old) == 1:
                holder[key] = copy.deepcopy(rng.choice(UNIONS))
            case _:
                holder[key] = rng.choice(WORDS) if isinstance(old, str) else copy.deepcopy(rng.choice(NUMBERS))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for member, content in members.items():
            file.writestr(member, json.dumps(model) if member == name else content)
    return buffer.getvalue()


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        if key in ("stack_trace", "torch_fn"):
            continue
        yield value, key
        yield from _places(inner)


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """An archive with one to eight changes of bits, bytes, numbers, or cut short."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(max(len(found), 1))
        match rng.randrange(6):
            case 0 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 1:
                found[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 8, 12, 14, 0x7FFFFFFF, 0xFFFFFFFF)))
            case 2:
                found[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63)))
            case 3 if rng.random() < 0.3:
                del found[at:]
            case 4:
                length, other = rng.randrange(1, 64), rng.randrange(max(len(found), 1))
                found[at : at + length] = found[other : other + length]
            case _:
                found[at:at] = rng.randbytes(rng.randrange(1, 16))
    return bytes(found)


def run(attempt: Callable[[random.Random], None], name: str) -> tuple[int, int]:
    """How many changes were read and how many were refused; none may take long or much memory."""
    rng = random.Random(f"{name}-{CHANGES}")
    read = refused = 0
    tracemalloc.start()
    try:
        for number in range(CHANGES):
            tracemalloc.reset_peak()
            before, start = tracemalloc.get_traced_memory()[0], time.process_time()
            try:
                attempt(rng)
                read += 1
            except OpcostError:
                refused += 1
            spent, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1] - before
            assert spent < SECONDS, f"change {number} took {spent:.2f} s"
            assert peak < MEMORY, f"change {number} took {peak >> 20} MB"
            assert MARK not in os.environ, f"change {number} ran code"
    finally:
        tracemalloc.stop()
    return read, refused


@pytest.mark.parametrize("form", ["structure", "bytes"])
def test_a_changed_program_is_counted_or_refused_with_a_clear_error(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives = seeds()
    change = changed_structure if form == "structure" else changed_bytes
    path = tmp_path / "changed.pt2"
    monkeypatch.chdir(tmp_path)

    def attempt(rng: random.Random) -> None:
        path.write_bytes(change(rng.choice(archives), rng))
        str(price(load(path, CountOptions()), default_rules()))

    read, refused = run(attempt, form)
    assert list(tmp_path.iterdir()) == [path]
    assert read > CHANGES // 20
    assert refused > CHANGES // 10
