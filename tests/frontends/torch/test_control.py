"""Control flow: branches on data, control-flow operators, transforms, custom operators, mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

import opcost
from opcost.core.graph import Cost
from opcost.errors import DataDependent, InputError
from opcost.rules.registry import OpView

B, D, H = 5, 4, 6
"""A batch and two widths."""
X = torch.ones(B, D)


# -- branches ---------------------------------------------------------------------------------------------------------


class Branch(nn.Module):
    """Takes the wide layer if the input's sum is positive, else the narrow one; counts how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(D, H)
        self.narrow = nn.Linear(D, 1)
        self.register_buffer("runs", torch.zeros((), dtype=torch.int64))
        self.cache: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        self.cache.append(x)
        return self.wide(x) if x.sum() > 0 else self.narrow(x)


def test_a_branch_on_a_float_says_so_and_where_and_what_to_do() -> None:
    with pytest.raises(DataDependent) as caught:
        opcost.count(nn.Sequential(nn.ReLU(), Branch()), X, real=False)
    text = str(caught.value)
    assert caught.value.module == "1"
    assert caught.value.exit_code == 2
    assert "module '1'" in text
    assert "test_control.py" in text
    assert "leave out real=False" in text


@pytest.mark.parametrize(("sign", "width"), [(1, H), (-1, 1)])
def test_a_real_run_takes_the_branch_that_the_data_takes_and_leaves_no_trace(sign: int, width: int) -> None:
    model = Branch()
    before = {name: (value.clone(), value._version) for name, value in model.state_dict().items()}
    x = sign * X
    report = opcost.count(model, x, real=True)
    assert report.totals.macs == B * D * width
    assert {parameter.name.partition(".")[0] for parameter in report.unused} == {"narrow" if sign > 0 else "wide"}
    assert model.cache == []
    for name, value in model.state_dict().items():
        content, version = before[name]
        assert torch.equal(value, content)
        assert value._version == version
    assert torch.equal(x, sign * X)


def test_a_real_run_makes_its_input_from_a_shape_and_gives_the_same_answer_twice() -> None:
    first, second = (opcost.count(Branch(), shapes=(B, D), real=True) for _ in range(2))
    assert first.totals == second.totals


def test_a_real_run_without_weights_is_refused() -> None:
    with pytest.raises(InputError, match="no data"):
        opcost.count(nn.Linear(D, H, device="meta"), X, real=True)


def test_a_real_run_counts_what_a_run_without_data_counts(count: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    x = torch.rand(2, 3, 8, 8)
    without, real = count(model, x), count(model, x, real=True)
    assert [(row.op.kind, row.op.raw, row.op.module, row.ins, row.outs) for row in without.rows] == [
        (row.op.kind, row.op.raw, row.op.module, row.ins, row.outs) for row in real.rows
    ]
    assert without.totals == real.totals
    assert without.peak_bytes == real.peak_bytes


def test_a_branch_on_the_shape_is_no_question_of_data(count: Any, calls: Any) -> None:
    model = calls(lambda x: x @ x.T if x.shape[0] > D else x)
    assert count(model, X).totals.macs == B * D * B


def test_integers_and_masks_that_are_given_decide_what_runs(count: Any, calls: Any) -> None:
    model = calls(lambda x, mask, n: x[mask][:n] @ x.T)
    mask = torch.tensor([True, False, True, True, False])
    assert count(model, X, mask, 10).totals.macs == int(mask.sum()) * D * B
    assert count(model, X, mask, 2).totals.macs == 2 * D * B
    model = calls(lambda x, turns: sum(x @ x.T for _ in range(int(turns.max()))))
    assert count(model, X, torch.tensor([1, 3])).totals.macs == 3 * B * D * B


def test_bool_of_an_integer_mask_is_answered(count: Any, calls: Any) -> None:
    model = calls(lambda x, mask: x @ x.T if bool((mask == 1).all()) else x)
    assert count(model, X, torch.ones(B, dtype=torch.int64)).totals.macs == B * D * B
    assert count(model, X, torch.zeros(B, dtype=torch.int64)).totals.macs == 0


def test_a_mask_computed_from_floats_is_unknown(calls: Any) -> None:
    with pytest.raises(DataDependent, match="mask"):
        opcost.count(calls(lambda x: x[x > 0]), X, real=False)


QUESTIONS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 0).any()),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "equal to true": lambda x: torch.equal(x.min() < 1, torch.tensor(True)),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_way_to_read_a_float_is_one_clear_error(calls: Any, name: str) -> None:
    with pytest.raises(DataDependent, match="without data") as caught:
        opcost.count(calls(QUESTIONS[name]), X, real=False)
    assert "real=False" in caught.value.hint
    assert opcost.count(calls(QUESTIONS[name]), X, real=True).coverage.complete


