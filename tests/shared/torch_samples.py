"""PyTorch's own samples for its whole public surface, each ready to run, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch
from torch.utils._pytree import tree_leaves


def samples(each: int) -> Iterator[Callable[[], None]]:
    """The first so many samples of every operator in float32; each is run before the next is asked for."""
    pytest.importorskip("expecttest", reason="PyTorch's test samples need it")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

    # For each list of samples PyTorch would look through the whole stack for a unittest, and for each sample seed every
    # device there might be, which takes longer than all the operators.
    torch.manual_seed(0)
    with (
        mock.patch.object(core, "extract_test_fn", return_value=None),
        mock.patch.object(common_utils, "extract_test_fn", return_value=None),
        mock.patch.object(common_utils, "set_rng_seed"),
    ):
        for info in op_db:
            if info.name.startswith("jiterator") or torch.float32 not in info.dtypes:
                continue
            trained = info.supports_autograd
            given = info.sample_inputs("cpu", torch.float32, requires_grad=trained)
            for sample, _ in zip(given, range(each), strict=False):

                def run() -> None:
                    result = info(sample.input, *sample.args, **sample.kwargs)  # noqa: B023  (called at once)
                    grown = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
                    if grown and trained:  # noqa: B023
                        sum(t.abs().sum() for t in grown).backward()

                yield run
