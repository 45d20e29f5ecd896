"""DeepSpeed's flops profiler: `get_model_profile`, one timed run of its own, and `FlopsProfiler`, around a step of a loop.

    from opcost.compat.deepspeed import get_model_profile     # instead of deepspeed.profiling.flops_profiler

DeepSpeed and calflops count two flops for a multiply-add, and one for each element of the other operators that they know.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.api import Recording, recording
from opcost.compat._modules import Names, parameter_elements, repr_with, with_below
from opcost.compat._operators import POOLINGS, RESIZINGS, ElementCosts, OperatorCall, OperatorRecorder, trace, with_rows
from opcost.compat._recording import Clock, current_recorder, seconds_by_module, warn_uncounted
from opcost.core.escaping import printable
from opcost.core.files import write_text
from opcost.errors import InputError, UnknownName

__all__ = ["FlopsProfiler", "get_model_profile"]

_ELEMENT_COSTS = ElementCosts(
    read={1: f"relu relu_ prelu elu elu_ leaky_relu leaky_relu_ relu6 hardtanh hardtanh_ silu silu_ gelu softmax {POOLINGS}"},
    made={1: f"add add_ mul mul_ {RESIZINGS}"}, norm=(5, 4), stored=(2, 1),
)  # fmt: skip
_BIAS = {"_convolution": 2, "addmm": 0, "addmm_": 0, "baddbmm": 0}
"""Position of what is added to a product, one for each element of the result."""
MODES = ("forward", "generate")  # The methods of a model that can be run


def flops_of(call: OperatorCall) -> int:
    """The flops of one operator as it was called."""
    name, inputs, outputs = call.name, call.inputs(), call.outputs()
    if macs := call.macs:
        added = name in _BIAS and inputs[_BIAS[name]].isCompleteTensor()
        return 2 * macs + (outputs[0].numel if added else 0)
    return _ELEMENT_COSTS.of(call) or 0


def arguments(
    model: nn.Module, input_shape: tuple[int, ...] | None, args: Any, kwargs: Mapping[str, Any], mode: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: a tensor of one shape, or the given arguments."""
    assert isinstance(model, nn.Module), "model must be a PyTorch module"
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    if mode == "generate" and not hasattr(model, "generate"):
        raise InputError(f"{type(model).__name__} has no method generate", hint='count its forward: mode="forward"')
    if input_shape is not None:
        if type(input_shape) is not tuple or not input_shape:
            raise AssertionError("input_shape must be a tuple of at least one element")
        dtype = next((p.dtype for p in model.parameters()), torch.get_default_dtype())
        return (torch.empty(input_shape, dtype=dtype, device="meta"),), {}
    if not args and not kwargs:
        raise AssertionError("args and/or kwargs must be specified if input_shape is None")
    return tuple(args), dict(kwargs)


# -- numbers as text --------------------------------------------------------------------------------------------------

_UNITS = {"T": 1e12, "G": 1e9, "M": 1e6, "K": 1e3, "": 1.0, "m": 1e-3, "u": 1e-6}


def number_to_string(num: float, units: str | None = None, precision: int = 2) -> str:
    """A number in a unit, or in the largest of which it has at least one."""
    if units is None:
        units = next((unit for unit, size in _UNITS.items() if num >= size), "u") if num else ""
    return f"{round(num / _UNITS.get(units, 1.0), precision):g} {units}"


def flops_to_string(flops: float, units: str | None = None, precision: int = 2) -> str:
    return f"{number_to_string(flops, units, precision)}FLOPS"


def macs_to_string(macs: float, units: str | None = None, precision: int = 2) -> str:
    return f"{number_to_string(macs, units, precision)}MACs"


def params_to_string(params_num: float, units: str | None = None, precision: int = 2) -> str:
    """A number of parameters; a billion is B."""
    units = units.replace("B", "G") if units else units
    return number_to_string(params_num, units, precision).replace("G", "B").strip()


def duration_to_string(duration: float, units: str | None = None, precision: int = 2) -> str:
    return f"{number_to_string(duration, units, precision)}s"


def part_of(write: Callable[[float], str], part: float, whole: float, precision: int = 2) -> str:
    """A number and its percentage of the whole, without zeros behind the point."""
    return f"{write(part)} = {round(100 * part / whole, precision) if whole else 0:g}%"


def total_lines(totals: Mapping[str, str]) -> list[str]:
    return [f"{f'{title}: ':<70}  {value:<8}" for title, value in totals.items()]


# -- the printed profile: totals, the largest modules of every depth, the model's repr with numbers -------------------

