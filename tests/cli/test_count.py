"""`opcost count`, from the words typed to the numbers printed."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

MLP = """
from torch import nn

class MLP(nn.Module):
    def __init__(self, width=8, classes=4):
        super().__init__()
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, classes, bias=False)
        print("made an MLP")

    def forward(self, x, scale=None, mode="tensor"):
        y = self.down(self.up(x))
        if mode == "twice":
            y = y + self.down(self.up(x))
        return y if scale is None else y * scale
"""


@pytest.fixture
def mlp(tmp_path: Path) -> str:
    path = tmp_path / "mlp.py"
    path.write_text(MLP)
    return f"{path}:MLP"


def total(text: str, name: str) -> int:
    """The exact number that the totals block prints beside a quantity."""
    found = re.search(
        rf"^{re.escape(name)}\s.*?([\d,]*\d)(?:\s\s|$)", re.sub(r"[\d.]+ [KMGT](?= )", "", text), re.MULTILINE
    )
    assert found, text
    return int(found[1].replace(",", ""))


def macs(batch: int, width: int, classes: int) -> int:
    return batch * width * 3 * width + batch * 3 * width * classes


@pytest.mark.parametrize(("batch", "width", "classes"), [(1, 8, 4), (16, 32, 10)])
def test_macs_and_parameters_follow_from_the_settings_and_the_shape(
    opcost_command: Callable, mlp: str, batch: int, width: int, classes: int
) -> None:
    done = opcost_command(
        "count", mlp, "--set", f"width={width}", "--set", f"classes={classes}", "-i", f"{batch}x{width}"
    )
    assert done.code == 0
    assert total(done.out, "MACs") == macs(batch, width, classes)
    assert total(done.out, "params") == 3 * width * width + 3 * width * classes


def test_what_the_users_code_prints_does_not_end_up_in_the_output(opcost_command: Callable, mlp: str) -> None:
    done = opcost_command("count", mlp, "-i", "1x8", "--format", "json")
    assert json.loads(done.out)["schema"].startswith("opcost.report/")
    assert "made an MLP" in done.err


def test_inputs_go_by_name_and_several_by_position(opcost_command: Callable, mlp: str) -> None:
    named = opcost_command("count", mlp, "-i", "x:2x8", "-i", "scale:4")
    placed = opcost_command("count", mlp, "-i", "2x8", "-i", "4")
    assert named.code == placed.code == 0
    assert total(named.out, "MACs") == total(placed.out, "MACs") == macs(2, 8, 4)
    assert total(named.out, "FLOPs") == 2 * macs(2, 8, 4) + 2 * 4


def test_an_argument_that_is_no_tensor_reaches_the_forward(opcost_command: Callable, mlp: str) -> None:
    done = opcost_command("count", mlp, "-i", "x:2x8", "--arg", "mode=twice")
    assert total(done.out, "MACs") == 2 * macs(2, 8, 4)


def test_an_input_has_the_type_that_was_typed(opcost_command: Callable, root: Path) -> None:
    done = opcost_command(
        "count", root / "examples/transformer.py:Decoder", "-i", "tokens:1x16:int64", "--set", "layers=1"
    )
    assert done.code == 0
    assert "tokens 1x16 int64" in done.out


def test_the_backward_pass_of_two_linear_layers_costs_what_it_must(opcost_command: Callable, mlp: str) -> None:
    batch, width, classes = 2, 8, 4
    done = opcost_command("count", mlp, "-i", f"{batch}x{width}", "--backward")
    weight_gradients = macs(batch, width, classes)
    input_gradient_of_the_second_layer_only = batch * 3 * width * classes
    assert (
        total(done.out, "MACs")
        == macs(batch, width, classes) + weight_gradients + input_gradient_of_the_second_layer_only
    )


@pytest.mark.parametrize("words", [["--optimizer"], ["--optimizer", "adamw"], ["--optimizer=SGD"]])
def test_an_optimizer_adds_the_update_whether_named_or_not(
    opcost_command: Callable, mlp: str, words: list[str]
) -> None:
    before = opcost_command("count", *words, mlp, "-i", "1x8")
    after = opcost_command("count", mlp, "-i", "1x8", *words)
    assert before.code == after.code == 0
    assert "update" in before.out
    assert before.out == after.out


def test_train_and_eval_choose_the_mode_and_backward_implies_train(opcost_command: Callable, mlp: str) -> None:
    words = ("count", mlp, "-i", "1x8")
    assert "eval mode" in opcost_command(*words).out
    assert "train mode" in opcost_command(*words, "--train").out
    assert "train mode" in opcost_command(*words, "--backward").out
    assert "eval mode" in opcost_command(*words, "--backward", "--eval").out


def test_half_of_a_causal_square_is_counted_where_it_is_requested(opcost_command: Callable, root: Path) -> None:
    length, width, layers = 16, 512, 1
    words = (
        "count",
        root / "examples/transformer.py:Decoder",
        "-i",
        f"tokens:1x{length}:int64",
        "--set",
        f"layers={layers}",
    )
    full = total(opcost_command(*words).out, "MACs")
    half = total(opcost_command(*words, "--causal", "half").out, "MACs")
    pairs_left_out = length * length - length * (length + 1) // 2
    assert full - half == 2 * width * pairs_left_out


def test_a_real_run_counts_the_same(opcost_command: Callable, mlp: str) -> None:
    assert total(opcost_command("count", mlp, "-i", "1x8", "--real").out, "MACs") == macs(1, 8, 4)


CHECKED = """
from torch import nn

