"""`opcost check`: budgets of the command line and of files, baselines, and the summary of a pull request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_making import helper, tensor, weight

import opcost
from opcost.errors import BudgetExceeded, OpcostError

ROWS, WIDTH, CLASSES = 3, 8, 5
MACS = ROWS * WIDTH * CLASSES
PARAMS = WIDTH * CLASSES


def write_net(path: Path, classes: int = CLASSES, kind: str = "Relu", domain: str = "") -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node(kind, ["y"], ["z"], domain=domain)]
    graph = helper.make_graph(
        nodes, "g", [tensor("x", "batch", WIDTH)], [tensor("z", "batch", classes)], [weight("w", WIDTH, classes)]
    )
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two models."""
    monkeypatch.chdir(tmp_path)
    write_net(tmp_path / "net.onnx")
    write_net(tmp_path / "wide.onnx", 2 * CLASSES)
    return tmp_path


BUDGETS = f"""
[models.net]
source = "net.onnx"
dim = {{ batch = {ROWS} }}
limits = {{ macs = "<={MACS}", params = {PARAMS} }}

[models.wide]
source = "wide.onnx"
input = "{ROWS}x{WIDTH}"

[models.wide.limits]
macs = "<{2 * MACS + 1}"
"peak memory" = "1MiB"
"""


# -- where budgets stand -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["opcost.toml", "pyproject.toml"])
def test_budgets_are_read_from_a_file_here(opcost_command: Callable, here: Path, name: str) -> None:
    text = BUDGETS if name == "opcost.toml" else BUDGETS.replace("[models.", "[tool.opcost.models.")
    (here / name).write_text(text)
    done = opcost_command("check", "-q", "--format", "json")
    assert done.code == 0, done.err
    found = {
        model["name"]: {line["quantity"]: line for line in model["lines"]} for model in json.loads(done.out)["models"]
    }
    assert found["net"]["macs"]["counted"] == MACS
    assert found["net"]["params"] == {
        "quantity": "params", "unit": "count", "counted": PARAMS, "lower_bound": False, "before": None,
        "allowed": f"<={PARAMS}", "verdict": "ok",
    }  # fmt: skip
    assert found["wide"]["macs"]["counted"] == 2 * MACS
    assert set(found["wide"]) == {"macs", "peak_bytes"}


def test_an_opcost_toml_goes_before_a_pyproject_without_budgets(opcost_command: Callable, here: Path) -> None:
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    nothing = opcost_command("check")
    assert (nothing.code, "no budget was given" in nothing.err) == (2, True)
    (here / "opcost.toml").write_text(BUDGETS)
    assert opcost_command("check", "-q").code == 0


def test_the_file_that_the_documentation_shows_is_one(here: Path, root: Path) -> None:
    from opcost.cli.comparing import find_budgets

    (text,) = re.findall(r"```toml\n(.*?)```", (root / "docs" / "budgets.md").read_text(encoding="utf-8"), re.DOTALL)
    (here / "opcost.toml").write_text(text)
    found = find_budgets(None)
    assert found is not None
    assert {model.name: [str(limit) for limit in model.limits] for model in found.models} == {
        "resnet50": ["params<=25.6M", "macs<4.2G", "peak_bytes<=200MiB"],
        "decoder": ["macs<+1%"],
        "exported": ["macs<1.1G", "latency<5ms"],
    }
    assert found.baseline == Path("budgets.json")
    assert found.models[1].options["set"] == {"layers": 12, "width": 768}
    assert found.models[2].options["options"] == {"dim": ("batch=1", "seq=128")}
    assert found.models[2].place.device == "h200"


def test_models_are_chosen_by_name(opcost_command: Callable, here: Path) -> None:
    (here / "opcost.toml").write_text(BUDGETS.replace(f"<={MACS}", f"<{MACS}"))
    assert opcost_command("check", "-q").code == 1
    assert opcost_command("check", "net", "-q").code == 1
    assert opcost_command("check", "wide", "-q").code == 0
    wrong = opcost_command("check", "wid")
    assert (wrong.code, "did you mean 'wide'" in wrong.err) == (2, True)


def test_sources_stand_beside_the_file_that_is_named(
    opcost_command: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "budgets.toml").write_text(BUDGETS)
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    assert opcost_command("check", "--config", "../budgets.toml", "-q").code == 0


