"""Inputs that nobody gave: made from what the model and its library say, and the report tells which."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.errors import InputError, UnknownName

D, OUT = 4, 3


def seen(report: opcost.Report) -> dict[str, Any]:
    return {name: spec.shape for name, spec in report.inputs}


def said(report: opcost.Report) -> str:
    (text,) = [note.text for note in report.notes if note.code == "guessed-inputs"]
    return text


class Images(nn.Conv2d):
    """Says the size of its images as timm's models do."""

    def __init__(self) -> None:
        super().__init__(3, OUT, 1)
        self.default_cfg = {"input_size": (3, 8, 6)}


def test_the_report_says_which_inputs_were_made_and_how_to_change_them() -> None:
    report = opcost.count(Images())
    assert seen(report) == {"input": (1, 3, 8, 6)}
    assert report.totals.macs == 8 * 6 * 3 * OUT
    assert "input 1x3x8x6 float32, from its default_cfg" in said(report)
    assert "--batch" in said(report)


def test_inputs_that_were_given_are_not_spoken_of() -> None:
    assert not opcost.count(Images(), shapes=(1, 3, 8, 8)).notes


def test_batch_and_image_change_what_is_made() -> None:
    report = opcost.count(Images(), batch=2, image=5)
    assert seen(report) == {"input": (2, 3, 5, 5)}
    assert report.totals.macs == 2 * 5 * 5 * 3 * OUT


def test_sizes_and_inputs_together_are_refused() -> None:
    with pytest.raises(InputError, match="and inputs were given too"):
        opcost.count(Images(), shapes=(1, 3, 8, 8), batch=2)


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_size_that_nothing_has_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match="must be a whole number above zero"):
        opcost.count(Images(), batch=size)


def test_a_size_of_a_model_about_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(InputError, match="what Conv2d takes is not known"):
        opcost.count(nn.Conv2d(3, OUT, 1), batch=2)
    with pytest.raises(InputError, match="what Bilinear takes is not known"):
        opcost.count(nn.Bilinear(D, D, OUT), batch=2)


def test_a_size_that_was_asked_for_is_that_of_what_the_first_layer_reads() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.layers = nn.Sequential(nn.Conv2d(5, OUT, 1, bias=False), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layers(x) * self.scale
            return y

    report = opcost.count(Own(), image=6, batch=2)
    assert seen(report) == {"x": (2, 5, 6, 6)}
    assert report.totals.macs == 2 * 6 * 6 * 5 * OUT
    assert "its first layer, a Conv2d" in said(report)
    words = opcost.count(nn.Sequential(nn.Embedding(9, D), nn.Linear(D, OUT)), tokens=7)
    assert words.totals.macs == 7 * D * OUT
    assert opcost.count(nn.Linear(D, OUT), batch=3).totals.macs == 3 * D * OUT
    with pytest.raises(InputError, match="image cannot be changed"):
        opcost.count(nn.Linear(D, OUT), image=3)


def test_an_argument_that_is_no_tensor_does_not_stand_in_the_way() -> None:
    class Flagged(Images):
        def forward(self, input: Tensor, twice: bool = False) -> Tensor:  # noqa: A002
            y = super().forward(input)
            return super().forward(input) + y if twice else y

    assert opcost.count(Flagged(), kwargs={"twice": True}).totals.macs == 2 * 8 * 6 * 3 * OUT


def test_a_guess_that_leaves_most_parameters_unread_is_none() -> None:
    class Halves(Images):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = nn.Linear(100, 100)

    own, unread = 3 * OUT + OUT, 100 * 100 + 100
    with pytest.raises(InputError, match=rf"leaves {unread / (own + unread):.0%} of the parameters.*in decoder"):
        opcost.count(Halves())
    assert opcost.count(Halves(), shapes=(1, 3, 8, 6)).totals.macs == 8 * 6 * 3 * OUT


def test_a_small_part_that_is_not_read_is_told() -> None:
    class Mostly(Images):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 1, bias=False)

    assert "4 parameters of head are not read" in said(opcost.count(Mostly()))


# -- element types ----------------------------------------------------------------------------------------------------


def test_a_model_is_counted_in_another_type_and_stays_as_it_is() -> None:
    model = Images()
    report = opcost.count(model, dtype="bf16")
    assert report.totals.param_bytes == 2 * (3 * OUT + OUT)
    assert [spec.dtype for _, spec in report.inputs] == ["bfloat16"]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert report.totals.macs == opcost.count(model).totals.macs


