"""`get_model_profile`, one timed run of its own, and `FlopsProfiler`, around a step of the user's loop."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import nn

from opcost.api import Recording, recording
from opcost.compat._layers.duration import Clock, seconds_by_module
from opcost.compat._layers.names import Names
from opcost.compat._operators.listener import Listener
from opcost.compat._operators.trace import nodes_of
from opcost.compat._recording import current_recorder, warn_uncounted
from opcost.compat.deepspeed.convention import Costs, arguments, costs_of, count
from opcost.compat.deepspeed.numbers import duration_to_string, macs_to_string, number_to_string, params_to_string
from opcost.compat.deepspeed.text import Profile
from opcost.core.writing import write_text


class FlopsProfiler:
    """Counts and times the forward passes that a training loop runs between `start_profile()` and `end_profile()`.

    The model runs as it is and is left as it was. Latencies include the recording itself.
    """

    def __init__(self, model: nn.Module, ds_engine: Any = None, recompute_fwd_factor: float = 0.0) -> None:
        self.model = model
        self.ds_engine = ds_engine
        self.recompute_fwd_factor = recompute_fwd_factor
        self.started = False
        self._undo = ExitStack()
        self._recording: Recording | None = None
        self._listener: Listener | None = None
        self._ignored: Collection[type] = ()
        self._clock = Clock()
        self._stem = ""

    def start_profile(self, ignore_list: Collection[type] | None = None) -> None:
        """Begin to record; modules of the classes in `ignore_list` are left out."""
        self.end_profile()
        self._ignored = ignore_list or ()
        self._listener = Listener()
        self._undo.enter_context(self._clock.on(self.model))
        self._undo.callback(self.model.register_forward_pre_hook(self._note_name).remove)
        self._recording = self._undo.enter_context(recording())
        self._undo.enter_context(self._listener)
        self.started = True

    def stop_profile(self) -> None:
        """Stop recording; what was counted can still be asked for."""
        self._undo.close()

    def reset_profile(self) -> None:
        """Forget what was counted."""
        self._recording = self._listener = None
        self._ignored = ()
        self._clock = Clock()
        self._stem = ""

    def end_profile(self) -> None:
        """Stop recording, and forget what was counted."""
        self.stop_profile()
        self.reset_profile()
        self.started = False

    def get_total_flops(self, as_string: bool = False) -> Any:
        flops = self._costs().of("").flops
        return number_to_string(flops) if as_string else flops

    def get_total_macs(self, as_string: bool = False) -> Any:
        macs = self._costs().of("").macs
        return macs_to_string(macs) if as_string else macs

    def get_total_duration(self, as_string: bool = False) -> Any:
        seconds = sum(self._clock.seconds.values())
        return duration_to_string(seconds) if as_string else seconds

    def get_total_params(self, as_string: bool = False) -> Any:
        params = sum(p.numel() for p in self.model.parameters())
        return params_to_string(params) if as_string else params

    def print_model_profile(
        self,
        profile_step: int = 1,
        module_depth: int = -1,
        top_modules: int = 1,
        detailed: bool = True,
        output_file: str | None = None,
    ) -> None:
        """Print the profile, or write it to a file."""
        if self.started:
            _write(self._profile().text(profile_step, module_depth, top_modules, detailed=detailed), output_file)

    def print_model_aggregated_profile(self, module_depth: int = -1, top_modules: int = 1) -> None:
        """Print the largest modules of every depth."""
        if self.started:
            print("\n".join(self._profile().aggregated(module_depth, top_modules)))

    def _note_name(self, *_: object) -> None:
        """By which name the recording knows the model, once it is called."""
        recorder = current_recorder()
        if recorder is not None:
            self._stem = recorder.where()

    def _costs(self) -> Costs:
        if self._recording is None or self._listener is None:
            return Costs(Names(self.model), {})
        report = self._recording.report
        warn_uncounted(report)
        nodes = nodes_of(report, self._listener.calls)
        forward = (node for node in nodes if all(row.op.phase == "forward" for row in node.rows))
        return costs_of(self.model, forward, self._stem, self._ignored)

    def _profile(self) -> Profile:
        return Profile(self.model, self._costs(), self.get_total_params(), self._clock.seconds)


def get_model_profile(
    model: nn.Module,
    input_shape: tuple[int, ...] | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    print_profile: bool = True,
    detailed: bool = True,
    module_depth: int = -1,
    top_modules: int = 1,
    warm_up: int = 1,
    as_string: bool = True,
    output_file: str | None = None,
    ignore_modules: Collection[type] | None = None,
    mode: str = "forward",
) -> tuple[Any, Any, Any]:
    """Flops, multiply-accumulates and parameters of a forward pass in evaluation mode, as text or as numbers.

    With `mode="generate"`, of a call of the model's `generate`.

    The printed profile has the latency of every module in one real run after `warm_up` others; a model without data has none.
    """
    given, named = arguments(model, input_shape, args, kwargs or {}, mode)
    costs = count(model, given, named, ignore_modules or (), mode)
    params = sum(p.numel() for p in model.parameters())
    total = costs.of("")
    if print_profile:
        seconds = seconds_by_module(
            model, given, named, warm_up=warm_up, called=model.generate if mode == "generate" else None
        )
        profile = Profile(model, costs, params, seconds)
        text = profile.text(warm_up, module_depth, top_modules, detailed=detailed)
        _write(text, output_file)
    if as_string:
        return number_to_string(total.flops), macs_to_string(total.macs), params_to_string(params)
    return total.flops, total.macs, params


def _write(text: str, output_file: str | None) -> None:
    if not output_file:
        sys.stdout.write(text)
        return
    Path(output_file).resolve().parent.mkdir(parents=True, exist_ok=True)
    write_text(Path(output_file), text)
