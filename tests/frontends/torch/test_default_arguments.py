"""Inputs of transformers models besides a text: made from what their signature and configuration say of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.frontends.torch.default_inputs.engine import features_in, rows
from opcost.frontends.torch.default_inputs.transformers import _FORMS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.zoo

WORDS, WIDTH, TOKENS, SIDE, PATCH, MARK = 30, 8, 20, 16, 4, 29
PATCHES = (SIDE // PATCH) ** 2


def shapes(report: Any) -> dict[str, tuple[int, ...]]:
    return {name: spec.shape for name, spec in report.inputs}


def config(**settings: Any) -> Any:
    known = {"vocab_size": WORDS, "max_position_embeddings": TOKENS, "image_size": SIDE, "patch_size": PATCH}
    return transformers.PretrainedConfig(**{**known, **settings})


class Reads(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Reads a text, if it gets what it needs."""

    config_class = transformers.PretrainedConfig
    input_modalities = ("text",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def read(self, input_ids: Tensor) -> Tensor:
        x: Tensor = self.head(self.table(input_ids))
        return x


def require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"it needs {what}")


# -- of a text ---------------------------------------------------------------------------------------------------------


def test_a_text_gets_a_mask_where_the_model_cannot_do_without() -> None:
    class Masked(Reads):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            require(attention_mask is not None and bool(attention_mask.all()), "a mask")
            return self.read(input_ids)

    assert shapes(opcost.count(Masked(config()))) == {"input_ids": (1, TOKENS), "attention_mask": (1, TOKENS)}


def test_a_text_gets_a_second_one_for_a_decoder_that_the_configuration_does_not_mention() -> None:
    class Answers(Reads):
        def forward(self, input_ids: Tensor, decoder_input_ids: Tensor | None = None) -> Tensor:
            require(decoder_input_ids is not None, "the beginning of an answer")
            return self.read(input_ids) + self.read(decoder_input_ids)  # type: ignore[arg-type]

    report = opcost.count(Answers(config()))
    assert shapes(report) == {"input_ids": (1, TOKENS), "decoder_input_ids": (1, TOKENS)}
    assert report.totals.macs == 2 * TOKENS * WIDTH * WORDS


def test_a_text_ends_where_the_model_looks_for_its_end() -> None:
    settings = transformers.BartConfig(
        vocab_size=WORDS, d_model=WIDTH, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=4, decoder_ffn_dim=4, max_position_embeddings=TOKENS, num_labels=2,
    )  # fmt: skip
    report = opcost.count(transformers.BartForSequenceClassification(settings).eval())
    assert shapes(report) == {"input_ids": (1, TOKENS), "decoder_input_ids": (1, TOKENS)}
    assert report.totals.macs > opcost.count(transformers.BartModel(settings).eval()).totals.macs


def test_a_model_that_chooses_gets_several_texts() -> None:
    settings = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4,
        max_position_embeddings=TOKENS,
    )  # fmt: skip
    report = opcost.count(transformers.BertForMultipleChoice(settings).eval())
    assert shapes(report) == {"input_ids": (1, 4, TOKENS)}
    alone = opcost.count(transformers.BertModel(settings).eval())
    assert report.totals.macs == 4 * (alone.totals.macs + WIDTH)  # a score for each


def test_a_text_is_shorter_where_another_part_reads_less_and_never_where_its_length_was_requested() -> None:
    class Short(Reads):
        def forward(self, input_ids: Tensor) -> Tensor:
            require(input_ids.shape[1] <= 7, "at most seven tokens")
            return self.read(input_ids)

    part = config(max_position_embeddings=7)
    assert shapes(opcost.count(Short(config(qformer_config=part)))) == {"input_ids": (1, 7)}
    with pytest.raises(opcost.OpcostError, match="at most seven"):
        opcost.count(Short(config(qformer_config=part)), tokens=9)


