"""Whether inputs that were made up reach the model: what they leave unread is told, and most of it is too much."""

from __future__ import annotations

from math import prod

from opcost.core.graph import Graph, Note
from opcost.errors import InputError

CHANGE = "--batch, --tokens, --image or --input (in Python shapes=) change them"


def told_of_guess(graph: Graph, source: str, label: str, *, takes_more: bool) -> Note:
    """What the report says of generated inputs; where they leave most parameters unread and forward takes more, an error."""
    inputs = [graph.values[value] for value in graph.inputs]
    made = ", ".join(f"{value.name} {value.spec} {value.spec.dtype}" for value in inputs) or "nothing"
    unread, total = _unread(graph)
    if takes_more and 2 * sum(unread.values()) > total:
        worst = max(unread, key=lambda name: unread[name])
        raise InputError(
            f"no inputs were given, and what could be made from {source} ({made}) leaves {sum(unread.values()) / total:.0%} of "
            f"the parameters of {label} unread, most of them in {worst or 'the model itself'}",
            hint="pass inputs=..., shapes=... or, on the command line, --input name:SHAPE for what the model takes besides",
        )
    rest = "".join(
        f"; {count:,} parameters of {name} are not read" for name, count in unread.items() if 20 * count > total
    )
    return Note("guessed-inputs", f"no inputs were given: {made}, from {source}{rest}; {CHANGE}")


def _unread(graph: Graph) -> tuple[dict[str, int], int]:
    """Elements of parameters that no operator reads, by the part of the model that holds them, and of all."""
    read = {graph.values[value].storage for op in graph.ops for value in op.inputs}
    seen: set[int] = set()
    unread: dict[str, int] = {}
    total = 0
    for module in graph.modules:
        for _, place in module.parameters:
            value = graph.values[place]
            if value.storage in seen or not value.spec.known:
                continue
            seen.add(value.storage)
            elements = prod(value.spec.dims)
            total += elements
            if value.storage not in read:
                part = module.path.partition(".")[0]
                unread[part] = unread.get(part, 0) + elements
    return unread, total
