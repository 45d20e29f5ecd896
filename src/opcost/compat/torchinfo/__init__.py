"""torchinfo's calls: `summary` lists the layers of a model with shapes, parameters and mult-adds."""

from __future__ import annotations

from opcost.compat.torchinfo.enums import ColumnSettings, Mode, RowSettings, Units, Verbosity
from opcost.compat.torchinfo.model_statistics import ModelStatistics
from opcost.compat.torchinfo.torchinfo import clear_cached_forward_pass, summary

__all__ = [
    "ColumnSettings", "Mode", "ModelStatistics", "RowSettings", "Units", "Verbosity", "clear_cached_forward_pass", "summary",
]  # fmt: skip
