"""thop's calls: `profile`, `profile_origin`, `clever_format`."""

from __future__ import annotations

from opcost.compat.thop.profile import profile, profile_origin
from opcost.compat.thop.utils import clever_format

__all__ = ["clever_format", "profile", "profile_origin"]
