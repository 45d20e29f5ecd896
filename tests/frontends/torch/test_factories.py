"""Models made without allocating their weights."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from peak_memory import needs_peak
from torch import Tensor, nn

import opcost
from opcost.errors import SourceError
from opcost.frontends.torch import FRONTEND

WIDE = 300
"""Its square is too large to be made with memory."""


def test_large_tensors_take_no_memory_and_small_ones_are_real() -> None:
    model = FRONTEND.build(lambda: nn.Linear(WIDE, WIDE), {})
    assert model.weight.is_meta
    assert not model.bias.is_meta
    assert isinstance(model.weight, nn.Parameter)


def test_a_model_made_without_memory_counts_the_same() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 64, 16, 16), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(64 * 4, WIDE))

    made, real = FRONTEND.build(make, {}), make()
    assert opcost.count(made, shapes=(1, 3, 32, 32)).rows == opcost.count(real, torch.empty(1, 3, 32, 32)).rows
    assert made[3].weight.is_meta


def test_a_model_made_without_memory_has_a_backward_pass_and_an_update() -> None:
    batch = 2
    report = opcost.count(FRONTEND.build(lambda: nn.Linear(WIDE, WIDE), {}), shapes=(batch, WIDE), optimizer="AdamW")
    assert report.phases["forward"].macs == batch * WIDE * WIDE
    assert report.phases["backward"].macs == batch * WIDE * WIDE  # the weight's; the input's is not requested
    assert report.coverage.complete


class ReadsItsRates(nn.Module):
    """A constructor that does what constructors do."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 0.2, 5)]
        self.numpy = torch.full((3,), 2.0).numpy()
        self.layer = nn.Linear(WIDE, WIDE)
        for fill in (
            nn.init.xavier_uniform_,
            nn.init.kaiming_normal_,
            nn.init.orthogonal_,
            nn.init.trunc_normal_,
            nn.init.eye_,
        ):
            fill(self.layer.weight)
        self.layer.weight.data.normal_(0, 0.02)
        self.layer.weight.data[0] = 1
        self.layer.weight.data = self.layer.weight.data * 2
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(WIDE)).mul_(2).clamp_(0, 1)
            self.layer.weight[0, 0] = 3
        self.register_buffer("mask", torch.tril(torch.ones(WIDE, WIDE)).view(1, WIDE, WIDE))
        self.register_buffer("table", torch.from_numpy(np.ones((WIDE, WIDE), dtype=np.float32)))
        coordinates = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")).flatten(1)
        self.register_buffer("relative", (coordinates[:, :, None] - coordinates[:, None, :]).sum(0))
        self.free = nn.Parameter(torch.randn(WIDE, WIDE) * WIDE**-0.5)
        self.embed = nn.Embedding(1000, WIDE, padding_idx=0)
        self.half = nn.Linear(WIDE, WIDE).half()
        self.layer.load_state_dict(self.layer.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ self.free


def test_constructors_may_read_small_tensors_and_fill_large_ones() -> None:
    before = torch.get_rng_state()
    model = FRONTEND.build(ReadsItsRates, {})
    assert torch.equal(torch.get_rng_state(), before)
    assert model.rates == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert model.numpy.tolist() == [2.0, 2.0, 2.0]
    assert int(model.relative.max()) == 12
    report = opcost.count(model, shapes=(2, WIDE))
    square = WIDE * WIDE
    assert report.totals.params == (square + WIDE) + square + 1000 * WIDE + (square + WIDE)
    assert report.totals.param_bytes == 4 * (2 * square + WIDE + 1000 * WIDE) + 2 * (square + WIDE)
    assert report.totals.buffers == 2 * square + 49 * 49
    assert report.totals.macs == 2 * 2 * square


class AsksItsWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDE, WIDE)
        self.scale = self.layer.weight.abs().max().item()


def test_a_constructor_that_reads_its_weights_gets_one_clear_error() -> None:
    with pytest.raises(SourceError, match="AsksItsWeights asks for the values of its weights") as caught:
        FRONTEND.build(AsksItsWeights, {})
    assert "--real" in caught.value.hint
    assert caught.value.exit_code == 2
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_of_the_constructors_own_is_left_alone() -> None:
    def fails() -> Any:
        raise ValueError("no such depth")

    with pytest.raises(ValueError, match="no such depth"):
        FRONTEND.build(fails, {})


LLAMA = """
    import opcost
    from opcost.frontends.torch import FRONTEND
    from peak_memory import peak
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size={vocabulary}, hidden_size={width}, intermediate_size={inner}, num_hidden_layers={layers},
        num_attention_heads={heads}, num_key_value_heads={groups},
    )
    model = FRONTEND.build(LlamaForCausalLM, {{"config": config}})
    report = opcost.count(model, shapes={{"input_ids": (1, {tokens})}}, mode="eval")
    print(report.totals.macs, report.totals.params, report.totals.uncounted)
    print(peak())
"""


@pytest.mark.zoo
@needs_peak
def test_a_llama_of_thirty_gigabytes_is_counted_in_less_than_one() -> None:
    """Layers as those of Llama 2 70B; 80 of them would take ten times as long and hold nothing more."""
    pytest.importorskip("transformers")
    vocabulary, width, inner, layers, heads, groups, tokens = 32000, 8192, 28672, 8, 64, 8, 128
    program = LLAMA.format(
        vocabulary=vocabulary, width=width, inner=inner, layers=layers, heads=heads, groups=groups, tokens=tokens
    )
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    counted, peak = run.stdout.splitlines()
    narrow = width // heads * groups
    weights = 2 * width * width + 2 * width * narrow + 3 * width * inner
    attention = 2 * tokens * width  # queries with keys, and weights with values, per token
    macs = tokens * (layers * (weights + attention) + width * vocabulary)
    params = layers * (weights + 2 * width) + width + 2 * vocabulary * width
    assert counted.split() == [str(macs), str(params), "0"]
    assert 4 * params > 29 * 10**9
    assert int(peak) < 10**9
