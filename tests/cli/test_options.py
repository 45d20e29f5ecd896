"""Every option is declared once: keyword arguments, flags, keys of budget files and the documentation come from it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost import options
from opcost.cli.comparing import find_budgets
from opcost.cli.flags import flags, keywords
from opcost.cli.main import app
from opcost.core.limits import LIMITED
from opcost.core.option import declared
from opcost.frontends.options import FrontendOption

ROOT = Path(__file__).resolve().parents[2]
VERBS = {
    "count": options.Counting, "predict": options.Predicting, "fit": options.Fitting, "sweep": options.Sweeping,
    "profile": options.Profiling, "compare": options.Comparing, "check": options.Checking,
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_and_its_command_take_the_declared_options(verb: str) -> None:
    keywords_of = inspect.signature(getattr(opcost, verb)).parameters
    flags_of = {name for argument in app()[verb].assemble_argument_collection() for name in argument.names}
    for name, (_, option) in declared(VERBS[verb]).items():
        assert keywords_of[name].default == option.default
        if not option.python_only:
            assert set(option.flags or (f"--{name.replace('_', '-')}",)) <= flags_of, name


@pytest.mark.parametrize("verb", [*VERBS, "query"])
def test_an_unknown_keyword_is_an_error_that_names_the_nearest(verb: str) -> None:
    wrong = {"check": "alow_uncounted", "query": "aggregate_bye"}.get(verb, "bacth")
    with pytest.raises(opcost.OpcostError, match=r"did you mean|known: "):
        getattr(opcost, verb)("net.onnx", **{wrong: 1})


def test_limits_of_a_check_are_quantities() -> None:
    own = set(declared(options.Checking)) - set(declared(options.Costing)) - set(declared(options.OnDevice))
    assert own - set(LIMITED) == {"device", "baseline", "allow_uncounted"}


def test_a_budget_file_takes_every_option_of_a_count(tmp_path: Path) -> None:
    (tmp_path / "opcost.toml").write_text(
        '[models.a]\nsource = "net.py:Net"\ndecode = 1\ncache = 64\nbatch = 2\nset = {width = 8}\narg = {causal = true}\n'
        'input = ["x:1x3"]\ntrain = false\ncheckpoint = "blocks.*"\noptimizer = "adamw"\ndim = {seq = 128}\n'
        'limits = {macs = "1G"}\n'
    )
    found = find_budgets(tmp_path / "opcost.toml")
    assert found is not None
    assert found.models[0].options == {
        "decode": 1, "cache": 64, "batch": 2, "set": {"width": 8}, "kwargs": {"causal": True}, "shapes": ["x:1x3"],
        "mode": "eval", "checkpoint": ("blocks.*",), "optimizer": "adamw", "options": {"dim": ("seq=128",)},
    }  # fmt: skip


def test_typed_options_become_keyword_arguments() -> None:
    typed: dict[str, Any] = {"set": ("a.b=1",), "mode": True, "batch": 2, "quiet": True, "by": "kind", "dim": ("n=1",)}
    assert keywords(typed) == {"set": {"a.b": 1}, "mode": "train", "batch": 2, "options": {"dim": ("n=1",)}}
    assert keywords(typed, also=("by",))["by"] == "kind"
    assert keywords(None) == {}


def test_a_flag_of_a_plug_in_does_not_replace_a_declared_one() -> None:
    class Part:
        name = "mine"
        options = (FrontendOption("batch", int, "Mine."), FrontendOption("rows", int, "Rows."))

    with pytest.warns(UserWarning, match="'batch' of the mine front end is not a flag"):
        made = flags(options.Counting, parts=[Part()], what="front end")
    assert "rows" in made.__origin__.__annotations__


def test_step_and_text_stand_for_their_keywords() -> None:
    nn = pytest.importorskip("torch").nn
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    plain = opcost.count(model, shapes=(2, 4), optimizer="adamw", accumulate=2)
    grouped = opcost.count(model, shapes=(2, 4), step=opcost.Step(optimizer="adamw", accumulate=2))
    assert plain.totals == grouped.totals
    assert plain.totals.macs == 2 * (2 * 4 * 3 + 2 * 3 * 4)  # two passes; the weights' gradient, and none of the input
    with pytest.raises(opcost.OpcostError, match="step and accumulate are both given"):
        opcost.count(model, shapes=(2, 4), accumulate=2, step=opcost.Step(optimizer="adamw"))
    with pytest.raises(opcost.OpcostError, match="either its prefill or a decode step"):
        opcost.count(model, shapes=(2, 4), text=opcost.Text(prefill=4, decode=1, cache=3))


def test_a_default_that_is_a_number_is_named_in_the_help(opcost_command: Any) -> None:
    text = " ".join(opcost_command("count", "--help").out.replace("│", " ").split())
    assert "(gradient accumulation) (default 1)" in text
    assert "Add the backward pass. --train" in text  # a switch that is off has none


def test_inputs_for_a_saved_report_are_refused_whatever_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    opcost.count(torch.nn.Linear(4, 3), shapes=(2, 4)).save(tmp_path / "r.json")
    for inputs in (torch.ones(2, 4), torch.ones(2, 4).numpy(), (torch.ones(2, 4),)):
        with pytest.raises(opcost.OpcostError, match="is a saved report"):
            opcost.count(tmp_path / "r.json", inputs)
    assert opcost.count(tmp_path / "r.json", backward=False, accumulate=1).totals.macs == 2 * 4 * 3


def test_autocast_of_a_check_is_that_of_its_device() -> None:
    """On CUDA `pow` is cast to float32, on a CPU it is not: the casts move other bytes."""
    nn = pytest.importorskip("torch").nn

    class Powers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.layer(x) ** 3

    options: dict[str, Any] = {"shapes": (2, 4), "precision": "bf16-mixed"}
    on_device = opcost.predict(Powers(), device="h200", **options)
    moved = sum(row.cost.bytes_written for row in on_device.rows if row.cost is not None)
    here = opcost.count(Powers(), **options).totals.bytes_written
    assert moved > here
    verdict = opcost.check(Powers(), device="h200", latency="<1s", bytes_written=f"<={moved}B", **options)
    assert verdict
    with pytest.raises(opcost.OpcostError, match="bytes written"):
        opcost.check(Powers(), device="h200", latency="<1s", bytes_written=f"<{moved}B", **options)


def test_the_page_of_options_is_the_declared_one() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from generate_options import PAGE, render
    finally:
        sys.path.pop(0)
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python docs/generate_options.py"
