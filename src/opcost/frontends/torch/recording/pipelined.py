"""Stages of a pipeline that a schedule of PyTorch's runs: in which phase they are, and what they receive.

The schedule runs the forward and backward passes of microbatches in turns, by methods of its stages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from opcost.core.graph import Op, Phase
from opcost.core.order import received_name
from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import parts
from opcost.frontends.torch.ledger.tensors import Recorded, StorageLife, recorded
from opcost.frontends.torch.models.unwrap import stages_in
from opcost.frontends.torch.recording.recorder import DatalessRecorder
from opcost.frontends.torch.restore.process import replaced

if TYPE_CHECKING:
    from opcost.frontends.torch.recording.training_step import Where

_STAGE = "torch.distributed.pipelining.stage"
_SCHEDULES = "torch.distributed.pipelining.schedules"
_PHASES: dict[str, Phase] = {
    "forward_one_chunk": "forward", "backward_one_chunk": "backward", "backward_weight_one_chunk": "backward",
    "perform_reduce_grad": "backward",
}  # fmt: skip
"""The methods of stages that run something."""


@contextmanager
def following_stages(recorder: DatalessRecorder, forward: Where, backward: Where) -> Iterator[Messages]:
    """Let what stages run be of its phase, and what they receive be there before the step, as it is from the second on."""
    messages = Messages(recorder)
    known: Any = sys.modules.get(_STAGE)
    with ExitStack() as undo:

        def follow(owner: Any, name: str, wrapper: Callable[..., Any], *given: Any) -> None:
            undo.enter_context(replaced(owner, name, partial(wrapper, *given, getattr(owner, name))))

        if known is not None and recorder.without_data:
            stage = known._PipelineStageBase
            for name, phase in _PHASES.items():
                follow(stage, name, _in_phase, recorder, phase, forward if phase == "forward" else backward)
            follow(sys.modules[_SCHEDULES]._PipelineSchedule, "_warmup_p2p", _without_votes)  # type: ignore[attr-defined]
            follow(known, "_make_tensor_from_meta", messages.made)
            for kind in (known.PipelineStage, known._PipelineStage):
                follow(kind, "_prepare_forward_infra", messages.prepared)
                follow(kind, "_prepare_backward_infra", messages.prepared)
            for name in ("get_fwd_send_ops", "get_fwd_recv_ops", "get_bwd_send_ops", "get_bwd_recv_ops"):
                follow(stage, name, partial(messages.named, name))
            follow(stage, "perform_reduce_grad", messages.reduced)
            follow(private.pipelining_backward(), "get_param_groups", _in_order)
        yield messages


def _in_phase(
    recorder: DatalessRecorder, phase: Phase, where: Where, method: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    outer = recorder.phase, recorder.where
    recorder.phase, recorder.where = phase, where
    try:
        return method(*args, **kwargs)
    finally:
        recorder.phase, recorder.where = outer


def _without_votes(_: Callable[..., Any], schedule: Any, stages: list[Any], has_backward: bool, done: bool) -> None:  # noqa: FBT001
    """Before its first step a schedule asks the other stages whether all know the shapes of what they send, and waits."""
    known: Any = sys.modules[_STAGE]
    for stage in stages:
        if isinstance(stage, known.PipelineStage):
            if known.InferenceMode.needs_dynamic(stage._user_meta, has_backward):
                fault = (
                    f"stage {stage.stage_index} does not know the shapes of what it receives and sends: other ranks do"
                )
                raise InputError(fault, hint="make it as PipelineStage(..., input_args=..., output_args=...)")
            stage._inference_mode = known.InferenceMode.STATIC


def _in_order(group: Callable[..., Any], inputs: Any, weights: list[Any], *args: Any) -> Any:
    """Which weights get their gradients together: in their order, and not in that of sets, by which they would be added up."""
    places = {weight: place for place, weight in enumerate(weights)}
    found = group(inputs, weights, *args)
    for each in found:
        each["params"] = sorted(each["params"], key=lambda weight: places.get(weight, len(places)))
    return found


class Messages:
    """What stages send to each other."""

    def __init__(self, recorder: DatalessRecorder) -> None:
        self._recorder = recorder
        self._preparing = False
        self.received: set[int] = set()  # Storages that other stages write to
        self.gradients: set[int] = set()  # Storages of gradients that are not shared out yet
        self._backward: set[int] = set()  # Values that are sent or received in the backward pass

    def prepared(self, prepare: Callable[..., Any], stage: Any, *args: Any, **kwargs: Any) -> Any:
        """Prepare what a stage receives."""
        self._preparing = True
        try:
            result = prepare(stage, *args, **kwargs)
        finally:
            self._preparing = False
        for phase, of_microbatches in (("forward", stage.args_recv_info), ("backward", stage.grad_recv_info)):
            for microbatch, infos in of_microbatches.items():
                for number, info in enumerate(infos):
                    if type(info.buffer) is Recorded:
                        name = received_name(stage.stage_index, phase, microbatch, number)
                        self._recorder.leaves[info.buffer.vid] = name, "const", False
        return result

    def made(self, make: Callable[..., torch.Tensor], meta: Any, device: Any) -> torch.Tensor:
        """A tensor by its shape: one that is received, which is there before the step, or one that is made in it."""
        if not self._preparing:
            return make(meta, device)
        return self._before(tuple(meta.shape), tuple(meta.stride), meta.dtype, torch.device(device))

    def place(self, schedule: Any) -> None:
        """Put tensors without data in the place of what the stages of a schedule received in an earlier step."""
        for stage in stages_in(schedule):
            for info in chain(*stage.args_recv_info.values(), *stage.grad_recv_info.values()):
                if (old := info.buffer) is not None:
                    info.buffer = self._before(tuple(old.shape), old.stride(), old.dtype, old.device)

    def _before(self, *signature: Any) -> torch.Tensor:
        recorder = self._recorder
        sig = recorder.signature(*signature)
        vid = recorder.value_before_run(sig.spec, "received")
        self.received.add(vid)
        return recorded(sig, vid, recorder.mark, StorageLife(recorder.lives, vid))

    def named(self, name: str, messages: Callable[..., list[Any]], stage: Any, *args: Any) -> list[Any]:
        """What a stage sends or receives next."""
        recorder, found = self._recorder, messages(stage, *args)
        group = stage.group or torch.distributed.group.WORLD
        recorder.axes = {group.group_name: "pp", **recorder.axes}
        for state in [recorder.state(message.tensor) for message in found]:
            if "bwd" in name:
                self._backward.add(state.vid)
            if "recv" in name:
                state.content = None  # of what was received before
        return found

    def reduced(self, reduce: Callable[..., None], stage: Any, *args: Any) -> None:
        """A fully sharded stage shares out the gradients of all microbatches, which it kept whole until then."""
        recorder = self._recorder
        for group in private.fully_sharded_groups(stage.submod):
            for shard in group.fsdp_params:
                whole = shard.unsharded_accumulated_grad  # in the type in which they are shared out
                if whole is None:
                    whole = getattr(getattr(shard, "_unsharded_param", None), "grad", None)
                for _, part in () if whole is None else parts("", whole):
                    self.gradients.add(recorder.storages[recorder.state(part).vid])
        reduce(stage, *args)

    def in_phase(self, op: Op) -> Op:
        """The operator in the phase of what it sends or receives."""
        is_backward = op.kind == "collective" and not self._backward.isdisjoint(op.inputs)
        return op._replace(phase="backward") if is_backward else op
