"""MXNet: checkpoints of every version, read without MXNet; live symbols and gluon blocks where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.frontends.options import FrontendOption
from opcost.frontends.registry import FrontEnd

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions

_KEYS = (b'"nodes"', b'"arg_nodes"', b'"node_row_ptr"')
_LIST_MAGIC = b"\x12\x01\0\0\0\0\0\0"


class MXNetFrontEnd(FrontEnd):
    """Symbols (`*-symbol.json`) with the parameters beside them, `mxnet.sym.Symbol` and `mxnet.gluon.Block` objects."""

    name = "mxnet"
    framework = "mxnet"
    understands = frozenset({"sizes"})
    suffixes = (".json", ".params")
    options = (
        FrontendOption(
            "params",
            Path,
            "The weights of an MXNet symbol. Without it, the file beside the symbol, of the last epoch.",
            "FILE",
        ),
        FrontendOption("epoch", int, "The epoch of the weights beside an MXNet symbol.", "N"),
    )

    def sniff(self, head: bytes, path: Path) -> bool:
        """A symbol is JSON that names nodes; TVM's graphs look alike."""
        if path.suffix.lower() == ".params":
            return head.startswith((_LIST_MAGIC, b"PK\x03\x04"))
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        return start.startswith(b"{") and any(key in head for key in _KEYS) and b'"tvm_op"' not in head

    def owns(self, obj: object) -> bool:
        mxnet = sys.modules["mxnet"]
        return isinstance(obj, (mxnet.symbol.Symbol, mxnet.gluon.Block))

    def named(self, text: str) -> Path | None:
        """A checkpoint is often named by the prefix of its two files."""
        from opcost.frontends.mxnet.load import symbol_beside

        return symbol_beside(text)

    def load(self, source: Any, options: CountOptions) -> Graph:
        from opcost.frontends.mxnet.load import load_graph, open_file, open_object

        return load_graph((open_file if isinstance(source, Path) else open_object)(source, options))


FRONTEND: FrontEnd = MXNetFrontEnd()
