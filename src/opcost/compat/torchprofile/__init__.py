"""torchprofile: the multiply-accumulates of a model.

from opcost.compat.torchprofile import profile_macs
"""

from __future__ import annotations

from opcost.compat.torchprofile.profile import Node, profile_macs

__all__ = ["Node", "profile_macs"]
