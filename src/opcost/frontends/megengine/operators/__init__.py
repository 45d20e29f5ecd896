"""What is known about each type of operators: its shapes, its element types, and its kind; one file per family."""

from __future__ import annotations

from opcost.frontends.megengine.operators.registry import rules

__all__ = ["rules"]
