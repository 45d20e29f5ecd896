"""What each kind of operator costs: one file per family, each rule's first line is its formula."""

from functools import cache

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
