"""64 traces of one run, made of `trace.json.gz`: rank 17 is a quarter slower, and the others wait for it in an all-reduce.

python examples/ranks.py ranks
opcost analyze ranks
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

RANKS, LATE, SLOWER = 64, 17, 1.25
LAUNCH, EXCHANGE = 10.0, 200.0  # microseconds of a launch, and of the all-reduce after the last rank has come
NUMBER = 1_000_000  # of the launch; larger than those of the trace
GRADIENTS = {
    "Collective name": "allreduce", "In msg nelems": 25_000_000, "Out msg nelems": 25_000_000, "dtype": "BFloat16",
    "Group size": RANKS, "Process Group Name": "0",
}  # fmt: skip


def trace_of(trace: dict[str, Any], rank: int) -> dict[str, Any]:
    """The trace of one rank: its times, and the all-reduce at the end."""
    slower = SLOWER if rank == LATE else 1.0
    events = [event for event in trace["traceEvents"] if "dur" in event]
    begin = min(event["ts"] for event in events)
    done = max(event["ts"] + event["dur"] for event in events) - begin
    stretched = [
        event | {"ts": begin + slower * (event["ts"] - begin), "dur": slower * event["dur"]} for event in events
    ]
    host = next(event for event in events if event.get("cat") == "cpu_op")
    own = {"ph": "X", "ts": begin + slower * done, "pid": host["pid"], "tid": host["tid"]}
    exchange = [
        own | {"name": "c10d::allreduce_", "cat": "cpu_op", "dur": 3 * LAUNCH, "args": {"External id": NUMBER}},
        own | {"name": "cudaLaunchKernelExC", "cat": "cuda_runtime", "dur": LAUNCH, "args": {"correlation": NUMBER}},
        own | {
            "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "cat": "kernel", "ts": own["ts"] + LAUNCH, "pid": 0, "tid": 20,
            "dur": (SLOWER - slower) * done + EXCHANGE,
            "args": {"device": 0, "stream": 20, "correlation": NUMBER, "External id": NUMBER, **GRADIENTS},
        },
    ]  # fmt: skip
    others = [event for event in trace["traceEvents"] if "dur" not in event]
    ranks = {"rank": rank, "world_size": RANKS}
    return trace | {"traceEvents": [*others, *stretched, *exchange], "distributedInfo": ranks}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    whole = json.loads(gzip.decompress(Path(__file__).with_name("trace.json.gz").read_bytes()))
    for rank in range(RANKS):
        text = json.dumps(trace_of(whole, rank))
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode(), 1))
