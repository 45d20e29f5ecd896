"""Where the areas of a treemap stand: rows of areas whose sides are as alike as can be (Bruls, Huizing and van Wijk, 2000)."""

from __future__ import annotations

from collections.abc import Sequence

Box = tuple[float, float, float, float]


def squarified(sizes: Sequence[float], box: Box) -> list[Box]:
    """A box for each size, in their order, that together fill the box; sizes are above zero."""
    x, y, width, height = box
    scale = width * height / sum(sizes) if sizes else 0.0
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    boxes: dict[int, Box] = {}
    while order:
        side = min(width, height)
        count, area, worst = 0, 0.0, float("inf")
        largest = sizes[order[0]] * scale
        for place in order:
            grown = area + sizes[place] * scale
            ratio = (
                max(side * side * largest / grown**2, grown**2 / (side * side * sizes[place] * scale)) if side else 0.0
            )
            if ratio > worst:
                break
            count, area, worst = count + 1, grown, ratio
        row, order = order[:count], order[count:]
        thick = area / side if side else 0.0
        along = 0.0
        for place in row:
            length = sizes[place] * scale / thick if thick else 0.0
            boxes[place] = (x, y + along, thick, length) if width >= height else (x + along, y, length, thick)
            along += length
        if width >= height:
            x, width = x + thick, width - thick
        else:
            y, height = y + thick, height - thick
    return [boxes[place] for place in range(len(sizes))]
