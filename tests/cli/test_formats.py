"""Every command with a result prints it as LaTeX and writes it as such into a `.tex` file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import opcost

LINEAR = "from torch import nn\ndef net(width=8):\n    return nn.Sequential(nn.Linear(width, 5, bias=False))\n"
NET = ("net.py:net", "-i", "2x8")
COMMANDS = {
    "count": NET, "profile": (*NET, "--repeat", "1", "--warmup", "0"), "predict": NET,
    "fit": (*NET, "--memory", "1GiB", "--no-advise"), "sweep": (*NET, "--vary", "batch=1,2"),
    "mfu": (*NET, "--step-time", "1ms", "--device", "h200"), "compare": ("net.py:net", *NET),
    "check": (*NET, "--max-macs", "1G"), "scan": ("weights.pt",), "analyze": ("profile.json",),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_result_is_a_table_of_latex(
    opcost_command: Callable, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(LINEAR)
    net = nn.Linear(8, 5, bias=False)
    torch.save(net.state_dict(), "weights.pt")
    if command == "analyze":
        opcost.profile(net, shapes=(2, 8), repeat=1, warmup=0).save("profile.json")
    printed = opcost_command(command, *COMMANDS[command], "--format", "latex")
    assert printed.code == 0, printed.err
    assert opcost_command(command, *COMMANDS[command], "-o", "result.tex", "-q").code == 0
    for text in (printed.out, Path("result.tex").read_text()):
        assert text.startswith("% ")
        assert text.count(r"\toprule") == text.count(r"\bottomrule") > 0
        around = re.sub(r"\\begin\{(longtable|table)\}.*?\\end\{\1\}", "", text, flags=re.DOTALL)
        assert all(line.startswith("%") for line in around.splitlines() if line)  # a document takes it as it is
