"""A program in a file costs what the model costs that was exported, and what the program in memory costs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sampling import chosen
from torch import Tensor, nn

import opcost
from opcost.frontends.torch.recording.training_step import TrainingPass

Saved = Callable[..., Path]
TOTALS = (
    "params", "trainable_params", "unused_params", "buffers", "macs", "flops", "bytes_read", "bytes_written", "activations",
)  # fmt: skip


class Of(nn.Module):
    """A function as a model, with the modules it uses."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


@pytest.fixture(autouse=True)
def _by_last_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file does not run, so that the memory of models is compared without what their runs hold."""
    monkeypatch.setattr(TrainingPass, "lifetimes", lambda *_: None)


def kinds(report: opcost.Report) -> dict[str, tuple[int, ...]]:
    """MACs, FLOPs and bytes of each kind; views cost nothing, and both sides write them differently."""
    found: dict[str, tuple[int, ...]] = {}
    for row in report.rows:
        if row.op.kind == "view":
            continue
        assert row.cost is not None, f"{row.op.raw} is not counted"
        cost = (row.cost.macs, row.cost.flops, row.cost.bytes_read, row.cost.bytes_written)
        found[row.op.kind] = tuple(map(sum, zip(found.get(row.op.kind, (0, 0, 0, 0)), cost, strict=True)))
    return found


def same(path: Path, live: opcost.Report, *, without: tuple[str, ...] = ()) -> opcost.Report:
    """The report of the file, equal to that of the model but for what is named."""
    report = opcost.count(path)
    for name in TOTALS:
        if name not in without:
            assert getattr(report.totals, name) == getattr(live.totals, name), name
    if "peak_bytes" not in without:
        assert report.peak_bytes == live.peak_bytes
    moved = bool({"bytes_read", "bytes_written"} & set(without))
    ours, theirs = kinds(report), kinds(live)
    if moved:
        ours, theirs = ({kind: cost[:2] for kind, cost in side.items() if any(cost[:2])} for side in (ours, theirs))
    assert ours == theirs
    return report


R = torch.rand
TOKENS = torch.zeros(2, 5, dtype=torch.long)


def in_place(_: Any, x: Tensor) -> Tensor:
    y = x + 1
    y += x
    y.mul_(2)
    y[0] += 1
    return y.relu_()


def tied() -> nn.Module:
    model = Of(lambda m, i: m.o(m.n(m.e(i))), e=nn.Embedding(20, 8), n=nn.LayerNorm(8), o=nn.Linear(8, 20, bias=False))
    model.o.weight = model.e.weight  # type: ignore[assignment, union-attr]
    model.unused = nn.Linear(3, 3)
    model.register_buffer("scale", torch.ones(3))
    return model


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, groups=4, bias=False), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(16, 10),
    )  # fmt: skip


def decoder_net() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(3, 4, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(2), nn.LeakyReLU(),
        nn.AvgPool2d(2), nn.InstanceNorm2d(1, affine=True), nn.Hardswish(), nn.ReflectionPad2d(1),
    )  # fmt: skip


def arithmetic(_: Any, x: Tensor) -> Tensor:
    y = F.gelu(x) + F.silu(x) * F.softplus(x) - F.elu(x) / F.hardtanh(x) + torch.where(x > 0, x, -x).clamp(0, 1)
    y = y + F.selu(x) + F.relu6(x) + torch.square(x) + F.logsigmoid(x) + F.glu(torch.cat([x, x], -1)) + F.rrelu(x)
    y = y + F.normalize(x) + F.cosine_similarity(x, x)[..., None] + F.layer_norm(x, (8,)) + F.rms_norm(x, (8,), x[0])
    y = y + x.softmax(-1) + x.log_softmax(-1) + x.std(-1, keepdim=True) + x.norm() + x.cumsum(-1) + x.abs().max()
    return (
        y + x.sort(-1)[0] + x.topk(8)[0] + x.logsumexp(-1, keepdim=True) + torch.isfinite(x) + x.diff(prepend=x[:, :1])
    )


def moves(_: Any, x: Tensor, i: Tensor) -> Tensor:
    y = torch.cat([x.permute(1, 0, 2).reshape(3, -1), x.transpose(0, 1).contiguous().view(3, -1)], 1).index_select(0, i)
    y = y + x.expand(2, 3, 4).sum() + torch.stack([x, x]).sum() + x.to(torch.float64).to(torch.float32).sum()
    y = y + x[:, i].sum() + torch.zeros(2).scatter_add(0, i, x[0, 0, :2]).sum() + x.masked_fill(x > 0, 0).sum()
    y = y + F.one_hot(i, 4).sum() + torch.meshgrid(i, i, indexing="ij")[0].sum() + x.repeat_interleave(2, 0).sum()
    return y + x.flip(0).permute(1, 0, 2).flatten(1).sum() + x.chunk(2, -1)[0].sum() + torch.where(x > 0, x, 0.0).sum()


def losses(_: Any, x: Tensor, t: Tensor) -> Tensor:
    y = F.cross_entropy(x, t) + F.mse_loss(x, x * 2) + F.l1_loss(x, x * 3) + F.smooth_l1_loss(x, x * 2)
    y = y + F.nll_loss(x.log_softmax(-1), t)
    return y + F.pairwise_distance(x, x * 2).sum()


def attention(*shapes: tuple[int, ...], **how: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = Of(lambda m, q, k, *mask: F.scaled_dot_product_attention(q, k, k, *mask, **how))
    return model, tuple(R(*shape) for shape in shapes)


def products(_: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    y = (
        (a @ b).sum()
        + (a @ c).sum()
        + (c @ b[0]).sum()
        + (a @ b[0, :, 0]).sum()
        + torch.matmul(a[:, None], b[None]).sum()
    )
    y = y + (a.transpose(1, 2) @ a).sum() + (c[:3] @ a).sum() + torch.dot(c, c) + torch.bmm(a, b).mean()
    return y + torch.tensordot(a, b, dims=([2], [1])).sum()


def einsums(_: Any, a: Tensor, b: Tensor) -> Tensor:
    y = torch.einsum("bhid,bhjd->bhij", a, b).sum() + torch.einsum("...i,i->...", a, b[0, 0, 0])[0].mean()
    y = y + torch.einsum("i,j->ij", a[0, 0, 0], b[0, 0, 0]).sum() + torch.einsum("ii->i", a[0, 0, :4, :4]).sum()
    y = y + torch.einsum("bhid,hd->bi", a, b[0, :, 0]).sum() + torch.einsum("nchw,kc->nkhw", a, b[0, :, :3, 0]).sum()
    return y + torch.einsum("ij,jk,kl->il", a[0, 0], b[0, 0].t(), b[0, 0]).sum() + torch.einsum("ij->i", a[0, 0]).sum()


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "convolutions": lambda: (conv_net().eval(), (R(2, 3, 16, 16),)),
    "convolutions in training": lambda: (conv_net(), (R(2, 3, 16, 16),)),
    "upsampling": lambda: (decoder_net().eval(), (R(1, 3, 8, 8),)),
    "lstm": lambda: (nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True), (R(2, 4, 6),)),
    "gru": lambda: (nn.GRU(6, 5, 2), (R(4, 2, 6),)),
    "rnn": lambda: (nn.RNN(6, 5, bias=False), (R(4, 2, 6),)),
    "cells": lambda: (
        Of(
            lambda m, x, h: m.r(x, m.g(x, m.l(x, (h, h))[0])),
            l=nn.LSTMCell(6, 5),
            g=nn.GRUCell(6, 5),
            r=nn.RNNCell(6, 5),
        ),
        (R(2, 6), R(2, 5)),
    ),
    "encoder": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval(),
        (R(2, 5, 16),),
    ),
    "transformer": lambda: (nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval(), (R(2, 5, 16), R(2, 3, 16))),
    "attention with weights": lambda: (
        Of(lambda m, x: m.m(x, x, x)[0], m=nn.MultiheadAttention(16, 4)).eval(),
        (R(5, 2, 16),),
    ),
    "attention": lambda: attention((2, 4, 5, 8), (2, 4, 7, 8)),
    "causal attention": lambda: attention((2, 4, 5, 8), (2, 4, 5, 8), is_causal=True),
    "attention without heads": lambda: attention((2, 5, 8), (2, 7, 8)),
    "causal attention without heads": lambda: attention((2, 5, 8), (2, 5, 8), is_causal=True),
    "grouped attention": lambda: attention((2, 4, 5, 8), (2, 2, 7, 8), enable_gqa=True),
    "attention with dropout": lambda: attention((2, 4, 5, 8), (2, 4, 5, 8), dropout_p=0.5),
    "masked attention": lambda: (attention()[0], (R(2, 4, 5, 8), R(2, 4, 5, 8), torch.ones(5, 5, dtype=torch.bool))),
    "products": lambda: (Of(products), (R(2, 3, 4), R(2, 4, 5), R(4))),
    "einsums": lambda: (Of(einsums), (R(2, 3, 4, 8), R(2, 3, 5, 8))),
    "bilinear": lambda: (nn.Bilinear(4, 5, 3), (R(2, 4), R(2, 5))),
    "layers on transposed inputs": lambda: (
        Of(
            lambda m, x: m.f(m.l(x.transpose(0, 1)).transpose(0, 2)),
            l=nn.Linear(8, 5),
            f=nn.Linear(2, 2).requires_grad_(False),
        ),
        (R(3, 2, 8),),
    ),
    "arithmetic": lambda: (Of(arithmetic).eval(), (R(3, 8),)),
    "moves": lambda: (Of(moves), (R(2, 3, 4), torch.tensor([0, 1]))),
    "losses": lambda: (Of(losses), (R(3, 8), torch.zeros(3, dtype=torch.long))),
    "divergence": lambda: (
        Of(lambda m, x: F.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean")),
        (R(3, 8),),
    ),
    "in place": lambda: (Of(in_place), (R(3, 4),)),
    "tied and unused weights": lambda: (tied(), (TOKENS,)),
    "a module called twice": lambda: (
        Of(lambda m, x: m.l(m.b(m.b(m.l(x)))), l=nn.Linear(4, 4), b=nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
        (R(2, 4),),
    ),
    "weight norm": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (R(2, 4),)),
    "fourier": lambda: (Of(lambda m, x: torch.fft.irfft(torch.fft.rfft(x)).sum()), (R(2, 8),)),
    "half precision": lambda: (
        Of(lambda m, x: F.rms_norm(m.l(x), (8,)), l=nn.Linear(8, 8)).to(torch.bfloat16),
        (R(2, 8, dtype=torch.bfloat16),),
    ),
    "a branch": lambda: (
        Of(lambda m, x: torch.cond(x.sum() > 0, lambda y: m.l(y).relu(), m.l, (x,)), l=nn.Linear(4, 4)),
        (R(2, 4),),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_file_costs_what_the_model_costs(name: str, saved: Saved) -> None:
    model, args = MODELS[name]()
    # Which of its two products kl_div computes first is up to the compiler that built PyTorch.
    without = ("peak_bytes",) if name == "divergence" else ()
    same(saved(model, *args), opcost.count(model, args), without=without)


TAKEN_APART = (
    "gru",
    "in place",
    "attention with weights",
    "causal attention",
    "convolutions",
    "moves",
    "losses",
    "a branch",
)
"""One of each way in which a decomposed program differs: every decomposition takes PyTorch a second."""


@pytest.mark.parametrize("name", chosen(MODELS, *TAKEN_APART))
def test_a_decomposed_file_costs_what_the_decomposed_program_costs(name: str, saved: Saved) -> None:
    """Its parts are others than those of the model: in-place writes are copies, attention and layers are taken apart.

    What PyTorch states as kept beside a normalised tensor and what its kernels then make differ in size.
    """
    model, args = MODELS[name]()
    path = saved(model, *args, decomposed=True)
    try:
        live = opcost.count(torch.export.load(path).module(), args)
    except opcost.OpcostError as exc:
        pytest.skip(f"the decomposed program itself does not run: {exc.message[:80]}")
    sizes = ("bytes_read", "bytes_written", "activations", "peak_bytes")
    same(path, live, without=sizes if name.startswith("convolutions") else ())


def test_inputs_by_name_and_nested(saved: Saved) -> None:
    model = Of(lambda m, x, *, d, p: m.l(x) + d["a"] * p[0] + d["b"][1], l=nn.Linear(4, 4))
    kwargs = {"d": {"a": R(2, 4), "b": [R(4), R(4)]}, "p": (R(4),)}
    path = saved(model, R(2, 4), kwargs=kwargs)
    report = same(path, opcost.count(model, (R(2, 4),), kwargs=kwargs))
    assert [str(spec) for _, spec in report.inputs] == ["2x4", "2x4", "4", "4", "4"]
    assert opcost.count(path, (R(2, 4),), kwargs=kwargs).totals == report.totals


def test_modules_are_those_of_the_model(saved: Saved) -> None:
    model, args = MODELS["encoder"]()
    live = opcost.count(model, args)
    report = opcost.count(saved(model, *args))
    of_live = {module.path: (module.total.macs, module.own.params) for module in live.modules}
    of_file = {module.path: (module.total.macs, module.own.params) for module in report.modules}
    assert of_file == {path: of_live[path] for path in of_file}
    assert {path for path, (macs, params) in of_live.items() if macs or params} <= set(of_file)
    types = {module.path: module.type for module in live.modules if module.calls}
    assert {module.path: module.type for module in report.modules if module.calls} == {
        path: kind for path, kind in types.items() if of_live[path][0] or path in of_file
    }


def test_a_module_called_twice_has_two_calls(saved: Saved) -> None:
    model, args = MODELS["a module called twice"]()
    calls = {module.path: module.calls for module in opcost.count(saved(model, *args)).modules}
    assert calls == {"": 1, "l": 2, "b": 2, "b.0": 2, "b.1": 2}


# -- loops --------------------------------------------------------------------------------------------------------------


def test_a_loop_over_an_axis_is_counted_so_many_times(saved: Saved) -> None:
    from torch._higher_order_ops import scan

    layer = nn.Linear(4, 4)
    scanned = saved(Of(lambda m, x, h: scan(lambda c, y: (m.l(c) + y, c * 2), h, x), l=layer), R(5, 2, 4), R(2, 4))
    report = opcost.count(scanned)
    assert report.totals.macs == 5 * (2 * 4 * 4)
    assert report.totals.flops == 5 * (2 * 2 * 4 * 4 + 3 * 2 * 4)
    assert not report.coverage.uncounted


def test_a_loop_of_unknown_length_is_unknown_and_says_so(saved: Saved) -> None:
    from torch._higher_order_ops import while_loop

    def turns(m: Any, x: Tensor) -> Any:
        return while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, m.l(y)), (torch.tensor(0), x))

    report = opcost.count(saved(Of(turns, l=nn.Linear(4, 4)), R(2, 4)))
    assert [found.raw for found in report.coverage.uncounted] == ["higher_order::while_loop"]
    assert "how often it runs depends on data" in report.notes[0].text


def test_a_branch_that_depends_on_data_is_noted(saved: Saved) -> None:
    model, args = MODELS["a branch"]()
    assert [note.code for note in opcost.count(saved(model, *args)).notes] == ["branch"]


def test_wrappers_of_gradients_and_precision_are_looked_through(saved: Saved) -> None:
    def modes(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = m.l(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.l(y)

    report = opcost.count(saved(Of(modes, l=nn.Linear(4, 4)), R(2, 4)))
    assert report.totals.macs == 2 * (2 * 4 * 4)
    assert not report.coverage.uncounted


# -- real models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name", "shape"), [("resnet18", "ResNet18", (1, 3, 64, 64)), ("transformer", "Decoder", (1, 32))]
)
def test_the_examples_cost_the_same(file: str, name: str, shape: tuple[int, ...], root: Path, saved: Saved) -> None:
    spec = importlib.util.spec_from_file_location(f"example_{file}", root / "examples" / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    model = getattr(module, name)().eval()
    x = R(*shape) if len(shape) == 4 else torch.zeros(shape, dtype=torch.long)
    same(saved(model, x), opcost.count(model, x))


@pytest.mark.zoo
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    chosen(
        [
            ("resnet50", 64), ("vit_tiny_patch16_224", 224), ("swin_tiny_patch4_window7_224", 224), ("mobilenetv3_small_100", 64),
            ("efficientnet_b0", 64), ("convnext_atto", 64), ("densenet121", 64), ("mixer_b16_224", 224), ("regnety_002", 64),
        ],
        *(("vit_tiny_patch16_224", 224), ("convnext_atto", 64)),
    ),
)  # fmt: skip
def test_models_of_timm_cost_the_same(name: str, size: int, saved: Saved) -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model(name).eval()
    x = R(1, 3, size, size)
    same(saved(model, x), opcost.count(model, x))


def _transformers_model(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    import transformers as hf

    small: dict[str, Any] = {"vocab_size": 50, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
    ids = torch.zeros(1, 8, dtype=torch.long)
    if name == "bert":
        return hf.BertModel(hf.BertConfig(**small, intermediate_size=64)), {"input_ids": ids}
    if name == "gpt2":
        config = hf.GPT2Config(
            n_embd=32, n_layer=2, n_head=4, vocab_size=50, use_cache=False, bos_token_id=0, eos_token_id=0
        )
        return hf.GPT2LMHeadModel(config), {"input_ids": ids}
    config = hf.LlamaConfig(**small, intermediate_size=64, num_key_value_heads=2, use_cache=False)
    return hf.LlamaForCausalLM(config), {"input_ids": ids}


@pytest.mark.zoo
@pytest.mark.parametrize("name", chosen(["bert", "gpt2", "llama"], "llama"))
def test_models_of_transformers_cost_what_their_program_costs(name: str, saved: Saved) -> None:
    """While they are exported they make their masks in another way, so a few elementwise operators differ from the model's."""
    pytest.importorskip("transformers")
    model, kwargs = _transformers_model(name)
    model.eval()
    path = saved(model, kwargs=kwargs)
    same(path, opcost.count(torch.export.load(path).module(), kwargs=kwargs))
    report, live = opcost.count(path), opcost.count(model, kwargs=kwargs)
    assert (report.totals.macs, report.totals.params) == (live.totals.macs, live.totals.params)
    assert {kind: cost[0] for kind, cost in kinds(report).items() if cost[0]} == {
        kind: cost[0] for kind, cost in kinds(live).items() if cost[0]
    }


def test_where_the_program_states_other_memory_than_the_model_only_bytes_differ(saved: Saved) -> None:
    """Embedding bags keep more beside their result, and padding by a circle writes its parts one by one."""
    for model, args in (
        (nn.EmbeddingBag(20, 8), (TOKENS,)),
        (nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"), (R(1, 3, 9),)),
    ):
        sizes = ("bytes_read", "bytes_written", "activations", "peak_bytes")
        same(saved(model, *args), opcost.count(model, args), without=sizes)
