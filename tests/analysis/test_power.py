"""Clocks of a long run: they go with the cube root of what a device may draw."""

import pytest

from opcost.analysis.prediction.power import in_a_long_run, watts
from opcost.core.devices import DEVICES, device
from opcost.errors import InputError


def test_an_eighth_of_the_power_halves_the_clocks() -> None:
    found = device("h100")
    assert found.draw is not None
    assert in_a_long_run(found, found.draw) == 1.0
    assert in_a_long_run(found, found.draw // 8) == pytest.approx(2.0)
    assert in_a_long_run(found, 10 * found.draw) == 1.0  # the clocks of a calibration are the highest
    assert in_a_long_run(found, None) == in_a_long_run(found, 700) == pytest.approx(1.17, abs=0.001)
    assert in_a_long_run(device("h100-96gb"), None) == in_a_long_run(found, 500)
    assert in_a_long_run(device("a100"), None) == 1.0


def test_what_is_drawn_is_known_with_the_limit_alone() -> None:
    assert all(found.power is not None for found in DEVICES.values() if found.draw is not None)
    assert in_a_long_run(device("t4"), None) == 1.0
    with pytest.raises(InputError, match="t4"):
        in_a_long_run(device("t4"), 50)


def test_watts_are_typed_with_or_without_their_unit() -> None:
    assert [watts(text) for text in ("500W", "500", " 500 w")] == [500] * 3
    for text in ("", "W", "0W", "1.5kW", "-3"):
        with pytest.raises(InputError, match="no number of watts"):
            watts(text)
