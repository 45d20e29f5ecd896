"""`opcost scan PATH...`: what a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts

from opcost.cli.options import MODEL, SHOWING, Columns, Exact, Outputs, Quiet, Sort, Width, parameter
from opcost.cli.saying import put
from opcost.core.writing import check_writable
from opcost.errors import OpcostError

Checkpoints = Annotated[
    Path,
    parameter(
        group=MODEL,
        help="A file, the index of a sharded checkpoint, or a folder; several are files of one checkpoint.",
    ),
]


@cyclopts.Parameter(name="*", group=SHOWING)
@dataclass(frozen=True, slots=True, kw_only=True)
class ScanChoice:
    """Which lines of the checkpoint, and where they go."""

    by: Annotated[
        Literal["layer", "module", "type", "tensor"] | None,
        parameter(help="One line per layer pattern (model.layers.{0..79}.mlp.*), module, element type, or tensor."),
    ] = None
    depth: Annotated[
        int | None,
        parameter(
            metavar="N", help="Words of a name: after the number of a layer (1), or of the path of a module (2)."
        ),
    ] = None
    sort: Sort = None
    top: Annotated[
        int | None, parameter(metavar="N", help="Show the N largest lines, and what the rest adds up to.")
    ] = None
    columns: Columns = None
    exact: Exact = False
    width: Width = None
    view: Annotated[str, parameter(metavar="NAME", show_default=True, help="table, json, csv, md, html.")] = "table"
    output: Outputs = ()
    quiet: Quiet = False


def scan(*paths: Checkpoints, shown: ScanChoice | None = None) -> int:
    """List what a checkpoint holds, from its headers alone: tensors, logical parameters, stored bytes, bits per parameter."""
    from opcost.api import scan as scan_checkpoint
    from opcost.core.plugin import SCAN_VIEWS, answering_for, load, view_for_suffix
    from opcost.core.progress import working

    shown = shown or ScanChoice()
    if not paths:
        raise OpcostError("no checkpoint is named", hint="opcost scan PATH; see `opcost scan --help`")
    view = load(SCAN_VIEWS, shown.view)
    writers = [(path, view_for_suffix(path, SCAN_VIEWS)) for path in shown.output]
    for path, _ in writers:
        check_writable(path)
    with working(f"scanning {paths[0]}", quiet=shown.quiet):
        found = scan_checkpoint(*paths)
    for path, writer in writers:
        with answering_for(writer, "writing the scan"):
            found.save(path, **_wanted(shown, writer))
    if not (shown.quiet and shown.output):
        with answering_for(view, "drawing the scan"):
            put(view.render(found, **_wanted(shown, view)), shown.view)
    return 0


def _wanted(shown: ScanChoice, view: Any) -> dict[str, Any]:
    """What was asked for, as far as the view has it."""
    from opcost.views.view import option_names

    known = option_names(view)
    return {
        name: value
        for name in ("by", "depth", "sort", "top", "columns", "exact", "width")
        if name in known and (value := getattr(shown, name)) is not None
    }
