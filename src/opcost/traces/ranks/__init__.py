"""Traces of many ranks at once: each reduced to columns, in processes of its own, and kept for the next time."""

from opcost.traces.ranks.cache import usual_folder
from opcost.traces.ranks.reduce import read_ranks, reduce_rank, reduce_ranks, trace_files

__all__ = ["read_ranks", "reduce_rank", "reduce_ranks", "trace_files", "usual_folder"]
