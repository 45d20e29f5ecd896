"""Recording a PyTorch model on the CPU: modules, phases, costs, and nothing of the user's changed."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import opcost
from opcost.core.profile import Profile
from opcost.core.profile_schema import dumps, loads
from opcost.errors import InputError, OpcostError

BATCH, WIDTH, HIDDEN = 3, 8, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


LINEAR_MACS = BATCH * WIDTH * HIDDEN
FORWARD = [
    *(
        (f"blocks.{index}{place}", operator)
        for index in range(2)
        for place, operator in (
            (".up", "aten::linear"),
            ("", "aten::relu"),
            (".down", "aten::linear"),
            ("", "aten::add"),
        )
    ),
    ("norm", "aten::batch_norm"),
]
"""What the code above calls, in order: module and operator."""


def recorded(model: nn.Module, **options: object) -> Profile:
    return opcost.profile(model, torch.ones(BATCH, WIDTH), **{"repeat": 2, "warmup": 1, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def forward() -> Profile:
    return recorded(Net().eval())


@pytest.fixture(scope="module")
def backward() -> Profile:
    return recorded(Net().train(), backward=True)


def test_one_row_per_operator_that_the_code_calls_in_order(forward: Profile) -> None:
    for step in range(2):
        assert [(row.module, row.type) for row in forward.rows if row.step == step] == FORWARD


def test_rows_carry_the_cost_of_what_they_consist_of(forward: Profile) -> None:
    linear = [row for row in forward.rows if row.type == "aten::linear"]
    assert len(linear) == 2 * 4
    assert all(row.kind == "matmul" and row.cost is not None and row.cost.macs == LINEAR_MACS for row in linear)


def test_every_counted_flop_is_beside_a_row(forward: Profile, backward: Profile) -> None:
    x = torch.ones(BATCH, WIDTH)
    for profile, report in (
        (forward, opcost.count(Net().eval(), x)),
        (backward, opcost.count(Net().train(), x, backward=True)),
    ):
        placed = sum(row.cost.flops for row in profile.rows if row.step == 0 and row.cost is not None)
        assert placed == report.totals.flops
        assert "cost-not-placed" not in {note.code for note in profile.notes}


def test_backward_operators_belong_to_the_module_whose_forward_made_them(backward: Profile) -> None:
    rows = [row for row in backward.rows if row.phase == "backward" and row.step == 0]
    products = Counter(row.module for row in rows if row.type == "aten::mm")
    # The gradient of the weight and, but for the first layer, whose input needs none, the gradient of the input.
    assert products == {"blocks.0.up": 1, "blocks.0.down": 2, "blocks.1.up": 2, "blocks.1.down": 2}
    norms = [row.module for row in backward.rows if row.type.startswith("aten::native_batch_norm_backward")]
    assert norms == ["norm", "norm"]


def test_a_parameter_gets_its_gradient_in_the_module_that_owns_it(backward: Profile) -> None:
    engine = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    handed = Counter(row.module for row in backward.rows if row.type == engine and row.step == 0)
    assert handed == Counter(name.rpartition(".")[0] for name, _ in Net().named_parameters())


def test_every_operator_has_its_output_shapes(backward: Profile) -> None:
    assert [row.type for row in backward.rows if row.type.startswith("aten::") and not row.outs] == []


def test_times_add_up(forward: Profile) -> None:
    assert forward.wall_ns is not None
    assert 0 < sum(row.host_self_ns or 0 for row in forward.rows) <= forward.wall_ns
    assert all(row.device_ns is None and not row.kernels for row in forward.rows)
    assert len(forward.timed_ns) == 2
    assert all(duration > 0 for duration in forward.timed_ns)
    starts = [row.host_start_ns or 0 for row in forward.rows]
    assert starts == sorted(starts)


def test_shapes_and_types_are_recorded(forward: Profile) -> None:
    up = forward.rows[0]
    assert [(spec.dims, spec.dtype) for spec in up.ins] == [
        ((BATCH, WIDTH), "float32"), ((HIDDEN, WIDTH), "float32"), ((HIDDEN,), "float32"),
    ]  # fmt: skip
    assert [spec.dims for spec in up.outs] == [(BATCH, HIDDEN)]


def test_the_conditions_of_the_measurement_are_recorded(forward: Profile) -> None:
    assert forward.meta["torch"] == torch.__version__
    assert forward.meta["threads"] == str(torch.get_num_threads())
    assert forward.meta["mode"] == "eval"
    assert forward.meta["overhead"].endswith(("%", "within noise"))
    assert {"float32_matmul_precision", "deterministic", "system", "python", "steps"} <= forward.meta.keys()


def test_a_recorded_profile_survives_its_file(backward: Profile) -> None:
    assert loads(dumps(backward)).rows == backward.rows


def test_the_model_leaves_as_it_came() -> None:
    model = Net().train()
    model.norm.eval()
    x = torch.ones(BATCH, WIDTH)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    versions = {name: tensor._version for name, tensor in model.state_dict().items()}
    call = nn.Module.__call__
    drawn = torch.get_rng_state()
    opcost.profile(model, x, backward=True, mode="train", repeat=1, warmup=0)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert {name: tensor._version for name, tensor in model.state_dict().items()} == versions
    assert [module.training for module in model.modules()].count(False) == 1
    assert not model.norm.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert nn.Module.__call__ is call
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.is_grad_enabled()


def test_the_model_leaves_as_it_came_when_it_raises() -> None:
    class Broken(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise ValueError("no")

    model = Broken().train()
    mean = model.norm.running_mean
    before = mean.clone()
    call = nn.Module.__call__
    with pytest.raises(OpcostError, match="no"):
        recorded(model)
    assert model.norm.running_mean is mean
    assert torch.equal(mean, before)
    assert nn.Module.__call__ is call


def test_the_users_inputs_are_not_written_to() -> None:
    x = torch.ones(BATCH, WIDTH)
    opcost.profile(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)), x, repeat=1, warmup=1)
    opcost.profile(nn.ReLU(inplace=True), x.neg_(), repeat=1, warmup=1)
    assert torch.equal(x, -torch.ones(BATCH, WIDTH))


def test_inputs_are_made_from_shapes() -> None:
    profile = opcost.profile(Net().eval(), shapes=(BATCH, WIDTH), repeat=1, warmup=0)
    assert [(row.module, row.type) for row in profile.rows] == FORWARD


def test_a_shared_module_is_named_by_the_path_that_is_called() -> None:
    shared = nn.Linear(WIDTH, WIDTH)
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared)).eval()
    profile = recorded(model)
    assert [row.module for row in profile.rows if row.step == 1] == ["0.0", "1.0"]


def test_a_model_without_weights_cannot_run() -> None:
    with torch.device("meta"):
        model = Net()
    with pytest.raises(InputError, match="has no data"):
        recorded(model)


def test_emptying_the_cache_is_no_row_and_no_time() -> None:
    profile = recorded(Net().eval(), cold_l2=True)
    assert [(row.module, row.type) for row in profile.rows if row.step == 1] == FORWARD
    assert profile.meta["cold_l2"] == "True"


def test_a_model_that_cannot_be_counted_is_still_measured_and_says_so() -> None:
    class Wild(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if type(x) is not torch.Tensor:
                raise ValueError("stand-ins are refused")
            return torch.sin(x)

    profile = recorded(Wild())
    assert [row.type for row in profile.rows if row.step == 0] == ["aten::sin"]
    assert [note.code for note in profile.notes] == ["not-counted"]


def test_a_recomputed_forward_pass_keeps_its_modules() -> None:
    class Checkpointed(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            return self.norm(x)

    profile = recorded(Checkpointed().train(), backward=True)
    again = [row for row in profile.rows if row.step == 1 and row.phase == "backward"]
    assert [row.module for row in again if row.type == "aten::linear"] == [
        "blocks.1.up", "blocks.1.down", "blocks.0.up", "blocks.0.down",
    ]  # fmt: skip
    products = Counter(row.module for row in again if row.type == "aten::mm")
    assert products == {"blocks.0.up": 1, "blocks.0.down": 2, "blocks.1.up": 2, "blocks.1.down": 2}


def test_reentrant_checkpoints_run_backward_too() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(WIDTH, WIDTH)
            self.second = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint(self.second, self.first(x), use_reentrant=True)

    profile = recorded(Checkpointed().train(), backward=True)
    rows = [row for row in profile.rows if row.step == 1]
    assert [(row.phase, row.module) for row in rows if row.type == "aten::linear"] == [
        ("forward", "first"), ("forward", "second"), ("backward", "second"),
    ]  # fmt: skip
    # Gradients of the weight and, in the second layer, of the input; the first layer's input needs none.
    assert Counter(row.module for row in rows if row.type == "aten::mm") == {"second": 2, "first": 1}


@pytest.mark.parametrize("at", range(1, 9))
def test_the_model_leaves_as_it_came_when_the_user_interrupts(at: int) -> None:
    class Interrupted(Net):
        left = at

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.device.type == "cpu" and x.untyped_storage().data_ptr():  # runs on data; the count has none
                type(self).left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
            return super().forward(x)

    model = Interrupted().train()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    call, drawn = nn.Module.__call__, torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        recorded(model, mode="eval", backward=True)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert nn.Module.__call__ is call
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.is_grad_enabled()
    assert not torch.autograd._profiler_enabled()


def test_a_profiler_of_the_users_is_not_ended() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with pytest.raises(InputError, match="running already"):
            recorded(Net())
        torch.ones(2).neg()
    assert "aten::neg" in {event.key for event in profiler.key_averages()}


def test_a_fused_operator_belongs_to_the_module_that_called_it() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    profile = opcost.profile(nn.Sequential(layer), torch.ones(2, 5, 16), repeat=1)
    assert [row.module for row in profile.rows if row.type == "aten::_transformer_encoder_layer_fwd"] == ["0"]


FUSED = {
    "encoder": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), (2, 5, 16), False),
    "attention inside": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval(),
        (2, 5, 16),
        False,
    ),
    "recurrent, backward": (nn.LSTM(8, 16, 2), (5, 3, 8), True),
    "silu, backward": (nn.Sequential(nn.Linear(8, 8), nn.SiLU()), (3, 8), True),
}


@pytest.mark.parametrize("name", FUSED)
def test_an_operator_that_runs_in_place_of_several_has_the_cost_of_all(name: str) -> None:
    model, shape, backward = FUSED[name]
    x = torch.ones(shape)
    profile = opcost.profile(model, x, backward=backward, repeat=2, warmup=0)
    for step in range(2):
        placed = sum(row.cost.flops for row in profile.rows if row.step == step and row.cost is not None)
        assert placed == opcost.count(model, x, backward=backward).totals.flops
    assert not profile.notes


def test_a_compiled_region_gives_its_operators_back_to_their_modules() -> None:
    torch._dynamo.reset()
    model = torch.compile(Net().eval(), backend="aot_eager")
    profile = recorded(model)
    rows = [row for row in profile.rows if row.step == 1 and row.kind == "matmul"]
    assert [row.module for row in rows] == ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"]
    assert all(row.cost is not None and row.cost.macs == LINEAR_MACS for row in rows)
    assert any(row.type.startswith("Torch-Compiled Region") for row in profile.rows)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler")
def test_code_of_inductor_gives_its_products_back_to_their_modules() -> None:
    torch.compiler.reset()
    profile = recorded(torch.compile(Net().train()), backward=True)
    rows = [row for row in profile.rows if row.step == 1 and row.kind == "matmul"]
    names = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"]
    assert [row.module for row in rows if row.phase == "forward"] == names
    # The gradient of the weight and, but for the first layer, whose input needs none, the gradient of the input.
    assert Counter(row.module for row in rows if row.phase == "backward") == dict(zip(names, (1, 2, 2, 2), strict=True))
    assert all(row.cost is not None and row.cost.macs == LINEAR_MACS for row in rows)


def test_meaningless_options_are_refused() -> None:
    for options in ({"repeat": 0}, {"warmup": -1}, {"seconds": 0.0}):
        with pytest.raises(InputError):
            recorded(Net(), **options)


def test_seconds_decide_how_many_runs_there_are() -> None:
    profile = recorded(Net().eval(), seconds=0.02)
    assert len(profile.timed_ns) >= 3
    assert profile.meta["steps"] == str(len(profile.timed_ns))
    assert json.loads(json.dumps(profile.extra["recorded_ns"]))


def test_another_type_is_run_beside_the_users_model() -> None:
    model = Net().eval()
    profile = opcost.profile(model, shapes=(BATCH, WIDTH), dtype="bf16", repeat=1, warmup=0)
    assert {spec.dtype for row in profile.rows if row.type == "aten::linear" for spec in row.ins} == {"bfloat16"}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    with pytest.raises(InputError, match="has its own element types"):
        opcost.profile(torch.compile(model), shapes=(BATCH, WIDTH), dtype="bf16")
