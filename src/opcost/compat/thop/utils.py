"""Numbers as thop writes them."""

from __future__ import annotations

from collections.abc import Iterable


def clever_format(nums: float | Iterable[float], format: str = "%.2f") -> str | tuple[str, ...]:
    """Numbers with T, G, M, K or B behind them: a string for one number, a tuple for several."""
    texts = [_with_unit(num, format) for num in (nums if isinstance(nums, Iterable) else [nums])]
    return texts[0] if len(texts) == 1 else tuple(texts)


def _with_unit(num: float, template: str) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if num > size:
            return template % (num / size) + unit
    return template % num + "B"
