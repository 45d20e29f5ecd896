"""Inputs that models take in several forms: the first with which the model runs is meant."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.zoo

WORDS, WIDTH, TOKENS, SIDE, PATCH, MARK = 30, 8, 20, 16, 4, 29
PATCHES = (SIDE // PATCH) ** 2


def shapes(report: Any) -> dict[str, tuple[int, ...]]:
    return {name: spec.shape for name, spec in report.inputs}


def config(**settings: Any) -> Any:
    known = {"vocab_size": WORDS, "max_position_embeddings": TOKENS, "image_size": SIDE, "patch_size": PATCH}
    return transformers.PretrainedConfig(**{**known, **settings})


class Patches(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """Looks at small images in a row, as Kimi does, and wants a token for each of them."""

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
    """Wants frames, which only its own forward tells."""

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


def test_where_every_form_fails_the_first_is_told_of() -> None:
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
    """Wants frequencies before time, and a mask of truth values for each step."""

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
    """Wants a token of each codebook at every step, as Dia and CSM do."""

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
    """Wants the same image in two sizes, as DeepSeek's hybrid does."""

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


def test_a_model_of_pages_is_told_where_tokens_stand() -> None:
    settings = transformers.BrosConfig(
        hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=99,
        max_position_embeddings=12,
    )  # fmt: skip
    report = opcost.count(transformers.BrosModel(settings).eval())
    assert shapes(report) == {"input_ids": (1, 12), "bbox": (1, 12, 4)}


def test_frames_lie_side_by_side_where_the_first_layer_reads_several() -> None:
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


def test_places_of_an_image_stand_between_the_tokens_of_its_borders() -> None:
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