def test_positions_of_padding_are_none_of_a_text_in_a_table_of_another_kind_too() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.padding_idx = nn.Parameter(torch.zeros(TOKENS, WIDTH)), 1

    class Placed(Reads):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.position_table = Table()

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.read(input_ids) + self.head(self.position_table.weight[2:])

    assert shapes(opcost.count(Placed(config()))) == {"input_ids": (1, TOKENS - 2)}


def test_a_decoder_of_an_encoder_gets_what_that_has_made() -> None:
    settings = transformers.BartConfig(
        vocab_size=WORDS, d_model=WIDTH, decoder_layers=1, decoder_attention_heads=1, decoder_ffn_dim=4,
        max_position_embeddings=TOKENS,
    )  # fmt: skip
    report = opcost.count(transformers.BartForCausalLM(settings).eval())
    assert shapes(report) == {"input_ids": (1, TOKENS), "encoder_hidden_states": (1, TOKENS, WIDTH)}
    assert report.totals.unused_params == 0


@pytest.mark.parametrize("books", [(3, TOKENS), (1, TOKENS, 4)], ids=["a row each", "and one of the text"])
def test_tokens_of_sound_come_in_the_form_that_runs(books: tuple[int, ...]) -> None:
    class Sings(Reads):
        def forward(self, input_ids: Tensor) -> Tensor:
            require(tuple(input_ids.shape) == books, f"{books}")
            return self.read(input_ids)

    assert shapes(opcost.count(Sings(config(num_codebooks=3)))) == {"input_ids": books}


def test_a_model_of_entities_is_given_two() -> None:
    settings = transformers.LukeConfig(
        vocab_size=WORDS, entity_vocab_size=WORDS, hidden_size=WIDTH, entity_emb_size=WIDTH, num_hidden_layers=1,
        num_attention_heads=1, intermediate_size=4, max_position_embeddings=TOKENS, max_mention_length=5,
    )  # fmt: skip
    report = opcost.count(transformers.LukeForEntityPairClassification(settings).eval())
    assert shapes(report)["entity_ids"] == (1, 2)
    assert shapes(report)["entity_position_ids"] == (1, 2, 5)


# -- of images ---------------------------------------------------------------------------------------------------------


class Sees(Reads):
    """Looks at an image and reads a text."""

    input_modalities = ("image", "text")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen = nn.Linear(3 * PATCH**2, WIDTH, bias=False)


def test_the_place_of_an_image_may_be_the_first_of_all_tokens() -> None:
    class First(Sees):
        def get_image_features(self, pixel_values: Tensor) -> Any:
            return SimpleNamespace(last_hidden_state=self.seen(pixel_values.reshape(1, -1, 3 * PATCH**2)))

        def forward(self, input_ids: Tensor, pixel_values: Tensor | None = None) -> Tensor:
            if pixel_values is not None:
                self.get_image_features(pixel_values)
                require(int((input_ids == 0).sum()) == PATCHES, f"{PATCHES} places")
            return self.read(input_ids)

    report = opcost.count(First(config(image_token_id=0)))
    assert shapes(report) == {"pixel_values": (1, 3, SIDE, SIDE), "input_ids": (1, TOKENS)}
    assert report.totals.macs == PATCHES * 3 * PATCH**2 * WIDTH + TOKENS * WIDTH * WORDS


def test_features_that_depend_on_values_are_found_on_the_models_own_weights() -> None:
    class Looks(Sees):
        def get_image_features(self, pixel_values: Tensor) -> Tensor:
            require(not bool(pixel_values.isnan().any()), "an image")
            x: Tensor = self.seen(pixel_values.reshape(1, -1, 3 * PATCH**2))
            return x

        def forward(self, input_ids: Tensor, pixel_values: Tensor | None = None) -> Tensor:
            if pixel_values is not None:
                self.get_image_features(pixel_values)
                require(int((input_ids == 3).sum()) == PATCHES, f"{PATCHES} places")
            return self.read(input_ids)

    report = opcost.count(Looks(config(image_token_id=3)))
    assert shapes(report) == {"pixel_values": (1, 3, SIDE, SIDE), "input_ids": (1, TOKENS)}
    assert {note.code for note in report.notes} == {"real-values", "guessed-inputs"}


