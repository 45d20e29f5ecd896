"""Ordinary Python on tensors whose content is known: as with a real tensor, and without any data of the model."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.errors import DataDependent
from opcost.frontends.zoo import declare_torchvision_operators

B, D = 4, 6
LAYER = B * D * D
N = torch.tensor([3, 1, 2])
"""Known numbers; each question below is to be answered by 3."""


def saved(n: Tensor) -> Tensor:
    buffer = io.BytesIO()
    torch.save(n, buffer)
    buffer.seek(0)
    return torch.load(buffer)


QUESTIONS: dict[str, Callable[[Tensor], Any]] = {
    "int": lambda n: int(n.max()),
    "index": lambda n: len(range(n.max())),
    "round": lambda n: round(n.float().mean().item()) + 1,
    "math": lambda n: math.ceil(n.float().mean() + 0.5),
    "format": lambda n: int(f"{n.max()}"),
    "format with a specification": lambda n: int(f"{n.max():>5d}"),
    "format of a float": lambda n: float(f"{n.float().mean():.2f}") + 1,
    "format by name": lambda n: int(f"{n[0]}"),
    "percent": lambda n: int("%d" % n.max()),  # noqa: UP031 - it is what is tested
    "key made of it": lambda n: {"expert_3": 3}[f"expert_{n.max()}"],
    "key": lambda n: {3: 3}[n.max().item()],
    "place in a list": lambda n: [0, 1, 2, 3][n.max()],
    "slice of a list": lambda n: len([0, 1, 2, 3, 4][: n.max()]),
    "tensor of tensors": lambda n: int(torch.tensor([n.max(), n.min()])[0]),
    "tensor of lists of tensors": lambda n: int(torch.tensor([[n.max(), 0], [1, n[1]]]).max()),
    "tensor of tensors by name": lambda n: int(torch.tensor(data=[n.max()])),
    "as_tensor": lambda n: int(torch.as_tensor([n.max(), 1]).max()),
    "new_tensor": lambda n: int(n.new_tensor([n.max(), 1]).max()),
    "numpy": lambda n: int(n.numpy().max()),
    "array": lambda n: int(np.asarray(n).max()),
    "array of another type": lambda n: int(np.array(n, dtype=np.float32).max()),
    "array of tensors": lambda n: int(np.array([n.max(), n.min()]).max()),
    "concatenated arrays": lambda n: int(np.concatenate([n, n]).max()),
    "from numpy": lambda n: int(torch.from_numpy(n.numpy()).max()),
    "written array": lambda n: (n.numpy().fill(3), int(n.min()))[1],
    "dlpack": lambda n: int(torch.from_dlpack(n).max()),
    "tolist": lambda n: max(n.tolist()),
    "unpacked": lambda n: [int(a) for a, _, _ in [n]].pop(),
    "print": lambda n: int(str(n)[8]),  # tensor([3, 1, 2])
    "repr": lambda n: int(repr(n.max())[7]),  # tensor(3)
    "comparison": lambda n: 3 if n.max() == 3 and n.min() < 2 and n.max() in (3, 4) and 3 in n else 0,
    "sorted": lambda n: int(sorted(n)[1]) + 1,
    "pickle": lambda n: int(pickle.loads(pickle.dumps(n)).max()),
    "saved and loaded": lambda n: int(saved(n).max()),
    "copy": lambda n: int(copy.copy(n).max()),
    "deep copy": lambda n: int(copy.deepcopy({"a": [n]})["a"][0].max()),
    "chosen by a mask": lambda n: n[n > 1].tolist()[0],
    "selected by a mask": lambda n: n.masked_select(n > 2).tolist()[0],
}


class Repeats(nn.Module):
    """Calls its layer as often as a question about the numbers is answered."""

    def __init__(self, question: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D, device="meta")
        self.question = question

    def forward(self, x: Tensor, n: Tensor) -> list[Tensor]:
        return [self.layer(x) for _ in range(int(self.question(n)))]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_known_content_answers_as_a_real_tensor_does(name: str) -> None:
    question = QUESTIONS[name]
    assert question(N.clone()) == 3  # of a real tensor
    given = N.clone()
    report = opcost.count(Repeats(question), (torch.empty(B, D), given))
    assert report.totals.macs == 3 * LAYER
    assert torch.equal(given, N)


UNKNOWN: dict[str, Callable[[Tensor], Any]] = {
    "format": lambda x: f"{x.mean():.2f}",
    "tensor of tensors": lambda x: torch.tensor([x.max(), x.min()]),
    "array": np.asarray,
    "dlpack": torch.from_dlpack,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_content_is_no_crash_and_no_guess(calls: Any, name: str) -> None:
    with pytest.raises(DataDependent, match="content of a"):
        opcost.count(calls(UNKNOWN[name]), torch.rand(B, D), real=False)


def test_a_tensor_of_floats_without_data_can_be_shown_and_copied(count: Any) -> None:
    def forward(x: Tensor) -> Tensor:
        assert str(x) == f"{x}" == "Recorded(4x6, float32, cpu)"
        return copy.deepcopy(x) @ copy.copy(x).T

    assert count(forward, torch.rand(B, D)).totals.macs == B * D * B


def test_a_content_that_was_written_to_is_not_told_any_more(calls: Any) -> None:
    def forward(x: Tensor) -> Any:
        known = torch.zeros(3)
        known[0] = x.sum()
        return known.tolist()

    with pytest.raises(DataDependent, match="content of a 3 float32 tensor"):
        opcost.count(calls(forward), torch.rand(B), real=False)


def test_switch_transformers_name_their_experts_with_known_numbers() -> None:
    declare_torchvision_operators()
    transformers = pytest.importorskip("transformers")
    width, hidden, tokens, experts = 16, 32, 8, 4
    config = transformers.SwitchTransformersConfig(
        d_model=width, d_ff=hidden, d_kv=8, num_heads=2, vocab_size=50, num_experts=experts, num_layers=1,
        num_sparse_encoder_layers=1, num_decoder_layers=1, num_sparse_decoder_layers=1,
    )  # fmt: skip
    model = transformers.SwitchTransformersModel(config).eval()
    ids = torch.ones(1, tokens, dtype=torch.int64)
    report = opcost.count(model, kwargs={"input_ids": ids, "decoder_input_ids": ids}, real=False)
    sparse = [row for row in report.rows if ".experts." in row.op.module and row.op.kind == "matmul"]
    # Every token goes through one expert, up and down, in the encoder and in the decoder.
    assert sum(row.cost.macs for row in sparse if row.cost) == 2 * tokens * 2 * width * hidden
