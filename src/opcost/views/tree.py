"""The module tree as lines of a table, cut at a depth and with identical blocks drawn once; and as its author wrote it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from opcost.core.escaping import printable
from opcost.core.graph import Module
from opcost.core.report import ModuleCost, Report, Stats
from opcost.core.units import format_count
from opcost.errors import shortened, some
from opcost.views.view import Build, View, ViewOptions

Order: TypeAlias = tuple[Callable[[Any], Any], bool]  # by what to sort, and whether the largest come first
READABLE = 50  # lines that a reader takes in at once: automatic depth and merging aim at this
NEARLY_ALL = 0.8  # of a module's MACs: what a part of it with this share is made of says more


class TreeNode(NamedTuple):
    """One line of the tree; a merged line is for `times` identical modules and has the sum of their costs."""

    module: ModuleCost
    label: str
    guides: str = ""
    times: int = 1
    shares: bool = False  # one of its parameters belongs to another module
    hides: bool = False  # modules below it are not drawn

    @property
    def note(self) -> str:
        """What the reader must know about this module."""
        module, own = self.module, self.module.own
        notes = []
        if module.same_as is not None:
            notes.append(f"= {module.same_as or 'the model itself'}")
        elif self.shares and own.params:
            notes.append("partly shared")
        if own.unused_params:
            notes.append("unused" if own.unused_params == own.params else "partly unused")
        if own.uncounted:
            notes.append(f"{own.uncounted} uncounted")
        return ", ".join(notes)


class _Branch(NamedTuple):
    """A module in the tree that is drawn; `run` has the identical siblings that are merged into it, itself first."""

    module: ModuleCost
    children: list[_Branch]
    run: list[ModuleCost]


def draw_tree(
    report: Report, *, depth: int | str | None, merge: bool | None, order: Order | None = None,
    left_out: Collection[str] = (),
) -> tuple[list[TreeNode], int]:  # fmt: skip
    """The nodes from top to bottom, and the depth that was cut at; `order` sorts the modules under one parent.

    Modules of the paths `left_out` are not drawn.
    """
    shares = sharers(report)
    modules = [module for module in report.modules if module.path not in left_out]
    root = _grow(modules)
    rows = [len(level) for level in _levels(root)]
    deepest = len(rows) - 1
    limit = _readable_depth(rows) if depth == "auto" else min(depth, deepest) if isinstance(depth, int) else deepest
    if merge is not False:
        merged = _grow(modules, module_runs(modules, shares))
        further = _readable_depth([len(level) for level in _levels(merged)]) if depth == "auto" else limit
        # By itself merging must pay: a deeper tree in as many lines, or a tree that becomes readable.
        if merge or further > limit or sum(rows[: limit + 1]) > READABLE:
            root, limit = merged, further
    return list(_walk(root, limit, shares, order)), limit


class MainPart(NamedTuple):
    """The module where most of the work is; of equal blocks all of them are one, with `*` for their numbers."""

    path: str
    type: str
    macs: int


def main_part(report: Report) -> MainPart | None:
    """The part with the largest share of the MACs, below parts with nearly all; None where no part has more than others.

    None is chosen among equal parts, or below a module whose own operators do more than any part of it.
    """
    if not report.totals.macs:
        return None
    modules = [module for module in report.modules if module.total.macs or not module.path]
    branch = _grow(modules, module_runs(modules, frozenset()))
    found, times, nearly_all = None, 1, True
    while branch.children and nearly_all:
        shares = [len(child.run) * child.module.total.macs for child in branch.children]
        most = max(shares)
        child = branch.children[shares.index(most)]
        module, count = child.module, len(child.run)
        nearly_all = most >= NEARLY_ALL * branch.module.total.macs
        is_tied = shares.count(most) > 1
        if most <= branch.module.own.macs or is_tied:
            break
        numbers = "*" if len(branch.children) == 1 else f"{module.name}–{child.run[-1].name}"
        name = numbers if count > 1 else module.name
        times *= count
        found = MainPart(f"{found.path}.{name}" if found else name, module.type, times * module.total.macs)
        branch = child
    return found if found is not None and found.macs < report.totals.macs else None


def idle_modules(report: Report) -> list[ModuleCost]:
    """Modules in which no operator runs and that hold nothing, as Identity and, in inference, Dropout; not the root."""
    idle, needed = [], {"", None}
    for module in reversed(report.modules):  # children before their parents
        if any(module.total) or module.same_as is not None or module.path in needed:
            needed.add(module.parent)
        else:
            idle.append(module)
    return idle[::-1]


def module_runs(modules: Sequence[ModuleCost], shares: frozenset[str]) -> list[list[int]]:
    """The modules, by their places, that are consecutive, numbered, built equally and of equal cost."""
    places: dict[str | None, int] = {None: -1}
    places |= {module.path: place for place, module in enumerate(modules)}
    built = [
        (each.type, each.calls, each.own, each.inputs, each.outputs, each.same_as, shares.isdisjoint(each.parameters))
        for each in modules
    ]
    parents = [places[module.parent] for module in modules]
    return numbered_runs(parents, [module.name for module in modules], built)


def numbered_runs(parents: Sequence[int], names: Sequence[str], built: Sequence[Hashable]) -> list[list[int]]:
    """Runs of siblings with consecutive numbers as names, alike in `built` and in all below; children after parents."""
    below: list[list[int]] = [[] for _ in parents]
    for node in range(1, len(parents)):
        below[parents[node]].append(node)
    runs: list[list[int]] = []
    shapes: dict[object, int] = {}
    shape = [0] * len(parents)
    for node in reversed(range(len(parents))):
        key = built[node], tuple((names[child], shape[child]) for child in below[node])
        shape[node] = shapes.setdefault(key, len(shapes))
        run: list[int] = []
        for child in below[node]:
            alike = bool(run) and shape[run[-1]] == shape[child]
            if alike and _number(names[child]) == _number(names[run[-1]]) + 1 > 0:
                run.append(child)
                if len(run) == 2:
                    runs.append(run)
            else:
                run = [child]
    return runs


def sharers(report: Report) -> frozenset[str]:
    """The second and further names of shared parameters."""
    return frozenset(name for parameter in report.shared for name in parameter.names[1:])


def flat_nodes(modules: Iterable[ModuleCost], shares: frozenset[str]) -> list[TreeNode]:
    """The modules one by one without a tree, each without its children."""
    return [
        TreeNode(replace(each, total=each.own), each.path or each.type, shares=not shares.isdisjoint(each.parameters))
        for each in modules
    ]


def _grow(modules: Sequence[ModuleCost], runs: Iterable[Sequence[int]] = ()) -> _Branch:
    """The branches from the root; of each run of modules the first, for all of them."""
    first = {modules[place].path: modules[run[0]].path for run in runs for place in run[1:]}
    branches: dict[str, _Branch] = {}
    for module in modules:
        parent = module.parent
        above = None if parent is None else branches.get(parent)
        # The children of a second name are listed below the first one.
        if parent is not None and (above is None or above.module.same_as is not None):
            continue
        if module.path in first:
            branches[first[module.path]].run.append(module)
            continue
        branch = branches[module.path] = _Branch(module, [], [module])
        if above is not None:
            above.children.append(branch)
    return branches[""]


def _levels(root: _Branch) -> Iterator[list[_Branch]]:
    level = [root]
    while level:
        yield level
        level = [child for branch in level for child in branch.children]


def _readable_depth(rows: list[int]) -> int:
    shown = rows[0]
    for depth, more in enumerate(rows[1:], 1):
        shown += more
        if shown > READABLE and depth > 1:
            return depth - 1
    return len(rows) - 1


def _number(name: str) -> int:
    return int(name) if name.isdecimal() and len(name) < 10 else -2


def _walk(root: _Branch, limit: int, shares: frozenset[str], order: Order | None) -> Iterator[TreeNode]:
    stack = [(root, "", "", 1, "")]
    while stack:
        branch, guides, below, times, parent = stack.pop()
        node, path = _node(branch, guides, limit, times, parent, shares)
        yield node
        if node.hides:
            continue
        times *= len(branch.run)
        children = branch.children
        if order is not None:
            key, falling = order
            nodes = [(_node(child, "", limit, times, path, shares)[0], child) for child in children]
            children = [child for _, child in sorted(nodes, key=lambda each: key(each[0]), reverse=falling)]
        last = len(children) - 1
        for place in range(last, -1, -1):
            child = children[place]
            end = place == last
            stack.append((child, below + ("└─ " if end else "├─ "), below + ("   " if end else "│  "), times, path))


def _node(
    branch: _Branch, guides: str, limit: int, times: int, parent: str, shares: frozenset[str]
) -> tuple[TreeNode, str]:
    """The node of a branch, and its path, which starts those below."""
    module = branch.module
    depth = module.depth
    hides = depth >= limit and bool(branch.children)
    count = len(branch.run)
    times *= count
    name, path = module.name, module.path
    changed: dict[str, Any] = {}
    if hides or module.same_as is not None:
        changed["own"] = module.total

    def multiplied(stats: Stats) -> Stats:
        return Stats._make(each * times for each in stats)

    if times > 1:
        name = f"{name}–{branch.run[-1].name}" if count > 1 else name
        path = changed["path"] = f"{parent}.{name}" if parent else name
        kind = f"({module.type})" if " " in module.type else module.type
        changed["type"] = f"{times} × {kind}"
        changed["own"] = multiplied(changed.get("own", module.own))
        changed["total"] = multiplied(module.total)
    shown = replace(module, **changed) if changed else module
    return TreeNode(shown, name or module.type, guides, times, not shares.isdisjoint(module.parameters), hides), path


# -- the architecture as its author wrote it, as a module's repr, with the cost of each module ---------------------------

MANY_LINES = 24  # lines of a module's own words


def _architecture(report: Report, options: ViewOptions) -> str:
    shown = "{:,}".format if options.exact else format_count
    modules, lines = [], {}
    for module in report.modules:
        # A module's own words, where they are few; a list of parameters has a line for each of them
        own = some(module.extra.split("\n"), MANY_LINES, kind="lines")
        modules.append(replace(module, extra="\n".join(shortened(line, 1000) for line in own)))
        total = module.total
        words = [f"#params: {shown(total.params)}"]
        for name, value in (("#macs", total.macs), ("#flops", total.flops), ("#acts", total.activations)):
            # Where an operator has no cost model, what is known is a lower bound, and a zero is unknown.
            least = f"≥{shown(value)}" if value else "?"
            words.append(f"{name}: {least if total.uncounted else shown(value)}")
        same = module.same_as
        lines[module.path] = ", ".join(words) if same is None else f"= {same or 'the model itself'}"
    return arch_text(modules, lines.__getitem__) + "\n"


def arch_text(modules: Sequence[ModuleCost | Module], statistics: Callable[[str], str]) -> str:
    """The repr of a tree of modules, with the statistics of each path on lines of their own; '' adds none.

    The modules come in definition order, the root (path '') first and parents before their children. As in a repr, a
    module without children whose text is one line is written on one line.
    """
    children: dict[str, list[ModuleCost | Module]] = {module.path: [] for module in modules}
    for module in modules[1:]:
        children[module.path.rpartition(".")[0]].append(module)
    lines: list[str] = []
    stack: list[tuple[ModuleCost | Module | None, str, str]] = [(modules[0], "", "")]
    while stack:
        part, name, indent = stack.pop()
        if part is None:
            lines.append(f"{indent})")
            continue
        head = indent + printable(f"({name}): {part.type}(" if name else f"{part.type}(")
        inside = [printable(line) for text in (part.extra, statistics(part.path)) if text for line in text.split("\n")]
        below = children[part.path]
        if not below and len(inside) <= 1:
            lines.append(f"{head}{''.join(inside)})")
            continue
        lines.append(head)
        lines.extend(f"{indent}  {line}" for line in inside)
        stack.append((None, "", indent))
        stack.extend((child, child.path.rpartition(".")[2], f"{indent}  ") for child in reversed(below))
    return "\n".join(lines)


ARCH = View(name="arch", builds={"report": Build("exact", _architecture)}, write=lambda text, _: text)
