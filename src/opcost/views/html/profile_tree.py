"""The times of a profile as a tree: modules, operators, and below them kernels."""

from __future__ import annotations

from opcost.core.profile import Profile, ProfileRow
from opcost.views.html.path_tree import PathTree

MOST_NAMES = 30_000
"""Operators that the tree tells by their own names; more are told by their types."""
NO_OPERATOR = "(no operator)"


def profile_tree(profile: Profile, runs: int) -> tuple[PathTree, list[int]]:
    """The tree with what one of so many runs took, and the node of each row."""
    named = len({row.name for row in profile.rows}) <= MOST_NAMES
    tree = PathTree(("device", "host", "calls", "macs", "flops", "bytes"))
    leaves = [_leaf(tree, row, named=named) for row in profile.rows]
    lost = tree.child(0, NO_OPERATOR) if profile.unattributed else 0
    for row, leaf in zip(profile.rows, leaves, strict=True):
        own = tree.own
        own["calls"][leaf] += row.count / runs
        own["host"][leaf] += (row.host_self_ns or 0) / runs
        if row.cost is not None:
            own["macs"][leaf] += row.cost.macs * row.count / runs
            own["flops"][leaf] += row.cost.flops * row.count / runs
            own["bytes"][leaf] += (row.cost.bytes_read + row.cost.bytes_written) * row.count / runs
        own["device"][leaf] += ((row.device_ns or 0) - sum(kernel.duration_ns for kernel in row.kernels)) / runs
        for kernel in row.kernels:
            own["device"][tree.child(leaf, kernel.name, "kernel")] += kernel.duration_ns / runs
    for kernel in profile.unattributed:
        tree.own["device"][tree.child(lost, kernel.name, "kernel")] += kernel.duration_ns / runs
    return tree, leaves


def _leaf(tree: PathTree, row: ProfileRow, *, named: bool) -> int:
    module = tree.walk(row.module.split(".")) if row.module else 0
    name = row.name if named and row.name else row.type
    if row.module:  # which need not be said again
        name = row.type if name == row.module else name.removeprefix(f"{row.module}.")
    return tree.child(module, name, row.kind or row.type)
