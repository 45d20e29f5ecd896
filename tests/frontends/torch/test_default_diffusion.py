"""The arguments of denoisers and autoencoders besides what they denoise: small classes with those of diffusers'."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost

WIDTH, OUT, SIDE, TEXT, CHANNELS = 8, 5, 6, 77, 4


def seen(report: opcost.Report) -> dict[str, Any]:
    return {name: spec.shape for name, spec in report.inputs}


class Denoiser(nn.Module):
    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.layer, self.text_embedder = nn.Conv2d(CHANNELS, OUT, 1, bias=False), nn.Linear(WIDTH, OUT, bias=False)
        self.config = {"in_channels": CHANNELS, "sample_size": SIDE, **config}


def of(forward: Any, **config: Any) -> Any:
    """A model of diffusers that does this."""
    return type("Model", (Denoiser,), {"forward": forward, "__module__": "diffusers.models"})(**config)


def test_a_text_is_as_wide_as_the_part_reads_that_is_named_for_it() -> None:
    def forward(self: Any, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Any:
        return self.layer(hidden_states), self.text_embedder(encoder_hidden_states)

    report = opcost.count(of(forward))
    assert seen(report)["encoder_hidden_states"] == (1, TEXT, WIDTH)
    assert report.totals.macs == SIDE**2 * CHANNELS * OUT + TEXT * WIDTH * OUT


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({"text_in_dim": WIDTH}, (1, TEXT, WIDTH)),
        ({"text_hidden_dim": WIDTH, "num_text_layers": 3}, (1, TEXT, 3, WIDTH)),
        ({"cross_attention_dim": WIDTH, "text_len": 9}, (1, 9, WIDTH)),
    ],
)
def test_a_text_has_the_tokens_layers_and_width_of_the_configuration(config: Any, shape: tuple[int, ...]) -> None:
    def forward(self: Any, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Any:
        return self.layer(hidden_states), self.text_embedder(encoder_hidden_states)

    assert seen(opcost.count(of(forward, **config)))["encoder_hidden_states"] == shape


def test_several_texts_come_each_with_its_own_width() -> None:
    def forward(
        self: Any,
        hidden_states: Tensor,
        timestep: Tensor,
        encoder_hidden_states_2: Tensor,
        text_embedding_mask: Any = None,
    ) -> Any:
        text = self.text_embedder(encoder_hidden_states_2)
        return self.layer(hidden_states), torch.where(text_embedding_mask[..., None], text, 0.0)

    made = seen(opcost.count(of(forward, text_embed_2_dim=WIDTH)))
    assert made["encoder_hidden_states_2"] == (1, TEXT, WIDTH)
    assert made["text_embedding_mask"] == (1, TEXT)


def test_texts_of_many_layers_come_as_a_tensor_or_as_a_list() -> None:
    def llama(
        self: Any,
        hidden_states: Tensor,
        timesteps: Tensor,
        encoder_hidden_states_t5: Tensor,
        encoder_hidden_states_llama3: Tensor,
    ) -> Any:
        return self.layer(hidden_states), self.text_embedder(encoder_hidden_states_llama3)

    made = seen(opcost.count(of(llama, caption_channels=[3, WIDTH], llama_layers=[0, 1])))
    assert made["encoder_hidden_states_t5"] == (1, TEXT, 3)
    assert made["encoder_hidden_states_llama3"] == (2, 1, TEXT, WIDTH)

    def listed(self: Any, hidden_states: Tensor, timestep: Tensor, text_encoder_layers: list[Tensor]) -> Any:
        assert len(text_encoder_layers) == 3
        return self.layer(hidden_states), [self.text_embedder(text) for text in text_encoder_layers]

    report = opcost.count(of(listed, text_encoder_dim=WIDTH, num_layers=1, num_single_layers=2))
    assert report.totals.macs == SIDE**2 * CHANNELS * OUT + 3 * TEXT * WIDTH * OUT


def test_images_and_captions_come_one_for_each_of_the_batch() -> None:
    def forward(self: Any, x: list[Tensor], t: Tensor, cap_feats: list[Tensor]) -> Any:
        assert [image.shape for image in x] == [(CHANNELS, 1, SIDE, SIDE)] * 2
        return [self.layer(image[:, 0]) for image in x], [self.text_embedder(text) for text in cap_feats]

    report = opcost.count(of(forward, cap_feat_dim=WIDTH), batch=2)
    assert report.totals.macs == 2 * (SIDE**2 * CHANNELS * OUT + TEXT * WIDTH * OUT)


@pytest.mark.parametrize("argument", ["the text", "the time"])
def test_the_text_or_time_of_a_video_is_given_for_each_frame_where_the_model_requires_it(argument: str) -> None:
    frames = 3

    def text(self: Any, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Any:
        if encoder_hidden_states.shape[0] != sample.shape[2]:
            raise ValueError("a text for each frame")
        return self.layer(sample[:, :, 0]), self.text_embedder(encoder_hidden_states)

    def time(self: Any, sample: Tensor, timestep: Tensor, r_timestep: Tensor, encoder_hidden_states: Tensor) -> Any:
        if timestep.shape != (1, frames):
            raise ValueError("a time for each frame")
        return self.layer(sample[:, 0] * r_timestep[0, 0]), self.text_embedder(encoder_hidden_states)

    made = seen(opcost.count(of(text if argument == "the text" else time, num_frames=frames)))
    if argument == "the text":
        assert made["encoder_hidden_states"] == (frames, TEXT, WIDTH)
    else:
        assert made["timestep"] == made["r_timestep"] == (1, frames)


def test_a_video_may_have_its_channels_last_and_come_with_its_places() -> None:
    def forward(
        self: Any,
        hidden_states: Tensor,
        timestep: Tensor,
        pooled_projections: Tensor,
        visual_rope_pos: Any,
        text_rope_pos: Any,
    ) -> Any:
        assert [len(places) for places in visual_rope_pos] == [17, SIDE // 2, SIDE // 2]
        assert text_rope_pos.shape == (TEXT,)
        return self.layer(hidden_states[:, 0].permute(0, 3, 1, 2)), self.text_embedder(pooled_projections)

    report = opcost.count(of(forward, in_visual_dim=CHANNELS, in_text_dim2=WIDTH, patch_size=(1, 2, 2)))
    assert seen(report)["hidden_states"] == (1, 17, SIDE, SIDE, CHANNELS)


def test_an_autoencoder_that_adds_channels_itself_gets_as_many_as_it_makes() -> None:
    def forward(self: Any, sample: Tensor) -> Any:
        if sample.shape[1] != 2:
            raise ValueError("two channels")
        return self.layer(torch.cat([sample, sample.sin()], 1)), self.text_embedder.weight.sum()

    assert seen(opcost.count(of(forward, out_channels=2)))["sample"] == (1, 2, SIDE, SIDE)


def test_a_picture_that_controls_is_larger_by_what_its_layers_make_smaller() -> None:
    def forward(self: Any, sample: Tensor, timestep: Tensor, controlnet_cond: Tensor) -> Any:
        return self.layer(sample) + self.controlnet_cond_embedding(controlnet_cond), self.text_embedder.weight.sum()

    model = of(forward)
    model.controlnet_cond_embedding = nn.Sequential(nn.Conv2d(3, 2, 2, 2), nn.Conv2d(2, OUT, 2, 2))
    assert seen(opcost.count(model))["controlnet_cond"] == (1, 3, 4 * SIDE, 4 * SIDE)


def test_sound_places_and_controls_have_what_the_configuration_says() -> None:
    def forward(
        self: Any,
        hidden_states: Tensor,
        timestep: Tensor,
        audio_hidden_states: Tensor,
        control_hidden_states: Tensor,
        prior_token_id: Tensor,
        prior_token_drop: Tensor,
    ) -> Any:
        assert prior_token_drop.tolist() == [False]
        return self.layer(hidden_states), self.text_embedder(audio_hidden_states)

    made = seen(opcost.count(of(forward, audio_in_channels=WIDTH, vace_in_channels=3, patch_size=2)))
    assert made["audio_hidden_states"] == (1, 126, WIDTH)
    assert made["control_hidden_states"] == (1, 3, 1, SIDE, SIDE)
    assert made["prior_token_id"] == (1, (SIDE // 2) ** 2)


def test_a_wave_has_as_many_tracks_as_the_configuration_says() -> None:
    def forward(self: Any, sample: Tensor) -> Any:
        return self.wave(sample.reshape(1, 4, -1)), self.text_embedder.weight.sum()

    model = of(forward, in_channels=None, audio_channels=2, sample_size=40)
    del model.layer
    model.wave = nn.Conv1d(4, 1, 1)
    assert seen(opcost.count(model))["sample"] == (1, 2, 40)
