"""Programs exported by PyTorch (`.pt2`), read as the data they are: PyTorch is not imported, and nothing in them runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.frontends.inputs import DIM
from opcost.frontends.registry import FrontEnd

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions


class Pt2FrontEnd(FrontEnd):
    """Files written by `torch.export.save`; a program in memory is the torch front end's."""

    name = "pt2"
    framework = "torch"
    options = (DIM,)
    understands = frozenset({"sizes"})
    suffixes = (".pt2",)

    def sniff(self, head: bytes, path: Path) -> bool:
        """Exported programs are zip archives; what is inside is checked when it is read."""
        from opcost.frontends.programs import holds_code

        return head.startswith(b"PK\x03\x04") and (path.suffix == ".pt2" or not holds_code(path))

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.pt2.load import load

        return load(source, options)


FRONTEND: FrontEnd = Pt2FrontEnd()
