from __future__ import annotations

from typing import Any

import pytest
from sampling import FULL
from torch_samples import samples


@pytest.mark.slow
def test_every_operator_that_pytorchs_own_samples_reach_is_translated_and_has_a_cost(record: Any) -> None:
    """PyTorch's test suite has sample inputs for its whole public surface; forward and backward are run on them."""
    names: set[str] = set()
    unknown: set[str] = set()
    for _, run in samples(3 if FULL else 1):
        for seen in record(run):
            names.add(seen.name)
            if seen.kind == "unknown":
                unknown.add(seen.name)
    assert not unknown
    assert len(names) > 400