class Checked(nn.Module):
    def __init__(self, width=200):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x):
        if x.isnan().any():
            raise ValueError("not a number")
        return self.layer(x)
"""


@pytest.fixture
def checked(tmp_path: Path) -> str:
    path = tmp_path / "checked.py"
    path.write_text(CHECKED)
    return f"{path}:Checked"


def test_a_model_that_asks_for_floats_is_made_again_with_its_weights(opcost_command: Callable, checked: str) -> None:
    done = opcost_command("count", checked, "-i", "3x200")
    assert done.code == 0
    assert total(done.out, "MACs") == 3 * 200 * 200
    said = " ".join(done.out.split())
    assert "run on its own weights, with which it was made again, because" in said
    assert "checked.py:10" in said


def test_a_large_model_that_asks_for_floats_is_not_made_by_itself(opcost_command: Callable, checked: str) -> None:
    done = opcost_command("count", checked, "-i", "1x100000", "--set", "width=100000")
    assert done.code == 2
    assert "--real) to make the model with its weights, 37.25 GiB" in done.err  # 4 x 10^10 bytes / 2^30


def test_real_values_are_not_used_with_no_real(opcost_command: Callable, checked: str) -> None:
    done = opcost_command("count", checked, "-i", "3x200", "--no-real")
    assert done.code == 2
    assert "leave out real=False (on the command line --no-real)" in done.err


def test_several_files_are_written_by_their_suffix(opcost_command: Callable, mlp: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"out{suffix}" for suffix in (".json", ".csv", ".md", ".txt")]
    done = opcost_command("count", mlp, "-i", "1x8", *[word for path in paths for word in ("-o", path)])
    assert done.code == 0
    assert "MACs" in done.out
    assert json.loads(paths[0].read_text())
    assert next(csv.reader(paths[1].open()))
    assert all(path.stat().st_size for path in paths)


def test_quiet_with_a_file_prints_nothing(opcost_command: Callable, mlp: str, tmp_path: Path) -> None:
    done = opcost_command("count", mlp, "-i", "1x8", "-q", "-o", tmp_path / "out.json")
    assert done.code == 0
    assert done.out == ""


def test_a_saved_report_is_shown_again_to_the_letter(opcost_command: Callable, mlp: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    first = opcost_command("count", mlp, "-i", "1x8", "-o", saved)
    assert opcost_command("count", saved).out == first.out
    assert opcost_command("count", saved).out == first.out


def test_options_of_counting_do_not_apply_to_a_saved_report(opcost_command: Callable, mlp: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    opcost_command("count", mlp, "-i", "1x8", "-o", saved)
    done = opcost_command("count", saved, "--backward")
    assert done.code == 2
    assert "saved report" in done.err


@pytest.mark.parametrize("by", ["module", "op", "kind", "type"])
def test_every_grouping_has_the_same_totals(opcost_command: Callable, mlp: str, by: str) -> None:
    done = opcost_command("count", mlp, "-i", "1x8", "--by", by, "--depth", "all")
    assert done.code == 0
    assert total(done.out, "MACs") == macs(1, 8, 4)


def test_the_chosen_columns_are_shown_sorted_and_cut(opcost_command: Callable, mlp: str) -> None:
    words = (
        "count",
        mlp,
        "-i",
        "1x8",
        "--by",
        "op",
        "--columns",
        "module,macs",
        "--sort",
        "macs",
        "--top",
        "1",
        "--exact",
    )
    lines = opcost_command(*words).out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split() == ["module", "MACs"])
    assert lines[head + 2].split() == ["up", f"{8 * 24:,}"]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_longer_than_the_width(opcost_command: Callable, root: Path, width: int) -> None:
    words = (
        "count",
        root / "examples/resnet18.py:ResNet18",
        "-i",
        "1x3x64x64",
        "--depth",
        "all",
        "--width",
        str(width),
    )
    assert max(map(len, opcost_command(*words).out.splitlines())) <= width


def test_uncounted_operators_are_reported_on_stderr_where_the_view_does_not(
    opcost_command: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "custom.py"
    path.write_text(
        "import torch\n"
        "@torch.library.custom_op('opcost_test_cli::mystery', mutates_args=())\n"
        "def mystery(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x.clone()\n"
        "@mystery.register_fake\n"
        "def _(x):\n"
        "    return torch.empty_like(x)\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return mystery(x)\n"
    )
    done = opcost_command("count", f"{path}:Net", "-i", "2x3", "--format", "csv")
    assert done.code == 0
    assert "opcost_test_cli::mystery" in done.err
    assert "opcost_test_cli::mystery" in opcost_command("count", f"{path}:Net", "-i", "2x3").out


def test_colour_is_used_only_on_a_terminal(opcost_command: Callable, mlp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = opcost_command("count", mlp, "-i", "1x8").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    coloured = opcost_command("count", mlp, "-i", "1x8").out
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
    assert "\x1b[" not in plain
    assert "\x1b[" in coloured
    assert opcost_command("count", mlp, "-i", "1x8").out == plain


def test_memory_is_a_view_of_its_own(opcost_command: Callable, mlp: str) -> None:
    done = opcost_command("count", mlp, "-i", "1x8", "--view", "memory")
    assert "part of the peak" in done.out
    refused = opcost_command("count", mlp, "-i", "1x8", "--view", "memory", "--format", "json")
    assert refused.code == 2
    assert "--view memory is printed as text, and --format json is another format" in refused.err


def test_the_kernels_of_a_compiler_in_every_format(
    opcost_command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())\n"
    )
    command = ("count", "net.py:net", "-i", "5x8", "--compiled")
    done = opcost_command(*command, "-o", "kernels.csv", "-o", "kernels.json")
    assert "1 kernels instead of 2 operators" in done.out.replace("\u00a0", " ")
    assert json.loads(Path("kernels.json").read_text())["tables"][0]["lines"][0]["after"] == 2 * 5 * 8 * 4
    assert Path("kernels.csv").read_text().splitlines()[0].startswith("table,operators,module")
    refused = opcost_command(*command, "--by", "op")
    assert refused.code != 0
    assert "--by" in refused.err
