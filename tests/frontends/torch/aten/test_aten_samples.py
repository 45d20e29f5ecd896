from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves


@pytest.mark.slow
def test_every_operator_that_pytorchs_own_samples_reach_is_translated_and_priced(
    record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's test suite has sample inputs for its whole public surface; forward and backward are run on them."""
    pytest.importorskip("expecttest", reason="PyTorch's test samples need it")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

    # Each list of samples would look through the whole stack for a unittest, which takes longer than all the operators.
    monkeypatch.setattr(common_utils, "extract_test_fn", lambda: None)
    gc.freeze()  # the samples' own half a million objects
    names: set[str] = set()
    unknown: set[str] = set()
    for info in op_db:
        if info.name.startswith("jiterator") or torch.float32 not in info.dtypes:
            continue
        trained = info.supports_autograd
        for number, sample in enumerate(info.sample_inputs("cpu", torch.float32, requires_grad=trained)):
            if number == 3:
                break

            def run() -> None:
                result = info(sample.input, *sample.args, **sample.kwargs)  # noqa: B023  (called at once)
                grown = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
                if grown and trained:  # noqa: B023
                    sum(t.abs().sum() for t in grown).backward()

            for seen in record(run):
                names.add(seen.name)
                if seen.kind == "unknown":
                    unknown.add(seen.name)
    assert not unknown
    assert len(names) > 400
