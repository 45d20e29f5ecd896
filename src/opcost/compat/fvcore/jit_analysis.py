"""The query surface of fvcore's and mmengine's analyses, on an opcost count."""

from __future__ import annotations

import logging
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import signature
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from opcost.compat._modules import Names, lineage
from opcost.compat._operators import CallTrace, OperatorCall, trace
from opcost.compat.fvcore.jit_handles import Handle
from opcost.core.report import Report
from opcost.frontends.torch.models.unwrap import unwrap

if TYPE_CHECKING:
    from typing_extensions import Self

_IGNORED_OPS: set[str] = {
    f"aten::{name}"
    for name in (
        "Int ScalarImplicit __and__ arange bitwise_not cat chunk clamp clamp_ constant_pad_nd contiguous copy_ detach "
        "dropout empty eq expand flatten floor floor_divide full full_like gather ge gt index index_put_ masked_fill max "
        "narrow new_empty new_full new_zeros nonzero ones permute relu relu_ remainder reshape roll select size slice "
        "split split_with_sizes squeeze stack t to transpose type_as unbind unsqueeze unsqueeze_ view zeros zeros_like"
    ).split()
}
"""Operators that fvcore neither counts nor calls unsupported; public code imports them by this name."""

_UNCALLED = (
    "The following submodules of the model were never called during the trace of the graph. They may be unused, or they "
    "were accessed by direct calls to .forward() or via other python methods. In the latter case they will have zeros for "
    "statistics, though their statistics will still contribute to their parent calling module.\n"
)


class Statistics(NamedTuple):
    """Counts and unsupported operators per module, and the modules in which nothing ran."""

    counts: dict[str, Counter[str]]
    unsupported_ops: dict[str, Counter[str]]
    uncalled_mods: set[str]


