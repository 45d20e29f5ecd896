"""Names that begin one another, and names that go deeper than any model."""

from __future__ import annotations

import json
import time

import pytest

from opcost.errors import SourceError
from opcost.frontends.building import with_above
from opcost.frontends.mxnet.build import DEEPEST, paths_of
from opcost.frontends.mxnet.symbol import parse_symbol


@pytest.mark.parametrize("mark", ["_", ".", "/"])
def test_names_that_are_all_beginnings_of_one_another_take_no_time(mark: str) -> None:
    names = [mark.join(["x"] * count) for count in range(1, 1501)]
    began = time.process_time()
    paths = paths_of(names, [()] * len(names))
    with_above(paths)
    assert time.process_time() - began < 2
    assert paths[:3] == ["x", "x.x", "x.x.x"]
    assert max(path.count(".") for path in paths) == DEEPEST


def test_a_name_longer_than_any_is_refused() -> None:
    symbol = {"nodes": [{"op": "null", "name": "x" * 5000, "inputs": []}], "heads": [[0, 0, 0]]}
    with pytest.raises(SourceError, match=r"length <= 4096 - at `\$\.nodes\[0\]\.name`"):
        parse_symbol(json.dumps(symbol))
