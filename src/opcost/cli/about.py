"""Commands about opcost itself: rules, doctor."""

from collections.abc import Sequence
from typing import Annotated

from opcost import installed
from opcost.cli.flags import parameter
from opcost.cli.printing import say
from opcost.rules import described_rules


def rules(name: Annotated[str | None, parameter(help="Show this rule in full.")] = None, /) -> int:
    """List the cost rules of operators, each with its formula."""
    found = described_rules(name)
    for line in found.facts:
        say(line)
    for table in found.tables:
        _say_rows(table.rows, indent="")
    return 0


def doctor() -> int:
    """Show versions, frameworks, plug-ins and extras, and what is missing."""
    found = installed.doctor()
    for table in found.tables:
        say(table.title)
        _say_rows(table.rows, indent="  ")
    return 2 if found.sections else 0


def _say_rows(rows: Sequence[tuple[object, ...]], *, indent: str) -> None:
    width = max((len(str(name)) for name, _ in rows), default=0)
    for name, value in rows:
        say(f"{indent}{name!s:<{width}}  {value}".rstrip())