_HEAD = """
-------------------------- DeepSpeed Flops Profiler --------------------------
Profile Summary at step {step}:
Notations:
data parallel size (dp_size), model parallel size(mp_size),
number of parameters (params), number of multiply-accumulate operations(MACs),
number of floating-point operations (flops), floating-point operations per second (FLOPS),
fwd latency (forward propagation latency), bwd latency (backward propagation latency),
step (weights update latency), iter latency (sum of fwd, bwd and step latency)
"""
_AGGREGATED = "\n----------------------------- Aggregated Profile per GPU -----------------------------"
_DETAILED = """
------------------------------ Detailed Profile per GPU ------------------------------
Each module profile is listed after its name in the following order:\x20
params, percentage of total params, MACs, percentage of total MACs, fwd latency, percentage of total fwd latency, fwd FLOPS

Note: 1. A module can have torch.nn.module or torch.nn.functional to compute logits (e.g. CrossEntropyLoss). \
They are not counted as submodules, thus not to be printed out. However they make up the difference between a parent's MACs \
(or latency) and the sum of its submodules'.
2. Number of floating-point operations is a theoretical estimation, thus FLOPS computed using that could be larger than the \
maximum system throughput.
3. The fwd latency listed in the top module's profile is directly captured at the module forward function in PyTorch, thus \
it's less than the fwd latency shown above which is captured in DeepSpeed.
"""
_END = "------------------------------------------------------------------------------"


class ModuleCosts:
    """What a model and its modules cost, each with everything below it, by name; and the text that DeepSpeed makes of it.

    `stem` is the name of the model itself in the calls; what runs in modules of ignored classes is left out.
    """

    def __init__(
        self, model: nn.Module, calls: Iterable[OperatorCall], stem: str = "", ignored: Collection[type] = (),
        seconds: Mapping[int, float] | None = None,
    ) -> None:  # fmt: skip
        self.model, self.names = model, Names(model)
        self.seconds = seconds or {}
        """Of each module's own forward, by its identity."""
        own_macs, own_flops = Counter[str](), Counter[str]()
        for call in calls:
            name = self.names.registered(call.module.removeprefix(stem).removeprefix("."))
            if not self.names.inside(name, ignored):
                own_macs[name] += call.macs
                own_flops[name] += flops_of(call)
        self.macs, self.flops = with_below(own_macs), with_below(own_flops)

    @classmethod
    def count(
        cls, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], ignored: Collection[type], mode: str
    ) -> ModuleCosts:
        """Count a model, or a call of its `generate`, in evaluation mode."""
        stem = "" if mode == "forward" else "self"  # the model, in a count of one of its methods
        found = trace(model if mode == "forward" else model.generate, args, kwargs, mode="eval")
        return cls(model, found.calls, stem, ignored)

    def text(self, step: int, module_depth: int, top_modules: int, *, detailed: bool) -> str:
        """Everything that DeepSpeed prints."""
        macs, flops, latency = self.macs[""], self.flops[""], self._latency("")
        params = params_to_string(parameter_elements(self.model))
        totals = {
            "params per GPU": params,
            "params of model = params per GPU * mp_size": params,
            "fwd MACs per GPU": macs_to_string(macs),
            "fwd flops per GPU": number_to_string(flops),
            "fwd flops of model = fwd flops per GPU * mp_size": number_to_string(flops),
            "fwd latency": duration_to_string(latency),
            "fwd FLOPS per GPU = fwd flops per GPU / fwd latency": flops_to_string(latency and flops / latency),
        }
        lines = [_HEAD.format(step=step), *total_lines(totals), _AGGREGATED]
        lines += self.aggregated(module_depth, top_modules)
        if detailed:
            lines += [_DETAILED, repr_with(self.model, self._words)]
        return "\n".join([*lines, _END, ""])

    def aggregated(self, module_depth: int, top_modules: int) -> Iterator[str]:
        """The classes with the most parameters, MACs and latency at every depth above the last."""
        levels: dict[int, dict[str, list[float]]] = {}
        for name, module in self.names.modules.items():
            depth = name.count(".") + 1 if name else 0
            sums = levels.setdefault(depth, {}).setdefault(type(module).__name__, [0, 0, 0])
            for at, number in enumerate((parameter_elements(module), self.macs[name], self._latency(name))):
                sums[at] += number
        yield f"Top {top_modules} modules in terms of params, MACs or fwd latency at different model depths:"
        shown: tuple[tuple[str, Callable[[float], str]], ...] = (
            ("params     ", params_to_string), ("MACs       ", macs_to_string), ("fwd latency", duration_to_string),
        )  # fmt: skip
        for depth in range(len(levels) - 1 if module_depth == -1 else module_depth):
            yield f"depth {depth}:"
            for at, (title, write) in enumerate(shown):
                largest = sorted(levels[depth].items(), key=lambda item, at=at: -item[1][at])[:top_modules]  # type: ignore[misc]
                yield f"    {title} - { {printable(kind): write(sums[at]) for kind, sums in largest} }"

    def _words(self, name: str, own: str) -> str:
        params, latency = parameter_elements(self.names.modules[name]), self._latency(name)
        words = [
            f"{part_of(params_to_string, params, parameter_elements(self.model))} Params",
            f"{part_of(macs_to_string, self.macs[name], self.macs[''])} MACs",
            f"{part_of(duration_to_string, latency, self._latency(''))} latency",
            flops_to_string(round(self.flops[name] / latency, 2) if latency else 0),
        ]
        return ", ".join(filter(None, [*words, own]))

    def _latency(self, name: str) -> float:
        """Seconds of a module with everything below it."""
        below = {id(module) for module in self.names.modules[name].modules()}
        return sum(self.seconds.get(module, 0.0) for module in below)


