"""PyTorch's own samples for its whole public surface, each ready to run, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from profiler_event import Written, event_of
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


def samples(each: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """The first `each` samples of every operator in float32, with its name; each is run before the next is made."""
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

                yield info.formatted_name, run


class Ran(NamedTuple):
    """One call of an operator, its tensors without their data, and the event that the profiler writes of it."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    written: Written


class _Catch(TorchDispatchMode):
    """Notes every distinct call, and which were made."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, Ran] = {}
        self.made: list[Ran] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = event_of(func, args, kwargs)  # before it runs: in place shapes may change
        words = [word for word in (*args, *kwargs.values()) if isinstance(word, str)]  # which events leave out
        key = (func, repr(written), *words)
        result = func(*args, **kwargs)
        if key not in self.calls:
            self.calls[key] = Ran(func, *tree_map(_without_data, (args, kwargs, result)), written)
        self.made.append(self.calls[key])
        return result


def _without_data(value: Any) -> Any:
    if (
        not isinstance(value, torch.Tensor)
        or value.layout is not torch.strided
        or value.is_quantized
        or value.is_nested
    ):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


@cache
def calls(each: int) -> list[tuple[str, list[Ran]]]:
    """The name of each sample's operator, and the calls that it makes; equal calls are one object."""
    catch, found = _Catch(), []
    for name, run in samples(each):
        catch.made = []
        with catch:
            run()
        found.append((name, catch.made))
    return found