# -- random decisions -------------------------------------------------------------------------------------------------


class LayerDrop(nn.Module):
    """Skips layers at random in training, as speech and translation models do."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(D, D) for _ in range(3)])
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            dropped = torch.rand([])
            if self.training and dropped < self.probability:
                continue
            x = layer(x)
        return x


@pytest.mark.parametrize(("probability", "run"), [(0.1, 3), (0.9, 0)])
def test_a_random_decision_goes_the_likelier_way_and_the_report_says_so(
    count: Any, probability: float, run: int
) -> None:
    report = count(LayerDrop(probability), X)
    assert report.totals.macs == run * B * D * D
    assert {note.code for note in report.notes} == {"drawn"}


def test_a_random_number_that_decides_nothing_needs_no_note(count: Any) -> None:
    report = count(LayerDrop(0.9).eval(), X)
    assert report.totals.macs == 3 * B * D * D
    assert report.notes == ()


# -- control flow as operators ----------------------------------------------------------------------------------------


def two_products(x: Tensor) -> Tensor:
    return x @ x.T @ x


def one_sum(x: Tensor) -> Tensor:
    return x + x


def test_cond_on_data_counts_the_true_branch_and_says_so(count: Any, calls: Any) -> None:
    report = count(calls(lambda x: torch.cond(x.sum() > 0, two_products, one_sum, (x,))), X)
    assert report.totals.macs == 2 * B * D * B
    assert [note.code for note in report.notes] == ["branch"]


@pytest.mark.parametrize(("sign", "products"), [(1, 2), (-1, 0)])
def test_cond_in_a_real_run_counts_the_branch_that_the_data_takes(
    count: Any, calls: Any, sign: int, products: int
) -> None:
    report = count(calls(lambda x: torch.cond(x.sum() > 0, two_products, one_sum, (x,))), sign * X, real=True)
    assert report.totals.macs == products * B * D * B
    assert report.notes == ()


@pytest.mark.parametrize(("steps", "products"), [(9, 2), (1, 0)])
def test_cond_on_an_integer_takes_the_branch_it_says(count: Any, calls: Any, steps: int, products: int) -> None:
    model = calls(lambda x, n: torch.cond(n > 3, two_products, one_sum, (x,)))
    report = count(model, X, torch.tensor(steps))
    assert report.totals.macs == products * B * D * B
    assert report.notes == ()


def test_operators_inside_cond_are_the_same_as_outside(count: Any, calls: Any) -> None:
    layer = nn.Linear(D, D)
    inside = count(calls(lambda x, n: torch.cond(n > 0, layer, one_sum, (x,)), layer=layer), X, torch.tensor(1))
    outside = count(calls(lambda x, n: layer(x) if n > 0 else one_sum(x), layer=layer), X, torch.tensor(1))
    assert [row.op.raw for row in inside.rows] == [row.op.raw for row in outside.rows]
    assert inside.module("layer").own.macs == B * D * D


@pytest.mark.parametrize("real", [False, True])
def test_a_while_loop_runs_as_often_as_its_counter_says(count: Any, calls: Any, real: bool) -> None:
    turns = 3
    square = torch.ones(D, D)
    model = calls(lambda x: while_loop(lambda i, x: i < turns, lambda i, x: (i + 1, x @ x), (torch.tensor(0), x)))
    assert count(model, square, real=real).totals.macs == turns * D**3


def test_a_while_loop_on_data_is_unknown(calls: Any) -> None:
    model = calls(lambda x: while_loop(lambda x: x.sum() < 3, lambda x: (x @ x,), (x,)))
    with pytest.raises(DataDependent, match="while_loop"):
        opcost.count(model, torch.ones(D, D), real=False)


# -- transforms -------------------------------------------------------------------------------------------------------


def test_vmap_counts_the_whole_batch(count: Any, calls: Any) -> None:
    weight = torch.empty(D, H)
    batched = torch.empty(3, B, D)
    assert count(calls(torch.vmap(lambda a: a @ weight)), batched).totals.macs == 3 * B * D * H
    assert count(calls(torch.vmap(torch.vmap(lambda a: weight.T @ a))), batched).totals.macs == 3 * B * D * H


def test_an_ensemble_by_stacked_states_and_vmap_uses_every_member(count: Any) -> None:
    members = 3

    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList([nn.Linear(D, H) for _ in range(members)])

        def forward(self, x: Tensor) -> Tensor:
            parameters, buffers = torch.func.stack_module_state(list(self.members))

            def run(p: Any, b: Any) -> Tensor:
                return torch.func.functional_call(self.members[0], (p, b), (x,))

            return torch.vmap(run)(parameters, buffers)

    report = count(Ensemble(), X)
    assert report.totals.macs == members * B * D * H
    assert report.totals.params == members * (D * H + H)
    assert report.totals.unused_params == 0


def test_functional_call_counts_the_weights_it_is_given_and_puts_the_others_back(count: Any) -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(D, H)

        def forward(self, x: Tensor) -> Tensor:
            twice = {name: 2 * value for name, value in self.layer.named_parameters()}
            return torch.func.functional_call(self.layer, twice, (x,))

    model = Doubled()
    weight = model.layer.weight
    report = count(model, X)
    assert report.totals.macs == B * D * H
    assert (report.totals.params, report.totals.unused_params) == (D * H + H, 0)
    assert model.layer.weight is weight


def test_a_gradient_inside_the_forward_pass_is_counted(count: Any, calls: Any) -> None:
    weight = torch.empty(D, H)
    report = count(calls(torch.func.grad(lambda a: (a @ weight).sum())), X)
    assert report.totals.macs == 2 * B * D * H


# -- activation checkpointing -----------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(D, D)
        self.body = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, D))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.body, self.first(x), use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_costs_the_forward_pass_nothing(count: Any, reentrant: bool) -> None:
    assert count(Checkpointed(reentrant=reentrant), X).totals.macs == B * D * D + 2 * B * D * H


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("real", [False, True])
def test_checkpointing_computes_again_in_the_backward_pass(count: Any, reentrant: bool, real: bool) -> None:
    model = Checkpointed(reentrant=reentrant)
    report = count(model, X, backward=True, real=real)
    layers = {"first": B * D * D, "body.0": B * D * H, "body.2": B * H * D}
    forward = sum(layers.values())
    # Each product has two gradients, but that of the first layer's input is not requested. The other way of
    # checkpointing stops as soon as everything is there that gradients need, which is before the last layer.
    gradients = 2 * forward - layers["first"]
    again = layers["body.0"] + (layers["body.2"] if reentrant else 0)
    assert report.phases["forward"].macs == forward
    assert report.phases["backward"].macs == gradients + again
    assert all(parameter.grad is None for parameter in model.parameters())


# -- custom operators -------------------------------------------------------------------------------------------------


@pytest.fixture
def custom() -> Iterator[str]:
    """A library with one operator in three states of completeness."""
    library = torch.library.Library("opcost_tests", "FRAGMENT")
    for name in ("complete", "bare", "big"):
        library.define(f"{name}(Tensor x, Tensor w) -> Tensor")
        library.impl(name, lambda x, w: x @ w, "CPU")
    torch.library.register_fake("opcost_tests::complete", lambda x, w: x.new_empty(x.shape[0], w.shape[1]), lib=library)
    yield "opcost_tests"
    library._destroy()


def product_rule(op: OpView) -> Cost:
    """out × depth MACs."""
    return op.cost(macs=op.outs[0].numel * op.ins[0].dims[-1])


@pytest.mark.parametrize("name", ["complete", "bare"])
def test_a_custom_operator_is_unknown_until_five_lines_say_what_it_costs(calls: Any, custom: str, name: str) -> None:
    weight = torch.empty(D, H)
    model = nn.Sequential(calls(lambda x: getattr(torch.ops.opcost_tests, name)(x, weight)))
    report = opcost.count(model, X)
    (unknown,) = report.coverage.uncounted
    assert (unknown.raw, unknown.count, unknown.modules) == (f"{custom}::{name}", 1, ("0",))
    assert report.totals.uncounted == 1
    assert report.outputs[0].shape == (B, H)
    known = opcost.count(model, X, rules={f"{custom}::{name}": product_rule})
    assert known.coverage.complete
    assert known.totals.macs == B * D * H
    assert known.totals.flops == 2 * B * D * H


def test_a_custom_operator_in_a_real_run_is_one_operator_too(calls: Any, custom: str) -> None:
    weight = torch.ones(D, H)
    model = calls(lambda x: torch.ops.opcost_tests.bare(x, weight))
    report = opcost.count(model, X, real=True, rules={f"{custom}::bare": product_rule})
    assert [row.op.raw for row in report.rows] == [f"{custom}::bare"]
    assert report.totals.macs == B * D * H


def test_a_large_custom_operator_without_a_fake_says_what_is_missing(calls: Any, custom: str) -> None:
    model = calls(torch.ops.opcost_tests.big)
    with pytest.raises(opcost.OpcostError, match="opcost_tests::big"):
        opcost.count(model, shapes=[(1 << 15, 1 << 15), (1 << 15, 1)])


# -- mixtures of experts ----------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """Every token goes to the `chosen` best of `experts` experts, in a loop over the experts."""

    def __init__(self, experts: int, chosen: int, *, by_mask: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(D, experts, bias=False)
        self.experts = nn.ModuleList([nn.Linear(D, D, bias=False) for _ in range(experts)])
        self.chosen = chosen
        self.by_mask = by_mask

    def forward(self, x: Tensor) -> Tensor:
        weights, index = torch.topk(self.gate(x).softmax(-1), self.chosen)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            if self.by_mask:
                token, place = (index == number).nonzero(as_tuple=True)
            else:
                token, place = torch.where(F.one_hot(index, len(self.experts))[:, :, number])
            result.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return result


@pytest.mark.parametrize("by_mask", [True, False])
@pytest.mark.parametrize(("experts", "chosen"), [(4, 2), (8, 1)])
def test_experts_in_a_loop_see_equal_shares_and_the_report_says_so(
    count: Any, experts: int, chosen: int, by_mask: bool
) -> None:
    tokens = 16
    report = count(Experts(experts, chosen, by_mask=by_mask), torch.empty(tokens, D))
    share = tokens * chosen // experts
    assert [report.module(f"experts.{n}").inputs[0].shape for n in range(experts)] == [(share, D)] * experts
    assert report.totals.macs == tokens * D * experts + tokens * chosen * D * D
    (note,) = report.notes
    assert note.code == "balanced"
    assert "same share of the tokens" in note.text


def test_experts_in_a_grouped_product_see_all_tokens_and_the_report_says_how_many_each(count: Any) -> None:
    tokens, experts, chosen = 16, 4, 2

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(D, experts, bias=False, dtype=torch.bfloat16)
            self.experts = nn.Parameter(torch.empty(experts, D, D, dtype=torch.bfloat16))

        def forward(self, x: Tensor) -> Tensor:
            _, index = torch.topk(self.gate(x), chosen)
            order = index.flatten().argsort()
            ends = torch.bincount(index.flatten(), minlength=experts).cumsum(0).to(torch.int32)
            return torch._grouped_mm(x[order // chosen], self.experts, offs=ends)

    report = count(Grouped(), torch.empty(tokens, D, dtype=torch.bfloat16))
    assert report.totals.macs == tokens * D * experts + tokens * chosen * D * D
    texts = [note.text for note in report.notes if note.code == "experts"]
    assert texts
    assert f"{tokens * chosen // experts:g} each if balanced" in texts[0]


# -- signatures -------------------------------------------------------------------------------------------------------


def test_a_forward_of_any_arguments_gets_them_all(count: Any) -> None:
    class Any_(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(D, H)

        def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
            return sum((self.layer(x) for x in (*args, *kwargs.values())), torch.zeros(()))

    assert count(Any_(), X, X, kwargs={"one": X, "more": X}).totals.macs == 4 * B * D * H
