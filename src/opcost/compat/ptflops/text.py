"""Numbers as ptflops writes them."""

from __future__ import annotations


def flops_to_string(flops: float, units: str | None = None, precision: int = 2) -> str:
    """Multiply-adds with a unit: GMac, MMac, KMac, or the fitting one."""
    for unit, size in (("GMac", 10**9), ("MMac", 10**6), ("KMac", 10**3)):
        if units == unit or (units is None and flops // size > 0):
            return f"{round(flops / size, precision)} {unit}"
    return f"{flops} Mac"


def params_to_string(params_num: int, units: str | None = None, precision: int = 2) -> str:
    """A number of parameters with a unit: B, M, K, or the fitting one."""
    if units is None:
        for unit, size in (("M", 10**6), ("k", 10**3)):
            if params_num // size > 0:
                return f"{round(params_num / size, precision)} {unit}"
        return str(params_num)
    sizes = {"B": 10**9, "M": 10**6, "K": 10**3}
    return f"{round(params_num / sizes[units], precision)} {units}" if units in sizes else str(params_num)