def test_settings_reach_the_code_that_makes_a_model(opcost_command: Callable, here: Path) -> None:
    (here / "code.py").write_text(
        "from torch import nn\n"
        "def make(width=1, name='', extra=None):\n"
        "    assert (name, extra) == ('a=b', [1, 2]), (name, extra)\n"
        "    return nn.Linear(width, 5, bias=False)\n"
    )
    (here / "opcost.toml").write_text(
        '[models.made]\nsource = "code.py:make"\ninput = ["3x8"]\nset = { width = 8, name = "a=b", extra = [1, 2] }\n'
        f'limits = {{ macs = "<={MACS}", params = ">={PARAMS}" }}\n'
    )
    done = opcost_command("check", "-q")
    assert done.code == 0, done.err + done.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.net\n", "at line 1"),
        ("[modles.net]\nsource = 'x'\n", "unknown key 'modles'; did you mean 'models'"),
        ("x = " + "[" * 100_000, "opcost.toml is not TOML"),
        ("models = 3\n", "models: 3 is not a table"),
        ("[models]\n", "no model is named"),
        ("[models.net]\nlimits = { macs = 1 }\n", "models.net: no source is given"),
        ("[models.net]\nsource = 3\n", "models.net: 3 is not a text"),
        ("[models.net]\nsource = 'net.onnx'\nbacth = 3\n", "models.net: unknown key 'bacth'; did you mean 'batch'"),
        (
            "[models.net]\nsource = 'net.onnx'\nbatch = '3'\n",
            "models.net.batch: '3' is not a whole number",
        ),
        ("[models.net]\nsource = 'net.onnx'\nlimits = { mac = 1 }\n", "models.net.limits.mac: unknown quantity 'mac'"),
        (
            "[models.net]\nsource = 'net.onnx'\nlimits = { macs = 'much' }\n",
            "models.net.limits.macs: 'much' is not a count",
        ),
        ("[models.net]\nsource = 'net.onnx'\nlimits = { macs = true }\n", "True is not a limit of macs"),
        ("[models.net]\nsource = 'net.onnx'\nlimits = { peak_bytes = 200 }\n", "200 GiB or 200 bytes?"),
        ("[models.net]\nsource = 'net.onnx'\nlimits = { bytes = '200' }\n", "200 GiB or 200 bytes?"),
        ("[models.net]\nsource = 'net.onnx'\nlimits = { macs = '<+1%' }\n", "there is no baseline"),
        ("baseline = 3\n[models.net]\nsource = 'net.onnx'\n", "baseline: 3 is not a text"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(
    opcost_command: Callable, here: Path, text: str, said: str
) -> None:
    (here / "opcost.toml").write_text(text)
    done = opcost_command("check", "-q")
    assert done.code == 2, done.err
    assert said in done.err
    assert said == "there is no baseline" or "opcost.toml" in done.err


def test_what_contradicts_itself_is_refused(opcost_command: Callable, here: Path) -> None:
    (here / "opcost.toml").write_text(BUDGETS)
    assert (
        "leave one of them out" in opcost_command("check", "net.onnx", "--max-macs", "1", "--config", "opcost.toml").err
    )
    assert "write the option there" in opcost_command("check", "net", "--batch", "2").err
    assert "nothing to check" in opcost_command("check", "--max-macs", "1").err
    assert "has no [tool.opcost]" in opcost_command("check", "--config", _named(here / "pyproject.toml")).err
    assert "there is no file" in opcost_command("check", "--config", "nowhere.toml").err


def _named(path: Path) -> Path:
    path.write_text("[project]\n")
    return path


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--max-macs", str(MACS)), 0),
        (("--max-macs", str(MACS - 1)), 1),
        (("--max-macs", f"<{MACS}"), 1),
        (("--max-peak-bytes", "4KiB"), 0),
        (("--max-param-bytes", f"{4 * PARAMS - 1}B"), 1),
        (("--limit", f"macs>={MACS}"), 0),
        (("--limit", f"macs>{MACS}"), 1),
        (("--limit", "ops<=2", "--max-params", str(PARAMS)), 0),
        (("--limit", "ops<=2", "--max-params", str(PARAMS - 1)), 1),
    ],
)
def test_limits_are_typed(opcost_command: Callable, here: Path, words: tuple[str, ...], code: int) -> None:
    done = opcost_command("check", "net.onnx", "--dim", f"batch={ROWS}", *words, "-q")
    assert done.code == code, done.err
    assert ("EXCEEDED" in done.out) == bool(code)


def test_a_typed_size_needs_a_unit_and_one_from_python_is_bytes(opcost_command: Callable, here: Path) -> None:
    done = opcost_command("check", "net.onnx", "--dim", f"batch={ROWS}", "--max-peak-bytes", "200", "-q")
    assert done.code == 2
    assert "200 GiB or 200 bytes?" in done.err
    assert "write 200GiB, 200GB or 200B" in done.err
    assert opcost.check("net.onnx", shapes=(ROWS, WIDTH), param_bytes=4 * PARAMS)
    with pytest.raises(BudgetExceeded):
        opcost.check("net.onnx", shapes=(ROWS, WIDTH), param_bytes=4 * PARAMS - 1)
    with pytest.raises(OpcostError, match="200 GiB or 200 bytes"):
        opcost.check("net.onnx", shapes=(ROWS, WIDTH), param_bytes="200")


