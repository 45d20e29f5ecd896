"""Pages of tables, as comparisons, budgets and checkpoints have them, as the page of a browser has them."""

from __future__ import annotations

from opcost.core.harmless import printable
from opcost.core.scan import Scan
from opcost.version import __version__
from opcost.views.html.columns import Told, table_of, words_of
from opcost.views.html.path_tree import PathTree
from opcost.views.html.reports import said_of, totals_of
from opcost.views.page import Page
from opcost.views.scan_listing import ScanOptions, scan_page

MOST_TENSORS = 100_000
"""Tensors that the tree shows one by one; of more it has the modules."""


def tables_data(page: Page) -> Told:
    """The tables of a page below each other, and what is said around them."""
    summary = page.summary
    tables = [(page.title, page.listing), *page.further]
    return {
        "title": printable(summary.heading[0]),
        "facts": [*(("", printable(line)) for line in summary.heading[1:]), ("opcost", __version__)],
        "totals": totals_of(summary),
        **said_of(summary.sections, summary.seen_against),
        "tables": [table_of(title, listing) for title, listing in tables if listing.columns],
    }


def scan_data(scan: Scan, options: ScanOptions) -> Told:
    """A checkpoint: its tensors as a tree, and the same lines as on a terminal."""
    tree = PathTree(("params", "bytes", "tensors"))
    shapes, files = [""], [""]
    deep = len(scan.tensors) <= MOST_TENSORS
    for tensor in scan.tensors:
        parts = tensor.name.split(".")
        node = tree.walk(parts[:-1])
        if deep:
            node = tree.child(node, parts[-1], tensor.type)
        shapes += [""] * (len(tree.parent) - len(shapes))
        files += [""] * (len(tree.parent) - len(files))
        if deep:
            shapes[node], files[node] = "x".join(map(str, tensor.shape)) or "scalar", tensor.file
        tree.own["params"][node] += tensor.params
        tree.own["bytes"][node] += tensor.bytes
        tree.own["tensors"][node] += 1
    told = tree.told(
        "tensor" if deep else "module",
        scan.source,
        [
            {"name": "params", "title": "params", "unit": "count", "usual": True},
            {"name": "bytes", "title": "stored", "unit": "bytes"},
            {"name": "tensors", "title": "tensors", "unit": "number"},
        ],
    )
    told["details"] = [
        {"name": "shape", "title": "shape", "unit": "text", "shown": True} | words_of(shapes),
        {"name": "file", "title": "file", "unit": "text"} | words_of(files),
    ]
    return tables_data(scan_page(scan, options)) | {"tree": told}
