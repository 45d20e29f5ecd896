"""Profiles of MegEngine: the timeline of an imperative run, and the report of a compiled graph."""

from opcost.traces.megengine.reader import READER

__all__ = ["READER"]
