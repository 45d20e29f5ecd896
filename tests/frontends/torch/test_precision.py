"""Precision: all of a model in another type, and autocast as PyTorch has it on the processor and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers_live import Live, work
from torch import Tensor, nn

import opcost
from opcost.errors import ForwardError, InputError, UnknownName
from opcost.frontends.torch.recording.device_rules import RULES, autocast_as

pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
N, K, M, C = 4, 16, 32, 8
"""Rows, and the features of two layers: in, between, out."""


class Classifier(nn.Module):
    """Convolution, normalisations, attention, a weight that is used twice, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv1d(3, K, 3, padding=1), nn.BatchNorm1d(K)
        self.mix, self.after = nn.Linear(K, K), nn.LayerNorm(K)
        self.head = nn.Linear(K, C)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.norm(self.stem(x))).transpose(1, 2)
        one_head = y.unsqueeze(1)
        y = y + F.scaled_dot_product_attention(self.mix(one_head), one_head, one_head).squeeze(1)
        y = self.after(y + self.mix(y).softmax(-1))
        return F.cross_entropy(self.head(y).mean(1), torch.zeros(len(x), dtype=torch.int64))


def images() -> Tensor:
    return torch.randn(N, 3, 8)


# -- all of the model in one type ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bfloat16", "bf16"])
def test_a_precision_is_that_of_the_model_and_of_inputs_that_were_given(name: str) -> None:
    model, x = nn.Linear(K, M), torch.randn(N, K)
    report = opcost.count(model, x, precision=name, backward=True)
    assert {spec.dtype for row in report.rows for spec in (*row.ins, *row.outs)} == {"bfloat16"}
    assert report.totals.param_bytes == 2 * (K * M + M)
    assert report.memory.parts["inputs"] == 2 * N * K
    assert model.weight.dtype is x.dtype is torch.float32


def test_a_precision_leaves_integers_alone_and_keeps_the_names_of_inputs() -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(C, K)

        def forward(self, tokens: Tensor, scale: Tensor) -> Tensor:
            return self.table(tokens) * scale

    report = opcost.count(Looks(), (torch.zeros(N, dtype=torch.int64), torch.ones(K)), precision="fp16")
    assert [(name, spec.dtype) for name, spec in report.inputs] == [("tokens", "int64"), ("scale", "float16")]


def test_one_of_dtype_and_precision_is_enough() -> None:
    with pytest.raises(InputError, match="dtype and precision both name an element type"):
        opcost.count(nn.Linear(K, M), shapes=(N, K), dtype="bf16", precision="fp16")
    with pytest.raises(UnknownName, match=r"unknown precision 'bf16-mixd'; did you mean 'bf16-mixed'"):
        opcost.count(nn.Linear(K, M), shapes=(N, K), precision="bf16-mixd")


# -- mixed, as on a processor: what PyTorch itself does -----------------------------------------------------------------


@pytest.mark.parametrize("lower", [torch.bfloat16, torch.float16], ids=str)
def test_mixed_precision_runs_the_operators_and_holds_the_bytes_of_a_real_step(lower: torch.dtype) -> None:
    model, x = Classifier().train(), images()
    with Live() as live:
        with torch.autocast("cpu", lower):
            loss = model(x)
        loss.backward()
    name = {torch.bfloat16: "bf16-mixed", torch.float16: "fp16-mixed"}[lower]
    report = opcost.count(model, x, precision=name, backward=True, mode="train")
    assert work(report) == live.work
    seed = 4  # a loss begins with one number, which a count lets go when it was read
    assert live.peak - (report.memory.peak_bytes - report.memory.base_bytes) in (0, seed)


@pytest.mark.parametrize("options", [{}, {"backward": True}, {"optimizer": "adamw"}], ids=str)
def test_tensors_without_data_are_cast_and_kept_as_real_ones(options: dict[str, Any]) -> None:
    model, x = Classifier(), images()
    dataless, real = (opcost.count(model, x, precision="bf16-mixed", real=real, **options) for real in (False, True))
    assert work(dataless) == work(real)
    assert dataless.memory.parts == real.memory.parts
    assert dataless.memory.peak_bytes == real.memory.peak_bytes


