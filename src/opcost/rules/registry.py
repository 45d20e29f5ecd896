"""What a rule sees, and the table of rules. A rule is a function of shapes; it never sees a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast

from opcost.core.graph import COMPLEX, FLOPS_PER_COMPLEX_MAC, FLOPS_PER_MAC, NO_ATTRS, Attr, Attrs, Cost, TensorSpec
from opcost.core.kinds import KINDS
from opcost.core.rendering import brief_record
from opcost.errors import RuleError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Convention:
    """Choices that change a number; they are printed with the report."""

    causal: str = "full"  # `full` counts the whole square of causal attention, `half` the unmasked pairs


DEFAULT = Convention()


@dataclass(frozen=True, slots=True)
class OpView:
    """One operator as a rule sees it: kind, tensors, attributes.

    Tensors and attributes are as `core.kinds` says: a graph in which they are not is refused before any rule runs.
    """

    kind: str
    raw: str = ""
    ins: tuple[TensorSpec, ...] = ()
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = field(default_factory=lambda: NO_ATTRS)
    convention: Convention = DEFAULT
    reads: int | None = None
    """Bytes of the distinct inputs; worked out from `ins` where the caller knows no better."""

    __repr__ = brief_record

    def get(self, name: str, default: Attr = None) -> Attr:
        return self.attrs.get(name, default)

    def flag(self, name: str, *, default: bool = False) -> bool:
        return bool(self.attrs.get(name, default))

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number; required where there is no default."""
        return cast("int", self.attrs[name] if default is None else self.attrs.get(name, default))

    def text(self, name: str, default: str | None = None) -> str:
        """A word; required where there is no default."""
        return cast("str", self.attrs[name] if default is None else self.attrs.get(name, default))

    def texts(self, name: str) -> tuple[str, ...]:
        """A tuple of words, empty where there is no such attribute."""
        return cast("tuple[str, ...]", self.attrs.get(name, ()))

    def choice(self, table: Mapping[str, T], name: str = "fn", default: str | None = None) -> T:
        """The entry of a table that an attribute names."""
        return table[self.text(name, default)]

    @property
    def bytes_in(self) -> int:
        return sum(spec.nbytes for spec in self.ins) if self.reads is None else self.reads

    @property
    def bytes_out(self) -> int:
        return sum(spec.nbytes for spec in self.outs)

    @property
    def bytes_after_first(self) -> int:
        """Bytes of the distinct inputs without the first."""
        return max(self.bytes_in - self.ins[0].nbytes, 0)

    def cost(
        self, *, macs: int = 0, flops: int = 0, bytes_read: int | None = None, bytes_written: int | None = None
    ) -> Cost:
        """A cost whose FLOPs are the MACs' own plus `flops`; all inputs are read and all outputs written by default."""
        is_complex = bool(self.outs) and self.outs[0].dtype in COMPLEX
        per_mac = FLOPS_PER_COMPLEX_MAC if is_complex else FLOPS_PER_MAC
        read = self.bytes_in if bytes_read is None else bytes_read
        return Cost(macs, per_mac * macs + flops, read, self.bytes_out if bytes_written is None else bytes_written)


def reals(spec: TensorSpec) -> int:
    """Real numbers in one element: a complex addition is two real ones."""
    return 2 if spec.dtype in COMPLEX else 1


Rule: TypeAlias = Callable[[OpView], Cost]  # the cost of one operator; the first line of its docstring is its formula


class Rules(dict[str, Rule]):
    """Rules by kind, or by a framework's own operator name (which wins)."""

    def add(self, name: str, rule: Rule) -> None:
        """Register a rule; a second one of the same name is an error."""
        if not callable(rule):
            raise RuleError(f"the rule for {name!r} is {rule!r}, not a function of an operator")
        if name in self:
            raise RuleError(f"the rule for {name!r} is registered twice", hint="use with_rules to replace one")
        if ":" not in name and name not in KINDS:
            hint = "operator names look like 'library::operator'"
            raise RuleError(f"{name!r} is neither a kind of opcost.core.kinds nor an operator name", hint=hint)
        self[name] = rule

    def with_rules(self, extra: Mapping[str, Rule] | None) -> Rules:
        """These rules with a caller's own on top."""
        if not extra:
            return self
        combined = Rules({name: rule for name, rule in self.items() if name not in extra})
        for name, rule in extra.items():
            combined.add(name, rule)
        return combined

    def for_op(self, kind: str, raw: str) -> tuple[str, Rule] | None:
        """The rule for an operator and the name it is registered under; None where there is none."""
        for name in (raw, kind):
            if (rule := self.get(name)) is not None:
                return name, rule
        return None


AddRules: TypeAlias = Callable[[Rules], None]
"""What a plug-in of `opcost.rules` is: it adds its rules to the table, all of them or, if it raises, none."""