def test_shapes_are_made_in_the_asked_type_too() -> None:
    report = opcost.count(nn.Linear(D, OUT), shapes=(2, D), dtype=torch.float16)
    assert [spec.dtype for _, spec in report.inputs] == ["float16"]


def test_a_type_in_which_no_model_computes_is_refused() -> None:
    with pytest.raises(InputError, match="cannot compute in int64"):
        opcost.count(Images(), dtype="int64")
    with pytest.raises(UnknownName, match="did you mean 'bf16'"):
        opcost.count(Images(), dtype="bf61")


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [((2, D), (2, D)), ([2, D], (2, D)), (((2, D),), [(2, D)]), (f"2x{D}", f"2x{D}")],
)
def test_a_shape_in_the_place_of_inputs_is_answered_with_shapes(written: Any, meant: Any) -> None:
    with pytest.raises(InputError, match=r"(numbers|a text) and not tensors") as caught:
        opcost.count(nn.Linear(D, OUT), written)
    assert f"shapes={meant!r};" in caught.value.hint
    assert opcost.count(nn.Linear(D, OUT), shapes=meant).totals.macs == 2 * D * OUT


def test_a_traced_module_without_inputs_is_told_what_it_needs() -> None:
    pytest.importorskip(
        "torch.testing._internal.common_methods_invocations"
    )  # gives such methods a signature of anything
    traced = torch.jit.trace(nn.Linear(D, OUT), torch.rand(2, D))
    with pytest.raises(InputError, match="forward needs input, and nothing was given"):
        opcost.count(traced)
    assert opcost.count(traced, shapes={"input": (2, D)}).totals.macs == 2 * D * OUT


def test_a_model_that_is_handed_over_cannot_be_set() -> None:
    with pytest.raises(InputError, match="only a model that a string names"):
        opcost.count(Images(), set={"depth": 3})


# -- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("source", "sizes", "expected"),
    [
        ("torchvision:alexnet", {}, (1, 3, 224, 224)),
        ("torchvision:efficientnet_b1", {}, (1, 3, 240, 240)),
        ("torchvision:efficientnet_b1", {"batch": 2, "image": 64}, (2, 3, 64, 64)),
        ("torchvision:lraspp_mobilenet_v3_large", {}, (1, 3, 520, 520)),
        ("torchvision:r3d_18", {}, (1, 3, 16, 112, 112)),
        ("timm:resnet10t", {"batch": 3}, (3, 3, 176, 176)),
    ],
)
def test_a_library_of_image_models_says_the_size(source: str, sizes: Any, expected: tuple[int, ...]) -> None:
    pytest.importorskip(source.partition(":")[0])
    assert [spec.shape for _, spec in opcost.count(source, **sizes).inputs] == [expected]


@pytest.mark.zoo
def test_settings_reach_what_makes_the_model() -> None:
    pytest.importorskip("timm")
    width = 512
    plain, small = (opcost.count("timm:resnet18", set={"num_classes": n}, image=32) for n in (1000, 10))
    assert plain.totals.params - small.totals.params == 990 * (width + 1)


SMALL_TEXT = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 99,
    "num_key_value_heads": 2,
}  # fmt: skip
SMALL_VISION = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 12,
    "patch_size": 4,
}  # fmt: skip


def small(name: str, **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name)(**settings)


@pytest.mark.zoo
def test_a_language_model_reads_2048_tokens_or_as_many_as_it_can() -> None:
    transformers = pytest.importorskip("transformers")
    for most, expected in ((4096, 2048), (64, 64)):
        model = transformers.LlamaForCausalLM(small("LlamaConfig", max_position_embeddings=most, **SMALL_TEXT))
        assert seen(opcost.count(model)) == {"input_ids": (1, expected)}
    assert seen(opcost.count(model, tokens=7, batch=2)) == {"input_ids": (2, 7)}


@pytest.mark.zoo
def test_positions_for_padding_are_not_for_tokens() -> None:
    transformers = pytest.importorskip("transformers")
    settings = {key: value for key, value in SMALL_TEXT.items() if key != "num_key_value_heads"}
    model = transformers.RobertaModel(small("RobertaConfig", max_position_embeddings=34, pad_token_id=1, **settings))
    assert seen(opcost.count(model)) == {"input_ids": (1, 34 - 1 - 1)}


