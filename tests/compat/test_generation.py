"""DeepSpeed's and calflops' counts of a whole generation: every step of it, in the modules that ran."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opcost.compat.calflops import calculate_flops
from opcost.compat.deepspeed import get_model_profile
from opcost.errors import InputError, UnknownName

WORDS, WIDTH, STEPS = 6, 4, 3


class Speaker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.table(tokens))
        return logits

    def generate(self, tokens: Tensor, steps: int = 1) -> Tensor:
        for _ in range(steps):
            tokens = torch.cat([tokens, self(tokens)[:, -1:].argmax(-1)], 1)
        return tokens


def test_every_step_of_a_generation_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """The text grows by a token each step, and the whole of it is read again: 2, 3 and 4 positions."""
    macs = (2 + 3 + 4) * WIDTH * WORDS
    model = Speaker()
    arguments: dict[str, Any] = {"args": [torch.zeros(1, 2, dtype=torch.int64)], "kwargs": {"steps": STEPS}}
    found = calculate_flops(
        model, **arguments, forward_mode="generate", output_as_string=False, print_results=False, print_detailed=False
    )
    assert found[:2] == (2 * macs, macs)
    assert get_model_profile(model, **arguments, mode="generate", as_string=False, warm_up=0)[:2] == (2 * macs, macs)
    printed = capsys.readouterr().out
    head = next(line for line in printed.splitlines() if "(head)" in line)
    assert f"{macs} MACs = 100% MACs" in head
    assert model.training


def test_a_model_that_cannot_generate_and_an_unknown_mode_are_errors() -> None:
    with pytest.raises(InputError, match="Linear has no method generate"):
        calculate_flops(nn.Linear(2, 2), (1, 2), forward_mode="generate")
    with pytest.raises(UnknownName, match="did you mean 'forward'"):
        get_model_profile(nn.Linear(2, 2), (1, 2), mode="forwards")
