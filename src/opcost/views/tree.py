"""The module tree as lines: cut at a depth, and with runs of identical blocks drawn once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

from opcost.core.report import STATS, ModuleCost, Report, Stats

Depth: TypeAlias = 'int | Literal["auto"] | None'

READABLE = 50
"""Lines that a reader takes in at once: the automatic depth and the merging of identical blocks aim at this."""


class Node(NamedTuple):
    """One line of the tree; a merged line stands for `times` identical modules and carries the sum of their costs."""

    module: ModuleCost
    label: str
    guides: str = ""
    times: int = 1
    shares: bool = False
    """Some parameter that stands in it belongs to another module."""
    hides: bool = False
    """Modules below it are not drawn."""

    @property
    def note(self) -> str:
        """What the reader must know about this module."""
        module, own = self.module, self.module.own
        said = []
        if module.same_as is not None:
            said.append(f"= {module.same_as or 'the model itself'}")
        elif self.shares and own.params:
            said.append("partly shared")
        if own.unused_params:
            said.append("unused" if own.unused_params == own.params else "partly unused")
        if own.uncounted:
            said.append(f"{own.uncounted} uncounted")
        return ", ".join(said)


class _Branch:
    """A module in the tree that is drawn; `run` holds the identical siblings that it stands for, itself first."""

    __slots__ = ("children", "module", "run")

    def __init__(self, module: ModuleCost) -> None:
        self.module = module
        self.children: list[_Branch] = []
        self.run: list[ModuleCost] = [module]


def draw_tree(
    report: Report,
    *,
    depth: Depth,
    merge: bool | None,
    order: Callable[[Node], Any] | None = None,
) -> tuple[list[Node], int]:
    """The nodes from top to bottom, and the depth that was cut at; `order` sorts the modules under one parent."""
    shares = sharers(report)
    root = _grow(report.modules)
    rows = _rows_at(root)
    deepest = len(rows) - 1
    limit = _readable_depth(rows) if depth == "auto" else deepest if depth is None else min(depth, deepest)
    if merge is not False:
        merged = _grow(report.modules)
        _merge(merged, shares)
        merged_rows = _rows_at(merged)
        further = _readable_depth(merged_rows) if depth == "auto" else limit
        # By itself merging must pay: a deeper tree in as many lines, or a tree that becomes readable.
        if merge or further > limit or sum(rows[: limit + 1]) > READABLE:
            root, limit = merged, further
    return list(_walk(root, limit, shares, order)), limit


def sharers(report: Report) -> frozenset[str]:
    """Names under which a parameter stands a second time."""
    return frozenset(name for parameter in report.shared for name in parameter.names[1:])


def flat_nodes(modules: Iterable[ModuleCost], shares: frozenset[str]) -> list[Node]:
    """The modules one by one without a tree, so each of them without what lies below it."""
    return [
        Node(
            replace(module, total=module.own),
            module.path or module.type,
            shares=not shares.isdisjoint(module.parameters),
        )
        for module in modules
    ]


def _grow(modules: Iterable[ModuleCost]) -> _Branch:
    branches: dict[str, _Branch] = {}
    for module in modules:
        branch = branches[module.path] = _Branch(module)
        parent = module.parent
        # What stands below a second name stands below the first one already.
        if parent is not None and branches[parent].module.same_as is None:
            branches[parent].children.append(branch)
    return branches[""]


def _levels(root: _Branch) -> Iterator[list[_Branch]]:
    level = [root]
    while level:
        yield level
        level = [child for branch in level for child in branch.children]


def _rows_at(root: _Branch) -> list[int]:
    return [len(level) for level in _levels(root)]


def _readable_depth(rows: list[int]) -> int:
    shown = rows[0]
    for depth, more in enumerate(rows[1:], 1):
        shown += more
        if shown > READABLE and depth > 1:
            return depth - 1
    return len(rows) - 1


def _merge(root: _Branch, shares: frozenset[str]) -> None:
    """Let the first of consecutive, equally built and equally costly numbered siblings stand for all of them."""
    shapes: dict[object, int] = {}
    shape_of: dict[int, int] = {}
    for level in reversed(list(_levels(root))):
        for branch in level:
            module = branch.module
            key = (
                module.type,
                module.calls,
                module.own,
                module.inputs,
                module.outputs,
                module.same_as,
                shares.isdisjoint(module.parameters),
                tuple((child.module.name, shape_of[id(child)]) for child in branch.children),
            )
            shape_of[id(branch)] = shapes.setdefault(key, len(shapes))
            branch.children = _merge_siblings(branch.children, shape_of)


def _merge_siblings(siblings: list[_Branch], shape_of: dict[int, int]) -> list[_Branch]:
    kept: list[_Branch] = []
    for branch in siblings:
        last = kept[-1] if kept else None
        if (
            last is not None
            and shape_of[id(last)] == shape_of[id(branch)]
            and _number(branch.module) == _number(last.run[-1]) + 1 > 0
        ):
            last.run.append(branch.module)
        else:
            kept.append(branch)
    return kept


def _number(module: ModuleCost) -> int:
    return int(module.name) if module.name.isdecimal() and len(module.name) < 10 else -2


def _walk(root: _Branch, limit: int, shares: frozenset[str], order: Callable[[Node], Any] | None) -> Iterator[Node]:
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
            children = sorted(children, key=lambda child: order(_node(child, "", limit, times, path, shares)[0]))
        last = len(children) - 1
        for place in range(last, -1, -1):
            child = children[place]
            end = place == last
            stack.append((child, below + ("└─ " if end else "├─ "), below + ("   " if end else "│  "), times, path))


def _node(
    branch: _Branch, guides: str, limit: int, times: int, parent: str, shares: frozenset[str]
) -> tuple[Node, str]:
    """The node of a branch, and the path that stands for it and starts those below."""
    module = branch.module
    depth = module.depth
    hides = depth >= limit and bool(branch.children)
    count = len(branch.run)
    times *= count
    name, path = module.name, module.path
    changed: dict[str, Any] = {}
    if hides or module.same_as is not None:
        changed["own"] = module.total
    if times > 1:
        name = f"{name}–{branch.run[-1].name}" if count > 1 else name
        path = changed["path"] = f"{parent}.{name}" if parent else name
        changed["type"] = f"{times} × {module.type}"
        changed["own"] = _times(changed.get("own", module.own), times)
        changed["total"] = _times(module.total, times)
    shown = replace(module, **changed) if changed else module
    return Node(shown, name or module.type, guides, times, not shares.isdisjoint(module.parameters), hides), path


def _times(stats: Stats, times: int) -> Stats:
    return Stats(**{name: getattr(stats, name) * times for name in STATS})
