"""A report or a profile as a picture for papers and READMEs: treemap, flame, curve of memory, or roofline; as SVG or PNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from opcost.core.answer import Answer
from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.errors import InputError, UnknownName
from opcost.views.options import ViewOptions
from opcost.views.svg.drawing import Drawing
from opcost.views.svg.profile_pictures import profile_flame
from opcost.views.svg.raster import png_of
from opcost.views.svg.report_pictures import memory_curve, report_flame, roofline, treemap
from opcost.views.view import PackedView, ProfileView, ReportView, View

Picture: TypeAlias = Literal["treemap", "flame", "memory", "roofline"]


@dataclass(frozen=True, kw_only=True)
class SvgOptions(ViewOptions):
    """Which picture, of what, and how large."""

    picture: Picture = "treemap"
    quantity: str = ""
    """What areas of a treemap or a flame are: params, macs, flops, activations, bytes, ...; empty: MACs, else parameters."""
    on: str = ""
    """The device of a roofline; empty: the one that memory is told of, else h200."""
    size: tuple[int, int] = (960, 560)


@dataclass(frozen=True, kw_only=True)
class FlameOptions(ViewOptions):
    """How large; what a profile is drawn as is a flame view of its times by module, operator and kernel."""

    profile: Profile | None = None
    """What was asked."""
    size: tuple[int, int] = (960, 460)


def _build(report: Report, options: SvgOptions) -> Drawing:
    width, height = map(float, options.size)
    quantity = options.quantity or ("macs" if report.totals.macs else "params")
    match options.picture:
        case "treemap":
            return treemap(report, width, height, quantity)
        case "flame":
            return report_flame(report, width, height, quantity)
        case "memory":
            return memory_curve(report, width, height)
        case "roofline":
            return roofline(
                report, width, height, options.on or (report.memory.device if report.memory else "") or "h200"
            )
    raise UnknownName("picture", str(options.picture), get_args(Picture))


def _flame(answer: Answer, options: FlameOptions) -> Drawing:
    if options.profile is None:
        raise InputError("a flame view is drawn of a whole profile, not of lines", hint="profile.save, or profile=")
    return profile_flame(options.profile, answer, *map(float, options.size))


def _write(drawing: Drawing, options: object) -> str:
    return str(drawing)


def _pack(drawing: Drawing, options: object) -> bytes:
    return png_of(drawing)


REPORT: ReportView = View(name="svg", suffix=".svg", options=SvgOptions, build=_build, write=_write)
ANSWER: ProfileView = View(name="svg", suffix=".svg", options=FlameOptions, build=_flame, write=_write)
PNG: ReportView = PackedView(name="png", suffix=".png", options=SvgOptions, build=_build, write=_write, pack=_pack)
ANSWER_PNG: ProfileView = PackedView(
    name="png", suffix=".png", options=FlameOptions, build=_flame, write=_write, pack=_pack
)
