"""Sound, and series in time, for models of transformers: how long, and how many numbers at each step."""

from __future__ import annotations

from collections.abc import Callable

import torch

from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Maker

SECONDS = 10
"""Of a recording, for a model that takes any length."""
_FRAMES = 1000
"""Of a spectrogram of so many seconds, one every ten milliseconds."""
_RATE = 16_000


def spectrogram(config: Configuration, maker: Maker) -> torch.Tensor:
    """Frequencies over time: in Whisper's order where the model is made for a fixed length of them, else time first."""
    bins = config.number(
        config.sound, "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "feature_size", "n_mels"
    )
    bins = bins or 80
    if (side := config.number(config.sound, "spec_size")) is not None:
        return maker.floats(1, side * side // bins, bins)
    if (most := config.number(config.sound, "max_source_positions")) and config.has(config.sound, "num_mel_bins"):
        return maker.floats(bins, 2 * most)
    per_step = config.number(config.sound, "input_channels") if config.has(config.sound, "conv_channels") else None
    return maker.floats(_FRAMES, bins * (per_step or 1))


def waves(config: Configuration, maker: Maker) -> torch.Tensor:
    """A recording as it is; a spectrogram where the model says how many frequencies it wants."""
    if (bins := config.number(config.sound, "num_mel_bins")) and (length := config.number(config.sound, "max_length")):
        return maker.floats(length, bins)
    samples = SECONDS * (config.number(config.sound, "sampling_rate", "sample_rate") or _RATE)
    if config.has([config.own], "audio_channels") or config.has([config.own], "codebook_size"):
        return maker.floats(config.number([config.own], "audio_channels") or 1, samples)
    return maker.floats(samples)


def sound_mask(config: Configuration, maker: Maker) -> torch.Tensor:
    """Which steps of a spectrogram are there: all of them."""
    return torch.ones(spectrogram(config, maker).shape[:2], dtype=torch.int64, device="cpu")


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
    count = getattr(config.own, "num_time_features", 0)
    return count if isinstance(count, int) else 0


MAKERS: dict[str, Callable[[Configuration, Maker], torch.Tensor | None]] = {
    "input_features": spectrogram,
    "input_values": waves,
    "input_features_mask": sound_mask,
    "feature_attention_mask": sound_mask,
    "past_values": past_values,
    "past_observed_mask": past_mask,
    "past_time_features": past_times,
    "future_values": future_values,
    "future_time_features": future_times,
}
