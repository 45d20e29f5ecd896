"""Many ranks of one run, a trace of each, read by a pool of processes: the time against single reads divided by the cores.

    python benchmarks/kineto_ranks.py [--ranks 50] [--megabytes 100] [--workers N] [--keep DIRECTORY]

Each rank's trace is made from a small real one and says its own rank, so that no two have the same content. The traces
and the caches are deleted at the end. Single reads are timed first, in this process, on a few of the files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import mean

from kineto_trace import GOLDEN, make


def write_ranks(folder: Path, ranks: int, size: int) -> list[Path]:
    """A trace of this size for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    trace = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    golden = folder / "golden.json.gz"
    found = []
    for rank in range(ranks):
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
        if rank == 0:
            golden.write_bytes(gzip.compress(json.dumps(trace).encode()))
            found.append(folder / "rank0.json")
            make(golden, found[0], size)
            golden.unlink()
            continue
        # Only the head differs, so the first rank's text is written again with another head.
        target = folder / f"rank{rank}.json"
        with found[0].open("rb") as source, target.open("wb") as file:
            head = source.read(1 << 16)
            file.write(head.replace(b'"rank": 0, "world_size"', b'"rank": %d, "world_size"' % rank, 1))
            while block := source.read(1 << 22):
                file.write(block)
        found.append(target)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()

    from opcost.traces.ranks import reduce_rank, reduce_ranks

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        files = write_ranks(folder, options.ranks, int(options.megabytes * 1e6))
        singles = [timed(lambda file=file: reduce_rank(str(file))) for file in islice(files, 4)][1:]
        with tempfile.TemporaryDirectory() as cache:
            together = timed(lambda: reduce_ranks([folder], workers=options.workers, cache=cache))
            cached = timed(lambda: reduce_ranks([folder], workers=options.workers, cache=cache))
            kept = sum(file.stat().st_size for file in Path(cache).iterdir())
            ranks = reduce_ranks([folder], workers=options.workers, cache=cache)
        print(f"{len(files)} ranks of {options.megabytes:g} MB, {options.workers} processes")
        for name, place in (("wall", 0), ("CPU", 1)):
            single = mean(seconds[place] for seconds in singles)
            shared = single * len(files) / (options.workers if name == "wall" else 1)
            print(
                f"{name:4}: {together[place]:6.1f} s; one read {single:.2f} s, so {len(files)} reads"
                f"{' divided by the processes' if name == 'wall' else ''} {shared:.1f} s: "
                f"{100 * (together[place] / shared - 1):+.1f} %; from the caches {cached[place]:.1f} s"
            )
        peaks = [resource.getrusage(who).ru_maxrss * 1024 for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
        print(f"memory: {peaks[0] / 1e6:.0f} MB of the largest worker, {peaks[1] / 1e6:.0f} MB here")
        print(f"Parquet: {len(ranks.parquet()) / 1e6:.1f} MB, {len(ranks.frame):,} rows; caches {kept / 1e6:.1f} MB")


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of a call, with those of the processes that it started."""
    before = time.perf_counter(), spent()
    call()
    return time.perf_counter() - before[0], spent() - before[1]


def spent() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
