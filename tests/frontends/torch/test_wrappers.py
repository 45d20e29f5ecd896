"""A model inside a wrapper is counted as the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor, nn

import opcost
from opcost.errors import ForwardError, InputError, SourceError

B, D, H, OUT = 5, 4, 8, 3
X = torch.ones(B, D)
MACS = B * D * H + B * H * OUT
PARAMS = D * H + H + H * OUT + OUT


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(D, H)
        self.second = nn.Linear(H, OUT)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))


class Around(nn.Module):
    """Holds a model, wrapped or not."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def tree(report: opcost.Report) -> list[tuple[str, str, int, int]]:
    return [(module.path, module.type, module.own.macs, module.own.params) for module in report.modules]


PLAIN = [
    ("", "Net", 0, 0),
    ("first", "Linear", B * D * H, D * H + H),
    ("second", "Linear", B * H * OUT, H * OUT + OUT),
]


def test_data_parallel_is_looked_through() -> None:
    assert tree(opcost.count(nn.DataParallel(Net()), X)) == PLAIN


def test_data_parallel_inside_a_model_is_counted(count: Any) -> None:
    wrapper = nn.DataParallel(Net())
    wrapper.device_ids = [0]  # as on a machine with a GPU
    report = count(Around(wrapper), X)
    assert (report.totals.macs, report.totals.params) == (MACS, PARAMS)
    assert report.module("inner.module.second").own.macs == B * H * OUT


# -- compiled ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def compilations() -> Iterator[Any]:
    """How many frames the compiler has looked at."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield lambda: sum(torch._dynamo.utils.counters["frames"].values())
    torch._dynamo.reset()


def compiled_in_place() -> nn.Module:
    model = Net()
    model.compile()
    return model


def compiled_within() -> nn.Module:
    model = Around(Net())
    model.inner.compile()
    return model


@torch.compile
def compiled_function(x: Tensor) -> Tensor:
    return F.relu(x) @ x.T


class CallsCompiled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return compiled_function(x)


class Compiles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        @torch.compile(dynamic=True)
        def product(x: Tensor) -> Tensor:
            return x @ x.T

        return product(x) + torch.compile(lambda x: x @ x.T)(x)


def test_a_compiled_model_is_the_model_it_was_made_from(compilations: Any) -> None:
    assert tree(opcost.count(torch.compile(Net()), X)) == PLAIN
    assert tree(opcost.count(compiled_in_place(), X)) == PLAIN
    assert compilations() == 0


def test_compiled_parts_of_a_model_run_as_written(count: Any, compilations: Any) -> None:
    for model in (Around(torch.compile(Net())), compiled_within()):
        report = count(model, X)
        assert (report.totals.macs, report.totals.params) == (MACS, PARAMS)
    assert count(CallsCompiled(), X).totals.macs == B * D * B
    assert count(Compiles(), X).totals.macs == 2 * B * D * B
    assert compilations() == 0


def test_a_compiled_function_still_compiles_after_a_count(compilations: Any) -> None:
    function = torch.compile(lambda x: x + 1, backend="eager")
    opcost.count(CallsCompiled(), X)
    assert torch.equal(function(X), X + 1)
    assert compilations() > 0


# -- scripted, traced, exported ---------------------------------------------------------------------------------------


JIT = pytest.mark.parametrize(
    "wrap", [torch.jit.script, lambda model: torch.jit.trace(model, X)], ids=["script", "trace"]
)


@JIT
def test_scripted_and_traced_models_have_the_tree_of_the_model(count: Any, wrap: Any) -> None:
    report = count(wrap(Net()), X)
    assert (report.totals.macs, report.totals.params, report.totals.unused_params) == (MACS, PARAMS, 0)
    assert tree(report) == PLAIN
    plain = count(Net(), X)
    assert [(m.own, m.calls, m.inputs, m.outputs) for m in report.modules] == [
        (m.own, m.calls, m.inputs, m.outputs) for m in plain.modules
    ]
    inside = count(Around(wrap(Net())), X)
    assert inside.module("inner").total.macs == MACS
    assert inside.module("inner.second").own.macs == B * H * OUT


@JIT
@pytest.mark.parametrize("options", [{"backward": True}, {"real": True}], ids=["backward", "real"])
def test_modules_inside_scripted_ones_are_seen_in_every_run(wrap: Any, options: dict[str, bool]) -> None:
    plain, scripted = opcost.count(Net(), X, **options), opcost.count(wrap(Net()), X, **options)
    assert [(m.path, m.own) for m in scripted.modules] == [(m.path, m.own) for m in plain.modules]


class Branches(nn.Module):
    """Lists of layers with the same names inside, loops, branches, a method of its own, and a tuple as result."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.ModuleList([nn.Linear(D, D) for _ in range(2)])
        self.right = nn.ModuleList([nn.Linear(D, D) for _ in range(2)])
        self.split = Split()

    def twice(self, x: Tensor) -> Tensor:
        return self.left[1](x) + self.right[1](x)

    def forward(self, x: Tensor, turns: int = 3) -> Tensor:
        x = self.right[0](self.left[0](x))
        for _ in range(turns):
            x = self.right[0](x)
        if x.shape[0] > 1:
            x = self.twice(x)
        first, second = self.split(x)
        return first + second


