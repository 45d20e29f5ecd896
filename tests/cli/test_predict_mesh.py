"""`opcost predict --mesh --cluster`: how long a step of one rank of many takes."""

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.cli.main import run
from opcost.core.devices import device
from opcost.errors import InputError, UnknownName
from opcost.views.html.profiles import timeline_of

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

LAYERS, D, HIDDEN, HEADS, VOCABULARY, TOKENS = 3, 512, 1024, 8, 2048, 1024
CLUSTER = "8 per node, nvlink 450GB/s, network 50GB/s per gpu"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("model") / "config.json"
    sizes = {
        "hidden_size": D, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "vocab_size": VOCABULARY,
    }  # fmt: skip
    words = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}
    path.write_text(json.dumps(sizes | words))
    return f"hf:{path}"


@pytest.fixture(scope="module")
def step(config: str) -> opcost.Prediction:
    options: dict[str, Any] = {"optimizer": "adamw", "precision": "bf16-mixed", "tokens": TOKENS}
    return opcost.predict(config, device="h200", cluster=CLUSTER, mesh="fsdp=8", **options)


def test_the_times_of_all_rows_add_up_to_the_step(step: opcost.Prediction) -> None:
    assert step.step is not None
    assert sum(row.device_ns or 0 for row in step.rows) == pytest.approx(step.latency_ns, abs=len(step.rows))
    later = step.step.exposed_ns["fsdp"] + step.step.slowing_ns["fsdp"]
    assert step.step.compute_ns + later == step.latency_ns
    assert step.bounds["network"] == pytest.approx(later, abs=20)
    low, high = step.band_ns
    assert low < step.latency_ns < high


def test_a_compiled_rank_merges_operators_of_each_block_and_gathers_as_before(
    config: str, step: opcost.Prediction
) -> None:
    options: dict[str, Any] = {"optimizer": "adamw", "precision": "bf16-mixed", "tokens": TOKENS, "device": "h200"}
    found, blocks = (
        opcost.predict(config, cluster=CLUSTER, mesh="fsdp=8", execution="compiled", compile_only=only, **options)
        for only in ((), "layers.*")
    )
    assert found.step is not None
    assert step.step is not None
    assert found.step.compute_ns < step.step.compute_ns
    for each in (found, blocks):
        assert sum(row.device_ns or 0 for row in each.rows) == pytest.approx(each.latency_ns, abs=len(each.rows))
        assert each.step is not None
        assert each.step.sending_ns == step.step.sending_ns
        assert each.memory is not None
        assert step.memory is not None
        assert each.memory.base_bytes == step.memory.base_bytes
        assert each.memory.peak_bytes < step.memory.peak_bytes
        for kind in ("matmul", "attention", "collective"):
            assert sum(row.kind == kind for row in each.rows) == sum(row.kind == kind for row in step.rows)
    outside = {row.type for row in blocks.rows if row.module.partition(".")[0] != "model" or row.module == "model.norm"}
    assert not any(name.startswith("merged") for name in outside)
    assert {row.module.split(".")[2] for row in blocks.rows if row.type.startswith("merged")} == {"0", "1", "2"}


def test_an_eager_rank_also_waits_for_its_host(config: str, step: opcost.Prediction) -> None:
    options: dict[str, Any] = {"optimizer": "adamw", "precision": "bf16-mixed", "device": "h200", "mesh": "fsdp=8"}
    short, long = (
        opcost.predict(config, cluster=CLUSTER, execution="eager", tokens=tokens, **options) for tokens in (16, 65536)
    )
    assert short.bounds["host"] > 0.8 * short.latency_ns  # three small layers of so few tokens
    assert long.bounds["host"] < 0.1 * long.latency_ns
    for each in (short, long):
        rows = sum(row.device_ns or 0 for row in each.rows)
        assert rows + each.bounds["host"] == pytest.approx(each.latency_ns, abs=len(each.rows))


