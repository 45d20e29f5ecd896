"""Predicted steps of one rank of many beside published ones (published_ranks.json): tokens/s of each GPU, and reserved memory.

python benchmarks/ranks.py                    every row
python benchmarks/ranks.py --only torchtitan  those of sources whose name has this
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from harness import HERE, Table, arguments, error_row
from rank_models import made

FILE = HERE / "published_ranks.json"


def main() -> None:
    import opcost

    parser = arguments(__doc__)
    parser.add_argument("--only", default="", metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(1)
    groups = [group for group in json.loads(FILE.read_text("utf-8"))["groups"] if options.only in group["name"]]
    columns = "source", "rows", "median error", "mean error", "90 % within", "bias"
    detail_columns = (
        "source", "row", "tokens/s", "predicted", "error", "80 % from", "to", "GiB", "predicted GiB", "error", "MFU", "HFU"
    )  # fmt: skip
    table = Table("published", columns, detail_columns)
    inside: list[bool] = []
    errors: dict[str, list[float]] = {}
    for group in groups:
        device = group["options"]["device"].partition("-")[0].upper()
        named = "fitted" if group.get("fitted") else "tokens/s"
        rates, sizes = (errors.setdefault(f"{what}, {device}", []) for what in (named, "memory"))
        for label, model, batch, tokens, own, rate, size, _ in group["rows"][: 1 if options.quick else None]:
            step = predicted(opcost, model, batch, tokens, {**group["options"], **own})
            found = step.step.tokens_per_second
            low, high = (found * step.latency_ns / ns for ns in reversed(step.band_ns))
            rates.append(found / rate - 1)
            inside += [] if group.get("fitted") else [low <= rate <= high]
            memory = step.memory.reserved_bytes / 2**30
            of_memory = "" if size is None else f"{memory / size - 1:+.1%}"
            sizes += [] if size is None else [memory / size - 1]
            found, low, high, memory = round(found), round(low), round(high), round(memory, 2)
            shares = (f"{share:.1%}" for share in (step.step.mfu, step.step.hfu))
            table.detail(
                group["name"], label, rate, found, f"{rates[-1]:+.1%}", low, high, size, memory, of_memory, *shares
            )
    for what, found in errors.items():
        if found:
            table.add(*error_row(what, found))
    if inside:
        share = sum(inside) / len(inside)
        table.add("80 % interval", len(inside), f"{share:.0%} inside".replace("%", " %"), "", "", "")
    table.finish(options)


def predicted(opcost: Any, model: str, batch: int, tokens: int, options: dict[str, Any]) -> Any:
    """The step of a rank with this batch; it has positions of its part of the sequences."""
    shapes = {"tokens": (batch, tokens), "labels": (batch, tokens)}
    own = tokens // opcost.Mesh.of(options["mesh"]).cp
    return opcost.predict(
        made(model, own), shapes=shapes, dtypes=dict.fromkeys(shapes, "int64"), optimizer="adamw",
        precision="bf16-mixed", **options,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
