"""`opcost rules [NAME]`."""

from __future__ import annotations

import inspect
from typing import Annotated

from opcost.cli.options import parameter
from opcost.cli.saying import say


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
            say(f"{rule:<{width}}  {formula}")
        return 0
    if name not in known:
        raise UnknownName("rule", name, known)
    for line in (inspect.getdoc(known[name]) or "").split("\n"):
        say(line)
    if name in KINDS:
        say("")
        for line in KINDS[name].described():
            say(line)
    return 0
