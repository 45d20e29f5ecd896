"""A fixture for tests that hold models to budgets: `def test_budget(opcost): opcost.check(model, x, macs="<4.2G")`."""

from types import ModuleType

import pytest


@pytest.fixture(name="opcost", scope="session")
def opcost_fixture() -> ModuleType:
    """The package itself, whose `check` raises where a model costs more than it may, which fails the test."""
    import opcost

    return opcost
