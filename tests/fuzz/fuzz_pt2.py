"""Exported programs: good ones, and changes of what they describe."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

EVIL = "__import__('os').system('true')"
"""What is seen if it is ever run."""

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
def programs() -> tuple[bytes, ...]:
    """Archives of small programs, of many operators."""
    import torch
    from torch import nn
    from torch._higher_order_ops import scan
    from torch.nn import functional

    class Of(nn.Module):
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
    models: list[tuple[Any, tuple[Any, ...], Any]] = [
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
    for model, args, shapes in models:
        buffer = io.BytesIO()
        torch.export.save(torch.export.export(model, args, dynamic_shapes=shapes), buffer)
        found.append(buffer.getvalue())
    return tuple(found)


@cache
def _described(archive: bytes) -> tuple[dict[str, bytes], str, dict[str, Any]]:
    """The small files of an archive, and which one describes the program, parsed."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = next(name for name in members if name.endswith("models/model.json"))
    return members, name, json.loads(members[name])


def changed_structure(archive: bytes, rng: random.Random) -> bytes:
    """An archive in whose description one to four fields, arguments, names or parts are others."""
    members, name, model = _described(archive)
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
