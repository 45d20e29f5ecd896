"""One name for the same module in every layer."""

from __future__ import annotations

from opcost.analysis.compare import diff_profiles, folded
from opcost.core.profile import Profile, ProfileRow


def test_layers_of_a_list_are_one_and_their_parts_stay_apart() -> None:
    (found,) = folded(
        ["blocks.0.attn.q", "blocks.0.attn.k", "blocks.1.attn.q", "blocks.1.mlp.0", "blocks.1.mlp.2", "head"]
    )
    assert found["blocks.0.attn.q"] == found["blocks.1.attn.q"] == "blocks.*.attn.q"
    assert found["blocks.0.attn.k"] == "blocks.*.attn.k"
    # Leaves of a list differ by their place among those that ran: 0 and 2 are the first and the second.
    assert (found["blocks.1.mlp.0"], found["blocks.1.mlp.2"], found["head"]) == (
        "blocks.*.mlp.0",
        "blocks.*.mlp.1",
        "head",
    )


def test_classes_that_a_trace_numbers_through_begin_anew_in_every_layer() -> None:
    (found,) = folded(
        [f"Net_0.Block_{layer}.Attention_{layer}.Linear_{3 * layer + part}" for layer in range(3) for part in (0, 2)]
    )
    assert set(found.values()) == {
        "", "Net", "Net.Block_*", "Net.Block_*.Attention", "Net.Block_*.Attention.Linear_0", "Net.Block_*.Attention.Linear_1",
    }  # fmt: skip


def test_both_models_decide_which_layers_are_several() -> None:
    one, two = folded(["Net_0.Block_7.Conv_9"], ["Net_0.Block_0.Conv_0", "Net_0.Block_1.Conv_1"])
    assert one["Net_0.Block_7.Conv_9"] == two["Net_0.Block_1.Conv_1"] == "Net.Block_*.Conv"


def test_what_has_no_numbers_keeps_its_name() -> None:
    assert folded(["a.b.c", "", "x_y.z"]) == [
        {"": "", "a": "a", "a.b": "a.b", "a.b.c": "a.b.c", "x_y": "x_y", "x_y.z": "x_y.z"}
    ]


def test_the_same_attention_of_all_layers_is_one_line_of_a_difference() -> None:
    def of(time: int) -> Profile:
        rows = tuple(
            ProfileRow(number, "mm", "mm", module=f"layers.{number}.attn", device_ns=time, host_ns=1)
            for number in range(24)
        )
        return Profile(meta={}, rows=rows)

    found = diff_profiles(of(100), of(150), by="module")
    (line,) = [entry for entry in found.of_part("module") if entry.quantity.name == "time"]
    assert (line.name, line.amounts) == ("layers.*.attn", (2400, 3600))
