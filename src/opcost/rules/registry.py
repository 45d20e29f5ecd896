"""What a rule sees, and the table of rules. A rule is a function of shapes; it never sees a framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from opcost.core.cost import FLOPS_PER_COMPLEX_MAC, FLOPS_PER_MAC, Cost
from opcost.core.dtype import COMPLEX
from opcost.core.graph import NO_ATTRS, Attr, Attrs, TensorSpec
from opcost.core.kinds import KINDS
from opcost.core.rendering import brief_record
from opcost.errors import RuleError


@dataclass(frozen=True, slots=True)
class Convention:
    """Choices that change a number; they are printed with the report."""

    causal: str = "full"
    """`full` counts the whole square of a causal attention, `half` only the pairs that the mask lets through."""


DEFAULT = Convention()


@dataclass(frozen=True, slots=True)
class OpView:
    """One operator as a rule sees it: kind, tensors, attributes."""

    kind: str
    raw: str = ""
    ins: tuple[TensorSpec, ...] = ()
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = field(default_factory=lambda: NO_ATTRS)
    convention: Convention = DEFAULT
    reads: int | None = None
    """Bytes of the distinct inputs; worked out from `ins` where the caller knows no better."""

    def __repr__(self) -> str:
        return brief_record(self)

    def get(self, name: str, default: Attr = None) -> Attr:
        return self.attrs.get(name, default)

    @property
    def bytes_in(self) -> int:
        return sum(spec.nbytes for spec in self.ins) if self.reads is None else self.reads

    @property
    def bytes_out(self) -> int:
        return sum(spec.nbytes for spec in self.outs)

    def cost(
        self, *, macs: int = 0, flops: int = 0, bytes_read: int | None = None, bytes_written: int | None = None
    ) -> Cost:
        """A cost whose FLOPs are the MACs' own plus `flops`, and that moves all inputs and outputs unless told."""
        is_complex = bool(self.outs) and self.outs[0].dtype in COMPLEX
        per_mac = FLOPS_PER_COMPLEX_MAC if is_complex else FLOPS_PER_MAC
        return Cost(
            macs,
            per_mac * macs + flops,
            self.bytes_in if bytes_read is None else bytes_read,
            self.bytes_out if bytes_written is None else bytes_written,
        )


Rule: TypeAlias = Callable[[OpView], Cost]
"""The price of one operator; the first line of its docstring is its formula."""


class Rules(Mapping[str, Rule]):
    """Rules by kind, or by a framework's own operator name (which wins)."""

    def __init__(self, rules: Mapping[str, Rule] | None = None) -> None:
        self._rules: dict[str, Rule] = dict(rules or {})

    def add(self, name: str, rule: Rule) -> None:
        """Register a rule; a second one of the same name is an error."""
        if not callable(rule):
            raise RuleError(f"the rule for {name!r} is {rule!r}, not a function of an operator")
        if name in self._rules:
            raise RuleError(f"the rule for {name!r} is registered twice", hint="use with_rules to replace one")
        if ":" not in name and name not in KINDS:
            raise RuleError(
                f"{name!r} is neither a kind of opcost.core.kinds nor an operator name",
                hint="operator names look like 'library::operator'",
            )
        self._rules[name] = rule

    def rule(self, name: str) -> Callable[[Rule], Rule]:
        """`add` as a decorator."""

        def register(rule: Rule) -> Rule:
            self.add(name, rule)
            return rule

        return register

    def with_rules(self, extra: Mapping[str, Rule] | None) -> Rules:
        """These rules with a caller's own on top."""
        if not extra:
            return self
        combined = Rules(self._rules)
        for name, rule in extra.items():
            combined._rules.pop(name, None)
            combined.add(name, rule)
        return combined

    def for_op(self, kind: str, raw: str) -> tuple[str, Rule] | None:
        """The rule for an operator and the name it is registered under, or None if nobody knows the operator."""
        for name in (raw, kind):
            if (rule := self._rules.get(name)) is not None:
                return name, rule
        return None

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)


AddRules: TypeAlias = Callable[[Rules], None]
"""What a plug-in of `opcost.rules` is: it adds its rules to the table, all of them or, if it raises, none."""
