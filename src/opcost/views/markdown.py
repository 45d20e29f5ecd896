"""For a README: sheets as GitHub tables, with everything else to know below them; and the badge of a report."""

from collections.abc import Iterable, Sequence
from functools import cache

from opcost.core.escaping import markdown_text
from opcost.core.report import Report
from opcost.core.sheet import Sheet, Table
from opcost.core.units import format_count
from opcost.views.results import sheet_view
from opcost.views.text import phase_rows
from opcost.views.view import Build, View, ViewOptions, column_texts


def _write(sheet: Sheet, options: ViewOptions) -> str:
    totals = [(total.label.replace("  ", "&emsp;"), total.human, total.exact) for total in sheet.totals]
    parts = [[f"**{markdown_text(sheet.answer)}**"], _bullets(" ".join(line.split()) for line in sheet.heading)]
    for table in (table.narrow for table in sheet.tables):
        if not table.main:
            parts.append([f"**{markdown_text(table.title)}**"])
        parts += [_table(table, exact=options.exact), [f"*{markdown_text(remark)}*" for remark in table.remarks]]
    parts += [
        _rows([("total", "", "exact"), *totals], "lrr") if totals else [],
        _rows(phase_rows(sheet.phases), "lrrrr") if sheet.phases else [],
        [markdown_text(" · ".join(sheet.conventions))] if sheet.conventions else [],
    ]
    for section in sheet.sections:
        parts.append([f"**{markdown_text(section.title)}**"])
        parts.append(_bullets(section.lines))
        parts.append([markdown_text(section.hint)] if section.hint else [])
    parts.append(_bullets(sheet.facts))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {markdown_text(line)}" for line in lines]


def _rows(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """The first row as the head; `sides` aligns the columns: `lrr`."""
    rules = [":---" if side == "l" else "---:" for side in sides]
    return ["| " + " | ".join(row) + " |" for row in (rows[0], rules, *rows[1:])]


def _table(table: Table, *, exact: bool) -> list[str]:
    places = [place for place in table.visible if not (table.order and table.fields[place].extra)]
    fields = [table.fields[place] for place in places]
    cells = [_cells(table, place, exact=exact) for place in places]
    rows = [[markdown_text(field.header) for field in fields], *zip(*cells, strict=True)]
    return _rows(rows, "".join("l" if field.textual else "r" for field in fields))


def _cells(table: Table, place: int, *, exact: bool) -> list[str]:
    """The cells of one column; equal ones are made once."""
    field = table.fields[place]
    code = field.unit == "name" or field.name == "op"
    tree = field.name == "module"

    @cache
    def cell(depth: int, text: str, role: str) -> str:
        # A web page drops leading blanks, and the guides of a tree do not meet there; a level is a wide blank.
        before = "&emsp;" * depth if tree else ""
        if not text:
            return before
        if role != "row":
            return f"{before}**{markdown_text(text)}**"
        is_code = code and not set(text) & set("`|\\")  # which code cannot hold in a table
        return f"{before}`{text}`" if is_code else before + markdown_text(text)

    texts = column_texts(table, place, exact=exact)
    return [cell(line.depth, text, line.role) for line, text in zip(table.lines, texts, strict=True)]


MD = sheet_view("md", _write, "exact", suffix=".md")


# -- the badge: parameters, MACs and FLOPs, as SVG and as a line of text -------------------------------------------------

HEIGHT, GAP = 20, 4
LETTER, PADDING = 6.4, 12  # pixels: the average width of a letter, and what is free beside a word
GREY, BLUE = "#4a525c", "#0a5fa8"


def badge_numbers(report: Report, options: object) -> list[tuple[str, str]]:
    """The words and numbers; where operators are not counted, sums are lower bounds."""
    least = "≥" if report.totals.uncounted else ""
    return [
        ("params", format_count(report.totals.params)),
        ("MACs", f"{least}{format_count(report.totals.macs)}"),
        ("FLOPs", f"{least}{format_count(report.totals.flops)}"),
    ]


def badge_svg(numbers: list[tuple[str, str]], options: object) -> str:
    """Pairs of a word on grey and a number on blue."""
    shapes: list[str] = []
    x = 0.0
    for pair in numbers:
        for text, colour in zip(pair, (GREY, BLUE), strict=True):
            width = len(text) * LETTER + PADDING
            shapes += [
                f'<rect x="{x:g}" y="0" width="{width:g}" height="{HEIGHT}" fill="{colour}"/>',
                f'<text x="{x + width / 2:g}" y="14" fill="#fff" text-anchor="middle">{text}</text>',
            ]
            x += width
        x += GAP
    width = x - GAP
    size = f'width="{width:g}" height="{HEIGHT}" viewBox="0 0 {width:g} {HEIGHT}"'
    fonts = 'font-family="Helvetica, Arial, sans-serif" font-size="11"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {fonts} role="img">',
            f"<title>{', '.join(f'{word} {number}' for word, number in numbers)}</title>",
            f'<rect width="{width:g}" height="{HEIGHT}" fill="#fff"/>',
            *shapes,
            "</svg>\n",
        ]
    )


_BUILDS = {"report": Build("", badge_numbers)}
SVG = View(name="svg", suffix=".svg", builds=_BUILDS, write=badge_svg)
BADGE = View(
    name="badge", builds=_BUILDS, write=lambda numbers, _: " · ".join(f"{n} {word}" for word, n in numbers) + "\n"
)
