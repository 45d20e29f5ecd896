"""Weights in few bits: what is stored and read is derived from the layer's extents, and torchao's own layers give the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.analysis.changes import changes
from opcost.core.option import filled
from opcost.errors import InputError, UnknownName
from opcost.frontends.torch.recording.recorder import REPLAYS_AFTER
from opcost.options import Costing

N, SIDE, GROUP = 8, 4096, 128
WEIGHT = SIDE * SIDE
STORED = {
    "int8": (WEIGHT, 4 * SIDE),  # a scale for each row
    "int4": (WEIGHT // 2, 2 * 2 * WEIGHT // GROUP),  # a scale and a zero point for each group
    "fp8": (WEIGHT, 4),  # one scale
}


def rows(dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(N, SIDE, dtype=dtype)


def layer(**settings: Any) -> nn.Linear:
    return nn.Linear(SIDE, SIDE, **{"dtype": torch.bfloat16, "device": "meta", "bias": False, **settings})


@pytest.mark.parametrize("scheme", STORED)
def test_a_layer_has_as_many_parameters_in_the_bytes_that_are_stored(scheme: Any) -> None:
    report = opcost.count(layer(), rows(), quantize=scheme)
    stored, scales = STORED[scheme]
    assert report.coverage.complete
    assert report.totals.params == WEIGHT
    assert report.totals.param_bytes == stored
    assert report.totals.buffer_bytes == scales
    assert report.totals.macs == N * WEIGHT
    assert report.meta["quantize"] == scheme


@pytest.mark.parametrize(
    ("scheme", "raw", "read"),
    [
        ("int8", "aten::mm", 2 * N * SIDE + 2 * WEIGHT),  # of the converted weight
        ("int4", "aten::_weight_int4pack_mm", 2 * N * SIDE + WEIGHT // 2 + 4 * WEIGHT // GROUP),
        ("fp8", "aten::_scaled_mm", N * SIDE + WEIGHT + 4 + 4),  # converted activations; a scale of each
    ],
)
def test_a_product_reads_what_its_kernel_reads(scheme: Any, raw: str, read: int) -> None:
    report = opcost.count(layer(), rows(), quantize=scheme)
    (product,) = [row for row in report.rows if row.op.kind == "matmul"]
    assert product.op.raw == raw
    assert product.cost is not None
    assert product.cost.bytes_read == read
    if scheme == "int8":
        (converted,) = [row for row in report.rows if row.op.raw == "aten::_to_copy" and row.ins[0].dtype == "int8"]
        assert converted.cost is not None
        assert (converted.cost.bytes_read, converted.cost.bytes_written) == (WEIGHT, 2 * WEIGHT)


def test_the_model_of_the_user_stays_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU())
    before = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    opcost.count(model, torch.empty(2, 256), quantize="int8")
    after = model.state_dict(keep_vars=True)
    for name, (tensor, values) in before.items():
        assert after[name] is tensor
        assert torch.equal(tensor, values)


class Tied(nn.Module):
    """Two layers that share a weight, one that reads with an embedding, one whose extents fit no kernel, and one that fits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 128), nn.Linear(128, 256, bias=False)
        self.head.weight = self.embed.weight
        self.odd, self.even = nn.Linear(128, 100), nn.Linear(128, 128)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.even(self.embed(tokens))
        return self.head(x), self.odd(x)


def test_tied_weights_and_extents_that_no_kernel_takes_are_left_and_noted() -> None:
    report = opcost.count(Tied(), torch.zeros(1, 4, dtype=torch.int64), quantize="fp8")
    types = {parameter.name: parameter.spec.dtype for parameter in report.parameters if not parameter.buffer}
    assert types.pop("even.weight") == "float8_e4m3fn"
    assert set(types.values()) == {"float32"}
    (note,) = [note for note in report.notes if note.code == "quantized"]
    share = 128 * 128 / (256 * 128 + 128 * 100 + 100 + 128 * 128 + 128)
    assert f"weights of 1 linear layer, {round(100 * share)} % of the parameters" in note.text
    assert "2 other linear layers as before" in note.text


