"""Pictures of a profile: where the time goes, by module, operator and kernel."""

from __future__ import annotations

from opcost.core.answer import Answer
from opcost.core.profile import Profile
from opcost.core.units import format_time
from opcost.views.html.profile_tree import profile_tree
from opcost.views.svg.drawing import FAINT, Drawing
from opcost.views.svg.flame import Tree, draw_flame


def profile_flame(profile: Profile, answer: Answer, width: float, height: float) -> Drawing:
    """The times on the side that was asked about; a kernel has the colour of its operator."""
    tree, _ = profile_tree(profile, answer.runs if answer.is_per_run else 1)
    own = tree.own[answer.side]
    source = profile.meta.get("source", "") or "profile"
    about = f"{answer.side} time by module, operator and kernel, {format_time(round(sum(own)))} in all"
    drawing = Drawing(width, height, f"{source}: {about}")
    drawing.text(8, 18, source, size=13, bold=True)
    drawing.text(8, 34, about, fill=FAINT)
    types = [
        tree.types[parent] if kind == "kernel" else kind for parent, kind in zip(tree.parent, tree.types, strict=True)
    ]
    names = [source, *tree.names[1:]]
    draw_flame(drawing, Tree(tree.parent, names, types, own), lambda time: format_time(round(time)))
    return drawing
