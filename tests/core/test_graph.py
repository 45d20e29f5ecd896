from __future__ import annotations

from dataclasses import replace

import pytest

from opcost.core.graph import NO_ATTRS, Graph, Module, Op, TensorSpec, Value
from opcost.errors import GraphError

SPEC = TensorSpec((2, 3))
GOOD = Graph(
    source="test",
    framework="none",
    values=(
        Value(0, "x", SPEC, "input", 0),
        Value(1, "weight", SPEC, "param", 1),
        Value(2, "y", SPEC, "activation", 2),
        Value(3, "z", SPEC, "activation", 3),
    ),
    ops=(
        Op(0, "elementwise", "test::mul", (0, 1), (2,), {"fn": "mul"}, "layer"),
        Op(1, "view", "test::view", (2,), (3,), NO_ATTRS, "layer.inner"),
    ),
    modules=(
        Module(path="", type="Net"),
        Module(path="layer", type="Layer", parameters=(("weight", 1),)),
        Module(path="layer.inner", type="Inner"),
    ),
    inputs=(0,),
    outputs=(3,),
)


def test_a_sound_graph_passes() -> None:
    GOOD.check()


def test_a_value_under_a_wrong_number_is_named() -> None:
    values = (GOOD.values[0], GOOD.values[1]._replace(id=7), *GOOD.values[2:])
    with pytest.raises(GraphError, match=r"value 1 calls itself 7 \('weight'\)"):
        replace(GOOD, values=values).check()


def test_an_operator_that_reads_what_is_not_yet_made_is_named() -> None:
    with pytest.raises(GraphError, match=r"operator 1 \(test::view\) reads value 2 before it is made"):
        replace(GOOD, ops=GOOD.ops[::-1]).check()


def test_an_operator_that_reads_what_does_not_exist_is_named() -> None:
    ops = (GOOD.ops[0]._replace(inputs=(0, 99)), GOOD.ops[1])
    with pytest.raises(GraphError, match="reads value 99"):
        replace(GOOD, ops=ops).check()


def test_an_operator_that_makes_what_does_not_exist_is_named() -> None:
    ops = (GOOD.ops[0], GOOD.ops[1]._replace(outputs=(99,)))
    with pytest.raises(GraphError, match="makes value 99"):
        replace(GOOD, ops=ops).check()


def test_an_operator_that_is_not_what_its_kind_says_is_named() -> None:
    ops = (GOOD.ops[0], GOOD.ops[1]._replace(attrs={"shape": True}))
    with pytest.raises(
        GraphError, match=r"operator 1 \(test::view\): unknown attribute 'shape'; did you mean 'shapes'"
    ):
        replace(GOOD, ops=ops).check()


def test_an_operator_in_an_unknown_module_is_named() -> None:
    ops = (GOOD.ops[0]._replace(module="nowhere"), GOOD.ops[1])
    with pytest.raises(GraphError, match="unknown module 'nowhere'"):
        replace(GOOD, ops=ops).check()


@pytest.mark.parametrize("modules", [(), GOOD.modules[1:]])
def test_the_root_comes_first(modules: tuple[Module, ...]) -> None:
    with pytest.raises(GraphError, match="the root"):
        replace(GOOD, modules=modules).check()


def test_a_module_without_its_parent_is_named() -> None:
    modules = (GOOD.modules[0], Module(path="a.b", type="Lost"))
    with pytest.raises(GraphError, match=r"'a.b' has no parent 'a'"):
        replace(GOOD, modules=modules).check()


def test_two_modules_with_one_path_are_named() -> None:
    with pytest.raises(GraphError, match="two modules have the path 'layer'"):
        replace(GOOD, modules=(*GOOD.modules, GOOD.modules[1])).check()


@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_an_input_or_output_that_does_not_exist_is_named(where: str) -> None:
    with pytest.raises(GraphError, match="input or output 99"):
        replace(GOOD, **{where: (99,)}).check()