class Split(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :2], x[:, 2:]


def test_scripted_lists_loops_and_branches_call_the_modules_that_they_call() -> None:
    report = opcost.count(torch.jit.script(Branches()), X)
    assert {m.path: m.calls for m in report.modules if m.type == "Linear"} == {
        "left.0": 1,
        "left.1": 1,
        "right.0": 1 + 3,
        "right.1": 1,
    }
    assert report.module("right.0").own.macs == 4 * B * D * D
    assert [str(spec) for spec in report.module("split").outputs] == [f"{B}x2", f"{B}x2"]
    assert opcost.count(torch.jit.script(Branches()), X, kwargs={"turns": 1}).module("right.0").calls == 2


@JIT
def test_the_code_of_a_scripted_model_stays_as_it_is(wrap: Any) -> None:
    model = wrap(Net())
    code, graph, result = model.code, str(model.graph), model(X)
    opcost.count(model, X, backward=True)
    assert (model.code, str(model.graph)) == (code, graph)
    assert torch.equal(model(X), result)


@JIT
def test_a_failure_inside_a_scripted_model_leaves_nothing_open(wrap: Any) -> None:
    model = wrap(Net())
    with pytest.raises(ForwardError, match="Net"):
        opcost.count(model, torch.ones(B, D + 1))
    assert opcost.count(model, X).totals.macs == MACS


