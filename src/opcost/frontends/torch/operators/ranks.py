"""Operators that talk to other ranks: which they are, and how many ranks take part."""

from __future__ import annotations

from typing import Any

RANKS = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "symm_mem"})
"""The libraries of such operators. None of them is ever run without data: the other ranks do not count, and would not answer."""


def group_size(args: dict[str, Any]) -> int | None:
    """How many ranks are in the group that is named or handed over among the arguments of an operator; None: not told."""
    group, name = args.get("process_group"), args.get("group_name")
    if group is None and not isinstance(name, str):
        return None
    from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group

    try:
        found = ProcessGroup.unbox(group) if group is not None else _resolve_process_group(name)  # type: ignore[arg-type]
        return int(found.size())
    except (RuntimeError, TypeError, ValueError):  # a group that is gone
        return None
