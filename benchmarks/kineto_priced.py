"""How much of the kernel time of operators in traces has a price, and which operators have none.

    python benchmarks/kineto_priced.py TRACE.json.gz ... TRACE.json.gz=CAPTURE.json.gz

Behind `=` stands a trace of the capture of the graphs that are replayed. Work that no operator launched is left out.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import opcost
from opcost.profiles import priced

MOST = 4
"""Operators without a price that are named."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    whole = known = 0
    for given in parser.parse_args().traces:
        trace, _, capture = given.partition("=")
        spent: Counter[str] = Counter()
        unpriced: Counter[str] = Counter()
        for row in priced(opcost.read_profile(trace, capture=capture or None)).rows:
            spent[row.type] += row.device_ns or 0
            unpriced[row.type] += 0 if row.cost is not None else row.device_ns or 0
        own, lost = spent.total(), unpriced.total()
        whole, known = whole + own, known + own - lost
        if own:
            named = ", ".join(f"{name} {time / own:.1%}" for name, time in unpriced.most_common(MOST) if time)
            print(f"{Path(trace).name}: {1 - lost / own:.1%} priced; without: {named}", flush=True)
    print(f"all: {known / whole:.1%}")


if __name__ == "__main__":
    main()