def test_a_model_around_one_with_images_gets_the_inputs_of_that() -> None:
    class Inner(Sees):
        def get_image_features(self, pixel_values: Tensor) -> Tensor:
            x: Tensor = self.seen(pixel_values.reshape(1, -1, 3 * PATCH**2))
            return x

        def forward(self, input_ids: Tensor, pixel_values: Tensor | None = None, image_sizes: Any = None) -> Tensor:
            require(pixel_values is not None and int((input_ids == 3).sum()) == PATCHES, "an image and its places")
            return self.read(input_ids) + self.head(self.get_image_features(pixel_values)).sum()  # type: ignore[arg-type]

    class Outer(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
        config_class = transformers.PretrainedConfig
        input_modalities = ("image", "text")

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.vlm = Inner(config.vlm_config)

        def forward(self, input_ids: Tensor, pixel_values: Tensor | None = None, **others: Any) -> Tensor:
            x: Tensor = self.vlm(input_ids, pixel_values, **others)
            return x

    inner = config(image_token_id=3)
    report = opcost.count(Outer(transformers.PretrainedConfig(vlm_config=inner)))
    assert shapes(report) == {"pixel_values": (1, 3, SIDE, SIDE), "input_ids": (1, TOKENS)}


class Looks(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Looks at an image in a form of its own."""

    config_class = transformers.PretrainedConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen = nn.Linear(SIDE, 1, bias=False)
        self.flat = nn.Linear(3 * PATCH**2, 1, bias=False)


def test_a_model_that_compares_images_gets_two() -> None:
    class Compares(Looks):
        def forward(self, pixel_values: Tensor) -> Any:
            require(pixel_values.shape[:3] == (1, 2, 3), "two images")
            return self.seen(pixel_values), self.flat(pixel_values.reshape(-1, 3 * PATCH**2))

    assert shapes(opcost.count(Compares(config()))) == {"pixel_values": (1, 2, 3, SIDE, SIDE)}


def test_frames_may_be_a_batch_of_images() -> None:
    class Frames(Looks):
        def forward(self, pixel_values: Tensor) -> Any:
            require(pixel_values.shape[:2] == (6, 3), "six images")
            return self.seen(pixel_values), self.flat(pixel_values.reshape(-1, 3 * PATCH**2))

    assert shapes(opcost.count(Frames(config(num_frames=6)))) == {"pixel_values": (6, 3, SIDE, SIDE)}


def test_patches_come_with_their_places_in_whole_groups() -> None:
    class Placed(Looks):
        def forward(self, pixel_values: Tensor, pixel_position_ids: Tensor) -> Any:
            require(pixel_position_ids[0, :3].tolist() == [[0, 0], [1, 0], [2, 0]], "columns before rows")
            return self.flat(pixel_values), self.seen(pixel_values.reshape(-1, SIDE))

    report = opcost.count(Placed(config(pooling_kernel_size=3)))  # of four patches in a row, three make a group
    assert shapes(report) == {"pixel_values": (1, 9, 3 * PATCH**2), "pixel_position_ids": (1, 9, 2)}


def test_an_image_is_in_the_first_of_its_tiles() -> None:
    class Tiled(Looks):
        def forward(self, pixel_values: Tensor, aspect_ratio_ids: Tensor, aspect_ratio_mask: Tensor) -> Any:
            require(
                aspect_ratio_mask.tolist() == [[[1, 0, 0]]] and aspect_ratio_ids.tolist() == [[1]], "one tile of three"
            )
            return self.seen(pixel_values), self.flat(pixel_values.reshape(-1, 3 * PATCH**2))

    report = opcost.count(Tiled(config(max_num_tiles=3)))
    assert shapes(report)["pixel_values"] == (1, 1, 3, 3, SIDE, SIDE)


@pytest.mark.parametrize(("name", "expected"), [("image_merge_sizes", [2]), ("images_per_sample", [2])])
def test_a_grid_comes_with_what_goes_with_it(name: str, expected: list[int]) -> None:
    class Merges(Looks):
        def forward(self, pixel_values: Tensor, image_grid_thw: Tensor, **_: Any) -> Any:
            return self.flat(pixel_values), self.seen(pixel_values.reshape(-1, SIDE))

    merges = {
        "image_merge_sizes": lambda self, pixel_values, image_grid_thw, image_merge_sizes: checked(
            self, pixel_values, image_grid_thw, image_merge_sizes, 1
        ),
        "images_per_sample": lambda self, pixel_values, image_grid_thw, images_per_sample: checked(
            self, pixel_values, image_grid_thw, images_per_sample, 2
        ),
    }

    def checked(self: Any, pixel_values: Tensor, grid: Tensor, value: Tensor, images: int) -> Any:
        require(value.tolist() == expected and grid.tolist() == [[1, 4, 4]] * images, name)
        return Merges.forward(self, pixel_values, grid)

    model = type("Checks", (Merges,), {"forward": merges[name]})(config(spatial_merge_size=2))
    assert shapes(opcost.count(model))["pixel_values"] == (PATCHES, 3 * PATCH**2)


def test_a_model_of_timm_inside_says_the_size_of_images() -> None:
    class Around(Looks):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.seen.img_size = (SIDE, 2 * SIDE)  # type: ignore[assignment]

        def forward(self, pixel_values: Tensor) -> Any:
            return self.seen(pixel_values.reshape(-1, SIDE)), self.flat(pixel_values.reshape(-1, 3 * PATCH**2))

    assert shapes(opcost.count(Around(transformers.PretrainedConfig()))) == {"pixel_values": (1, 3, SIDE, 2 * SIDE)}


def test_half_of_the_patches_of_a_film_are_hidden_where_they_are_to_be_found_again() -> None:
    settings = transformers.VideoMAEConfig(
        image_size=SIDE, patch_size=PATCH, num_frames=4, tubelet_size=2, hidden_size=WIDTH, num_hidden_layers=1,
        num_attention_heads=1, intermediate_size=4, decoder_hidden_size=WIDTH, decoder_num_hidden_layers=1,
        decoder_num_attention_heads=1, decoder_intermediate_size=4,
    )  # fmt: skip
    report = opcost.count(transformers.VideoMAEForPreTraining(settings).eval())
    assert shapes(report) == {"pixel_values": (1, 4, 3, SIDE, SIDE), "bool_masked_pos": (1, 2 * PATCHES)}


def test_what_a_detector_has_found_in_an_image_goes_with_a_text() -> None:
    class Finds(Reads):
        def forward(self, input_ids: Tensor, visual_feats: Tensor | None = None) -> Tensor:
            require(visual_feats is not None, "what was found")
            return self.read(input_ids) + self.head(visual_feats).sum()

    report = opcost.count(Finds(config(visual_feat_dim=WIDTH)))
    assert shapes(report) == {"input_ids": (1, TOKENS), "visual_feats": (1, 36, WIDTH)}


# -- of anything -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "made"), [("int64", (1, TOKENS)), ("an image", (1, 3, SIDE, SIDE)), ("a width", (1, TOKENS, WIDTH))]
)
def test_a_model_that_reads_anything_gets_what_it_can_read(needed: str, made: tuple[int, ...]) -> None:
    class Reads(Looks):
        main_input_name = "inputs"

        def forward(self, inputs: Tensor) -> Any:
            kind = "int64" if inputs.dtype == torch.int64 else "an image" if inputs.dim() == 4 else "a width"
            require(kind == needed, needed)
            return self.seen.weight * inputs.sum(), self.flat.weight.sum()

    assert shapes(opcost.count(Reads(config(d_model=WIDTH)))) == {"inputs": made}


def test_a_series_has_what_never_changes_about_it() -> None:
    settings = transformers.TimeSeriesTransformerConfig(
        prediction_length=3, context_length=4, lags_sequence=[1, 2], num_time_features=2, num_static_categorical_features=1,
        cardinality=[5], embedding_dimension=[2], num_static_real_features=1, num_dynamic_real_features=1, d_model=WIDTH,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=1, decoder_attention_heads=1,
    )  # fmt: skip
    made = shapes(opcost.count(transformers.TimeSeriesTransformerModel(settings).eval()))
    assert made["static_categorical_features"] == made["static_real_features"] == (1, 1)
    assert made["past_time_features"] == (1, 6, 3)  # four steps, two more for the lags, and what is known at each


@pytest.mark.parametrize("mask", ["bool", "int64", "none"])
def test_a_mask_of_a_sound_is_of_the_kind_that_runs(mask: str) -> None:
    class Hears(Looks):
        main_input_name = "input_features"
        input_modalities = ("audio",)

        def forward(self, input_features: Tensor, input_features_mask: Tensor | None = None) -> Any:
            given = "none" if input_features_mask is None else str(input_features_mask.dtype).removeprefix("torch.")
            require(given == mask, mask)
            return self.seen(input_features), self.flat.weight.sum()

    made = opcost.count(Hears(transformers.PretrainedConfig(num_mel_bins=SIDE)))
    assert {name: spec.dtype for name, spec in made.inputs}.get("input_features_mask", "none") == mask


def test_features_are_found_wherever_a_model_hands_them_back() -> None:
    one, two = torch.zeros(2, 3), torch.zeros(4, 3)
    assert features_in(SimpleNamespace(pooler_output=[one, two], last_hidden_state=two)) == [one, two]
    assert features_in(SimpleNamespace(pooler_output=None, last_hidden_state=two))[0] is two
    layers = [(5, [one]), (7, [one])]  # of each layer the same tokens: those of one are counted
    assert features_in(SimpleNamespace(deepstack_features=layers)) == [one]
    assert features_in({"not": "features"}) == []


# -- inputs that models take in several forms: the first with which the model runs is meant


class Patches(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Looks at small images in a row, as Kimi does, and needs a token for each of them."""

    config_class = transformers.PretrainedConfig
    input_modalities = ("image", "text")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.seen = nn.Conv2d(3, WIDTH, PATCH, bias=False)

    def get_image_features(self, pixel_values: Tensor, image_grid_thw: Tensor) -> Tensor:
        features: Tensor = self.seen(pixel_values).flatten(1)
        return features

    def forward(self, input_ids: Tensor, pixel_values: Tensor, image_grid_thw: Tensor) -> Tensor:
        features, places = self.get_image_features(pixel_values, image_grid_thw), input_ids == MARK
        if int(places.sum()) != features.shape[0]:
            raise ValueError(f"{features.shape[0]} features for {int(places.sum())} places")
        x: Tensor = self.head(self.table(input_ids).masked_scatter(places[..., None], features))
        return x


def test_patches_are_small_images_where_the_model_cannot_look_at_flat_ones() -> None:
    report = opcost.count(Patches(config(image_token_id=MARK)).eval())
    assert shapes(report) == {
        "pixel_values": (PATCHES, 3, PATCH, PATCH), "image_grid_thw": (1, 3), "input_ids": (1, TOKENS),
    }  # fmt: skip
    assert report.totals.macs == PATCHES * 3 * PATCH**2 * WIDTH + TOKENS * WIDTH * WORDS


class Video(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Needs frames, which only its own forward says."""

    config_class = transformers.PretrainedConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    dimensions = 5

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen = nn.Linear(SIDE, 1, bias=False)

    def forward(self, pixel_values: Tensor) -> Tensor:
        if pixel_values.dim() != self.dimensions:
            raise ValueError(f"{pixel_values.dim()} dimensions and not {self.dimensions}")
        x: Tensor = self.seen(pixel_values)
        return x


def test_frames_are_tried_where_a_single_image_fails() -> None:
    frames = 6
    report = opcost.count(Video(config(num_frames=frames)).eval())
    assert shapes(report) == {"pixel_values": (1, frames, 3, SIDE, SIDE)}
    assert report.totals.macs == frames * 3 * SIDE * SIDE
    profile = opcost.profile(Video(config(num_frames=frames)).eval(), repeat=1, warmup=0)
    assert sum(row.cost.macs for row in profile.rows if row.cost is not None) == report.totals.macs


def test_where_every_form_fails_the_error_of_the_first_is_reported() -> None:
    model = Video(config(num_frames=6))
    model.dimensions = 7
    with pytest.raises(opcost.OpcostError, match="4 dimensions and not 7"):
        opcost.count(model)


def test_a_part_that_reads_images_of_a_video_is_given_frames_first() -> None:
    class Film(Video):
        input_modalities = ("video",)

    model = Film(config(num_frames=6, vision_config=config()))
    model.dimensions = 7
    with pytest.raises(opcost.OpcostError, match="5 dimensions and not 7"):
        opcost.count(model)


class Hears(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Needs frequencies before time, and a mask of truth values for each step."""

    config_class = transformers.PretrainedConfig
    main_input_name = "input_features"
    input_modalities = ("audio",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.heard = nn.Conv1d(5, 2, 1, bias=False)

    def forward(self, input_features: Tensor, input_features_mask: Tensor) -> Tensor:
        return torch.where(input_features_mask[:, None], self.heard(input_features), 0.0)


def test_a_spectrogram_is_turned_and_its_mask_follows() -> None:
    report = opcost.count(Hears(transformers.PretrainedConfig(num_mel_bins=5)).eval())
    assert shapes(report) == {"input_features": (1, 5, 1000), "input_features_mask": (1, 1000)}
    assert [spec.dtype for name, spec in report.inputs if name == "input_features_mask"] == ["bool"]
    assert report.totals.macs == 1000 * 5 * 2


def test_a_model_made_without_what_reads_images_gets_none() -> None:
    class Blind(Patches):
        def forward(self, input_ids: Tensor, pixel_values: Tensor | None = None) -> Tensor:
            x: Tensor = self.head(self.table(input_ids))
            return x

    made = opcost.count(Blind(config(vision_config=None)).eval())
    assert shapes(made) == {"input_ids": (1, TOKENS)}
    assert "a text alone" not in " ".join(note.text for note in made.notes)


def test_an_agent_gets_what_it_has_seen_done_and_been_paid() -> None:
    settings = transformers.DecisionTransformerConfig(state_dim=3, act_dim=2, hidden_size=8, n_layer=1, n_head=1)
    report = opcost.count(transformers.DecisionTransformerModel(settings).eval())
    assert shapes(report) == {
        "states": (1, 20, 3), "actions": (1, 20, 2), "rewards": (1, 20, 1), "returns_to_go": (1, 20, 1), "timesteps": (1, 20),
    }  # fmt: skip


CODEBOOKS = 3


class Composes(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Needs a token of each codebook at every step, as Dia and CSM do."""

    config_class = transformers.PretrainedConfig
    input_modalities = ("text",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        batch, steps, books = input_ids.shape
        x: Tensor = self.head(self.table(input_ids).sum(2))
        assert (batch, steps, books) == (1, TOKENS, CODEBOOKS)
        return x


def test_tokens_of_sound_have_one_of_every_codebook() -> None:
    report = opcost.count(Composes(config(num_codebooks=CODEBOOKS)).eval())
    assert shapes(report) == {"input_ids": (1, TOKENS, CODEBOOKS)}
    assert report.totals.macs == TOKENS * WIDTH * WORDS


class LooksTwice(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Needs the same image in two sizes, as DeepSeek's hybrid does."""

    config_class = transformers.PretrainedConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen = nn.Conv2d(3, WIDTH, 1, bias=False)

    def forward(self, pixel_values: Tensor, high_res_pixel_values: Tensor | None = None) -> Tensor:
        x: Tensor = self.seen(high_res_pixel_values).mean((2, 3)) + self.seen(pixel_values).mean((2, 3))
        return x


def test_an_image_is_given_finer_too_where_a_model_looks_twice() -> None:
    finer = 2 * SIDE
    report = opcost.count(LooksTwice(config(high_res_vision_config=config(image_size=finer))).eval())
    assert shapes(report) == {"pixel_values": (1, 3, SIDE, SIDE), "high_res_pixel_values": (1, 3, finer, finer)}
    assert report.totals.macs == 3 * WIDTH * (SIDE**2 + finer**2)


def test_patches_of_several_frames_are_as_deep_as_the_configuration_says() -> None:
    class Deep(Patches):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.seen = nn.Linear(3 * 2 * PATCH**2, WIDTH, bias=False)  # type: ignore[assignment]

    report = opcost.count(Deep(config(image_token_id=MARK, patch_temporal=2)).eval())
    assert shapes(report)["pixel_values"] == (PATCHES, 3 * 2 * PATCH**2)


def test_tokens_of_sound_may_have_a_row_for_every_codebook() -> None:
    class Rows(Composes):
        def forward(self, input_ids: Tensor) -> Tensor:
            if input_ids.dim() != 2:
                raise ValueError("a row for every codebook")
            x: Tensor = self.head(self.table(input_ids.reshape(-1, CODEBOOKS, TOKENS)).sum(1))
            return x

    report = opcost.count(Rows(config(num_codebooks=CODEBOOKS)).eval())
    assert shapes(report)["input_ids"] == (CODEBOOKS, TOKENS)
    assert report.totals.macs == TOKENS * WIDTH * WORDS


def test_a_model_of_pages_is_given_the_places_of_tokens() -> None:
    settings = transformers.BrosConfig(
        hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=99,
        max_position_embeddings=12,
    )  # fmt: skip
    report = opcost.count(transformers.BrosModel(settings).eval())
    assert shapes(report) == {"input_ids": (1, 12), "bbox": (1, 12, 4)}


def test_frames_are_side_by_side_where_the_first_layer_reads_several() -> None:
    class Stacked(Hears):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.heard = nn.Linear(4 * 5, 2, bias=False)  # type: ignore[assignment]

        def forward(self, input_features: Tensor) -> Tensor:  # type: ignore[override]
            x: Tensor = self.heard(input_features)
            return x

    report = opcost.count(Stacked(transformers.PretrainedConfig(num_mel_bins=5)).eval())
    assert shapes(report) == {"input_features": (1, 1000, 4 * 5)}
    assert report.totals.macs == 1000 * 4 * 5 * 2


def test_places_of_an_image_are_between_the_tokens_of_its_borders() -> None:
    class Bordered(Patches):
        def forward(self, input_ids: Tensor, pixel_values: Tensor, image_grid_thw: Tensor) -> Tensor:
            row = input_ids[0].tolist()
            if row[1 : PATCHES + 3] != [27, *[MARK] * PATCHES, 28]:
                raise ValueError(f"no borders in {row}")
            return super().forward(input_ids, pixel_values, image_grid_thw)

    marks = {"image_token_id": MARK, "vision_start_token_id": 27, "image_end_token_id": 28}
    assert shapes(opcost.count(Bordered(config(**marks)).eval()))["input_ids"] == (1, TOKENS)


def test_a_sound_is_given_to_a_model_that_has_a_part_for_it() -> None:
    """Clvp reads a text and hears, and says of itself only that it reads."""

    class Both(Composes):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.heard = nn.Linear(80, WIDTH, bias=False)

        def forward(self, input_ids: Tensor, input_features: Tensor | None = None) -> Tensor:
            x: Tensor = self.head(self.table(input_ids))
            assert input_features is not None
            return x + self.head(self.heard(input_features)).mean(1, keepdim=True)

    report = opcost.count(Both(config(speech_config=config())).eval())
    assert shapes(report) == {"input_ids": (1, TOKENS), "input_features": (1, 1000, 80)}


class Robot(LooksTwice):
    """Says what is to be done next, by what several cameras see and where its joints are, as π0 does."""

    input_modalities = ("image", "text")

    def forward(  # type: ignore[override]
        self,
        state: Tensor,
        timestep: Tensor | None = None,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        pixel_attention_mask: Tensor | None = None,
    ) -> Tensor:
        if pixel_values is None or pixel_attention_mask is None or timestep is None:
            raise ValueError("a camera and a time")
        images = [each[there] for each, there in zip(pixel_values, pixel_attention_mask, strict=True)]
        x: Tensor = self.seen(torch.cat(images)).mean() + state + timestep[:, None]
        return x


def test_a_robot_gets_a_camera_and_a_state() -> None:
    report = opcost.count(Robot(config(max_state_dim=7)).eval())
    assert shapes(report) == {
        "state": (1, 7), "timestep": (1,), "pixel_values": (1, 1, 3, SIDE, SIDE), "pixel_attention_mask": (1, 1),
        "input_ids": (1, TOKENS),
    }  # fmt: skip
    assert report.totals.macs == 3 * WIDTH * SIDE**2


def test_an_image_is_so_large_that_its_smallest_copy_is_a_patch() -> None:
    """DepthPro looks at an image in several sizes, in patches of the same size."""

    class Pyramid(LooksTwice):
        def forward(self, pixel_values: Tensor) -> Tensor:  # type: ignore[override]
            x: Tensor = self.seen(pixel_values)
            return x

    settings = transformers.PretrainedConfig(patch_size=PATCH, scaled_images_ratios=[0.25, 0.5, 1])
    assert shapes(opcost.count(Pyramid(settings).eval())) == {"pixel_values": (1, 3, 4 * PATCH, 4 * PATCH)}


@pytest.mark.parametrize(("channels", "steps"), [(1, 160_000), (6, 2048)])
def test_a_coder_of_sound_gets_samples_or_what_was_made_of_them(channels: int, steps: int) -> None:
    """Ten seconds of 16,000 samples; the other half of such a coder reads several channels."""

    class Coder(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.first = nn.Conv1d(channels, 2, 1, bias=False)

        def forward(self, hidden_states: Tensor) -> Tensor:
            x: Tensor = self.first(hidden_states)
            return x

    report = opcost.count(Coder(transformers.PretrainedConfig(hidden_size=8)).eval())
    assert shapes(report) == {"hidden_states": (1, channels, steps)}
    assert report.totals.macs == steps * channels * 2


def test_an_image_is_given_and_no_video_beside_it() -> None:
    """Video-LLaVA names its images apart from its videos, and has places for both in its text."""

    class Either(Composes):
        input_modalities = ("image", "video", "text")

        def forward(
            self,
            input_ids: Tensor,
            pixel_values_images: Tensor | None = None,
            pixel_values_videos: Tensor | None = None,
        ) -> Tensor:
            x: Tensor = self.head(self.table(input_ids))
            assert pixel_values_videos is None
            return x if pixel_values_images is None else x + pixel_values_images.mean()

    assert shapes(opcost.count(Either(config()).eval())) == {
        "pixel_values_images": (1, 3, SIDE, SIDE), "input_ids": (1, TOKENS),
    }  # fmt: skip


def test_every_section_that_forms_of_images_and_sounds_name_has_lines() -> None:
    forms = [section for sections in _FORMS.values() for section in sections]
    beside = [name for section in forms for _, names in rows(section) for name in names]
    assert all(rows(section) for section in (*forms, *beside, "usual images"))
