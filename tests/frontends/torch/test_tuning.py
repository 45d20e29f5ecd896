"""Models of which a part is trained: frozen parameters, and low-rank adapters beside frozen layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers_live import Live, work
from torch import Tensor, nn

import opcost
from opcost.errors import ForwardError, InputError, UnknownName

N, K, M, C, R = 8, 16, 32, 4, 2
"""Rows, features in, inside and out, and the rank."""
BOTH = f"r={R},targets=up,down"
UP, DOWN = R * (K + M), R * (M + C)
"""Parameters of the adapters."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(K, M), nn.Linear(M, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu()).square().sum()


class Adapted(nn.Module):
    """What peft makes of a linear layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        dtype = torch.promote_types(base.weight.dtype, torch.float32)
        self.a = nn.Linear(base.in_features, R, bias=False, dtype=dtype)
        self.b = nn.Linear(R, base.out_features, bias=False, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        result = self.base(x)
        dtype = result.dtype
        x = x.to(self.a.weight.dtype)
        result = result + self.b(self.a(x)) * 4.0
        return result.to(dtype)


def rows(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(N, K, dtype=dtype)


def macs(report: opcost.Report) -> dict[str, int]:
    return {phase: stats.macs for phase, stats in report.phases.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("targets", ["up,down", "down"])
def test_adapters_are_what_a_real_step_with_them_runs_and_holds(targets: str, dtype: torch.dtype) -> None:
    own, x = Net().to(dtype).requires_grad_(False), rows(dtype)
    for name in targets.split(","):
        setattr(own, name, Adapted(getattr(own, name)))
    with Live() as live:
        own(x).backward()
    report = opcost.count(Net().to(dtype), x, backward=True, lora=f"r={R},targets={targets},alpha={4 * R}")
    assert work(report) == live.work
    seed = dtype.itemsize  # a loss begins with one number, which a count lets go when it was read
    assert live.peak - (report.memory.peak_bytes - report.memory.base_bytes) in (0, seed)


def test_a_frozen_layer_is_what_a_real_step_without_its_gradient_runs_and_holds() -> None:
    for frozen in ("up", "down"):
        own, x = Net(), rows()
        getattr(own, frozen).requires_grad_(False)
        with Live() as live:
            own(x).backward()
        report = opcost.count(Net(), x, backward=True, freeze=frozen)
        assert work(report) == live.work
        assert live.peak - (report.memory.peak_bytes - report.memory.base_bytes) in (0, 4)


def test_the_products_of_frozen_layers_by_hand() -> None:
    up, down = N * K * M, N * M * C
    trained = opcost.count(Net(), rows(), backward=True)
    assert macs(trained) == {"forward": up + down, "backward": up + 2 * down}  # no gradient of the input
    # Below the first trained layer nothing runs backward, and a frozen layer above it passes the gradient on.
    assert macs(opcost.count(Net(), rows(), backward=True, freeze="up"))["backward"] == down
    assert macs(opcost.count(Net(), rows(), backward=True, freeze="down"))["backward"] == up + down


def test_the_products_of_adapters_by_hand() -> None:
    report = opcost.count(Net(), rows(), backward=True, lora=BOTH)
    up, down = N * K * M, N * M * C
    assert report.totals.params == K * M + M + M * C + C + UP + DOWN
    assert report.totals.trainable_params == UP + DOWN
    forward = up + down + N * UP + N * DOWN  # a row is multiplied with every element of A and of B
    # Gradients of all four factors; through those of `down` and through its frozen weight also to its input,
    # and through B of `up` to the result of A.
    backward = N * (UP + DOWN) + down + N * DOWN + N * R * M
    assert macs(report) == {"forward": forward, "backward": backward}
    assert report.module("up.lora_A").own.params == R * K
    assert [note.code for note in report.notes] == ["lora"]
    assert report.meta["lora"] == BOTH


def test_an_optimizer_keeps_state_of_what_is_trained_alone() -> None:
    steps = 4  # one float32 counter for each parameter
    for options, trained, tensors in (
        ({}, K * M + M + M * C + C, 4), ({"freeze": "up"}, M * C + C, 2), ({"lora": BOTH}, UP + DOWN, 4),
    ):  # fmt: skip
        report = opcost.count(Net(), rows(), optimizer="adamw", **options)
        assert report.memory.parts["optimizer"] == 2 * 4 * trained + steps * tensors


@pytest.mark.parametrize(("frozen", "tensors"), [((), 4), (("0",), 3), (("0", "2"), 1)], ids=str)
def test_what_forward_keeps_is_what_autograd_saves(frozen: tuple[str, ...], tensors: int) -> None:
    def net() -> nn.Module:  # a product keeps its input, and a GELU too
        return nn.Sequential(nn.Linear(K, M), nn.GELU(), nn.Linear(M, M), nn.GELU(), nn.Linear(M, C))

    own, x = net(), rows()
    for path in frozen:
        own.get_submodule(path).requires_grad_(False)
    weights = {p.untyped_storage()._cdata for p in own.parameters()} | {x.untyped_storage()._cdata}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if (storage := tensor.untyped_storage()._cdata) not in weights:
            kept[storage] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = own(x)
    report = opcost.count(net(), x, backward=True, freeze=frozen)
    last = sum(row.op.phase == "forward" for row in report.rows) - 1
    assert sum(kept.values()) == 4 * tensors * N * M
    assert report.memory.curve[last] - report.memory.base_bytes == sum(kept.values()) + result.nbytes


def llama(**more: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=K, intermediate_size=M, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=C, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def test_adapters_of_a_language_model() -> None:
    model = llama()
    plain = opcost.count(model, tokens=N, backward=True)
    report = opcost.count(model, tokens=N, backward=True, lora=f"r={R},targets=q_proj,v_proj")
    query, value = R * (K + K), R * (K + K // 2)  # half as many heads of keys and values
    assert report.totals.params - plain.totals.params == report.totals.trainable_params == 2 * (query + value)
    assert macs(report)["forward"] - macs(plain)["forward"] == N * 2 * (query + value)
    whole = opcost.count(model, tokens=N, backward=True, lora=f"r={R},targets=*_proj")
    gate, out = R * (K + M), query
    assert whole.totals.trainable_params == 2 * (query + 2 * value + out + 3 * gate)
    decode = opcost.count(model.eval(), decode=1, cache=N, lora=f"r={R},targets=q_proj")
    assert decode.totals.macs - opcost.count(model, decode=1, cache=N).totals.macs == 2 * query


def test_a_transposed_linear_layer_has_adapters_too() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=K, n_layer=2, n_head=2, vocab_size=C, n_positions=N)
    report = opcost.count(transformers.GPT2LMHeadModel(config), tokens=N, lora=f"r={R},targets=c_attn")
    assert report.totals.trainable_params == 2 * R * (K + 3 * K)
    assert report.module("transformer.h.0.attn.c_attn").total.macs == N * K * 3 * K + N * R * (K + 3 * K)


def test_patterns_mean_modules_with_all_below_and_parameters() -> None:
    model = llama(tie_word_embeddings=True)
    embedding, norm = C * K, K
    block = 2 * K * K + 2 * K * (K // 2) + 3 * K * M + 2 * norm
    for pattern, trained in (
        ("model.*", 0), ("layers.*", embedding + norm), ("layers.0", embedding + norm + block),
        ("lm_head", 2 * block + norm), ("embed_tokens.weight", 2 * block + norm),  # one parameter of two names
        (("layers.*", "embed_tokens"), norm),
    ):  # fmt: skip
        report = opcost.count(model, tokens=N, freeze=pattern)
        assert report.totals.trainable_params == trained, pattern
        assert report.totals.params == embedding + norm + 2 * block


def test_a_model_in_another_type_has_adapters_in_float32() -> None:
    for options in ({"dtype": "bfloat16"}, {"precision": "bfloat16"}):
        shapes = {"shapes": f"{N}x{K}"}
        report = opcost.count(Net(), **shapes, **options, backward=True, lora=BOTH)
        assert report.totals.param_bytes == 2 * (K * M + M + M * C + C) + 4 * (UP + DOWN)


def test_nothing_about_the_model_changes_also_if_it_fails_or_is_interrupted() -> None:
    class Stops(Net):
        error: BaseException | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.error is not None:
                raise self.error
            return super().forward(x)

    for error, raised in (
        (None, None), (ValueError("as it pleases"), ForwardError), (KeyboardInterrupt(), KeyboardInterrupt),
    ):  # fmt: skip
        model = Stops()
        model.error = error
        before = [(module, dict(vars(module)), dict(module._modules)) for module in model.modules()]
        weights = [(p, p._version, p.requires_grad, p.grad) for p in model.parameters()]
        for options in ({"lora": BOTH}, {"freeze": "up"}):
            if raised is None:
                opcost.count(model, rows(), optimizer="adamw", **options)
            else:
                with pytest.raises(raised):
                    opcost.count(model, rows(), optimizer="adamw", **options)
        after = [(module, dict(vars(module)), dict(module._modules)) for module in model.modules()]
        assert [m is n and a == b and c == d for (m, a, c), (n, b, d) in zip(before, after, strict=True)]
        assert before == after
        found = [(p, p._version, p.requires_grad, p.grad) for p in model.parameters()]
        assert [entry[1:] for entry in found] == [entry[1:] for entry in weights]
        assert all(a[0] is b[0] for a, b in zip(found, weights, strict=True))


def test_values_may_decide_what_runs() -> None:
    class Gated(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if self.up(x).sum().item() < 1e30 else x.sum()

    report = opcost.count(Gated(), rows(), backward=True, lora=BOTH)
    assert "real-values" in [note.code for note in report.notes]
    assert report.totals.trainable_params == UP + DOWN


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"freeze": "upp"}, UnknownName, "unknown module or parameter 'upp'; did you mean 'up'"),
        ({"lora": "r=2,targets=dwn"}, UnknownName, "unknown linear layer 'dwn'; did you mean 'down'"),
        ({"lora": "r=2,targets=*_proj"}, UnknownName, "unknown linear layer '\\*_proj'; known: down, up"),
        ({"lora": "r=2,targets=act"}, InputError, "act is a ReLU, and LoRA adapts nn.Linear"),
        ({"lora": "r=0,targets=up"}, InputError, "r of lora is 0; it must be a whole number above zero"),
        ({"lora": "r=-1,targets=up"}, InputError, "r of lora is -1; it must be a whole number above zero"),
        ({"lora": "r=x,targets=up"}, InputError, "r of lora is 'x'"),
        ({"lora": "r=2"}, InputError, "lora does not say targets"),
        ({"lora": "16"}, InputError, "lora is '16', which describes no adapters"),
        ({"lora": 16}, InputError, "lora is 16, which describes no adapters"),
        ({"lora": "r=2,targets=up,alpha=0"}, InputError, "alpha of lora is 0; it must be a number above zero"),
        ({"lora": {"rank": 2, "targets": "up"}}, UnknownName, "unknown value of lora 'rank'"),
        ({"lora": BOTH, "freeze": "up"}, InputError, "lora freezes the whole model, and freeze a part of it"),
        ({"freeze": ["up", "down"]}, ForwardError, "there is nothing to differentiate"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_an_error(options: dict[str, Any], error: type[Exception], said: str) -> None:
    model = Net()
    model.act = nn.ReLU()
    with pytest.raises(error, match=said):
        opcost.count(model, rows(), backward=True, **options)


def test_lazy_and_scripted_layers() -> None:
    lazy = nn.Sequential(nn.LazyLinear(M), nn.Linear(M, C))
    report = opcost.count(lazy, rows(), backward=True, freeze="0")
    assert (report.totals.trainable_params, macs(report)["backward"]) == (M * C + C, N * M * C)
    assert isinstance(lazy[0], nn.LazyLinear)
    with pytest.raises(InputError, match="0 is lazy, so its adapters have no shape yet"):
        opcost.count(lazy, rows(), lora="r=2,targets=0")
    with pytest.warns(DeprecationWarning, match="script"):
        scripted = torch.jit.script(nn.Sequential(nn.Linear(K, M)))
    with pytest.raises(InputError, match="cannot be frozen from outside"):
        opcost.count(scripted, rows(), freeze="0")


def test_files_are_refused_with_what_to_do(tmp_path: Any) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(K, M), (torch.zeros(N, K),)), path)
    for options, name in (({"freeze": "weight"}, "freeze"), ({"lora": BOTH}, "lora")):
        with pytest.raises(InputError, match=f"{name} needs a model in PyTorch, and this is read by the pt2"):
            opcost.count(str(path), **options)
