"""Programs exported by PyTorch (`.pt2`), read as the data they are: PyTorch is not imported, and nothing in them runs."""

from pathlib import Path

from opcost.frontends.inputs import DIM
from opcost.frontends.registry import FileFrontEnd, FrontEnd


class Pt2FrontEnd(FileFrontEnd):
    """Files written by `torch.export.save`; a program in memory is the torch front end's."""

    name, what = "pt2", "an exported program"
    framework = "torch"
    options = (DIM,)
    understands = frozenset({"sizes"})
    suffixes = (".pt2",)

    def sniff(self, head: bytes, path: Path) -> bool:
        """Exported programs are zip archives; what is inside is checked when it is read."""
        from opcost.frontends.programs import holds_code

        return head.startswith(b"PK\x03\x04") and (path.suffix == ".pt2" or not holds_code(path))


FRONTEND: FrontEnd = Pt2FrontEnd()