class Tries(nn.Module):
    """Calls a scripted model with what it cannot take, and goes on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.inner(x[:, 1:])
        except RuntimeError:
            return self.inner(x)


def test_a_model_may_catch_what_a_scripted_part_raises() -> None:
    report = opcost.count(Tries(torch.jit.script(Net())), X)
    assert report.totals.macs == MACS
    assert report.module("inner.second").own.macs == B * H * OUT


@JIT
def test_scripted_and_traced_models_take_inputs_by_every_option(wrap: Any) -> None:
    model = wrap(Net())
    for given in ({"inputs": {"x": X}}, {"kwargs": {"x": X}}, {"shapes": (B, D)}, {"inputs": X, "optimizer": "SGD"}):
        assert opcost.count(model, **given).phases["forward"].macs == MACS
    if isinstance(model, torch.jit.TopLevelTracedModule):  # its layers have no attributes
        with pytest.raises(InputError, match=r"Net\.forward\(x\) needs inputs"):
            opcost.count(model)
    else:
        assert [spec.shape for _, spec in opcost.count(model).inputs] == [(1, D)]


def test_a_loaded_scripted_model_has_its_tree(tmp_path: Path) -> None:
    torch.jit.script(Net()).save(tmp_path / "net.pt")
    assert tree(opcost.count(torch.jit.load(tmp_path / "net.pt"), X)) == PLAIN


def test_a_scripted_model_takes_named_shapes_and_has_a_backward_pass() -> None:
    report = opcost.count(torch.jit.script(Net()), kwargs={"x": X}, backward=True)
    assert report.phases["forward"].macs == MACS
    assert report.phases["backward"].macs == 2 * MACS - B * D * H  # the input's gradient is not requested


def test_a_frozen_scripted_model_has_constants_in_the_place_of_parameters(count: Any) -> None:
    report = count(torch.jit.freeze(torch.jit.script(Net().eval())), X)
    assert (report.totals.macs, report.totals.params) == (MACS, 0)


def test_a_scripted_function_is_seen(count: Any, calls: Any) -> None:
    @torch.jit.script
    def product(x: Tensor) -> Tensor:
        return x @ x.t()

    assert count(calls(product), X).totals.macs == B * D * B


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Net(), (X,))


def test_an_exported_program_has_the_modules_of_the_model() -> None:
    report = opcost.count(exported(), X)
    assert tree(report) == PLAIN
    assert report.coverage.complete


def test_an_exported_program_knows_its_inputs() -> None:
    report = opcost.count(exported())
    assert report.totals.macs == MACS
    assert [(name, spec.shape) for name, spec in report.inputs] == [("x", (B, D))]


def test_an_exported_program_shares_its_weights_with_what_is_counted() -> None:
    program = exported()
    before = {name: (value.data_ptr(), value._version) for name, value in program.state_dict.items()}
    opcost.count(program)
    assert {name: (value.data_ptr(), value._version) for name, value in program.state_dict.items()} == before


def test_a_program_in_a_file_is_counted_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(exported(), path)
    for report in (
        opcost.count(path),
        opcost.count(str(path), shapes=(B, D)),
        opcost.count(path, shapes={"x": (B, D)}),
    ):
        assert tree(report) == PLAIN
        assert report.meta["source"] == "net.pt2"


def test_a_program_exported_for_one_shape_refuses_another() -> None:
    with pytest.raises(ForwardError, match=r"shape\[0\] to be equal to 5"):
        opcost.count(exported(), shapes=(B + 1, D))


def test_a_program_exported_for_any_batch_takes_any() -> None:
    program = torch.export.export(Net(), (X,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    assert opcost.count(program, shapes=(7, D)).totals.macs == 7 * (D * H + H * OUT)


def test_a_file_that_is_no_program_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(SourceError, match=r"net\.pt2 is not an exported program"):
        opcost.count(path)


def test_a_graph_module_is_counted_where_its_modules_are_called(count: Any) -> None:
    assert tree(count(torch.fx.symbolic_trace(Net()), X)) == PLAIN


# -- adapters ---------------------------------------------------------------------------------------------------------


class LoraLinear(nn.Module):
    """A frozen layer with low-rank adapters beside it, as adapter libraries write it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        self.dropout = nn.ModuleDict({"default": nn.Dropout(0.1)})
        self.scaling = {"default": 2.0}

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = self.base_layer(x, *args, **kwargs)
        for name in self.lora_A:
            adapted = self.lora_B[name](self.lora_A[name](self.dropout[name](x)))
            result = result + adapted * self.scaling[name]
        return result


class AdapterModel(nn.Module):
    """What the library wraps around the model: it passes every call and every attribute on."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.base_model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base_model, name)


def test_adapters_add_their_thin_products_and_only_they_are_trainable(count: Any) -> None:
    rank = 2
    model = Net().requires_grad_(False)
    model.first = LoraLinear(model.first, rank)
    report = count(AdapterModel(model), X)
    thin = D * rank + rank * H
    assert report.totals.macs == MACS + B * thin
    assert report.totals.params == PARAMS + thin
    assert report.totals.trainable_params == thin
    assert report.module("base_model.first.lora_A.default").own.macs == B * D * rank


def test_training_adapters_differentiates_only_them_and_what_leads_to_them() -> None:
    rank = 2
    model = Net().requires_grad_(False)
    model.first = LoraLinear(model.first, rank)
    report = opcost.count(AdapterModel(model), X, backward=True)
    second_input = B * H * OUT
    b_both = 2 * B * rank * H
    a_weight = B * D * rank
    assert report.phases["backward"].macs == second_input + b_both + a_weight
