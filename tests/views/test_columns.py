"""Lines as columns and data frames: the names of `--columns`, exact numbers, and libraries only when they are requested."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import opcost
from opcost.analysis.query import query
from opcost.core.graph import TensorSpec
from opcost.core.profile import ProfileRow
from opcost.core.rendering import LARGEST, pandas_frame, polars_frame
from opcost.core.report import Report
from opcost.errors import MissingFramework
from opcost.profiles import Profile
from opcost.views.profile import answer_columns
from opcost.views.report import EVERY_BY, columns_of

LIBRARIES = ["pandas", "polars"]


@pytest.fixture
def profile() -> Profile:
    shapes = (TensorSpec((2, 3)), TensorSpec((3, 4)))
    rows = [ProfileRow(id=i, name=f"fc{i}", type="mm", host_self_ns=10**i, ins=shapes) for i in range(1, 4)]
    return Profile(meta={"source": "x", "format": "own"}, rows=tuple(rows))


@pytest.mark.parametrize("by", EVERY_BY)
def test_columns_of_a_report_are_called_as_on_the_command_line(odd: Report, by: Any) -> None:
    found = odd.to_dict(by=by)
    assert set(found) <= set(columns_of(by, 0))
    again = odd.to_dict(by=by, columns=list(found))
    assert again == found
    assert len({len(values) for values in found.values()}) == 1


def test_the_numbers_are_those_of_the_report(plain: Report) -> None:
    rows = plain.to_dict()
    assert rows["macs"] == [row.cost.macs for row in plain.rows if row.cost]
    assert sum(rows["macs"]) == plain.totals.macs
    modules = plain.to_dict(by="module")
    assert modules["path"] == [module.path for module in plain.modules]
    assert modules["params"] == [module.total.params for module in plain.modules]
    kinds = plain.to_dict(by="kind")
    assert dict(zip(kinds["kind"], kinds["macs"], strict=True)) == {g.key: g.stats.macs for g in plain.by_kind()}


def test_the_unknown_is_none(odd: Report) -> None:
    uncosted = [row.cost is None for row in odd.rows]
    assert any(uncosted)
    assert [macs is None for macs in odd.to_dict()["macs"]] == uncosted


def test_lines_of_a_profile(profile: Profile) -> None:
    found = profile.to_dict()
    assert list(found) == list(answer_columns(profile.query()))
    assert found["name"] == ["fc3", "fc2", "fc1"]
    assert found["time"] == [1000, 100, 10]
    assert found["in_shapes"] == ["2x3 3x4"] * 3
    assert profile.to_dict(aggregate_by="type")["count"] == [3]
    assert query(profile, top=1).to_dict(columns="name,time") == {"name": ["fc3"], "time": [1000]}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_data_frame_holds_the_same(odd: Report, profile: Profile, library: str) -> None:
    pytest.importorskip(library)
    for subject, options in ((odd, {}), (odd, {"by": "module"}), (odd, {"by": "kind"}), (profile, {})):
        frame = getattr(subject, f"to_{library}")(**options)
        columns = subject.to_dict(**options)
        assert list(frame.columns) == list(columns)
        assert len(frame) == len(next(iter(columns.values())))
        for name, values in columns.items():
            read = frame[name].to_list() if library == "polars" else [_plain(value) for value in frame[name]]
            assert read == values, name


def _plain(value: Any) -> Any:
    return None if str(value) in ("<NA>", "nan") else value


def test_large_and_unknown_whole_numbers_stay_exact() -> None:
    columns: dict[str, list[Any]] = {"macs": [2**60 + 1, None, 3], "vast": [LARGEST * 4, None, 1]}
    pandas, polars = pandas_frame(columns), polars_frame(columns)
    assert pandas["macs"][0] == polars["macs"][0] == 2**60 + 1
    assert pandas["vast"][0] == polars["vast"][0] == LARGEST * 4
    assert polars["macs"][1] is None


def test_scans_and_comparisons_have_columns_too(plain: Report, odd: Report) -> None:
    found = opcost.compare(plain, odd).to_dict()
    assert len({len(values) for values in found.values()}) == 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_that_is_missing_is_named(plain: Report, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingFramework, match=f"needs the package {library}, which is not installed") as caught:
        getattr(plain, f"to_{library}")()
    assert f"pip install {library}" in str(caught.value)
    assert plain.to_dict()


def test_no_library_is_imported_by_a_count_and_its_columns() -> None:
    import subprocess

    code = (
        "import sys, opcost; from opcost.core.report import Report; import opcost.views.results, opcost.views.notebook; "
        "print({'pandas', 'polars', 'numpy', 'torch', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
