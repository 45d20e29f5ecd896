from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.views.test_every_result import RESULTS

from opcost.core.escaping import latex_text
from opcost.core.report import Report
from opcost.core.sheet import Amount, Sheet, Table
from opcost.views.latex import PAGE


def rows(text: str) -> list[str]:
    """The rows of all tables, and what is between them."""
    return re.findall(r"^  (.*)$", text, re.MULTILINE)


def cells(row: str) -> list[str]:
    return row.removesuffix(r" \\").split(" & ")


@pytest.mark.parametrize("name", ["plain", "odd"])
def test_picture_in_latex(name: str, request: pytest.FixtureRequest, picture: SnapshotAssertion) -> None:
    assert request.getfixturevalue(name).render("latex") == picture


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_tables_with_as_many_cells_in_each_row_as_columns(name: str) -> None:
    text = RESULTS[name].render("latex")
    found = re.findall(r"\\begin\{(table|tabular|longtable)\}(?:\{(.*)\})?", text)
    assert found
    for kind in ("table", "tabular", "longtable"):
        assert text.count(rf"\begin{{{kind}}}") == text.count(rf"\end{{{kind}}}")
    for sides, body in re.findall(r"\\begin\{(?:tabular|longtable)\}\{([lr]+)\}\n(.*?)\\end", text, re.DOTALL):
        for row in rows(body):
            assert row.startswith("\\") or row.count(" & ") == len(sides) - 1, row


def test_names_are_indented_by_their_depth_and_numbers_are_at_the_right(plain: Report) -> None:
    text = plain.render("latex", columns="module,type,macs", depth=None, merge=False)
    lines = rows(text)
    assert r"\begin{tabular}{llr}" in text
    assert lines[1] == r"module & type & MACs \\"
    named = [cells(line)[0] for line in lines[3 : 3 + len(plain.modules)]]
    expected = [
        r"\quad " * module.depth + rf"\texttt{{{latex_text(module.name or module.type)}}}" for module in plain.modules
    ]
    assert named == expected


def test_sums_are_below_a_rule_of_their_own(plain: Report) -> None:
    lines = rows(plain.render("latex", by="kind", columns="kind,macs", exact=True))
    end = lines.index(r"\bottomrule")
    assert lines[end - 2 : end] == [r"\midrule", rf"\textbf{{total}} & \textbf{{{plain.totals.macs:,}}} \\"]


def test_a_table_of_more_lines_than_a_page_continues_on_the_next() -> None:
    def text(lines: int) -> str:
        return Sheet(
            heading=("net",), tables=(Table.of("t", "size:number", [(line,) for line in range(lines)]),)
        ).render("latex")

    assert "longtable}" not in text(PAGE).partition("\n")[2]
    assert text(PAGE + 1).count("{longtable}") == 3  # in the line of packages, begin and end
    assert r"\endhead" in text(PAGE + 1)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (r"a\b{c}", r"a\textbackslash{}b\{c\}"),
        ("50 % of $x_1^2 & #3", r"50 \% of \$x\_1\textasciicircum{}2 \& \#3"),
        ("≥1.2 µs – 3 × <y>", r"$\ge$1.2 $\mu$s \textendash{} 3 $\times$ \textless{}y\textgreater{}"),
        ("[x]* --merge", r"{[}x]{*} -{}-merge"),
        ("two\nlines\x1b", "two lines\ufffd"),
    ],
)
def test_no_character_is_a_command(text: str, escaped: str) -> None:
    assert latex_text(text) == escaped


def test_a_name_cannot_leave_its_cell_or_its_comment(plain: Report) -> None:
    hostile = "x & y \\\\ \\input{/etc/passwd} % \n\\end{document}"
    modules = [replace(module, type=hostile) if module.path == "head" else module for module in plain.modules]
    text = replace(plain, modules=tuple(modules), meta={**plain.meta, "source": hostile}).render("latex")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert "\\input" not in code
    assert "\\end{document}" not in code
    assert not any(line.startswith("\\end{document}") for line in text.splitlines())


def test_a_negative_number_has_a_minus_sign() -> None:
    def shown(value: Any) -> str:
        table = Table.of("t", "left:number", [(value,)])
        return rows(Sheet(heading=("net",), tables=(table,)).render("latex"))[3]

    assert shown(Amount(-2048, "bytes")) == r"$-$2.00 KiB \\"
    assert shown(7) == r"7 \\"
