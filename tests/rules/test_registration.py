from __future__ import annotations

import subprocess
import sys

import pytest

import opcost.rules
from opcost.core.graph import ZERO, Cost, TensorSpec
from opcost.core.kinds import CONTRACTIONS, KINDS
from opcost.errors import RuleError
from opcost.rules import add, default_rules
from opcost.rules.registry import OpView, Rules


def free(op: OpView) -> Cost:
    return ZERO


def test_every_kind_but_unknown_has_a_rule() -> None:
    assert set(add(Rules())) == set(KINDS) - {"unknown"}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"unknown"}))
def test_every_rule_says_its_formula(kind: str) -> None:
    first = (default_rules()[kind].__doc__ or "").splitlines()[0]
    assert first.endswith(("MACs.", "FLOPs.", "free."))
    assert first.endswith("MACs.") == (kind in CONTRACTIONS)


def test_adding_the_own_rules_twice_is_an_error() -> None:
    rules = Rules()
    add(rules)
    with pytest.raises(RuleError, match="registered twice"):
        add(rules)


def test_a_name_that_is_neither_kind_nor_operator_is_refused() -> None:
    with pytest.raises(RuleError, match="neither a kind"):
        Rules().add("convolution", free)


def test_something_that_is_no_function_is_refused() -> None:
    with pytest.raises(RuleError, match="not a function"):
        Rules().add("conv", 3)  # type: ignore[arg-type]


def test_an_added_rule_is_found_by_the_name_of_its_operator() -> None:
    rules = Rules()
    rules.add("mylib::op", free)
    assert rules.for_op("unknown", "mylib::op") == ("mylib::op", free)


def test_a_rule_for_the_operator_wins_over_the_rule_of_its_kind() -> None:
    rules = default_rules().with_rules({"mylib::op": free})
    assert rules.for_op("matmul", "mylib::op") == ("mylib::op", free)
    assert rules.for_op("matmul", "mylib::other") == ("matmul", default_rules()["matmul"])


def test_a_callers_rules_replace_a_rule_only_for_that_caller() -> None:
    before = default_rules()["conv"]
    changed = default_rules().with_rules({"conv": free})
    assert changed["conv"] is free
    assert default_rules()["conv"] is before
    assert len(changed) == len(default_rules())


def test_an_unknown_operator_has_no_rule() -> None:
    assert default_rules().for_op("unknown", "mylib::op") is None


def test_a_fault_of_the_own_rules_is_raised_and_not_reported_as_a_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rules: Rules) -> None:
        raise ValueError("our own fault")

    monkeypatch.setattr(opcost.rules, "add", broken)
    monkeypatch.setattr("opcost.core.plugin.usable", lambda group: {"own": broken})
    with pytest.raises(ValueError, match="our own fault"):
        default_rules.__wrapped__()


def test_a_cost_moves_all_inputs_and_outputs_by_default() -> None:
    view = OpView("copy", ins=(TensorSpec((2, 3)), TensorSpec((5,), "int8")), outs=(TensorSpec((7,), "float16"),))
    assert view.cost(flops=1) == Cost(flops=1, bytes_read=2 * 3 * 4 + 5, bytes_written=7 * 2)
    assert view.cost(bytes_read=0, bytes_written=1) == Cost(bytes_written=1)


def test_the_rules_load_nothing_but_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); from opcost.rules import add, Rules; add(Rules());"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    run = subprocess.run([sys.executable, "-S", "-c", _with_path(program)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["opcost"]


def _with_path(program: str) -> str:
    return f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}; {program}"
