"""Core ML models, read without Core ML: programs and neural networks are walked, weights are never loaded, and nothing runs."""

from pathlib import Path

from opcost.frontends.inputs import DIM
from opcost.frontends.options import FrontendOption
from opcost.frontends.registry import FileFrontEnd, FrontEnd

MANIFEST = "Manifest.json"
_FUNCTION = "Which function of a Core ML program is counted; by default its main one."
DESCRIBED = (b"\n", b"\xa2")  # How the description of a model begins: with an input, or a function


class CoremlFrontEnd(FileFrontEnd):
    """Packages (`*.mlpackage`) and single files (`*.mlmodel`)."""

    name, what = "coreml", "a Core ML model"
    framework = "coremltools"
    suffixes = (".mlmodel", ".json")
    options = (DIM, FrontendOption("function", str, _FUNCTION, "NAME"))
    understands = frozenset({"sizes"})

    def sniff(self, head: bytes, path: Path) -> bool:
        """A version, then a description that begins with an input; or the manifest of a package."""
        if path.name == MANIFEST:
            return b"itemInfoEntries" in head
        from opcost.frontends.protobuf import second_begins

        return (path.suffix == ".mlmodel" and head[:1] == b"\x08") or second_begins(head) in DESCRIBED

    def named(self, text: str) -> Path | None:
        """A package is a folder; its manifest names the model's file."""
        folder = Path(text)
        if folder.suffix != ".mlpackage" or not folder.is_dir():
            return None
        manifest = folder / MANIFEST
        return manifest if manifest.is_file() else folder / "Data" / "com.apple.CoreML" / "model.mlmodel"


FRONTEND: FrontEnd = CoremlFrontEnd()
