"""A tree as a flame: the root at the bottom, what it calls above it, each as wide as its share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from opcost.views.svg.drawing import GREY, INK, LINE, RAISED, Drawing, colours_of

TOP, FOOT = 44.0, 30.0
LOWEST, HIGHEST = 12.0, 26.0
NARROWEST = 0.6


class Tree(NamedTuple):
    """Nodes after their parents, the root first."""

    parent: Sequence[int]
    name: Sequence[str]
    type: Sequence[str]
    own: Sequence[float]


def draw_flame(drawing: Drawing, tree: Tree, told: Callable[[float], str]) -> None:
    """The levels; a node has the colour of its type where it is among the commonest."""
    total = list(tree.own)
    for node in range(len(total) - 1, 0, -1):
        total[tree.parent[node]] += total[node]
    if not total or not total[0]:
        drawing.text(8, TOP + 20, "nothing to draw")
        return
    children: dict[int, list[int]] = {}
    depth = [0] * len(total)
    weights: dict[str, float] = {}
    for node in range(1, len(total)):
        children.setdefault(tree.parent[node], []).append(node)
        depth[node] = depth[tree.parent[node]] + 1
    for node, type_ in enumerate(tree.type):
        weights[type_] = weights.get(type_, 0) + tree.own[node]
    colours = colours_of(weights)
    whole, room = drawing.width - 16, drawing.height - TOP - FOOT
    levels = 1 + max(depth[node] for node in range(len(total)) if total[node] / total[0] * whole >= NARROWEST)
    high = max(LOWEST, min(HIGHEST, room / levels))
    drawing.height = min(drawing.height, TOP + levels * high + FOOT)
    walk = [(0, 8.0)]
    while walk:
        node, x = walk.pop()
        wide = total[node] / total[0] * whole
        y = drawing.height - FOOT - (depth[node] + 1) * high
        if wide < NARROWEST or y < TOP - high:
            continue
        shade = colours.get(tree.type[node], GREY if node not in children else RAISED)
        edge = LINE if shade == RAISED else "none"
        drawing.rect(x + 0.3, y + 0.5, wide - 0.6, high - 1, fill=shade, stroke=edge)
        said = f"{tree.name[node]}  {told(total[node])}"
        text = said if 6.2 * len(said) < wide else tree.name[node]
        drawing.label(x + 4, y + high / 2 + 4, text, wide - 6, fill=INK if shade == RAISED else "#fff")
        for child in children.get(node, ()):
            walk.append((child, x))
            x += total[child] / total[0] * whole
    drawing.legend({**colours, "other": GREY}, 8, drawing.height - 10)
