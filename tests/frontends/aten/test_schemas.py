"""The schemas that are shipped say what PyTorch says, and are read without it."""

from __future__ import annotations

import importlib.util
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from opcost.frontends.aten.schema import Schema, is_implicit, parse, shipped

FILE = files("opcost.frontends.aten") / "schemas.txt"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shipped_schemas", Path(__file__).with_name("shipped_schemas.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shipped_schemas_are_those_of_the_installed_torch() -> None:
    """Another version of torch may have more; what both have takes the same arguments first."""
    made = {line.partition("(")[0]: line for line in generator().lines()}
    stored = {line.partition("(")[0]: line for line in FILE.read_text().splitlines()}
    if torch.__version__.startswith("2.13."):
        assert stored == made
    both = stored.keys() & made.keys()
    assert len(both) > 0.9 * len(stored)
    for name in both:
        names = [[argument.name for argument in parse(line).arguments] for line in (stored[name], made[name])]
        shorter = min(map(len, names))
        assert names[0][:shorter] == names[1][:shorter]


def test_what_pytorch_takes_apart_is_what_its_dispatcher_says() -> None:
    made, stored = (
        set(generator().implicit()),
        set((files("opcost.frontends.aten") / "implicit.txt").read_text().split()),
    )
    if torch.__version__.startswith("2.13."):
        assert stored == made
    assert len(stored & made) > 0.9 * len(stored)


@pytest.mark.parametrize(
    ("name", "overload", "expected"),
    [
        ("aten::linear", "", True),
        ("aten::mm", "", False),
        ("aten::var", "", True),  # calls the one with a correction, which is a kernel
        ("aten::var", "correction", False),
        ("aten::silu_backward", "", False),  # has parts for devices without a kernel; those that are traced have one
        ("mylib::linear", "", False),
    ],
)
def test_an_overload_is_taken_apart_or_kept_whole(name: str, overload: str, expected: bool) -> None:
    assert is_implicit(Schema(name, overload, (), ())) is expected


def _facts(schema: Any) -> list[Any]:
    """What torch's own object says."""
    aliases = [argument.alias_info for argument in (*schema.arguments, *schema.returns)]
    return [
        schema.name,
        schema.overload_name,
        [(argument.name, argument.default_value, argument.is_out) for argument in schema.arguments],
        [bool(alias and alias.is_write) for alias in aliases],
        [returned.alias_info is not None for returned in schema.returns],
        ["Tensor" in str(returned.type) for returned in schema.returns],
    ]


def test_every_schema_is_parsed_as_torch_parses_it() -> None:
    texts = set(generator().dispatched())
    seen = 0
    for schema in torch._C._jit_get_all_schemas():
        if str(schema) not in texts or "..." in str(schema):
            continue
        found = parse(str(schema))
        seen += 1
        assert _facts(schema) == [
            found.name,
            found.overload,
            [(argument.name, argument.default, argument.out) for argument in found.arguments],
            [argument.writes for argument in (*found.arguments, *found.returns)],
            [bool(returned.alias) for returned in found.returns],
            [returned.is_tensor for returned in found.returns],
        ]
    assert seen > 3000


def test_one_schema_is_found_without_the_others() -> None:
    schema = shipped("aten::max_pool2d", "")
    assert schema is not None
    assert [(argument.name, argument.default) for argument in schema.arguments][1:4] == [
        ("kernel_size", None),
        ("stride", []),
        ("padding", [0, 0]),
    ]
    assert shipped("aten::add", "Tensor") != shipped("aten::add", "Scalar")
    assert shipped("aten::unknown", "") is None
    assert shipped("aten::ad", "") is None


@pytest.mark.parametrize(
    ("name", "is_shipped"),
    [
        ("aten::add.out", False),
        ("aten::_test_warn_in_autograd", False),
        ("aten::_foreach_add.List", True),
        ("aten::cudnn_convolution", True),
    ],
)
def test_what_programs_and_traces_hold_is_shipped_and_no_more(name: str, is_shipped: bool) -> None:
    assert (f"{name}(" in FILE.read_text()) is is_shipped
