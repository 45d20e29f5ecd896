"""A tree made of paths, with amounts that are added where they belong."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.core.harmless import printable
from opcost.views.html.columns import Told, words_of


class PathTree:
    """Nodes after their parents, the root first; each has a name, a type, and an own amount of each quantity."""

    def __init__(self, quantities: Sequence[str]) -> None:
        self.parent = [-1]
        self.names = [""]
        self.types = [""]
        self.own: dict[str, list[float]] = {name: [0] for name in quantities}
        self._known: dict[tuple[int, str, str], int] = {}

    def child(self, parent: int, name: str, kind: str = "") -> int:
        """The node of this name and type below another, made where it is not there yet."""
        key = (parent, name, kind)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.parent)
            self.parent.append(parent)
            self.names.append(name)
            self.types.append(kind)
            for amounts in self.own.values():
                amounts.append(0)
        return found

    def walk(self, parts: Sequence[str]) -> int:
        """The node at the end of these names."""
        node = 0
        for part in parts:
            node = self.child(node, part)
        return node

    def told(self, noun: str, root: str, quantities: Sequence[Told]) -> Told:
        """The tree as the page has it; quantities that are nowhere are left out."""
        return {
            "noun": noun,
            "root": printable(root),
            "joint": ".",
            "partial": None,
            "parent": self.parent,
            "name": words_of(self.names),
            "type": words_of(self.types),
            "kinds": any(self.types),
            "quantities": [
                quantity | {"own": own} for quantity in quantities if any(own := self.own[str(quantity["name"])])
            ],
            "details": [],
        }
