"""Arguments that few models of transformers take, each from what their configuration says of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Maker

_STEPS = 20
"""Of what an agent has seen and done: as many as a decision transformer is usually told."""
_FOUND = 36
"""Objects in an image: as many as the detectors hand over for whose results such models were made."""
_ENTITIES, _MENTION = 2, 30
"""Of how many things a text speaks, as many as are compared, and in how many tokens at most."""
_FRAMES = 1000
"""Of a spectrogram of ten seconds."""


def _rows(count: int, entry: str | None, config: Configuration, maker: Maker) -> torch.Tensor | None:
    """So many rows of as many numbers as an entry of the configuration says."""
    width = 1 if entry is None else config.number([config.own], entry)
    return None if width is None else maker.floats(count, width)


def _felt(config: Configuration, maker: Maker) -> torch.Tensor | None:
    """Where the joints of a robot are."""
    width = config.number([config.own], "max_state_dim")
    return None if width is None else maker.floats(width)


def _of_entities(config: Configuration, maker: Maker) -> torch.Tensor:
    """One number for each thing of which the text speaks."""
    return maker.integers(_ENTITIES)


def _places_of_entities(config: Configuration, maker: Maker) -> torch.Tensor:
    """In which tokens the text speaks of each: in the first, and in no other."""
    most = config.number([config.own], "max_mention_length") or _MENTION
    return maker.rows([0, *[-1] * (most - 1)])[:, None].repeat(1, _ENTITIES, 1)


def _codes(config: Configuration, maker: Maker) -> torch.Tensor | None:
    """What is heard while a text is said, as one row for each codebook."""
    count = config.number([config.own], "num_codebooks")
    return None if count is None else maker.integers(count, maker.tokens(config.positions()))


def _proteins(config: Configuration, maker: Maker) -> torch.Tensor:
    """The tokens of a protein, beside those of a text, and as a mask that all are there."""
    part = getattr(config.own, "protein_encoder_config", None)
    return maker.integers(maker.tokens(config.number([part], "max_position_embeddings")), value=1)


def _task(config: Configuration, maker: Maker) -> torch.Tensor:
    return maker.integers(config.number([config.own], "task_seq_len") or 77)


def _book(config: Configuration, maker: Maker) -> int | None:
    """Which codebook is foretold: the first that is not given."""
    return config.number([config.own], "n_codes_given")


MAKERS: dict[str, Callable[[Configuration, Maker], Any]] = {
    "state": _felt,
    "timestep": lambda config, maker: maker.floats(),
    "states": partial(_rows, _STEPS, "state_dim"),
    "actions": partial(_rows, _STEPS, "act_dim"),
    "rewards": partial(_rows, _STEPS, None),
    "returns_to_go": partial(_rows, _STEPS, None),
    "timesteps": lambda config, maker: maker.rows([*range(_STEPS)]),
    "visual_feats": partial(_rows, _FOUND, "visual_feat_dim"),
    "visual_pos": partial(_rows, _FOUND, "visual_pos_dim"),
    "visual_embeds": partial(_rows, _FOUND, "visual_embedding_dim"),
    "decoder_input_values": partial(_rows, _FRAMES, "num_mel_bins"),
    "spectrogram": partial(_rows, _FRAMES, "model_in_dim"),
    "audio_mel": partial(_rows, _FRAMES, "input_feat_size"),
    "audio_mel_mask": lambda config, maker: maker.integers(_FRAMES).bool(),
    "entity_ids": _of_entities,
    "entity_start_positions": _of_entities,
    "entity_end_positions": _of_entities,
    "entity_position_ids": _places_of_entities,
    "protein_input_ids": _proteins,
    "protein_attention_mask": _proteins,
    "moshi_audio_codes": _codes,
    "user_audio_codes": _codes,
    "task_inputs": _task,
    "codebook_idx": _book,
}
COMPANIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("actions", "rewards", "returns_to_go", "timesteps"), ("states",)),
    **dict.fromkeys(
        (
            "visual_feats", "visual_pos", "visual_embeds", "entity_ids", "entity_position_ids", "entity_start_positions",
            "entity_end_positions", "protein_input_ids", "protein_attention_mask", "moshi_audio_codes", "user_audio_codes",
        ),
        ("input_ids",),
    ),
    "decoder_input_values": ("input_ids", "input_values"),
    "timestep": ("state",),
}  # fmt: skip
"""With which arguments these are given, though they have a default."""
