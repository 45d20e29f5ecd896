"""A report as a picture for papers and READMEs: a treemap, the curve of memory, or a roofline, as one SVG file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from opcost.core.report import Report
from opcost.errors import UnknownName
from opcost.views.options import ViewOptions
from opcost.views.svg.drawing import Drawing
from opcost.views.svg.report_pictures import memory_curve, roofline, treemap
from opcost.views.view import ReportView, View

Picture: TypeAlias = Literal["treemap", "memory", "roofline"]


@dataclass(frozen=True, kw_only=True)
class SvgOptions(ViewOptions):
    """Which picture, of what, and how large."""

    picture: Picture = "treemap"
    quantity: str = ""
    """What areas of a treemap are: params, macs, flops, activations, bytes, ...; empty: MACs, or parameters without any."""
    on: str = ""
    """The device of a roofline; empty: the one that memory is told of, else h200."""
    size: tuple[int, int] = (960, 560)


def _build(report: Report, options: SvgOptions) -> Drawing:
    width, height = map(float, options.size)
    match options.picture:
        case "treemap":
            return treemap(report, width, height, options.quantity or ("macs" if report.totals.macs else "params"))
        case "memory":
            return memory_curve(report, width, height)
        case "roofline":
            return roofline(report, width, height, options.on or report.memory.device or "h200")
    raise UnknownName("picture", str(options.picture), get_args(Picture))


def _write(drawing: Drawing, options: SvgOptions) -> str:
    return str(drawing)


REPORT: ReportView = View(name="svg", suffix=".svg", options=SvgOptions, build=_build, write=_write)
