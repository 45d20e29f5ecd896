"""Peak memory told without running against what an H200 held: what a pass or a step adds to what was there before.

    python benchmarks/memory.py            every row of h200_models.json, and how far off they are
    python benchmarks/memory.py resnet     only those whose name has this in it

The measured rows are those of predict.py; a step is one of Adam. Nothing here needs a GPU.
"""

import sys

from predict import ROWS, counted, summary


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    errors: dict[str, list[float]] = {"infer": [], "train": []}
    print(f"{'model':<28} {'batch':>5} {'type':<9} {'what':<6} {'measured':>10} {'told':>10} MiB  ratio")
    for row in (row for row in ROWS if wanted in row["name"]):
        for what, off in errors.items():
            if f"{what}_peak_bytes" not in row:
                continue
            true = row[f"{what}_peak_bytes"] - row[f"{what}_base_bytes"]
            memory = counted(row, training=what == "train").memory
            added = memory.peak_bytes - memory.base_bytes
            off.append(added / true - 1)
            sizes = f"{true / 2**20:>10,.1f} {added / 2**20:>10,.1f}     {added / true:6.2f}"
            print(f"{row['name']:<28} {row['batch']:>5} {row['dtype']:<9} {what:<6} {sizes}", flush=True)
    for what, off in errors.items():
        if off:
            summary({"infer": "peak of a pass, above what was there", "train": "peak of a step with Adam"}[what], off)


if __name__ == "__main__":
    main()