def test_the_last_layer_of_a_language_model_is_left() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2, vocab_size=512
    )
    report = opcost.count(transformers.LlamaForCausalLM(config).eval(), decode=1, cache=8, quantize="int4")
    few = [parameter.name for parameter in report.parameters if parameter.spec.dtype == "int4"]
    assert len(few) == 2 * 7
    assert all(".layers." in name for name in few)
    assert report.coverage.complete


class FewBitsOfAUser(torch.Tensor):
    """A weight of a class that answers functions itself, and no operator."""

    values: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32)
        made.values = values
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["values"], None

    @classmethod
    def __tensor_unflatten__(cls, inside: dict[str, Tensor], *_: Any) -> Any:
        return cls.of(inside["values"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            return args[0] @ args[1].values.t().to(args[0].dtype)
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls.of(args[0].values)
        raise NotImplementedError(func)


def test_a_weight_that_answers_functions_itself_does_so_in_a_long_run_too() -> None:
    linear = nn.Linear(16, 16, bias=False)
    linear.weight = nn.Parameter(FewBitsOfAUser.of(torch.ones(16, 16, dtype=torch.int8)), requires_grad=False)
    turns = REPLAYS_AFTER // 3 + 100

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(turns):
                x = self.linear(x)
            return x

    with torch.no_grad():
        report = opcost.count(Loop().eval(), torch.empty(2, 16))
    assert report.totals.macs == turns * 2 * 16 * 16


def test_adapters_train_beside_weights_in_few_bits() -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    report = opcost.count(model, torch.empty(N, 64), quantize="int8", lora="r=2,targets=0", backward=True)
    assert report.totals.trainable_params == 2 * 2 * 64
    assert report.totals.param_bytes == 2 * 64 * 64 + 4 * 2 * 2 * 64


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"quantize": "int3"}, UnknownName, "unknown value of quantize 'int3'"),
        ({"quantize": "int8", "backward": True}, InputError, "weights of few bits are not trained"),
        ({"quantize": "int8", "real": True}, InputError, "quantized weights are made without data"),
        ({"quantize": "int4"}, InputError, "Linear has no linear layer that could store its weight as int4"),
    ],
)
def test_what_cannot_be_is_said(options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        opcost.count(nn.Linear(100, 100), torch.empty(N, 100), **options)


def test_a_model_that_reads_such_a_weight_otherwise_is_refused() -> None:
    class Reads(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.t()

    with pytest.raises(InputError, match=r"aten\.t\.default reads a quantized weight"):
        opcost.count(Reads(128, 128), torch.empty(N, 128), quantize="int8")


@pytest.mark.parametrize(
    ("device", "expected"), [("h100", "int8 int4 fp8"), ("a100", "int8 int4"), (None, "int8 int4")]
)
def test_advice_offers_what_the_device_multiplies(device: str | None, expected: str) -> None:
    report = opcost.count(layer(), rows())
    given = filled(Costing, {})
    given.device = device
    offered = [change for change in changes(given, report) if change.option == "quantize"]
    assert [change.value for change in offered] == expected.split()
    assert all(change.alters_results for change in offered)


def test_torchao_itself_gives_the_same() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = nn.Sequential(layer(device="cpu", bias=True))
    expected = opcost.count(model, rows(), quantize="int8")
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    report = opcost.count(model, rows())
    for name in ("params", "param_bytes", "macs"):
        assert getattr(report.totals, name) == getattr(expected.totals, name)
    names = [[row.op.raw for row in each.rows if row.op.kind != "view"] for each in (report, expected)]
    assert names[0] == names[1]


def test_activations_are_converted_as_torchao_does() -> None:
    report = opcost.count(layer(bias=True), rows(), quantize="fp8")
    names = [row.op.raw.removeprefix("aten::") for row in report.rows if row.op.kind != "view"]
    assert names == "abs amax div _to_copy _to_copy div clamp _to_copy _scaled_mm".split()
