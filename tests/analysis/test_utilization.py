"""How much of a peak a step uses: conventions by hand, a meter on a clock that is set by hand, real and stand-in trainers."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.analysis.join import step_flops
from opcost.core.devices import Device, measured
from opcost.errors import InputError, MissingFramework

BATCH, TOKENS, WIDTH, HEADS, WORDS = 2, 16, 32, 4, 50
PEAK = 10**12
OWN = measured(PEAK, 10**12)


class Block(nn.Module):
    """An embedding, one layer of attention and a head, without biases."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mixed(self.words(ids)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.head(seen.transpose(1, 2).flatten(2))


PARAMETERS = WORDS * WIDTH + 3 * WIDTH * WIDTH + WIDTH * WORDS
PRODUCTS = 2 * BATCH * TOKENS * (3 * WIDTH * WIDTH + WIDTH * WORDS)
ATTENTION = 2 * BATCH * 2 * TOKENS * TOKENS * WIDTH


def counted(*, backward: bool) -> opcost.Report:
    return opcost.count(Block(), shapes={"ids": (BATCH, TOKENS)}, dtypes={"ids": "int64"}, backward=backward)


def test_the_conventions_are_what_their_names_say() -> None:
    step = counted(backward=True)
    tokens = BATCH * TOKENS
    flops = {name: step_flops(step, OWN, name).flops for name in ("executed", "6N", "6N+attention")}
    # Backward every product is two, and attention five products in place of two.
    assert flops["executed"] == 3 * PRODUCTS + ATTENTION + ATTENTION * 5 // 2
    assert flops["6N"] == 6 * PARAMETERS * tokens
    assert flops["6N+attention"] == 6 * PARAMETERS * tokens + 12 * WIDTH * TOKENS * tokens
    frozen = opcost.count(
        Block(), shapes={"ids": (BATCH, TOKENS)}, dtypes={"ids": "int64"}, backward=True, freeze="mixed"
    )
    gradients = 2 * 3 * WIDTH * WIDTH * tokens  # of the frozen weight
    assert step_flops(frozen, OWN, "6N").flops == flops["6N"] - gradients
    assert step_flops(frozen, OWN).flops == flops["executed"] - gradients
    forward = counted(backward=False)
    assert step_flops(forward, OWN).flops == PRODUCTS + ATTENTION
    assert step_flops(forward, OWN, "2N").flops == 2 * PARAMETERS * tokens
    assert step_flops(forward, OWN, "2N+attention").flops == 2 * PARAMETERS * tokens + 4 * WIDTH * TOKENS * tokens


def test_a_convention_of_another_step_or_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="not the convention of a forward pass"):
        step_flops(counted(backward=False), OWN, "6N")
    with pytest.raises(InputError, match="not the convention of a training step"):
        step_flops(counted(backward=True), OWN, "2N")
    image = opcost.count(nn.Linear(4, 4), shapes=(1, 4), backward=True)
    with pytest.raises(InputError, match="no input holds whole numbers"):
        step_flops(image, OWN, "6N")
    with pytest.raises(opcost.OpcostError, match="known: 2N"):
        step_flops(image, OWN, "7N")
    with pytest.raises(InputError, match="nothing is multiplied"):
        step_flops(opcost.count(nn.ReLU(), shapes=(1, 4)), OWN)


