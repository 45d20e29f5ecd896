"""TorchScript archives (`.pt`), counted from the text of their code: PyTorch is not imported, and nothing in them runs."""

from pathlib import Path

from opcost.frontends.registry import FileFrontEnd, FrontEnd


class TorchScriptFrontEnd(FileFrontEnd):
    """Files written by `torch.jit.save`; a scripted module in memory is the torch front end's."""

    name, what = "torchscript", "a TorchScript archive"
    framework = "torch"
    suffixes = (".pt", ".pth", ".ptl", ".torchscript", ".jit", ".ts")

    def sniff(self, head: bytes, path: Path) -> bool:
        """An archive with code in it; a checkpoint has none."""
        from opcost.frontends.programs import holds_code

        return head.startswith(b"PK\x03\x04") and holds_code(path)


FRONTEND: FrontEnd = TorchScriptFrontEnd()
