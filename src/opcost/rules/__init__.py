"""What each kind of operator costs: one file per family, each rule's first line is its formula.

`print(opcost.rules())` lists the rules, `print(opcost.rules("attention"))` shows one in full.
"""

import sys
from functools import cache
from inspect import getdoc
from types import ModuleType

from opcost.core.sheet import Sheet, Table
from opcost.errors import UnknownName
from opcost.rules.registry import Rules


def add(rules: Rules) -> Rules:
    """Add the project's own rules: one for every kind but `unknown`."""
    from opcost.rules import algorithms, contractions, elementwise, movement

    for family in (contractions, elementwise, movement, algorithms):
        for kind, rule in family.RULES.items():
            rules.add(kind, rule)
    return rules


@cache
def default_rules() -> Rules:
    """The rules of every installed plug-in, the project's own first; one that fails to add its rules adds none."""
    from opcost.core.plugin import RULES, usable, warn_of_fault

    rules = Rules()
    for add_to in usable(RULES).values():
        attempt = Rules(rules)
        try:
            add_to(attempt)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            if add_to is add:
                raise
            warn_of_fault(RULES, add_to, "adding its rules", exc)
        else:
            rules = attempt
    return rules


def described_rules(name: str | None = None) -> Sheet:
    """The cost rules of operators, each with its formula, or the one of this name in full."""
    from opcost.core.kinds import KINDS

    known = default_rules()
    if name is None:
        lines = [(rule, (getdoc(known[rule]) or "").partition("\n")[0]) for rule in sorted(known)]
        return Sheet(name="rules", answer="cost rules", tables=(Table.of("", "rule:name formula", lines),))
    if name not in known:
        raise UnknownName("rule", name, known)
    kind = ("", *KINDS[name].described()) if name in KINDS else ()
    return Sheet(name=name, answer=f"the cost rule of {name}", facts=(*(getdoc(known[name]) or "").split("\n"), *kind))


class _Callable(ModuleType):
    """This package, which is called as the command is."""

    def __call__(self, name: str | None = None) -> Sheet:
        return described_rules(name)


rules = sys.modules[__name__]
rules.__class__ = _Callable
