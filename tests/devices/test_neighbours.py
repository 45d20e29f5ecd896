"""The nearest timed operators: those that are found without looking at all are those of looking at all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from math import dist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.devices import neighbours as module
from opcost.devices.neighbours import LEAF, Near, Neighbours

# Few different coordinates: many places are equally far from another, and many are the same.
PLACES = st.integers(1, 4).flatmap(
    lambda axes: st.lists(
        st.tuples(*[st.sampled_from([0.0, 0.5, 1.0, 2.0, 0.7 * 3, 20.1])] * axes), min_size=1, max_size=4 * LEAF
    )
)


def neighbours(places: list[tuple[float, ...]]) -> tuple[Near, ...]:
    return tuple(Near(place, number / 7) for number, place in enumerate(places))


def scanned(near: Sequence[Near], place: tuple[float, ...], count: int) -> list[tuple[float, float]]:
    found = sorted((dist(one.place, place), number) for number, one in enumerate(near))
    return [(distance, near[number].ratio) for distance, number in found[:count]]


@given(PLACES, st.data(), st.integers(1, 4))
def test_the_nearest_are_those_of_a_full_scan(places: list[tuple[float, ...]], data: st.DataObject, count: int) -> None:
    near = neighbours(places)
    axes = len(places[0])
    place = data.draw(st.sampled_from(places) | st.tuples(*[st.floats(-1, 21)] * axes))
    wanted = scanned(near, place, count)
    made = Neighbours(near)
    assert made.closest(place, count) == wanted
    assert Neighbours(packed=made.packed()).closest(place, count) == wanted


def test_of_a_grid_the_first_of_those_that_are_equally_far_is_found() -> None:
    places = list(product(map(float, range(7)), repeat=3))
    random.Random(0).shuffle(places)
    near = neighbours(places)
    made = Neighbours(near)
    # A place of the grid has six at the same distance; between eight of them all eight are equally far.
    for place in product((0.0, 2.5, 3.0, 6.0), repeat=3):
        for count in (1, 3, 5):
            assert made.closest(place, count) == scanned(near, place, count)


@given(PLACES)
def test_what_is_unpacked_is_what_was_packed_in_its_order(places: list[tuple[float, ...]]) -> None:
    made = Neighbours(neighbours(places))
    found = Neighbours(packed=made.packed())
    assert tuple(found) == tuple(made) == neighbours(places)
    assert found == made != Neighbours(neighbours([*places, places[0]]))


def test_of_many_only_those_around_the_place_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(module, "dist", lambda one, other: looked.append(one) or dist(one, other))
    side = 64
    made = Neighbours(neighbours([(float(i), float(j)) for i in range(side) for j in range(side)]))
    assert [distance for distance, _ in made.closest((10.25, 40.0), 3)] == [0.25, 0.75, (0.25**2 + 1) ** 0.5]
    # The place is in one leaf, and few of the cuts around it are nearer than the third that was found.
    assert len(looked) < 3 * LEAF
