"""Write docs/rules.md from the rules' docstrings and tables: python docs/generate_rules.py."""
# ruff: noqa: INP001 (a script, not a package)

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path

from opcost.core.kinds import CONTRACTIONS, KINDS, Kind
from opcost.rules import add
from opcost.rules.elementwise import FLOPS_PER_ELEMENT, LOSSES, REDUCTIONS
from opcost.rules.registry import Rules

PAGE = Path(__file__).with_name("rules.md")

INTRODUCTION = """\
# What each operator costs

This page is generated from the rules (`python docs/generate_rules.py`); a test compares the two.
Each front end translates its framework's operators into the kinds below; each kind has one rule, whose formula is given
first. What the quantities mean stands in [quantities.md](quantities.md).

FLOPs are 2 × MACs (8 × for complex numbers) plus the FLOPs named here. Where nothing else is said, an operator reads all
its distinct inputs once and writes all its outputs. *Operator* is what a front end hands over: the tensors in their
order, optional ones in brackets, `...` for any more, and the attributes. What does not fit is refused: an operator with
an attribute that its kind does not have is an error, never a number. An operator that no rule knows has the kind
`unknown`; it is listed under the report's coverage and never counted as zero.
"""


def render() -> str:
    """The whole page."""
    rules = add(Rules())
    parts = [INTRODUCTION, "| kind | cost |\n|---|---|\n" + "\n".join(_summary(kind) for kind in rules) + "\n"]
    for title, kinds in (
        ("Contractions", CONTRACTIONS),
        ("Arithmetic and data movement", [kind for kind in KINDS if kind in rules and kind not in CONTRACTIONS]),
    ):
        parts.append(f"## {title}\n")
        parts.extend(_section(kind) for kind in kinds)
    return "\n".join(parts)


def _summary(kind: str) -> str:
    return f"| [{kind}](#{kind}) | {_words(kind)[0]} |"


def _section(kind: str) -> str:
    formula, rest = _words(kind)
    table = _TABLES.get(kind, "")
    text = f"### {kind}\n\n**{formula}**\n\n{rest}\n\n{_contract(KINDS[kind])}"
    return f"{text}\n{table}" if table else text


def _contract(kind: Kind) -> str:
    """Meaning, tensors and attributes of a kind's operators."""
    lines = [f"Operator: {kind.meaning}.", "", *(f"- `{form.described()}`" for form in kind.forms)]
    if kind.attributes:
        lines += ["", "| attribute | holds | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {held} | {held.meaning} |" for name, held in kind.attributes.items()]
    return "\n".join(lines) + "\n"


def _words(kind: str) -> tuple[str, str]:
    """The formula and the explanation of a rule."""
    formula, _, rest = (inspect.getdoc(add(Rules())[kind]) or "").partition("\n")
    return formula, rest.strip()


def _table(heads: Iterable[str], rows: Mapping[str, tuple[int, ...]]) -> str:
    heads = tuple(heads)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {name} | {' | '.join(map(str, numbers))} |" for name, numbers in rows.items()]
    return "\n".join(lines) + "\n"


def _by_flops() -> dict[str, tuple[int, ...]]:
    """Function names in one row for each number of FLOPs."""
    names: dict[int, list[str]] = {}
    for fn, flops in FLOPS_PER_ELEMENT.items():
        names.setdefault(flops, []).append(fn)
    return {", ".join(names[flops]): (flops,) for flops in sorted(names)}


_TABLES = {
    "elementwise": _table(("fn", "FLOPs per element"), _by_flops()),
    "reduce": _table(("fn", "FLOPs per input", "FLOPs per output"), REDUCTIONS),
    "loss": _table(("fn", "FLOPs per element", "FLOPs per element of the gradient"), LOSSES),
}


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8", newline="\n")
