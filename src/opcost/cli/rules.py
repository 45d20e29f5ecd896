"""`opcost rules [NAME]`."""

from __future__ import annotations

import inspect
from typing import Annotated

from opcost.cli.options import parameter


def rules(name: Annotated[str | None, parameter(help="Show this rule in full.")] = None, /) -> int:
    """List the rules that price operators, each with its formula."""
    from opcost.core.kinds import KINDS
    from opcost.errors import UnknownName
    from opcost.rules import default_rules

    known = default_rules()
    if name is None:
        width = max(map(len, known))
        for rule in sorted(known):
            formula = (inspect.getdoc(known[rule]) or "").partition("\n")[0]
            print(f"{rule:<{width}}  {formula}")
        return 0
    if name not in known:
        raise UnknownName("rule", name, known)
    print(inspect.getdoc(known[name]))
    if name in KINDS:
        print(f"\nOperator: {KINDS[name]}.")
    return 0