def test_a_lower_limit_of_power_lengthens_every_operator(config: str, step: opcost.Prediction) -> None:
    options: dict[str, Any] = {"optimizer": "adamw", "precision": "bf16-mixed", "tokens": TOKENS, "device": "h200"}
    low = opcost.predict(config, cluster=CLUSTER, mesh="fsdp=8", power="500W", **options)
    assert low.step is not None
    assert step.step is not None
    assert low.step.compute_ns / step.step.compute_ns == pytest.approx((700 / 500) ** (1 / 3), rel=1e-3)
    assert (low.meta["power"], step.meta["power"]) == ("500 W", "700 W")
    # Alone a device is predicted as it was calibrated, for moments.
    alone, limited = (opcost.predict(config, tokens=TOKENS, device="h200", power=power) for power in (None, 700))
    assert "power" not in alone.meta
    assert limited.latency_ns / alone.latency_ns == pytest.approx(1.17, abs=0.002)


def test_collectives_take_as_long_as_their_bytes_and_steps(step: opcost.Prediction) -> None:
    # A block has 4 D² parameters of attention, 3 D x HIDDEN of the feed-forward part, and two norms; the rest is the embedding,
    # the head and the last norm. Gathered in bfloat16 twice but for the root, which is kept; gradients are scattered in float32.
    block, root = 4 * D * D + 3 * D * HIDDEN + 2 * D, 2 * VOCABULARY * D + D

    def ring(payload: int) -> float:
        bandwidth = 450e9 * 0.8
        protocols = ((6_600, 600, 0.5), (14_000, 1_900, 0.92), (8_400, 3_400, 1.0))
        return min(base + 7 * each + 7 / 8 * payload / (bandwidth * share) * 1e9 for base, each, share in protocols)

    gathers = 2 * LAYERS * ring(2 * block) + ring(2 * root)
    scatters = LAYERS * ring(4 * block) + ring(4 * root)
    assert step.step is not None
    # Every number of parameters is divisible by the 8 ranks, so nothing is padded.
    assert step.step.sending_ns["fsdp"] == pytest.approx(gathers + scatters, abs=20)


def test_tokens_and_use_of_the_peak_follow_from_the_step(step: opcost.Prediction) -> None:
    seconds = step.latency_ns / 1e9
    # Forward: 2 FLOPs for each weight of a product and token, and 4 x tokens² x D for each layer's attention.
    weights = LAYERS * (4 * D * D + 3 * D * HIDDEN) + VOCABULARY * D
    forward = 2 * weights * TOKENS + LAYERS * 4 * TOKENS * TOKENS * D
    peak = device("h200").peak_flops("bfloat16")
    assert peak is not None
    assert step.step is not None
    assert step.step.tokens_per_second == pytest.approx(TOKENS / seconds)
    assert step.step.mfu == pytest.approx(3 * forward / seconds / peak)
    # Backward computes the products of queries and keys once more than twice: 5 products in place of 4.
    assert step.step.hfu == pytest.approx((3 * forward + LAYERS * 2 * TOKENS * TOKENS * D) / seconds / peak)


def test_ranks_of_a_tensor_parallel_group_share_their_tokens(config: str) -> None:
    found = opcost.predict(config, device="h200", cluster="dgx-h200", mesh="tp=4", tokens=TOKENS, backward=True)
    assert found.step is not None
    assert found.step.tokens_per_second == pytest.approx(TOKENS / 4 / (found.latency_ns / 1e9))
    assert found.step.exposed_ns["tp"] > 0


def test_parts_of_the_sequence_are_sent_beside_products(config: str) -> None:
    options: dict[str, Any] = {"mesh": "tp=4", "tokens": TOKENS, "optimizer": "adamw", "sequence_parallel": True}
    waits, beside = (
        opcost.predict(config, device="h200", cluster="dgx-h200", async_tp=on, **options) for on in (False, True)
    )
    assert waits.step is not None
    assert beside.step is not None
    assert beside.step.sending_ns == waits.step.sending_ns
    assert beside.step.compute_ns == pytest.approx(waits.step.compute_ns, rel=1e-4)
    assert beside.step.exposed_ns["tp"] < waits.step.exposed_ns["tp"]
    assert beside.latency_ns < waits.latency_ns


