"""Settings and arguments that are typed."""

from __future__ import annotations

import pytest

from opcost.cli.flags import parse_settings
from opcost.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("depth=50", 50),
        ("rate=0.1", 0.1),
        ("layers=[3, 4, 6, 3]", [3, 4, 6, 3]),
        ("act=relu", "relu"),
        ("name='relu'", "relu"),
        ("flag=True", True),
        ("flag=false", False),
        ("norm=None", None),
        ("path=a=b", "a=b"),
        ("empty=", ""),
        ("bad=[1,", "[1,"),
        ("bad={[]: 1}", "{[]: 1}"),
    ],
)
def test_a_setting_is_a_literal_where_it_is_one_and_text_otherwise(text: str, value: object) -> None:
    (found,) = parse_settings([text], "--set").values()
    assert found == value
    assert type(found) is type(value)


def test_dotted_names_are_kept_for_nested_configurations() -> None:
    assert parse_settings(["text_config.hidden_size=64"], "--set") == {"text_config.hidden_size": 64}


@pytest.mark.parametrize("pairs", [["depth"], ["=3"], ["a b=3"], ["1a=3"], ["a=1", "a=2"]])
def test_a_setting_that_is_no_pair_or_is_given_twice_is_refused(pairs: list[str]) -> None:
    with pytest.raises(InputError):
        parse_settings(pairs, "--set")
