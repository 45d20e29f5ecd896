"""A kind of operators as data, and the check that an operator is one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opcost.core.kinds.attribute import Attribute
from opcost.errors import UnknownName
from opcost.wording import shortened


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors on one side of an operator, in their order: the optional ones come last, and `...` stands for any more."""

    text: str
    least: int
    most: float

    @classmethod
    def of(cls, text: str) -> Tensors:
        """From a text as `x, weight, [bias]`."""
        names = text.split(", ") if text else []
        named = [name for name in names if name != "..."]
        least = sum(not name.startswith("[") for name in named)
        return cls(text, least, float("inf") if "..." in names else len(named))

    def fault(self, count: int, side: str) -> str:
        """What is wrong with so many tensors; nothing: the empty text."""
        if self.least <= count <= self.most:
            return ""
        return f"it has {count or 'no'} {side}{'s' * (count != 1)} instead of {self.text or 'none'}"


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which a kind's operators come: its tensors, the attributes it needs, the attribute it is told by."""

    ins: Tensors
    outs: Tensors
    needs: tuple[str, ...] = ()
    told_by: str = ""

    def described(self) -> str:
        """The tensors, with what tells this form from others and what it needs."""
        tensors = f"{self.ins.text or 'none'} -> {self.outs.text or 'none'}"
        needs = f" (needs {', '.join(self.needs)})" if self.needs else ""
        return f"with {self.told_by}: {tensors}{needs}" if self.told_by else f"{tensors}{needs}"


def form(signature: str, *needs: str, told_by: str = "") -> Form:
    """From a text as `x, weight, [bias] -> y`."""
    ins, outs = signature.split("->")
    return Form(Tensors.of(ins.strip()), Tensors.of(outs.strip()), needs, told_by)


@dataclass(frozen=True, slots=True)
class Kind:
    """What its operators compute, the forms in which they come (the plain one first), and every attribute they may have."""

    name: str
    meaning: str
    forms: tuple[Form, ...]
    attributes: Mapping[str, Attribute]

    def form_of(self, attrs: Mapping[str, Any]) -> Form:
        """The form that an operator with these attributes has."""
        for special in self.forms[1:]:
            told = attrs.get(special.told_by)
            if told is not None and told is not False:  # 0 MACs are told, too
                return special
        return self.forms[0]

    def described(self) -> list[str]:
        """The contract in lines of text: meaning, forms, attributes."""
        lines = [f"{self.meaning[0].upper()}{self.meaning[1:]}."]
        lines += [each.described() for each in self.forms]
        return lines + [f"{name}: {held} - {held.meaning}" for name, held in self.attributes.items()]

    def fault(self, attrs: Mapping[str, Any], ins: int, outs: int) -> str:
        """What keeps an operator with these attributes and so many tensors from being of this kind; nothing: the empty text."""
        for name, value in attrs.items():
            attribute = self.attributes.get(name)
            if attribute is None:
                return str(UnknownName("attribute", name, self.attributes))
            if not attribute.fits(value):
                return _misfit(name, value, attribute)
        found = self.form_of(attrs)
        for name in found.needs:
            if name not in attrs:
                return (
                    f"the attribute {name!r} is missing, {self.attributes[name].holds}: {self.attributes[name].meaning}"
                )
        return found.ins.fault(ins, "input") or found.outs.fault(outs, "output")


def _misfit(name: str, value: object, attribute: Attribute) -> str:
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, str) and attribute.choices and item not in attribute.choices:
            return str(UnknownName(name, item, attribute.choices))
    return f"the attribute {name!r} is {shortened(repr(value))}, not {attribute.holds}"
