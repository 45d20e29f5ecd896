"""Which of many cases of one rule are tried: a sample with the tests, all of them with `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

FULL = bool(os.environ.get("OPCOST_FULL"))

T = TypeVar("T")


def sampled(cases: Iterable[T], *, every: int) -> list[T]:
    """Each `every`-th case, beginning with the first."""
    return [*cases][:: 1 if FULL else every]


def chosen(cases: Iterable[T], *names: T) -> list[T]:
    """The cases of these names."""
    found = [*cases]
    assert {*names} <= {*found}, {*names} - {*found}
    return found if FULL else [*names]