def test_what_has_no_cost_is_unknown_and_does_not_pass(opcost_command: Callable, here: Path) -> None:
    write_net(here / "odd.onnx", kind="Mystery", domain="vendor")
    done = opcost_command("check", "odd.onnx", "--max-macs", "1G", "--max-params", "1K", "-q")
    words = {line.split()[1]: line.split()[0] for line in done.out.splitlines() if line.startswith(("ok", "UNKNOWN"))}
    assert done.code == 1
    assert words == {"MACs": "UNKNOWN", "params": "ok"}
    assert "vendor::Mystery has no cost model" in done.out
    assert opcost_command("check", "odd.onnx", "--max-macs", "1G", "--allow-uncounted", "-q").code == 0


def test_a_checkpoint_is_checked_for_parameters_and_their_bytes(opcost_command: Callable, here: Path) -> None:
    np.savez(here / "weights.npz", w=np.zeros((WIDTH, CLASSES), "float16"))
    words = ("check", "weights.npz", "-q", "--max-params", str(PARAMS))
    assert opcost_command(*words, "--max-param-bytes", f"{2 * PARAMS}B").code == 0
    assert opcost_command(*words, "--max-param-bytes", f"{2 * PARAMS - 1}B").code == 1
    wrong = opcost_command(*words, "--max-macs", "1G")
    assert wrong.code == 2
    assert "macs<=1G: weights.npz has no such quantity" in wrong.err


# -- baselines ---------------------------------------------------------------------------------------------------------


def test_a_change_is_compared_with_a_baseline(opcost_command: Callable, here: Path) -> None:
    text = BUDGETS.replace(f'"<={MACS}"', '"<+1%"').replace("[models.net]", 'baseline = "agreed.json"\n[models.net]', 1)
    (here / "opcost.toml").write_text(text)
    assert "agreed.json" in opcost_command("check", "-q").err
    first = opcost_command("check", "-q", "--save-baseline", "agreed.json")
    assert first.code == 0, first.err
    saved = json.loads((here / "agreed.json").read_text())
    assert saved["models"]["net"]["totals"]["macs"] == MACS
    assert opcost_command("check", "-q").code == 0
    write_net(here / "net.onnx", CLASSES + 1)
    done = opcost_command("check", "-q", "-o", here / "summary.md")
    assert done.code == 1
    more = ROWS * WIDTH
    row = f"| EXCEEDED | `net` | MACs | {MACS} | {MACS + more} | +{more} | {more / MACS:+.2%} | &lt;+1% |"
    assert row in (here / "summary.md").read_text()
    assert opcost_command("check", "-q", "--save-baseline", "agreed.json").code == 1  # the limit of params is a number


def test_a_model_that_is_new_has_nothing_to_be_compared_with(opcost_command: Callable, here: Path) -> None:
    (here / "opcost.toml").write_text(BUDGETS)
    opcost_command("check", "net", "-q", "--save-baseline", "agreed.json")
    (here / "opcost.toml").write_text(BUDGETS.replace(f"<{2 * MACS + 1}", "<+1%"))
    done = opcost_command("check", "--baseline", "agreed.json", "-q", "--format", "json")
    (line,) = [
        line for model in json.loads(done.out)["models"] if model["name"] == "wide"
        for line in model["lines"] if line["quantity"] == "macs"
    ]  # fmt: skip
    assert (done.code, line["verdict"]) == (0, "new")


def test_a_saved_report_is_a_baseline_for_one_model(opcost_command: Callable, here: Path) -> None:
    opcost_command("count", "net.onnx", "--dim", f"batch={ROWS}", "-q", "-o", "before.json")
    words = ("check", "wide.onnx", "--dim", f"batch={ROWS}", "--baseline", "before.json", "-q")
    assert opcost_command(*words, "--max-macs", "+99%").code == 1
    assert opcost_command(*words, "--max-macs", "+100%").code == 0


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"schema": "opcost.baseline/2", "models": {}}', '{"schema": "opcost.baseline/1"}',
     '{"schema": "opcost.baseline/1", "models": {"net": {"source": "", "totals": {"macs": "1"}}}}',
     '{"schema": "opcost.baseline/1", "models": {"net": {"source": "", "totals": {"macs": -1}}}}'],
)  # fmt: skip
def test_a_damaged_baseline_is_one_clear_error(opcost_command: Callable, here: Path, content: str) -> None:
    (here / "bad.json").write_text(content)
    done = opcost_command("check", "net.onnx", "--max-macs", "1G", "--baseline", "bad.json", "-q")
    assert done.code == 2
    assert "bad.json" in done.err
    assert "should not happen" not in done.err


