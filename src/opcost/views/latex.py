"""For a paper: the tables of a sheet with booktabs, its answer as the caption; what else there is to know as comments."""

from collections.abc import Iterable, Sequence

from opcost.core.escaping import latex_text, printable
from opcost.core.sheet import Field, Line, Sheet, Table
from opcost.errors import some
from opcost.views.results import sheet_view
from opcost.views.text import phase_rows
from opcost.views.view import ViewOptions, column_texts, ranked_places

COLUMNS = 7  # beside each other on a page, unless the caller named them
PAGE = 45  # lines of a table that is on one page; a longer one continues on the next
INDENT = r"\quad "


def _write(sheet: Sheet, options: ViewOptions) -> str:
    caption = sheet.answer
    packages = "\\usepackage{booktabs}  and for tables of several pages \\usepackage{longtable}"
    parts = [_comments([packages, sheet.answer, *sheet.heading])]
    for table in (table.narrow for table in sheet.tables):
        title = caption if table.main else f"{caption}: {table.title}"
        parts.append(_table(table, title, exact=options.exact))
    totals = [(total.label, total.human, total.exact) for total in sheet.totals]
    if totals:
        parts.append(_tabular([("total", "", "exact"), *map(_cells, totals)], "lrr", f"{caption}: totals"))
    if sheet.phases:
        parts.append(_tabular([*map(_cells, phase_rows(sheet.phases))], "lrrrr", f"{caption}: phases"))
    for section in sheet.unplotted:
        lines = [section.title, *(f"  {line}" for line in (*section.lines, section.hint) if line)]
        parts.append([_paragraph(lines)] if section.urgent else _comments(lines))
    parts.append(_comments(filter(None, (" · ".join(sheet.conventions), *sheet.facts))))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _comments(lines: Iterable[str]) -> list[str]:
    return [f"% {printable(line)}" for line in lines]


def _paragraph(lines: Iterable[str]) -> str:
    return rf"\par{{\footnotesize {'; '.join(latex_text(line.strip()) for line in lines)}\par}}"


def _cells(row: Iterable[str]) -> list[str]:
    """Plain texts as cells, those that begin with blanks further to the right."""
    return [INDENT * text.startswith(" ") + latex_text(text.strip()) for text in row]


def _table(table: Table, caption: str, *, exact: bool) -> list[str]:
    places, left_out = ranked_places(table, COLUMNS)
    fields = [table.fields[place] for place in places]
    texts = [column_texts(table, place, exact=exact) for place in places]
    columns = [
        [_cell(line, text, field) for line, text in zip(table.lines, column, strict=True)]
        for field, column in zip(fields, texts, strict=True)
    ]
    rows = [[latex_text(field.header) for field in fields], *map(list, zip(*columns, strict=True))]
    sums = sum(line.role == "total" for line in table.lines)
    sides = "".join("l" if field.textual else "r" for field in fields)
    drawn = _tabular(rows, sides, caption, sums=sums, remarks=table.remarks)
    return [*drawn, *_comments([f"no room for {', '.join(some(left_out))}"])] if left_out else drawn


def _cell(line: Line, text: str, field: Field) -> str:
    written = latex_text(text)
    if not field.textual and text.startswith("-"):
        written = f"$-${written[1:]}"
    if written and field.unit == "name":
        written = rf"\texttt{{{written}}}"
    if written and line.role != "row":
        written = rf"\textbf{{{written}}}"
    return INDENT * line.depth + written if field.name == "module" else written


def _tabular(
    rows: Sequence[Sequence[str]], sides: str, caption: str, *, sums: int = 0, remarks: Sequence[str] = ()
) -> list[str]:
    """The first row as the head, the last ones as sums; `sides` aligns the columns: `lrr`."""
    head, *lines = [f"  {' & '.join(row)} \\\\" for row in rows]
    body = [*lines[: len(lines) - sums], *([r"  \midrule", *lines[len(lines) - sums :]] if sums else [])]
    notes = [_paragraph(remarks)] if remarks else []
    title = rf"\caption{{{latex_text(caption)}}}"
    if len(lines) > PAGE:
        begin = [rf"\begin{{longtable}}{{{sides}}}", rf"{title} \\", r"  \toprule", head, r"  \midrule", r"  \endhead"]
        return [*begin, *body, r"  \bottomrule", r"\end{longtable}", *notes]
    begin = [
        r"\begin{table}",
        r"\centering",
        title,
        rf"\begin{{tabular}}{{{sides}}}",
        r"  \toprule",
        head,
        r"  \midrule",
    ]
    return [*begin, *body, r"  \bottomrule", r"\end{tabular}", *notes, r"\end{table}"]


LATEX = sheet_view("latex", _write, "exact", suffix=".tex")
