"""MegEngine: dumps (`.mge`), read without MegEngine, and live modules where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.frontends.registry import FrontEnd

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions


class MegEngineFrontEnd(FrontEnd):
    """Files that `megengine.jit.trace.dump` wrote, and `megengine.module.Module` objects."""

    name = "megengine"
    framework = "megengine"
    understands = frozenset({"sizes"})
    suffixes = (".mge", ".mgb", ".mdl")

    def sniff(self, head: bytes, path: Path) -> bool:
        from opcost.frontends.megengine.model import recognize

        return recognize(head)

    def owns(self, obj: object) -> bool:
        module = sys.modules.get("megengine.module")
        return module is not None and isinstance(obj, module.Module)

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.megengine.load import load

        return load(source, options)


FRONTEND: FrontEnd = MegEngineFrontEnd()