def test_a_baseline_that_cannot_be_written_is_reported_before_counting(opcost_command: Callable, here: Path) -> None:
    done = opcost_command("check", "nowhere.onnx", "--max-macs", "1G", "--save-baseline", "no/such/folder.json")
    assert done.code == 2
    assert "there is no folder" in done.err


@pytest.mark.parametrize("view", ["table", "md", "csv", "json", "html"])
def test_every_view_names_the_verdict(opcost_command: Callable, here: Path, view: str) -> None:
    done = opcost_command("check", "net.onnx", "--max-params", str(PARAMS - 1), "--format", view, "-q")
    assert done.code == 1
    assert "EXCEEDED" in done.out
    assert str(PARAMS) in done.out


# -- predicted latency ---------------------------------------------------------------------------------------------------


def latency(here: Path, device: str = "h200") -> int:
    """What is predicted by itself, in nanoseconds."""
    return opcost.predict(opcost.count(here / "net.onnx", shapes=(ROWS, WIDTH)), device=device).latency_ns


def test_a_limit_on_latency_is_compared_with_the_prediction(opcost_command: Callable, here: Path) -> None:
    words = ("check", "net.onnx", "--dim", f"batch={ROWS}", "--device", "h200", "-q")
    ns = latency(here)
    kept = opcost_command(*words, "--max-latency", f"{ns}ns", "--format", "json")
    assert kept.code == 0, kept.err
    (line,) = json.loads(kept.out)["models"][0]["lines"]
    assert (line["quantity"], line["unit"], line["counted"]) == ("latency on h200", "time", ns)
    broken = opcost_command(*words, "--limit", f"latency<{ns}ns", "--format", "table")
    assert broken.code == 1
    assert re.search(r"latency on h200 [\d.]+ (ns|µs), and <\d+ns is allowed", broken.out)


def test_a_file_names_the_device_of_a_latency(opcost_command: Callable, here: Path) -> None:
    ns = latency(here)
    budget = f"""
        [models.net]
        source = "net.onnx"
        dim = {{ batch = {ROWS} }}
        device = "h200"
        limits = {{ latency = "<={ns}ns", macs = "1G" }}
    """
    (here / "opcost.toml").write_text(budget)
    assert opcost_command("check", "-q", "--save-baseline", "before.json").code == 0
    assert json.loads((here / "before.json").read_text())["models"]["net"]["totals"]["latency on h200"] == ns
    (here / "opcost.toml").write_text(budget.replace(f"<={ns}ns", "<+1%"))
    assert opcost_command("check", "-q", "--baseline", "before.json").code == 0
    (here / "opcost.toml").write_text(budget.replace(f"<={ns}ns", "<+1%").replace("h200", "a100"))
    done = opcost_command("check", "-q", "--baseline", "before.json", "--format", "json")
    words = {line["quantity"]: line["verdict"] for line in json.loads(done.out)["models"][0]["lines"]}
    assert words["latency on a100"] == "new"  # the baseline knows only another device's


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "latency<5ms needs a device"),
        ('device = "h200000000"', "h200000000"),
        ('device = "h200"\nexecution = "gaph"', "gaph"),
        ('device = "h200"\ncalibration = "none.json"', "none.json"),
    ],
)
def test_a_latency_that_cannot_be_predicted_is_one_clear_error(
    opcost_command: Callable, here: Path, key: str, message: str
) -> None:
    (here / "opcost.toml").write_text(f'[models.net]\nsource = "net.onnx"\n{key}\nlimits = {{ latency = "<5ms" }}')
    done = opcost_command("check", "-q")
    assert done.code == 2
    assert message in done.err
    assert "should not happen" not in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-latency", "5ms"), "needs a device"),
        (("--max-latency", "5", "--device", "h200"), "unknown unit of a time"),
        (("--max-macs", "1G", "--device", "h200"), "no limit on latency"),
    ],
)
def test_limits_on_latency_say_what_is_missing(
    opcost_command: Callable, here: Path, words: tuple[str, ...], message: str
) -> None:
    done = opcost_command("check", "net.onnx", *words, "-q")
    assert done.code == 2
    assert message in done.err


def test_a_latency_is_checked_from_python(here: Path) -> None:
    ns = latency(here)
    model = {"shapes": (ROWS, WIDTH), "device": "h200"}
    assert opcost.check(here / "net.onnx", latency=f"<={ns}ns", **model)
    with pytest.raises(BudgetExceeded, match="latency on h200"):
        opcost.check(here / "net.onnx", latency=f"<{ns}ns", **model)
    with pytest.raises(OpcostError, match="needs a device"):
        opcost.check(here / "net.onnx", latency="<5ms")