class JitModelAnalysis:
    """A number per operator, added up over the modules of a model; the model runs when a number is first requested.

    Modules go by name: "" is the model, "child.grandchild" what is below it. `kwargs` are further arguments of the
    model's forward; `inputs` may also be a mapping whose keys are names of its arguments.
    """

    _default_handles: Mapping[str, Handle] = {}
    _default_otherwise: Handle | None = None  # For operators with products and without a handle

    def __init__(self, model: nn.Module, inputs: Any = (), *, kwargs: dict[str, Any] | None = None) -> None:
        self.model = model if isinstance(model, nn.Module) else unwrap(model)
        self._inputs = inputs
        self._kwargs = kwargs
        self._names = Names(self.model)
        self._trace: CallTrace | None = None
        self._stats: Statistics | None = None
        self._op_handles: dict[str, Handle] = {}
        self._ignored_ops: set[str] = set(_IGNORED_OPS)
        self._otherwise = self._default_otherwise
        self._enable_warn_unsupported_ops = True
        self._enable_warn_uncalled_mods = True
        self._warn_trace = "no_tracer_warning"
        self._ancestor_mode = "owner"
        self.set_op_handle(**self._default_handles)

    # -- numbers ------------------------------------------------------------------------------------------------

    def total(self, module_name: str = "") -> int:
        """The number of one module with everything below it."""
        return sum(self.by_operator(module_name).values())

    def by_operator(self, module_name: str = "") -> Counter[str]:
        """The number of one module by operator; names come without their library."""
        return self._analyze().counts[self.canonical_module_name(module_name)]

    def by_module_and_operator(self) -> dict[str, Counter[str]]:
        """The numbers of all modules, each by operator."""
        return self._analyze().counts

    def by_module(self) -> Counter[str]:
        """The numbers of all modules."""
        return Counter({name: sum(count.values()) for name, count in self._analyze().counts.items()})

    def unsupported_ops(self, module_name: str = "") -> Counter[str]:
        """How often operators ran that have no handle and are not ignored."""
        return self._analyze().unsupported_ops[self.canonical_module_name(module_name)]

    def uncalled_modules(self) -> set[str]:
        """The modules in which no operator ran: unused, or not called through `__call__`, or doing nothing."""
        return self._analyze().uncalled_mods

    def canonical_module_name(self, name: str) -> str:
        """The first name of a module that goes by several; results are listed under it."""
        if not isinstance(name, str):
            raise TypeError(f"a module goes by its name here, not by {name!r}")
        return self._names.canonical(name)

    @property
    def report(self) -> Report:
        """The count behind the numbers, in opcost's own terms."""
        return self._traced().report

    # -- settings -----------------------------------------------------------------------------------------------

    def set_op_handle(self, *args: Any, **kwargs: Handle | None) -> Self:
        """Set handles from pairs of operator names ("aten::linear") and functions; None ignores the operator.

        A handle receives the operator's arguments and results as two lists of values (`opcost.compat._operators.OperatorValue`)
        with `type().sizes()`, `isCompleteTensor()` and `toIValue()` as of jit values, and returns a number or a
        Counter of numbers by name.
        """
        if len(args) % 2:
            raise TypeError("set_op_handle should be called with pairs of names and handles!")
        self._stats = None
        for name, handle in (*zip(args[::2], args[1::2], strict=True), *kwargs.items()):
            if handle is None:
                self._ignored_ops.add(name)
                self._op_handles.pop(name, None)
            else:
                self._op_handles[name] = handle
        return self

    def clear_op_handles(self) -> Self:
        """Forget every handle, the default ones too."""
        self._op_handles = {}
        self._ignored_ops = set(_IGNORED_OPS)
        self._otherwise = None
        self._stats = None
        return self

    def copy(self, new_model: nn.Module | None = None, new_inputs: Any = None) -> Self:
        """The same analysis with all its settings, of another model or other inputs."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._op_handles = dict(self._op_handles)
        twin._ignored_ops = set(self._ignored_ops)
        if new_model is not None:
            twin.model = new_model if isinstance(new_model, nn.Module) else unwrap(new_model)
            twin._names = Names(twin.model)
        if new_inputs is not None:
            twin._inputs, twin._kwargs = new_inputs, None
        if new_model is not None or new_inputs is not None:
            twin._trace = twin._stats = None
        return twin

    def tracer_warnings(self, mode: str) -> Self:
        """Which warnings of the model's run are shown: "all", "no_tracer_warning" (the same here), "none"."""
        if mode not in ("all", "no_tracer_warning", "none"):
            raise ValueError(f"Unrecognized tracer warning mode {mode}.")
        self._warn_trace = mode
        return self

    def ancestor_mode(self, mode: str) -> Self:
        """To which modules an operator belongs besides the one that runs it: its parents ("owner") or all that run ("caller")."""
        if mode not in ("owner", "caller"):
            raise ValueError(f"Unrecognized ancestor mode: {mode}")
        if mode != self._ancestor_mode:
            self._stats = None
        self._ancestor_mode = mode
        return self

    def unsupported_ops_warnings(self, enabled: bool) -> Self:
        """Whether unsupported operators are logged."""
        self._enable_warn_unsupported_ops = enabled
        return self

    def uncalled_modules_warnings(self, enabled: bool) -> Self:
        """Whether uncalled modules are logged."""
        self._enable_warn_uncalled_mods = enabled
        return self

    # -- the analysis -------------------------------------------------------------------------------------------

    def _analyze(self) -> Statistics:
        if self._stats is None:
            self._stats = self._add_up(self._traced())
            log = logging.getLogger(type(self).__module__)
            for operator, times in self._stats.unsupported_ops[""].items() if self._enable_warn_unsupported_ops else ():
                log.warning("Unsupported operator %s encountered %d time(s)", operator, times)
            uncalled = sorted(filter(self._names.is_callable, self._stats.uncalled_mods))
            if self._enable_warn_uncalled_mods and uncalled:
                log.warning("%s%s", _UNCALLED, ", ".join(uncalled))
        return self._stats

    def _traced(self) -> CallTrace:
        if self._trace is None:
            inputs = self._inputs
            args, kwargs = inputs if isinstance(inputs, tuple) else (inputs,), dict(self._kwargs or {})
            # A mapping is keywords if its keys are names of the forward's arguments.
            if (
                isinstance(inputs, Mapping)
                and inputs
                and inputs.keys() <= signature(self.model.forward).parameters.keys()
            ):
                args, kwargs = (), {**inputs, **kwargs}
            with warnings.catch_warnings():
                if self._warn_trace == "none":
                    warnings.simplefilter("ignore")
                self._trace = trace(self.model, args, kwargs, warn=False)
        return self._trace

    def share_run(self, other: JitModelAnalysis) -> Self:
        """Take the run of another analysis of the same model and inputs, so that the model runs once for both."""
        self._trace = other._traced()
        self._stats = None
        return self

    def _add_up(self, found: CallTrace) -> Statistics:
        names = self._names
        counts: dict[str, Counter[str]] = {name: Counter() for name in names.first}
        unsupported: dict[str, Counter[str]] = {name: Counter() for name in names.first}
        # For every row the paths of the modules that were running, the outermost first
        report = found.report
        running: list[list[str]] = [[] for _ in range(len(report.rows))]
        for call in sorted(report.calls, key=lambda call: call.first):
            for row in range(call.first, call.end):
                running[row].append(call.path)
        seen = {names.nearest(path) for path in found.touched}
        for node in self._handled(found.calls):
            modules = set(names.lineage(names.nearest(node.module)))
            if node.rows:
                active = {"", *map(names.nearest, running[node.rows[0].op.id])}
                seen |= active
                if self._ancestor_mode == "caller":
                    modules = active
            number = self._number(node)
            for name in modules:
                if number is not None:
                    counts[name] += number
                elif node.kind() not in self._ignored_ops:
                    unsupported[name][node.kind()] += 1
        if self._ancestor_mode == "owner":
            seen = {owner for name in seen for owner in lineage(name)}
        return Statistics(counts, unsupported, set(names.first) - seen)

    def _handled(self, nodes: Iterable[OperatorCall]) -> Iterator[OperatorCall]:
        """The operators that have a number: of a custom function without a handle, those that it calls."""
        for node in nodes:
            if node.inside and node.kind() not in self._op_handles and node.kind() not in self._ignored_ops:
                yield from self._handled(node.inside)
            else:
                yield node

    def _number(self, node: OperatorCall) -> Counter[str] | None:
        """What an operator adds; None where no handle knows it."""
        handle = self._op_handles.get(node.kind())
        if handle is None:
            if self._otherwise is None or node.kind() in self._ignored_ops or not node.macs:
                return None
            handle = self._otherwise
        found: Any = handle(node.inputs(), node.outputs())
        by_name = found if isinstance(found, Mapping) else {node.name: found}
        counts: Counter[str] = Counter()
        for name, number in by_name.items():
            if not isinstance(number, Real):
                wider = "Please use a wider type to avoid overflow."
                raise ValueError(f"Invalid type {type(number)} for the flop count! {wider}")  # noqa: TRY004 - fvcore's
            counts[name] = int(number) if isinstance(number, Integral) else float(number)  # type: ignore[assignment]
        return counts


def counter(
    analysis: type[JitModelAnalysis], unit: float, doc: str
) -> Callable[..., tuple[defaultdict[str, float], Counter[str]]]:
    """fvcore's function around an analysis: its numbers by operator in a unit, and its unsupported operators."""

    def count(
        model: nn.Module, inputs: tuple[Any, ...], supported_ops: Mapping[str, Handle | None] | None = None
    ) -> tuple[defaultdict[str, float], Counter[str]]:
        found = analysis(model, inputs).set_op_handle(**(supported_ops or {}))
        counts = {operator: number / unit for operator, number in found.by_operator().items()}
        return defaultdict(float, counts), found.unsupported_ops()

    count.__doc__ = doc
    return count
