from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from opcost.core.kinds import KINDS
from opcost.core.report import STATS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_rules_is_up_to_date() -> None:
    render = runpy.run_path(str(DOCS / "generate_rules.py"))["render"]
    assert (DOCS / "rules.md").read_text(encoding="utf-8") == render(), "run: python docs/generate_rules.py"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_on_the_page_of_rules(kind: str) -> None:
    page = (DOCS / "rules.md").read_text(encoding="utf-8")
    assert (f"### {kind}\n" in page) == (kind != "unknown")


@pytest.mark.parametrize("quantity", [*STATS, "peak_bytes", "coverage"])
def test_every_quantity_is_on_the_page_of_quantities(quantity: str) -> None:
    assert f"`{quantity}`" in (DOCS / "quantities.md").read_text(encoding="utf-8")