def test_products_of_several_types_are_compared_with_the_time_of_each() -> None:
    device = Device(name="own", flops={"float32": 10**9, "bfloat16": 10**10}, bandwidth=1, source="")

    def both(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x @ x, y @ y

    report = opcost.count(both, (torch.empty(10, 10), torch.empty(10, 10, dtype=torch.bfloat16)))
    work = step_flops(report, device)
    seconds = 2000 / 10**9 + 2000 / 10**10
    assert work.flops == 4000
    assert work.used(seconds) == pytest.approx(1)
    with pytest.raises(InputError, match="no peak for products of float64"):
        step_flops(opcost.count(lambda x: x @ x, (torch.empty(4, 4, dtype=torch.float64),)), device)


class Clock:
    """Moves only when a test sets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def train(model: nn.Module, meter: opcost.StepMeter, clock: Clock, seconds: list[float]) -> None:
    for taken in seconds:
        with meter:
            model(torch.zeros(BATCH, TOKENS, dtype=torch.int64)).sum().backward()
            clock.now += taken


def test_a_meter_records_the_first_step_and_times_the_others() -> None:
    clock = Clock()
    meter = opcost.StepMeter(OWN, clock=clock)
    assert meter.mfu is None
    assert str(meter) == "MFU is known when two steps have ended"
    train(Block(), meter, clock, [9.0, 1e-3, 2e-3, 1e-3, 1e-3])
    assert meter.step_seconds == pytest.approx(1e-3)
    flops = step_flops(counted(backward=True), OWN).flops
    assert meter.work
    assert meter.work.flops == flops
    assert meter.mfu == pytest.approx(flops / 1e-3 / PEAK)
    assert "measured, float32" in str(meter)
    assert "(executed)" in str(meter)


def test_a_step_that_fails_is_no_step() -> None:
    meter = opcost.StepMeter(OWN)
    with pytest.raises(ZeroDivisionError), meter:
        raise ZeroDivisionError
    assert meter.work is None
    train(Block(), meter, Clock(), [1.0])
    assert meter.work


def test_a_meter_takes_a_step_that_was_counted_and_its_convention() -> None:
    clock = Clock()
    step = counted(backward=True)
    meter = opcost.StepMeter(OWN, step=step, convention="6N", clock=clock)
    train(Block(), meter, clock, [1.0, 0.5, 0.5])
    assert meter.mfu == pytest.approx(6 * PARAMETERS * BATCH * TOKENS / 0.5 / PEAK)
    with pytest.raises(InputError, match="needs the parameters"):
        opcost.StepMeter(OWN, convention="6N")
    with pytest.raises(opcost.OpcostError, match="h200"):
        opcost.StepMeter("h2000")


def test_the_trainer_of_transformers_logs_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()
    config = transformers.GPT2Config(n_positions=16, n_embd=32, n_layer=1, n_head=2, vocab_size=WORDS)
    model = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": torch.zeros(16, dtype=torch.int64), "labels": torch.zeros(16, dtype=torch.int64)}] * 8
    meter = opcost.StepMeter(OWN)
    logged: list[dict[str, Any]] = []

    class Keep(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
            logged.append(dict(logs))

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=2, logging_steps=1, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    callbacks = [meter.for_transformers(), Keep()]
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=callbacks).train()
    batch = {"input_ids": torch.zeros(2, 16, dtype=torch.int64), "labels": torch.zeros(2, 16, dtype=torch.int64)}
    step = opcost.count(model.train(), kwargs=batch, backward=True)
    assert meter.work
    assert meter.work.flops == step_flops(step, OWN).flops
    assert any("mfu" in entry for entry in logged)


class _Callback:
    """What Lightning calls a callback, as far as it matters here."""


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.machinery import ModuleSpec

    package, inner = ModuleType("lightning"), ModuleType("lightning.pytorch")
    package.__spec__ = ModuleSpec("lightning", None)
    package.__path__ = []
    inner.Callback = _Callback  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", inner)


@pytest.mark.usefixtures("lightning")
def test_a_callback_of_lightning_meters_every_batch_and_logs() -> None:
    clock = Clock()
    meter = opcost.StepMeter(OWN, clock=clock)
    callback = meter.for_lightning()
    assert isinstance(callback, _Callback)
    logged: dict[str, float] = {}

    class Module(Block):
        def log(self, name: str, value: float, *, prog_bar: bool) -> None:
            assert prog_bar
            logged[name] = value

    model = Module()
    for number in range(3):
        callback.on_train_batch_start(None, model, None, number)
        model(torch.zeros(BATCH, TOKENS, dtype=torch.int64)).sum().backward()
        clock.now += 0.25
        callback.on_train_batch_end(None, model, None, None, number)
    assert logged["mfu"] == meter.mfu == pytest.approx(step_flops(counted(backward=True), OWN).flops / 0.25 / PEAK)


def test_lightning_itself_runs_the_callback() -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Block()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.net(batch).sum()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    meter = opcost.StepMeter(OWN)
    batches = torch.utils.data.DataLoader([torch.zeros(TOKENS, dtype=torch.int64)] * 8, batch_size=BATCH)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_steps=4, accelerator="cpu", callbacks=[meter.for_lightning()], **quiet)
    trainer.fit(Module(), batches)
    assert meter.work
    assert meter.work.flops == step_flops(counted(backward=True), OWN).flops
    assert float(trainer.callback_metrics["mfu"]) == pytest.approx(meter.mfu)


def test_without_lightning_there_is_no_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingFramework, match="Lightning is not installed"):
        opcost.StepMeter(OWN).for_lightning()


def test_the_command_prints_every_convention_that_applies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from opcost.cli.main import run

    path = tmp_path / "net.py"
    path.write_text("import torch\nfrom torch import nn\nclass Net(nn.Sequential):\n    def __init__(self):\n"
                    "        super().__init__(nn.Embedding(50, 32), nn.Linear(32, 64, bias=False))\n")  # fmt: skip
    command = ["mfu", f"{path}:Net", "--input", "4x8:int64", "--device", "h200", "--step-time", "1us", "-q"]
    assert run(command) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    executed = 3 * 2 * 32 * 32 * 64
    used = executed / 1e-6 / opcost.core.devices.device("h200").flops["float32"]  # type: ignore[attr-defined]
    assert f"{100 * used:.1f}" in lines["executed"].split()
    (row, *_) = opcost.mfu(f"{path}:Net", shapes=(4, 8), dtypes="int64", step_time=1e-6, device="h200")[""]
    assert row["flops"] == executed
    assert row["mfu"] == pytest.approx(used)
    assert "6N" in lines
    assert "2N" not in lines
    assert run([*command, "--inference"]) == 0
    out = capsys.readouterr().out
    assert "2N" in out
    assert "6N" not in out
    assert run([*command[:-3], "--step-time", "0ms"]) == 2
