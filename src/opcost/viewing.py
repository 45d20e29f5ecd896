"""The page of any model, file, profile or result, and of a comparison of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.api import count, read_profile
from opcost.comparing import compare, result_label, results_of, source_or_scan
from opcost.core.files import write_text
from opcost.core.option import takes
from opcost.core.rendering import Rendered
from opcost.core.scan import Scan
from opcost.core.showing import show_page
from opcost.errors import InputError
from opcost.options import Counting
from opcost.profiles import Profile, find_trace

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes(Counting)
def view(
    *sources: Any, inputs: Any = None, output: str | PathLike[str] | None = None, **options: Unpack[Counting]
) -> Path | None:
    """Show a page: what a model costs, where the time of a profile goes, what a checkpoint holds, or how models differ.

    A source is a result, a trace, a checkpoint, or anything that `opcost.count` takes, with its options; several are compared.
    A notebook shows the page below the cell. Elsewhere a browser opens it, and the result is its file. With `output`, a path that
    ends in `.html`, it is only written there.
    """
    given: dict[str, Any] = {**options} if inputs is None else {**options, "inputs": inputs}
    text = page_of(sources, given)
    if output is None:
        return show_page(text)
    write_text(output, text)
    return Path(output)


def page_of(sources: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The page of one source, or of a comparison of several; `options` are those of `opcost.count`, of a profile the device."""
    if not sources:
        raise InputError("no source is named", hint="opcost.view(model), or opcost view SOURCE")
    profiles = [isinstance(each, Profile) or _trace(each) is not None for each in sources]
    if len(sources) > 1:
        if any(profiles):
            return compare(*sources, **options).render("html")
        found = results_of(sources, options)
        labels = [result_label(source) for source in sources]
        kinds, modules = (compare(*found, labels=labels, by=by, depth=None) for by in ("kind", "module"))
        return replace(kinds, entries=(*kinds.entries, *modules.of_part("module"))).render("html")
    (source,) = sources
    given = dict(options)
    device = given.pop("device", None) if profiles[0] else None
    if profiles[0] or isinstance(source, Rendered):
        if given:
            what = "a profile" if profiles[0] else "a result"
            raise InputError(f"{result_label(source)} is {what}; options about counting do not apply to it")
        if isinstance(source, Rendered):
            return source.render("html")
        return (source if isinstance(source, Profile) else read_profile(source, timeline=True)).page(device)
    if isinstance(source, (str, Path)):
        source = source_or_scan(str(source), given.pop("set", None))
    return (source if isinstance(source, Scan) else count(source, **given)).render("html")


def _trace(source: Any) -> Any:
    return find_trace(source) if isinstance(source, (str, Path)) else None
