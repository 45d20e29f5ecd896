"""Several models side by side, and what differs between two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import opcost
from opcost.analysis.compare import costs_of, diff
from opcost.core.report import Report
from opcost.core.results import Comparison, Entry
from opcost.errors import InputError, UnknownName, UnknownSource

ROWS, WIDTH, HIDDEN, CLASSES = 3, 8, 16, 5


def net(*layers: nn.Module) -> Report:
    return opcost.count(nn.Sequential(*layers), torch.ones(ROWS, WIDTH))


@pytest.fixture
def small() -> Report:
    return net(nn.Linear(WIDTH, CLASSES, bias=False))


@pytest.fixture
def large() -> Report:
    return net(nn.Linear(WIDTH, HIDDEN, bias=False), nn.Sequential(nn.ReLU(), nn.Linear(HIDDEN, CLASSES, bias=False)))


def entry(comparison: Comparison, part: str, name: str, quantity: str) -> Entry:
    (found,) = [
        entry for entry in comparison.entries if (entry.part, entry.name, entry.quantity.name) == (part, name, quantity)
    ]
    return found


SMALL = ROWS * WIDTH * CLASSES
LARGE = ROWS * WIDTH * HIDDEN + ROWS * HIDDEN * CLASSES


def test_every_total_has_an_amount_for_each_source(small: Report, large: Report) -> None:
    found = opcost.compare(small, large, small)
    macs, params = found.total("macs"), found.total("params")
    assert macs is not None
    assert params is not None
    assert macs.amounts == (SMALL, LARGE, SMALL)
    assert params.amounts == (WIDTH * CLASSES, WIDTH * HIDDEN + HIDDEN * CLASSES, WIDTH * CLASSES)
    assert found.total("peak_memory").amounts == (small.peak_bytes, large.peak_bytes, small.peak_bytes)  # type: ignore[union-attr]


def test_a_kind_that_a_source_does_not_have_is_not_there(small: Report, large: Report) -> None:
    found = opcost.compare(small, large, by="kind", quantities=["macs", "ops"])
    assert entry(found, "kind", "matmul", "macs").amounts == (SMALL, LARGE)
    assert entry(found, "kind", "elementwise", "ops").present == (False, True)
    assert entry(found, "kind", "elementwise", "ops").amounts == (None, 1)


def test_modules_meet_by_their_path_down_to_a_depth(small: Report, large: Report) -> None:
    found = opcost.compare(small, large, by="module", quantities=["macs"])
    assert [one.name for one in found.of_part("module")] == ["0", "1"]
    assert entry(found, "module", "1", "macs").amounts == (None, ROWS * HIDDEN * CLASSES)
    deep = opcost.compare(small, large, by="module", quantities=["macs"], depth=None)
    assert [one.name for one in deep.of_part("module")] == ["0", "1", "1.0", "1.1"]


def test_a_path_is_listed_after_the_one_that_it_follows_in_its_own_model() -> None:
    class Net(nn.Module):
        def __init__(self, *names: str) -> None:
            super().__init__()
            for name in names:
                self.add_module(name, nn.Linear(WIDTH, WIDTH, bias=False))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.children():
                x = layer(x)
            return x

    reports = [
        opcost.count(Net(*names), torch.ones(ROWS, WIDTH)) for names in (("a", "b", "d"), ("a", "x", "b", "c", "d"))
    ]
    found = opcost.compare(*reports, by="module", quantities=["params"])
    assert [one.name for one in found.of_part("module")] == ["a", "x", "b", "c", "d"]


def test_what_is_named_can_be_counted_on_the_way(small: Report) -> None:
    found = opcost.compare(small, nn.Linear(WIDTH, HIDDEN), shapes=(ROWS, WIDTH), labels=["a", "b"])
    assert [source.label for source in found.sources] == ["a", "b"]
    assert found.total("macs").amounts == (SMALL, ROWS * WIDTH * HIDDEN)  # type: ignore[union-attr]
    assert found.sources[1].facts["inputs"] == f"input:{ROWS}x{WIDTH}"


def test_two_sources_of_one_name_get_different_labels(small: Report, large: Report) -> None:
    found = opcost.compare(small, large, labels=["net", "net"])
    assert [source.label for source in found.sources] == ["net", "net (2)"]


def test_wrong_options_are_refused(small: Report) -> None:
    with pytest.raises(UnknownName, match="did you mean 'module'"):
        opcost.compare(small, small, by="modules")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="did you mean 'macs'"):
        opcost.compare(small, small, quantities=["mac"])
    with pytest.raises(InputError, match="1 labels for 2 sources"):
        opcost.compare(small, small, labels=["a"])
    with pytest.raises(InputError, match="do not apply to saved reports"):
        opcost.compare(small, small, shapes=(1, 2))


# -- what differs ------------------------------------------------------------------------------------------------------


def test_equal_reports_do_not_differ(small: Report) -> None:
    found = diff(costs_of(small, "a"), costs_of(small, "b"))
    assert not found
    assert found.total("macs").difference == 0  # type: ignore[union-attr]


def test_what_is_only_in_one_is_listed_once_with_all_that_is_below_it(small: Report, large: Report) -> None:
    found = diff(costs_of(small, "a"), costs_of(large, "b"))
    assert {(one.name, one.change) for one in found.of_part("module")} == {("0", "changed"), ("1", "added")}
    assert entry(found, "module", "1", "macs").difference == ROWS * HIDDEN * CLASSES
    assert entry(found, "module", "0", "macs").difference == ROWS * WIDTH * HIDDEN - SMALL
    back = diff(costs_of(large, "b"), costs_of(small, "a"))
    assert entry(back, "module", "1", "macs").change == "removed"
    assert entry(back, "kind", "elementwise", "ops").change == "removed"


@pytest.mark.parametrize("quantity", ["params", "macs", "flops", "activations", "bytes_read", "ops"])
def test_the_changes_of_modules_add_up_to_the_change_of_the_whole(small: Report, large: Report, quantity: str) -> None:
    found = diff(costs_of(small, "a"), costs_of(large, "b"))
    parts = [one.difference or 0 for one in found.of_part("module") if one.quantity.name == quantity]
    assert sum(parts) == found.total(quantity).difference != 0  # type: ignore[union-attr]


def test_a_module_that_costs_nothing_is_still_added(small: Report) -> None:
    other = net(nn.Linear(WIDTH, CLASSES, bias=False), nn.Identity())
    found = diff(costs_of(small, "a"), costs_of(other, "b"))
    assert [(one.name, one.type, one.change) for one in found.of_part("module")] == [("1", "Identity", "added")]


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """The weights of the larger net."""
    stored = {
        "0.weight": np.zeros((HIDDEN, WIDTH), "float32"),
        "1.1.weight": np.zeros((CLASSES, HIDDEN), "float32"),
    }
    path = tmp_path / "net.npz"
    np.savez(path, **stored)
    return path


def test_of_a_checkpoint_only_parameters_and_their_bytes_are_known(large: Report, weights: Path) -> None:
    params = WIDTH * HIDDEN + HIDDEN * CLASSES
    for source in (weights, opcost.scan(weights)):
        found = opcost.compare(large, source, by="module", depth=None, quantities=["params", "macs"])
        assert found.total("params").amounts == (params, params)  # type: ignore[union-attr]
        assert found.total("param_bytes").amounts == (4 * params, 4 * params)  # type: ignore[union-attr]
        assert found.total("macs").amounts == (LARGE, None)  # type: ignore[union-attr]
        assert entry(found, "module", "1", "params").amounts == (HIDDEN * CLASSES, HIDDEN * CLASSES)
        assert entry(found, "module", "1", "macs").amounts == (ROWS * HIDDEN * CLASSES, None)
        assert entry(found, "module", "1", "macs").present == (True, True)
    kinds = opcost.compare(large, weights, by="kind")
    assert entry(kinds, "kind", "matmul", "macs").amounts == (LARGE, None)


def test_what_a_checkpoint_does_not_tell_is_no_difference(large: Report, small: Report, weights: Path) -> None:
    stored = costs_of(opcost.scan(weights), "weights")
    assert not diff(
        costs_of(large, "net"), stored
    )  # it has no activations, no operators, and no module without weights
    found = diff(costs_of(small, "net"), stored)
    assert {(one.name, one.change, one.quantity.name) for one in found.of_part("module")} == {
        ("0", "changed", "params"),
        ("0", "changed", "param_bytes"),
        ("1", "added", "params"),
        ("1", "added", "param_bytes"),
    }
    assert entry(found, "module", "0", "params").difference == WIDTH * HIDDEN - WIDTH * CLASSES


def test_a_source_that_nothing_reads_is_the_error_of_counting(tmp_path: Path, small: Report) -> None:
    (tmp_path / "x.txt").write_text("nothing")
    with pytest.raises(UnknownSource, match=r"x\.txt"):
        opcost.compare(small, tmp_path / "x.txt")


def test_a_device_adds_the_latency_that_is_predicted_there() -> None:
    sources = [nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, HIDDEN)]
    found = opcost.compare(*sources, shapes=(ROWS, WIDTH), device="h200")
    predicted = [opcost.predict(source, shapes=(ROWS, WIDTH), device="h200").latency_ns for source in sources]
    assert entry(found, "total", "", "latency").amounts == tuple(predicted)
    assert predicted[0] > 0
    assert "latency" in str(found)
    assert all(each.quantity.name != "latency" for each in opcost.compare(*sources, shapes=(ROWS, WIDTH)).entries)
