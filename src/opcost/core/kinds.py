"""The closed list of operator kinds: our words for what an operator computes, its tensors, and the attributes a rule reads.

A front end translates its framework's operator into one kind, puts the tensors in the stated order and fills the
stated attributes; the rule of that kind then needs to know no framework. Optional tensors are in [brackets], `...` is
any number more. A special form, such as the gradient, is marked by an attribute that only it has.
Adding a kind is a reviewed change: an entry of `kinds.json` and a rule; the page of rules is written from both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from opcost.core.parsing import packaged_table
from opcost.errors import GraphError, UnknownName, shortened

FEW = 16  # more names than these are not listed in a sentence; the page of rules has them in a table of their own


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing that a rule may read of an operator: what it holds, in words and as a test, and what it means."""

    holds: str
    fits: Callable[[object], bool]
    meaning: str
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.holds}: {', '.join(self.choices)}" if 0 < len(self.choices) <= FEW else self.holds


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_counts(value: object) -> bool:
    return type(value) is tuple and all(map(_is_count, value))


def _are_triples(value: object) -> bool:
    return type(value) is tuple and bool(value) and all(_are_counts(item) and len(item) == 3 for item in value)


_HOLDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "whole": ("a whole number", _is_count),
    "wholes": ("whole numbers", _are_counts),
    "flag": ("true or false", lambda value: type(value) is bool),
    "word": ("a text", lambda value: type(value) is str),
    "triples": ("triples of whole numbers", _are_triples),
}
"""What an attribute that is not one of several names or numbers may hold, by its word in the table of kinds."""


def _attribute(holds: str, meaning: str, among: Any = None) -> Attribute:
    """From an entry of the table: what it holds, what it means, and the names or numbers among which it is."""
    if among is None:
        return Attribute(*_HOLDS[holds], meaning)
    if holds == "number_of":
        one, other = among
        return Attribute(f"{one} or {other}", lambda value: type(value) is int and value in (one, other), meaning)
    choices = NAMES[among] if isinstance(among, str) else tuple(among)
    known = frozenset(choices)
    if holds == "one_of":
        return Attribute("one name", lambda value: type(value) is str and value in known, meaning, choices)
    return Attribute(
        "names", lambda value: type(value) is tuple and all(item in choices for item in value), meaning, choices
    )


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a kind's operators: its tensors, the attributes it needs, the attribute that marks it.

    Tensors are a text as `x, weight, [bias] -> y`: the optional ones come last, and `...` is any number more.
    """

    tensors: str
    needs: Sequence[str] = ()
    marked_by: str = ""

    def described(self) -> str:
        """The tensors, with what distinguishes this form from others and what it needs."""
        tensors = " -> ".join(side.strip() or "none" for side in self.tensors.split("->"))
        needs = f" (needs {', '.join(self.needs)})" if self.needs else ""
        return f"with {self.marked_by}: {tensors}{needs}" if self.marked_by else f"{tensors}{needs}"

    def fault(self, ins: int, outs: int) -> str:
        """What is wrong with these numbers of tensors; the empty text where nothing is."""
        left, right = _sides(self.tensors)
        for side, count, (text, least, most) in (("input", ins, left), ("output", outs, right)):
            if not least <= count <= most:
                return f"it has {count or 'no'} {side}{'s' * (count != 1)} instead of {text or 'none'}"
        return ""


@cache
def _sides(tensors: str) -> list[tuple[str, int, float]]:
    """The tensors of each side, and how many there are at least and at most."""
    sides = []
    for text in map(str.strip, tensors.split("->")):
        names = text.split(", ") if text else []
        named = [name for name in names if name != "..."]
        least = sum(not name.startswith("[") for name in named)
        sides.append((text, least, float("inf") if "..." in names else len(named)))
    return sides


@dataclass(frozen=True, slots=True)
class Kind:
    """What its operators compute, their forms (the plain one first), and every attribute they may have.

    Kinds of one family have one colour on pages.
    """

    name: str
    meaning: str
    family: str
    forms: tuple[Form, ...]
    attributes: Mapping[str, Attribute]

    def described(self) -> list[str]:
        """The contract in lines of text: meaning, forms, attributes."""
        lines = [f"{self.meaning[0].upper()}{self.meaning[1:]}."]
        lines += [form.described() for form in self.forms]
        return lines + [f"{name}: {attribute} - {attribute.meaning}" for name, attribute in self.attributes.items()]

    def fault(self, attrs: Mapping[str, Any], ins: int, outs: int) -> str:
        """Why an operator with these attributes and numbers of tensors is not of this kind; the empty text where it is."""
        for name, value in attrs.items():
            attribute = self.attributes.get(name)
            if attribute is None:
                return str(UnknownName("attribute", name, self.attributes))
            if not attribute.fits(value):
                for item in value if isinstance(value, tuple) else (value,):
                    if isinstance(item, str) and attribute.choices and item not in attribute.choices:
                        return str(UnknownName(name, item, attribute.choices))
                return f"the attribute {name!r} is {shortened(repr(value))}, not {attribute.holds}"
        form = self.forms[0]
        for special in self.forms[1:]:
            marker = attrs.get(special.marked_by)
            if marker is not None and marker is not False:  # 0 MACs are a marker, too
                form = special
                break
        for name in form.needs:
            if name not in attrs:
                wanted = self.attributes[name]
                return f"the attribute {name!r} is missing, {wanted.holds}: {wanted.meaning}"
        return form.fault(ins, outs)


_TABLE = packaged_table(__package__, "kinds.json")

NAMES: dict[str, tuple[str, ...]] = {name: tuple(" ".join(lines).split()) for name, lines in _TABLE["names"].items()}
"""The names that an attribute may choose from: `elementary` are one operation for each element (arithmetic, a comparison, a
selection, a function of the mathematical library), `composite` several. The rules say what each costs."""
ELEMENTARY = NAMES["elementary"]
NAMES["elementwise"] = (*ELEMENTARY, *NAMES["composite"])

KINDS: Mapping[str, Kind] = {
    name: Kind(
        name,
        entry["meaning"],
        entry["family"],
        tuple(Form(**form) for form in entry["forms"]),
        {attribute: _attribute(*described) for attribute, described in entry.get("attributes", {}).items()},
    )
    for name, entry in _TABLE["kinds"].items()
}

CONTRACTIONS = ("conv", "matmul", "attention", "recurrent", "bilinear", "einsum", "custom")
"""The kinds that have multiply-accumulates."""


def check_operator(kind: str, raw: str, attrs: Mapping[str, object], ins: int, outs: int) -> None:
    """Raise `GraphError` if an operator is not what its kind says; one of the kind `unknown` may have any attributes."""
    known = KINDS.get(kind)
    if known is None:
        raise GraphError(f"operator {raw or '(unnamed)'}: {UnknownName('kind', kind, KINDS)}")
    if kind != "unknown" and (fault := known.fault(attrs, ins, outs)):
        hint = f"opcost rules {kind} shows what such an operator has"
        raise GraphError(f"{kind} operator {raw or '(unnamed)'}: {fault}", hint=hint)
