"""torchsummary's call: `summary` prints a table of layers, their output shapes and parameters."""

from __future__ import annotations

from opcost.compat.torchsummary.torchsummary import summary

__all__ = ["summary"]
