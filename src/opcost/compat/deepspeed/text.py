"""DeepSpeed's printed profile: totals, the largest modules of every depth, the model's repr with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from opcost.compat._layers.annotated import repr_with
from opcost.compat.deepspeed.convention import Costs
from opcost.compat.deepspeed.numbers import (
    duration_to_string,
    flops_to_string,
    macs_to_string,
    number_to_string,
    params_to_string,
    share,
)
from opcost.core.harmless import printable

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


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a model and its modules."""

    model: nn.Module
    costs: Costs
    params: int
    seconds: Mapping[int, float]
    """Of each module's own forward, by its identity."""

    def text(self, step: int, module_depth: int, top_modules: int, *, detailed: bool) -> str:
        """Everything that DeepSpeed prints."""
        lines = [_HEAD.format(step=step), *self._totals(), _AGGREGATED, *self.aggregated(module_depth, top_modules)]
        if detailed:
            lines += [_DETAILED, repr_with(self.model, self._words)]
        return "\n".join([*lines, _END, ""])

    def _totals(self) -> Iterator[str]:
        total, latency = self.costs.of(""), self._latency("")
        yield _line("params per GPU: ", params_to_string(self.params))
        yield _line("params of model = params per GPU * mp_size: ", params_to_string(self.params))
        yield _line("fwd MACs per GPU: ", macs_to_string(total.macs))
        yield _line("fwd flops per GPU: ", number_to_string(total.flops))
        yield _line("fwd flops of model = fwd flops per GPU * mp_size: ", number_to_string(total.flops))
        yield _line("fwd latency: ", duration_to_string(latency))
        speed = total.flops / latency if latency else 0
        yield _line("fwd FLOPS per GPU = fwd flops per GPU / fwd latency: ", flops_to_string(speed))

    def aggregated(self, module_depth: int, top_modules: int) -> Iterator[str]:
        """The classes with the most parameters, MACs and latency at every depth above the last."""
        levels: dict[int, dict[str, list[float]]] = {}
        for name, module in self.costs.names.modules.items():
            depth = name.count(".") + 1 if name else 0
            sums = levels.setdefault(depth, {}).setdefault(type(module).__name__, [0, 0, 0])
            for at, number in enumerate((_params(module), self.costs.of(name).macs, self._latency(name))):
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
        total, cost = self.costs.of(""), self.costs.of(name)
        params, latency = _params(self.costs.names.modules[name]), self._latency(name)
        words = [
            f"{params_to_string(params)} = {share(params, self.params)} Params",
            f"{macs_to_string(cost.macs)} = {share(cost.macs, total.macs)} MACs",
            f"{duration_to_string(latency)} = {share(latency, self._latency(''))} latency",
            flops_to_string(round(cost.flops / latency, 2) if latency else 0),
        ]
        return ", ".join([*words, own] if own else words)

    def _latency(self, name: str) -> float:
        """Seconds of a module with everything below it."""
        below = {id(module) for module in self.costs.names.modules[name].modules()}
        return sum(self.seconds.get(module, 0.0) for module in below)


def _params(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _line(title: str, value: str) -> str:
    return f"{title:<70}  {value:<8}"