def test_weights_without_memory_are_cast_too() -> None:
    x = images()
    with torch.device("meta"):
        nowhere = Classifier()
    dataless, plain = (
        opcost.count(model, x, precision="bf16-mixed", backward=True) for model in (nowhere, Classifier())
    )
    assert work(dataless) == work(plain)
    assert dataless.memory == plain.memory


def test_a_cast_weight_is_kept_until_the_forward_pass_is_over() -> None:
    # Both layers, of 1 MiB each, are kept a second time in half the bytes, although the first is done.
    model = nn.Sequential(nn.Linear(512, 512, bias=False), nn.Linear(512, 512, bias=False))
    memory = opcost.count(model, torch.zeros(1, 512), precision="bf16-mixed").memory
    row, weight = 512 * 4, 512 * 512 * 4
    assert memory.base_bytes == 2 * weight + row
    # Casts of both weights and of the input (whose result the first layer has returned), and both results.
    assert memory.peak_bytes - memory.base_bytes == 2 * weight // 2 + 2 * row // 2
    frozen = opcost.count(model.requires_grad_(False), torch.zeros(1, 512), precision="bf16-mixed").memory
    assert frozen.peak_bytes - frozen.base_bytes == weight // 2 + 2 * row // 2  # no gradient, nothing kept


def test_casts_run_from_the_last_argument_to_the_first_on_every_machine() -> None:
    # C++ leaves the order to the compiler: PyTorch's builds for x86-64 cast from the right, those for ARM from the left.
    report = opcost.count(nn.Linear(K, M), torch.zeros(N, K), precision="bf16-mixed", backward=True)
    shapes = [row.ins[0].shape for row in report.rows if row.op.raw == "aten::_to_copy"]
    assert shapes == [(M,), (M, K), (N, K), (M, K), (M,)]  # then the gradients, in the opposite order


def test_the_backward_pass_runs_outside() -> None:
    model = nn.Sequential(nn.Linear(K, M, bias=False), nn.LayerNorm(M, bias=False))
    report = opcost.count(model, torch.zeros(N, K), precision="bf16-mixed", backward=True, device="h200")
    names = [row.op.raw.removeprefix("aten::") for row in report.rows if row.op.phase == "backward"]
    # To bfloat16, as the layer's result was; then the weight's gradient to float32, as the weight.
    assert [name for name in names if name not in ("ones_like", "t")] == [
        "native_layer_norm_backward",
        "_to_copy",
        "mm",
        "_to_copy",
    ]


# -- mixed, as on a GPU ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("like", "key"), [("cuda", "AutocastCUDA"), ("cpu", "AutocastCPU")])
def test_every_operator_for_which_this_pytorch_has_a_rule_has_one_here(like: str, key: str) -> None:
    known = {name for lines in RULES[like].values() for line in lines for name in line.split()}
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    assert known == {name.removeprefix("aten::") for name in registered}


@pytest.mark.parametrize("model", [Classifier(), nn.GRU(K, K), nn.PReLU()], ids=lambda model: type(model).__name__)
def test_the_rules_of_the_processor_are_those_of_pytorch(model: nn.Module) -> None:
    x = images() if isinstance(model, Classifier) else torch.randn(N, K)
    seen = []
    for rules in (nullcontext(), autocast_as("cpu")):
        with Live() as live, rules, torch.autocast("cpu", torch.bfloat16):
            model(x)
        seen.append(live.ops)
    assert seen[0] == seen[1]


def reads(call: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> list[str]:
    """The types that the operators of a call read under autocast on a GPU, casts left out."""
    with Live() as live, autocast_as("cuda"), torch.autocast("cuda", dtype):
        call(*(torch.ones(shape, dtype=dtype) for shape in shapes))
    return [read[0] for name, read in live.ops if name != "aten::_to_copy" and read]


def test_a_gpu_has_rules_of_its_own() -> None:
    assert reads(lambda x: F.layer_norm(x, (M,)), (N, M)) == ["float32"]  # a processor leaves it as it is
    assert reads(lambda x: x.exp(), (N,)) == reads(lambda x: x.pow(2), (N,)) == ["float32"]
    assert reads(F.gelu, (N,)) == ["bfloat16"]
    assert reads(lambda x: torch.fft.rfft(x.float()), (N,))[0] == "float32"
    assert reads(lambda x: F.pad(x, (1, 1), "reflect"), (1, 1, 4)) == ["bfloat16"]  # a processor casts to float32
    with Live() as live, autocast_as("cuda"), torch.autocast("cpu", torch.bfloat16):
        summed, normed = torch.ones(N, dtype=torch.bfloat16).sum(), torch.ones(N, dtype=torch.bfloat16).norm()
        widest = torch.addcmul(torch.ones(N), *[torch.ones(N, dtype=torch.bfloat16)] * 2)
    assert summed.dtype is normed.dtype is widest.dtype is torch.float32
    assert ("aten::addcmul", ("float32",) * 3) in live.ops
    with autocast_as("cuda"), torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="unsafe"):
        F.binary_cross_entropy(torch.ones(N), torch.ones(N))


