"""Sound, and series in time, for models of transformers: how long, and how many numbers at each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Maker

SECONDS = 10
"""Of a recording, for a model that takes any length."""
_FRAMES = 1000
"""Of a spectrogram of so many seconds, one every ten milliseconds."""
_RATE = 16_000
_STRIDES = 53_760
"""Samples that nearly all steps in which models read sound divide: 2⁹·3·5·7."""
_BINS = (
    "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "feature_size", "n_mels", "input_feat_size",
    "input_dim", "audio_embed_dim",
)  # fmt: skip
"""How many frequencies a spectrogram has."""
_FINE = 128
"""So many frequencies have the spectrograms of younger models."""
_MASKS = ("input_features_mask", "feature_attention_mask")


def spectrograms(config: Configuration, maker: Maker) -> Iterator[torch.Tensor]:
    """Frequencies over time: in Whisper's order where the model is made for a fixed length of them, else time first."""
    named = config.number(config.sound, *_BINS)
    bins = named or 80
    if (side := config.number(config.sound, "spec_size")) is not None:
        yield maker.floats(1, side * side // bins, bins)
        return
    if (most := config.number(config.sound, "max_source_positions")) and config.has(config.sound, "num_mel_bins"):
        yield maker.floats(bins, 2 * most)
    stacked = config.number(config.sound, "input_channels") if config.has(config.sound, "conv_channels") else None
    yield maker.floats(_FRAMES, bins * (stacked or 1))
    yield maker.floats(bins, _FRAMES)
    if (frames := config.number(config.sound, "num_stacked_frames")) is not None:
        yield maker.floats(_FRAMES, bins * frames)
    if named is None:
        yield maker.floats(_FRAMES, _FINE)
    first = _first_layer(config)
    if isinstance(first, nn.Linear):  # several frames side by side, as its first layer takes them
        yield maker.floats(_FRAMES, first.in_features)
    elif first is not None:
        yield maker.floats(first.in_channels, _FRAMES)


def convolved(config: Configuration, maker: Maker) -> torch.Tensor | None:
    """What a model begins to convolve over time: samples where there is one channel, else what another model made of them."""
    first = _first_layer(config)
    if not isinstance(first, nn.Conv1d):
        return None
    return maker.floats(first.in_channels, SECONDS * _RATE if first.in_channels == 1 else maker.tokens(None))


def _first_layer(config: Configuration) -> nn.Linear | nn.Conv1d | None:
    return next((layer for layer in config.model.modules() if isinstance(layer, (nn.Linear, nn.Conv1d))), None)


def waves(config: Configuration, maker: Maker) -> Iterator[torch.Tensor]:
    """A recording as it is; a spectrogram where the model says how many frequencies it wants."""
    if (bins := config.number(config.sound, "num_mel_bins")) and (length := config.number(config.sound, "max_length")):
        yield maker.floats(length, bins)
        return
    samples = SECONDS * (config.number(config.sound, "sampling_rate", "sample_rate") or _RATE)
    has_channels = config.has([config.own], "audio_channels") or config.has([config.own], "codebook_size")
    channels = config.number([config.own], "audio_channels") or 1
    alone, mixed = maker.floats(samples), maker.floats(channels, samples)
    yield from (mixed, alone) if has_channels else (alone, mixed)
    yield maker.floats(-(-samples // _STRIDES) * _STRIDES)


def forms(name: str, names: list[str], config: Configuration, maker: Maker) -> Iterator[dict[str, torch.Tensor | None]]:
    """What may be meant by a sound, the most usual first; where the model asks which steps are there, all of them are."""
    masks = [mask for mask in _MASKS if mask in names] if name == "input_features" else []
    for sound in spectrograms(config, maker) if name == "input_features" else waves(config, maker):
        bins_first = sound.dim() == 3 and sound.shape[1] == config.number(config.sound, *_BINS)
        steps = sound.shape[-1] if bins_first else sound.shape[1]
        there = maker.integers(steps, value=1)
        if masks:
            yield {name: sound, **dict.fromkeys(masks, there.bool())}
        yield {name: sound, **dict.fromkeys(masks, there)}
        if masks:
            yield {name: sound, **dict.fromkeys(masks)}


def _past(config: Configuration) -> int:
    lags = getattr(config.own, "lags_sequence", None)
    return (config.number([config.own], "context_length", "prediction_length") or 32) + int(max(lags or [0]))


def _channels(config: Configuration) -> list[int]:
    if (channels := config.number([config.own], "num_input_channels")) is not None:
        return [channels]
    width = config.number([config.own], "input_size") or 1
    return [width] if width > 1 else []


def past_values(config: Configuration, maker: Maker) -> torch.Tensor:
    """What has been measured, one row a step."""
    return maker.floats(_past(config), *_channels(config))


def past_mask(config: Configuration, maker: Maker) -> torch.Tensor:
    """Which of it was measured: all."""
    return torch.ones((maker.batch, _past(config), *_channels(config)), dtype=torch.bool, device="cpu")


def past_times(config: Configuration, maker: Maker) -> torch.Tensor:
    """When it was measured, in as many numbers as the model wants of it."""
    return maker.floats(_past(config), _times(config))


def future_values(config: Configuration, maker: Maker) -> torch.Tensor | None:
    """What is to be learnt; only models that read what has passed in steps take it to run."""
    length = config.number([config.own], "prediction_length")
    return (
        None
        if length is None or not config.has([config.own], "lags_sequence")
        else maker.floats(length, *_channels(config))
    )


def future_times(config: Configuration, maker: Maker) -> torch.Tensor | None:
    """When that will be which is foretold."""
    length = config.number([config.own], "prediction_length")
    return None if length is None else maker.floats(length, _times(config))


def _times(config: Configuration) -> int:
    return sum(config.number([config.own], name) or 0 for name in ("num_time_features", "num_dynamic_real_features"))


def of_series(entry: str, config: Configuration, maker: Maker) -> torch.Tensor | None:
    """What never changes about a series: numbers, or, where these are categories, the first of each."""
    count = config.number([config.own], entry)
    if count is None:
        return None
    return maker.integers(count) if "categorical" in entry else maker.floats(count)


def padding(config: Configuration, maker: Maker) -> torch.Tensor:
    """Which of the past is only padding: nothing."""
    return torch.zeros((maker.batch, _past(config)), dtype=maker.dtype, device="meta")


def frequency(config: Configuration, maker: Maker) -> torch.Tensor:
    """How often something was measured, in a word of the model's: the first."""
    return maker.integers(1)


MAKERS: dict[str, Callable[[Configuration, Maker], torch.Tensor | None]] = {
    "past_values": past_values,
    "static_categorical_features": partial(of_series, "num_static_categorical_features"),
    "static_real_features": partial(of_series, "num_static_real_features"),
    "past_values_padding": padding,
    "freq": frequency,
    "past_observed_mask": past_mask,
    "past_time_features": past_times,
    "future_values": future_values,
    "future_time_features": future_times,
}
