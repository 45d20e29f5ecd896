"""What `import opcost` promises."""

from __future__ import annotations

import inspect
import re
from importlib import metadata
from pathlib import Path
from types import ModuleType

import opcost


def test_the_public_names_are_exactly_those_listed() -> None:
    public = {
        name for name in dir(opcost) if not name.startswith("_") and not isinstance(getattr(opcost, name), ModuleType)
    }
    assert public - {"annotations"} == {name for name in opcost.__all__ if not name.startswith("_")}


def test_the_list_of_public_names_is_sorted_and_short() -> None:
    assert list(opcost.__all__) == sorted(opcost.__all__)
    assert len(opcost.__all__) <= 27


def test_every_listed_name_is_there_and_documented() -> None:
    for name in opcost.__all__:
        value = getattr(opcost, name)
        assert name == "__version__" or value.__doc__, name


def test_the_version_is_the_same_everywhere() -> None:
    assert opcost.__version__ == metadata.version("opcost")


def test_the_reference_has_every_public_name(root: Path) -> None:
    shown = re.findall(r"^::: (\S+)$", (root / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    for name in opcost.__all__:
        if not name.startswith("_"):
            home = inspect.unwrap(getattr(opcost, name)).__module__
            assert f"{home}.{name}" in shown or home in shown, name