def test_a_composite_operator_casts_where_its_parts_do() -> None:
    report = opcost.count(Classifier(), images(), precision="bf16-mixed", device="h200")
    # The loss has no rule on a GPU, but one of its parts does; of the other the type of its input is read.
    parts = {row.op.raw: row.ins[0].dtype for row in report.rows if row.ins}
    assert (parts["aten::_log_softmax"], parts["aten::nll_loss_forward"]) == ("bfloat16", "float32")
    assert parts["aten::native_layer_norm"] == parts["aten::_softmax"] == "float32"
    assert parts["aten::convolution"] == parts["aten::gelu"] == "bfloat16"
    assert next(note.text for note in report.notes if note.code == "autocast").startswith(
        "forward runs under autocast to bfloat16 by the rules that PyTorch has for cuda"
    )


def test_halves_become_float32_inside_a_softmax_on_a_gpu() -> None:
    model = nn.Sequential(nn.Linear(K, M), nn.Softmax(-1))
    for name, casts in (("fp16-mixed", 0), ("bf16-mixed", 1)):
        report = opcost.count(model, torch.zeros(N, K), precision=name, device="h200")
        softmax = next(row for row in report.rows if row.op.raw == "aten::_softmax")
        assert softmax.outs[0].dtype == "float32"
        assert sum(row.op.raw == "aten::_to_copy" for row in report.rows) == 3 + casts  # weight, bias and input besides


def test_attention_in_float32_is_cast_before_a_gpu_chooses_its_kernel() -> None:
    class Attends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    x = torch.zeros(1, 2, 64, 32)
    report = opcost.count(Attends(), x, precision="bf16-mixed", device="h200")
    assert [row.op.raw for row in report.rows] == ["aten::_to_copy"] * 3 + ["aten::_scaled_dot_product_flash_attention"]


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_what_a_model_says_about_autocast_holds(device_type: str) -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(K, K, bias=False), nn.Linear(K, K, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast(device_type, enabled=False):
                x = self.first(x)
            return self.second(x)

    report = opcost.count(Careful(), torch.zeros(N, K), precision="bf16-mixed", device="h200")
    products = [row.ins[0].dtype for row in report.rows if row.cost is not None and row.cost.macs]
    assert products == ["float32", "bfloat16"]


def test_everything_is_as_before_also_after_a_failure() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert torch.is_autocast_enabled("cpu")
            raise ValueError("as it pleases")

    before = torch.autocast.__init__, torch.clear_autocast_cache
    with pytest.raises(ForwardError, match="as it pleases"):
        opcost.count(Fails(), torch.zeros(N), precision="bf16-mixed", device="h200")
    assert (torch.autocast.__init__, torch.clear_autocast_cache) == before
    assert not torch._C._is_any_autocast_enabled()
    with torch.autocast("cpu", torch.bfloat16):  # PyTorch's own rules are at work
        assert F.layer_norm(torch.ones(N, dtype=torch.bfloat16), (N,)).dtype is torch.bfloat16


def test_a_cache_of_tokens_is_in_the_type_of_what_autocast_makes() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=K, n_layer=2, n_head=2, vocab_size=C, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).eval()
    for name, size in ((None, 4), ("bf16-mixed", 2)):
        for options in ({"prefill": 4}, {"decode": 1, "cache": 3}):
            report = opcost.count(model, precision=name, **options)
            assert int(report.meta["cache_bytes"]) == 2 * 2 * 4 * K * size  # keys and values of two layers


def test_files_are_refused_with_what_to_do(tmp_path: Any) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(K, M), (torch.zeros(N, K),)), path)
    with pytest.raises(InputError, match="mixed precision needs a model in PyTorch, and this is read by the pt2"):
        opcost.count(str(path), precision="bf16-mixed")
