"""What DistributedDataParallel adds to a backward pass: gradients are copied to buckets, which are averaged over the ranks.

PyTorch does this in C++, in hooks of `.grad`, which a count does not touch. So it is repeated here as it is from the second step
on: buckets are filled in the order in which gradients arrive, or, where parameters may be unused, in the reverse order of the
parameters; each is sent as soon as it is full, and exists before the first step.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from opcost.core.graph import TensorSpec
from opcost.errors import ForwardError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import rebuilt
from opcost.frontends.torch.ledger.tensors import Signature, recorded
from opcost.frontends.torch.recording.recorder import DatalessRecorder


@dataclass(slots=True, eq=False)
class _Bucket:
    """One bucket: its memory, and what it has so far."""

    storage: int
    dtype: torch.dtype
    device: torch.device
    limit: int
    missing: set[str] = field(default_factory=set)  # Parameters that are still to come, where these are known before
    numel: int = 0

    @property
    def nbytes(self) -> int:
        return self.numel * int(self.dtype.itemsize)


class GradientBuckets:
    """The buckets of a model in DistributedDataParallel, for one backward pass."""

    def __init__(self, wrapper: Any, recorder: DatalessRecorder) -> None:
        self._wrapper, self._recorder = wrapper, recorder
        self._group = wrapper.process_group
        first = [private.first_bucket_bytes()] if wrapper.bucket_bytes_cap_default else []
        self._limits = list(getattr(wrapper, "bucket_bytes_cap_list", ())) or [*first, wrapper.bucket_bytes_cap]
        self._in_place = wrapper.gradient_as_bucket_view
        self._may_be_unused = wrapper.find_unused_parameters and not wrapper.static_graph
        self._planned: list[_Bucket] = []
        self._open: dict[tuple[torch.dtype, torch.device], _Bucket] = {}
        self._made: dict[tuple[torch.dtype, torch.device], int] = {}
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.storages: set[int] = set()  # Of all buckets

    @contextmanager
    def filled(self, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Average the gradients of these parameters while they are computed; the last ones at the end."""
        reduced = {name: weight for name, weight in weights.items() if name not in self._wrapper.parameters_to_ignore}
        if self._may_be_unused:
            self._plan(reduced)
        with ExitStack() as undo:
            for name, weight in reduced.items():
                undo.callback(weight.register_hook(partial(self._arrived, name)).remove)
            yield
        with torch.no_grad():
            for bucket in (*self._planned, *self._open.values()):
                self._average(bucket)
            if self._may_be_unused:
                self._average_used(len(reduced))
            for gradient, view in self._copied:
                gradient.copy_(view)

    def _plan(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Buckets of the parameters in their order, the last of which comes first."""
        for name, weight in weights.items():
            bucket = self._bucket_for(weight)
            bucket.missing.add(name)
            bucket.numel += weight.numel()
            if bucket.nbytes >= bucket.limit:
                self._planned.append(self._open.pop((weight.dtype, weight.device)))
        self._planned = [*self._planned, *self._open.values()][::-1]
        self._open.clear()
        for bucket in self._planned:
            bucket.numel = 0

    def _bucket_for(self, tensor: torch.Tensor) -> _Bucket:
        """The bucket of this element type that is being filled."""
        key = tensor.dtype, tensor.device
        if key not in self._open:
            made = self._made.get(key, 0)
            self._made[key] = made + 1
            storage = self._recorder.value_before_run(TensorSpec((0,)), f"bucket {sum(self._made.values())}")
            self.storages.add(storage)
            self._open[key] = _Bucket(storage, *key, self._limits[min(made, len(self._limits) - 1)])
        return self._open[key]

    def _arrived(self, name: str, gradient: torch.Tensor) -> torch.Tensor | None:
        """A gradient is there: put its share of the average into its bucket, and send that one if it is full."""
        if gradient.layout is not torch.strided:
            raise ForwardError(
                f"the gradient of {name} is sparse, and of DistributedDataParallel only dense ones are counted",
                hint="count the model without its wrapper: model.module",
            )
        with torch.no_grad():
            view = rebuilt(gradient, lambda part, _: self._put(name, part))
            if not self._in_place:
                self._copied.append((gradient, view))
            self._send()
        return view if self._in_place else None

    def _put(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        recorder = self._recorder
        bucket = next((each for each in self._planned if name in each.missing), None) or self._bucket_for(gradient)
        bucket.missing.discard(name)
        bucket.numel += gradient.numel()
        view = self._made_before(recorder.state(gradient).sig, f"{name}.grad", bucket.storage)
        torch.ops.aten.mul.Scalar_out(gradient, 1 / self._group.size(), out=view)
        return view

    def _send(self) -> None:
        """Average the buckets that are full, planned ones in their order."""
        while self._planned and not self._planned[0].missing:
            self._average(self._planned.pop(0))
        for key, bucket in list(self._open.items()):
            if bucket.nbytes >= bucket.limit:
                self._average(self._open.pop(key))

    def _average(self, bucket: _Bucket) -> None:
        recorder = self._recorder
        sig = recorder.signature((bucket.numel,), (1,), bucket.dtype, bucket.device)
        recorder.specs[bucket.storage] = sig.spec
        whole = recorded(sig, bucket.storage, recorder.mark, None)
        torch.distributed.all_reduce(whole, group=self._group, async_op=True)

    def _average_used(self, parameters: int) -> None:
        """Which parameters some rank used."""
        sig = self._recorder.signature((parameters,), (1,), torch.int32, self._recorder.device)
        used, copied = (self._made_before(sig, name) for name in ("used here", "used anywhere"))
        torch.distributed.all_reduce(copied.copy_(used), group=self._group, async_op=True)

    def _made_before(self, sig: Signature, name: str, storage: int | None = None) -> torch.Tensor:
        """A tensor that is there before the run."""
        recorder = self._recorder
        return recorded(sig, recorder.value_before_run(sig.spec, name, storage), recorder.mark, None)
