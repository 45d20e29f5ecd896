from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from opcost.core.report import STATS, Report
from opcost.views.report import columns_of


def rows(report: Report, **options: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.render("csv", **options))))


def test_there_is_one_line_for_each_operator_with_exact_numbers(odd: Report) -> None:
    found = rows(odd)
    assert len(found) == len(odd.rows)
    for line, row in zip(found, odd.rows, strict=True):
        assert (line["index"], line["op"], line["kind"], line["module"]) == (
            str(row.op.id),
            row.op.raw,
            row.op.kind,
            row.op.module,
        )
        assert line["input"] == " ".join(map(str, row.ins))
        assert line["macs"] == ("" if row.cost is None else str(row.cost.macs * row.op.repeat))


def test_every_column_has_a_head_of_its_own_name(odd: Report) -> None:
    assert list(rows(odd)[0]) == list(columns_of("op", 0))
    assert set(columns_of("module", 0)) - set(rows(odd, by="module")[0]) == {"module", "note"}


def test_modules_have_paths_and_all_their_quantities(odd: Report) -> None:
    found = rows(odd, by="module")
    assert [line["path"] for line in found] == [module.path for module in odd.modules]
    assert [line["type"] for line in found] == [module.type for module in odd.modules]
    for line, module in zip(found, odd.modules, strict=True):
        for name in STATS:
            assert line[name] == str(getattr(module.total, name))
            assert line[f"own_{name}"] == str(getattr(module.own, name))


@pytest.mark.parametrize(
    ("by", "top"), [("op", None), ("op", 2), ("kind", None), ("kind", 1), ("type", 2), ("module", 3)]
)
def test_a_reader_who_adds_up_a_column_gets_the_total_once(plain: Report, by: str, top: int | None) -> None:
    for name in ("macs", "flops", "bytes", "activations"):
        total = plain.totals.bytes_read + plain.totals.bytes_written if name == "bytes" else getattr(plain.totals, name)
        assert sum(int(line[name]) for line in rows(plain, by=by, top=top)) == total


def test_text_with_commas_quotes_and_lines_comes_back(plain: Report) -> None:
    assert rows(plain, by="module", columns="path,extra")[1]["extra"] == plain.modules[1].extra
    assert "," in plain.modules[1].extra


def test_columns_can_be_chosen(plain: Report) -> None:
    text = plain.render("csv", by="kind", columns="kind,macs", sort="+kind")
    kinds = sorted({row.op.kind for row in plain.rows})
    assert text.splitlines()[0] == "kind,macs"
    assert [line.split(",")[0] for line in text.splitlines()[1:]] == kinds


def test_a_file_is_written_by_its_suffix(plain: Report, tmp_path: Path) -> None:
    plain.save(str(tmp_path / "net.csv"), by="type")
    assert (tmp_path / "net.csv").read_text(encoding="utf-8") == plain.render("csv", by="type")


def test_a_report_without_operators_has_only_heads(big: Any) -> None:
    assert big(0, 0).render("csv", columns="op,macs") == "op,macs\n"
