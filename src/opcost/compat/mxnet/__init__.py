"""MXNet's summary of a symbol, and a count of its multiply-adds, for files, live symbols and gluon blocks."""

from __future__ import annotations

from opcost.compat.mxnet.flops import FlopCount, NodeFlops, count_flops
from opcost.compat.mxnet.summary import print_summary

__all__ = ["FlopCount", "NodeFlops", "count_flops", "print_summary"]
