"""torchstat's calls: `stat` prints what each layer of a model costs, and how long it takes."""

from __future__ import annotations

from opcost.compat.torchstat.reporter import report_format
from opcost.compat.torchstat.stat_tree import StatNode, StatTree
from opcost.compat.torchstat.statistics import ModelStat, stat

__all__ = ["ModelStat", "StatNode", "StatTree", "report_format", "stat"]
