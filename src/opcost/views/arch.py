"""The architecture as its author wrote it, in the manner of a module's repr, with the cost beside each module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from opcost.core.harmless import printable
from opcost.core.report import ModuleCost, Report
from opcost.core.units import format_count
from opcost.views.options import NumberOptions
from opcost.views.view import ReportView, View
from opcost.wording import shortened, some

MANY_LINES = 24
"""Lines of a module's own words."""


class Part(Protocol):
    """What the text needs to know of a module; `ModuleCost` and `Module` know it."""

    @property
    def path(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def extra(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Arch:
    """The modules in definition order, and the line of each."""

    modules: tuple[Part, ...]
    lines: dict[str, str]


def _build(report: Report, options: NumberOptions) -> Arch:
    return Arch(
        tuple(map(_with_short_extra, report.modules)),
        {module.path: _line(module, options) for module in report.modules},
    )


def _write(arch: Arch, options: NumberOptions) -> str:
    return arch_text(arch.modules, arch.lines.__getitem__) + "\n"


def _with_short_extra(module: ModuleCost) -> ModuleCost:
    """A module's own words, where they are few; a list of parameters has a line for each of them."""
    lines = module.extra.split("\n")
    short = "\n".join(shortened(line, 1000) for line in some(lines, MANY_LINES, kind="lines"))
    return module if short == module.extra else replace(module, extra=short)


def _line(module: ModuleCost, options: NumberOptions) -> str:
    if module.same_as is not None:
        return f"= {module.same_as or 'the model itself'}"
    total = module.total
    shown = "{:,}".format if options.exact else format_count

    def priced(value: int) -> str:
        """Where an operator has no price, what is known is a lower bound, and a zero is unknown."""
        return shown(value) if not total.uncounted else f"≥{shown(value)}" if value else "?"

    return (
        f"#params: {shown(total.params)}, #macs: {priced(total.macs)}, #flops: {priced(total.flops)}, "
        f"#acts: {priced(total.activations)}"
    )


def arch_text(modules: Iterable[Part], statistics: Callable[[str], str]) -> str:
    """The repr of a tree of modules, with the statistics of each path on lines of their own; '' adds none.

    The modules come in definition order, the root (path '') first and parents before their children. As in a repr, a
    module without children whose text is one line is written on one line.
    """
    children: dict[str, list[Part]] = {}
    root: Part | None = None
    for module in modules:
        children[module.path] = []
        if module.path:
            children[module.path.rpartition(".")[0]].append(module)
        else:
            root = module
    if root is None:
        return ""
    lines: list[str] = []
    stack: list[tuple[Part | None, str, str]] = [(root, "", "")]
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


REPORT: ReportView = View(name="arch", options=NumberOptions, build=_build, write=_write)
