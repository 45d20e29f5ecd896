"""The model's repr with the parameters of every module behind it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from opcost.core.harmless import printable

_TITLE = " Hierarchical Summary "


def hierarchical_summary(model: nn.Module, print_summary: bool = False) -> tuple[str, int]:
    """The text, and the number of distinct parameters."""
    body = "\n".join(_lines(model))
    side = "=" * (max(max(map(len, body.split("\n"))) - 20, 0) // 2)
    rule = "=" * (2 * len(side) + len(_TITLE))
    text = "\n".join([f"{side}{_TITLE}{side}\n", body, f"\n\n{rule}\n"])
    if print_summary:
        print(text)
    return text, _params(model)


def _lines(module: nn.Module) -> Iterator[str]:
    name, params = printable(type(module).__name__), f", {_params(module):,} params"
    extra = [printable(line) for line in module.extra_repr().split("\n")] if module.extra_repr() else []
    nested: list[str] = []
    for key, child in module._modules.items():  # noqa: SLF001 - named_children leaves out shared ones
        if child is not None:
            first, *rest = _lines(child)
            nested += [f"({printable(key)}): {first}", *rest]
    if not nested and len(extra) <= 1:
        yield f"{name}({''.join(extra)}){params}"
        return
    yield f"{name}("
    yield from (f"  {line}" for line in (*extra, *nested))
    yield f"){params}"


def _params(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