def test_a_slower_network_takes_longer(config: str) -> None:
    slow, fast = (
        opcost.predict(config, device="h200", cluster=cluster, mesh="fsdp=16", tokens=TOKENS, backward=True)
        for cluster in ("8 per node, nvlink 450GB/s, network 1GB/s", "8 per node, nvlink 450GB/s, network 50GB/s")
    )
    assert slow.latency_ns > fast.latency_ns
    assert slow.step is not None
    assert fast.step is not None
    assert slow.step.compute_ns == pytest.approx(fast.step.compute_ns, abs=2)


def test_a_saved_prediction_says_the_same_again(step: opcost.Prediction, tmp_path: Path) -> None:
    step.save(tmp_path / "step.json")
    again = opcost.read_profile(tmp_path / "step.json")
    assert isinstance(again, opcost.Prediction)
    assert again.step == step.step
    assert again.answer == step.answer


def test_the_timeline_of_a_rank_has_what_it_computes_waits_for_and_sends(step: opcost.Prediction) -> None:
    found = timeline_of(step)
    assert found is not None
    compute, fsdp = found["lanes"]
    assert (compute["title"], fsdp["title"]) == ("compute", "fsdp")
    assert step.step is not None
    sent = [length for length, name in zip(fsdp["length"], fsdp["name"], strict=True) if "c10d" in found["words"][name]]
    assert sum(sent) == pytest.approx(step.step.sending_ns["fsdp"], abs=len(sent))
    word = found["words"].index("waits for fsdp")
    assert found["sorts"][word] == "collective"
    waits = [length for length, name in zip(compute["length"], compute["name"], strict=True) if name == word]
    assert sum(waits) == pytest.approx(step.step.exposed_ns["fsdp"], abs=len(waits))
    # One after another from the beginning to the end, without gaps: no host is waited for.
    assert sum(compute["length"]) == pytest.approx(step.latency_ns, abs=len(compute["length"]))
    starts = [*accumulate(compute["step"])]
    ends = [start + length for start, length in zip(starts, compute["length"], strict=True)]
    assert starts[1:] == pytest.approx(ends[:-1], abs=2)
    products = {f"{row.module}.{row.type}" for row in step.rows if row.kind == "matmul"}
    assert products <= {*found["words"]}


def test_the_command_prints_tokens_and_what_is_waited_for(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    flags = f"--mesh fsdp=8 --device h100 --cluster dgx-h100 --tokens {TOKENS} --optimizer adamw --quiet".split()
    assert run(["predict", config, *flags]) == 0
    text = capfd.readouterr().out
    assert "tokens/s per GPU" in text.replace("\n  ", " ")
    assert "waiting fsdp" in text
    assert run(["predict", config, *flags, "--format", "json"]) == 0
    found = json.loads(capfd.readouterr().out)["predicted"]["step"]
    assert found["cluster"] == "dgx-h100"
    assert set(found["exposed_ns"]) == {"fsdp"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": "fsdp=8"}, "no cluster that connects its ranks"),
        ({"cluster": "p5"}, "runs on one rank"),
        ({"async_tp": True}, "no cluster that connects ranks"),
        ({"mesh": "tp=4", "cluster": "p5", "async_tp": True}, "parts of the sequence, which are not split"),
        (
            {"mesh": "tp=4", "cluster": "p5", "quantize": "fp8-rows", "backward": True},
            "not counted with tensor parallel",
        ),
        ({"mesh": "fsdp=8", "cluster": "p5", "prefill": 4, "generate": 2}, "a single pass or step"),
    ],
)
def test_what_is_not_predicted_is_refused(config: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opcost.predict(config, device="h200", **{"tokens": 8} | options)


def test_a_cluster_that_is_not_known_is_refused(config: str) -> None:
    with pytest.raises(UnknownName, match="did you mean 'dgx-h100'"):
        opcost.predict(config, device="h200", tokens=8, mesh="fsdp=8", cluster="dgx-h10")