@pytest.mark.zoo
def test_an_image_and_a_text_are_both_read() -> None:
    transformers = pytest.importorskip("transformers")
    text = {**SMALL_TEXT, "max_position_embeddings": 20}
    model = transformers.CLIPModel(small("CLIPConfig", text_config=text, vision_config=SMALL_VISION))
    assert seen(opcost.count(model)) == {"pixel_values": (1, 3, 12, 12), "input_ids": (1, 20)}


@pytest.mark.zoo
def test_a_multimodal_model_gets_a_place_for_every_part_of_its_image() -> None:
    """Nine patches of the image are nine tokens among the text; the projector is read once for each of them."""
    transformers = pytest.importorskip("transformers")
    config = small(
        "LlavaConfig",
        text_config=small("LlamaConfig", max_position_embeddings=32, **SMALL_TEXT),
        vision_config=small("CLIPVisionConfig", **SMALL_VISION),
        image_token_index=98,
        vision_feature_layer=-1,
    )
    report = opcost.count(transformers.LlavaForConditionalGeneration(config))
    assert seen(report) == {"pixel_values": (1, 3, 12, 12), "input_ids": (1, 32)}
    projector = [
        row for row in report.rows if row.op.module.endswith("multi_modal_projector.linear_1") and row.cost.macs
    ]
    assert sum(row.cost.macs for row in projector) == 9 * 8 * 8


@pytest.mark.zoo
def test_speech_and_series_are_as_long_as_the_configuration_says() -> None:
    transformers = pytest.importorskip("transformers")
    whisper = small(
        "WhisperConfig", d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=8, decoder_ffn_dim=8, max_source_positions=10, max_target_positions=6, num_mel_bins=5, vocab_size=99,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    report = opcost.count(transformers.WhisperForConditionalGeneration(whisper))
    assert seen(report) == {"input_features": (1, 5, 2 * 10), "decoder_input_ids": (1, 6)}
    series = small(
        "PatchTSTConfig", context_length=24, num_input_channels=2, patch_length=4, d_model=8, num_hidden_layers=1
    )
    assert seen(opcost.count(transformers.PatchTSTModel(series)))["past_values"] == (1, 24, 2)


def test_a_model_with_several_main_inputs_is_no_riddle() -> None:
    """OneFormer names two, in a list."""
    from opcost.frontends.options import Sizes
    from opcost.frontends.torch.guessing.guess import Maker
    from opcost.frontends.torch.guessing.transformers import _Inputs

    class Two(nn.Module):
        main_input_name = ["pixel_values", "task_inputs"]  # noqa: RUF012
        input_modalities = ("image",)

        def __init__(self) -> None:
            super().__init__()
            self.config = type("Config", (), {"image_size": 16, "task_seq_len": 5, "__dict__": {}})()

        def forward(self, pixel_values: Tensor, task_inputs: Tensor) -> Tensor: ...

    made = _Inputs(Two(), Maker(Two(), Sizes(), lambda method, given: [])).all()
    assert {name: tuple(tensor.shape) for name, tensor in made.items()} == {
        "pixel_values": (1, 3, 16, 16), "task_inputs": (1, 5),
    }  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_fails_with_an_image_is_counted_on_a_text_alone(fails: bool) -> None:
    transformers = pytest.importorskip("transformers")
    words, width, tokens, side = 30, 8, 6, 4

    class Speaks(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
        config_class = transformers.PretrainedConfig
        input_modalities = ("image", "text")

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.table, self.seen = nn.Embedding(words, width), nn.Linear(3 * side * side, width, bias=False)
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, input_ids: Tensor, pixel_values: Tensor | None = None) -> Tensor:
            x = self.table(input_ids)
            if pixel_values is not None:
                if fails:
                    raise ValueError("no image of this size")
                x = x + self.seen(pixel_values.flatten(1))[:, None]
            return self.head(x)

    config = transformers.PretrainedConfig(vocab_size=words, max_position_embeddings=tokens, image_size=side)
    report = opcost.count(Speaks(config).eval())
    head, image = tokens * width * words, 3 * side * side * width
    assert report.totals.macs == head + (0 if fails else image)
    assert seen(report) == {"input_ids": (1, tokens), **({} if fails else {"pixel_values": (1, 3, side, side)})}
    assert ("a text alone because the model fails with more" in said(report)) == fails
    assert ("no image of this size" in said(report)) == fails
