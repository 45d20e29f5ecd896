"""Numbers as DeepSpeed and calflops write them."""

from __future__ import annotations

_UNITS = {"T": 1e12, "G": 1e9, "M": 1e6, "K": 1e3, "": 1.0, "m": 1e-3, "u": 1e-6}


def number_to_string(num: float, units: str | None = None, precision: int = 2) -> str:
    """A number in a unit, or in the largest of which it has at least one."""
    if units is None:
        units = next((unit for unit, size in _UNITS.items() if num >= size), "u") if num else ""
    return f"{round(num / _UNITS.get(units, 1.0), precision):g} {units}"


def flops_to_string(flops: float, units: str | None = None, precision: int = 2) -> str:
    return f"{number_to_string(flops, units, precision)}FLOPS"


def macs_to_string(macs: float, units: str | None = None, precision: int = 2) -> str:
    return f"{number_to_string(macs, units, precision)}MACs"


def params_to_string(params_num: float, units: str | None = None, precision: int = 2) -> str:
    """A number of parameters; a billion is B."""
    units = units.replace("B", "G") if units else units
    return number_to_string(params_num, units, precision).replace("G", "B").strip()


def duration_to_string(duration: float, units: str | None = None, precision: int = 2) -> str:
    return f"{number_to_string(duration, units, precision)}s"


def share(part: float, whole: float, precision: int = 2) -> str:
    """Percent, without zeros behind the point."""
    return f"{round(100 * part / whole, precision) if whole else 0:g}%"