def get_model_profile(
    model: nn.Module, input_shape: tuple[int, ...] | None = None, args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None, print_profile: bool = True, detailed: bool = True,
    module_depth: int = -1, top_modules: int = 1, warm_up: int = 1, as_string: bool = True,
    output_file: str | None = None, ignore_modules: Collection[type] | None = None, mode: str = "forward",
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Flops, multiply-accumulates and parameters of a forward pass in evaluation mode, as text or as numbers.

    With `mode="generate"`, of a call of the model's `generate`.

    The printed profile has the latency of every module in one real run after `warm_up` others; a model without data has none.
    """
    given, named = arguments(model, input_shape, args, kwargs or {}, mode)
    costs = ModuleCosts.count(model, given, named, ignore_modules or (), mode)
    flops, macs, params = costs.flops[""], costs.macs[""], parameter_elements(model)
    if print_profile:
        called = model.generate if mode == "generate" else None
        costs.seconds = seconds_by_module(model, given, named, warm_up=warm_up, called=called)
        _write(costs.text(warm_up, module_depth, top_modules, detailed=detailed), output_file)
    if as_string:
        return number_to_string(flops), macs_to_string(macs), params_to_string(params)
    return flops, macs, params


def _total(number: Callable[[Any], float], write: Callable[[float], str]) -> Callable[..., Any]:
    """A method that returns a number, or its text."""

    def get_total(self: FlopsProfiler, as_string: bool = False) -> Any:
        return write(number(self)) if as_string else number(self)

    return get_total


class FlopsProfiler:
    """Counts and times the forward passes that a training loop runs between `start_profile()` and `end_profile()`.

    The model runs as it is and is left as it was. Latencies include the recording itself.
    """

    def __init__(self, model: nn.Module, ds_engine: Any = None, recompute_fwd_factor: float = 0.0) -> None:
        self.model = model
        self.ds_engine = ds_engine
        self.recompute_fwd_factor = recompute_fwd_factor
        self._undo = ExitStack()
        self._recording: Recording | None = None
        self._operators: OperatorRecorder | None = None
        self._ignored: Collection[type] = ()
        self.end_profile()

    def start_profile(self, ignore_list: Collection[type] | None = None) -> None:
        """Begin to record; modules of the classes in `ignore_list` are left out."""
        self.end_profile()
        self._ignored = ignore_list or ()
        self._operators = OperatorRecorder()
        self._undo.enter_context(self._clock.on(self.model))

        def note_name(*_: object) -> None:
            """The name of the model in the recording, when it is called."""
            if (recorder := current_recorder()) is not None:
                self._stem = recorder.where()

        self._undo.callback(self.model.register_forward_pre_hook(note_name).remove)
        self._recording = self._undo.enter_context(recording())
        self._undo.enter_context(self._operators)
        self.started = True

    def stop_profile(self) -> None:
        """Stop recording and keep the numbers."""
        self._undo.close()

    def end_profile(self) -> None:
        """Stop recording, and drop the numbers."""
        self.stop_profile()
        self._recording = self._operators = None
        self._ignored = ()
        self._clock = Clock()
        self._stem = ""
        self.started = False

    get_total_flops = _total(lambda self: self._costs().flops[""], number_to_string)
    get_total_macs = _total(lambda self: self._costs().macs[""], macs_to_string)
    get_total_duration = _total(lambda self: sum(self._clock.seconds.values()), duration_to_string)
    get_total_params = _total(lambda self: parameter_elements(self.model), params_to_string)

    def print_model_profile(
        self, profile_step: int = 1, module_depth: int = -1, top_modules: int = 1, detailed: bool = True,
        output_file: str | None = None,
    ) -> None:  # fmt: skip
        """Print the profile, or write it to a file."""
        if self.started:
            _write(self._costs().text(profile_step, module_depth, top_modules, detailed=detailed), output_file)

    def print_model_aggregated_profile(self, module_depth: int = -1, top_modules: int = 1) -> None:
        """Print the largest modules of every depth."""
        if self.started:
            print("\n".join(self._costs().aggregated(module_depth, top_modules)))

    def _costs(self) -> ModuleCosts:
        if self._recording is None or self._operators is None:
            return ModuleCosts(self.model, ())
        report = self._recording.report
        warn_uncounted(report)
        calls = with_rows(report, self._operators.calls)
        forward = (call for call in calls if all(row.op.phase == "forward" for row in call.rows))
        return ModuleCosts(self.model, forward, self._stem, self._ignored, self._clock.seconds)


def _write(text: str, output_file: str | None) -> None:
    if not output_file:
        sys.stdout.write(text)
        return
    Path(output_file).resolve().parent.mkdir(parents=True, exist_ok=True)
    write_text(Path(output_file), text)
