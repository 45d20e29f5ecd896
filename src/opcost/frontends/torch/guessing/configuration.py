"""Questions to a Hugging Face configuration, which may hold others: of the text, of images, of sound."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import nn

_TEXT = ("text_config", "llm_config", "language_config", "decoder", "text_encoder")
_IMAGES = (
    "vision_config", "vit_config", "image_config", "backbone_config", "encoder", "image_encoder", "perceptual_encoder",
)  # fmt: skip
_SOUND = (
    "audio_config", "audio_encoder", "speech_config", "encoder_config", "audio_encoder_config", "semantic_model_config",
)  # fmt: skip
_POSITIONS = (
    "max_text_len", "max_text_positions", "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length",
    "max_seq_length", "n_ctx", "seq_length", "max_target_positions", "block_size",
)  # fmt: skip


def _said_by_timm(module: nn.Module) -> tuple[int, int] | None:
    """The size of images that a model of timm is made for."""
    size: Any = getattr(module, "img_size", None)
    fits = isinstance(size, (tuple, list)) and len(size) == 2 and all(isinstance(extent, int) for extent in size)
    return (size[0], size[1]) if fits else None


class Configuration:
    """The configuration of a model, and those inside of it, as far as they are there."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.own: Any = getattr(model, "config", None)
        around = getattr(self.own, "vlm_config", None)
        self.whole = [self.own] if around is None else [around, self.own]
        """The configuration itself, and that of a model with images around which another is built."""
        self.text = [*self._inner(_TEXT), *self.whole]
        self.images = [*self._inner(_IMAGES), *self.whole]
        self.sound = [*self._inner(_SOUND), *self.whole]

    def _inner(self, names: tuple[str, ...]) -> Iterator[Any]:
        for whole, name in product(self.whole, names):
            found = getattr(whole, name, None)
            if found is not None and hasattr(found, "to_dict"):
                yield from (
                    deeper for deeper in (getattr(found, inner, None) for inner in names) if hasattr(deeper, "to_dict")
                )
                yield found

    def has_part(self, kind: str) -> bool:
        """Whether there is a configuration of what reads images or sounds."""
        return next(self._inner({"image": _IMAGES, "audio": _SOUND}[kind]), None) is not None

    def number(self, places: list[Any], *names: str) -> int | None:
        """The first of these entries that is a number above zero."""
        for name in names:
            for place in places:
                value = getattr(place, name, None)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
        return None

    def has(self, places: list[Any], name: str) -> bool:
        return any(getattr(place, name, None) is not None for place in places)

    def positions(self) -> int | None:
        """How many tokens the model reads at most. A table of positions whose first are for padding has fewer for tokens."""
        most = self.number(self.text, *_POSITIONS)
        for name, module in self.model.named_modules():
            padding, table = getattr(module, "padding_idx", None), getattr(module, "weight", None)
            if "position" in name and isinstance(padding, int) and isinstance(table, torch.Tensor):
                return min(most or len(table), len(table) - padding - 1)
        return most

    def shorter(self, than: int) -> list[int]:
        """Fewer tokens than these: as many as another part of the model reads, or two less, if it adds a begin and an end."""
        parts = [part for part in vars(self.own).values() if hasattr(part, "to_dict")]
        said = (self.number([part], *_POSITIONS) for part in (*parts, *self.whole))
        return sorted(
            {length for length in (*said, than - 2) if length is not None and 0 < length < than}, reverse=True
        )

    def token(self, *kinds: str) -> int | None:
        """The token that stands for an image, or a sound, or an end, in a text."""
        for kind, ending, place in product(kinds, ("token_id", "token_index", "placeholder_token_id"), self.whole):
            value = getattr(place, f"{kind}_{ending}", None)
            if isinstance(value, int) and value >= 0:
                return value
        return None

    def image_size(self, usual: int) -> int | tuple[int, int]:
        """Height and width of images."""
        for name in ("image_size", "input_size", "img_size", "max_img_size"):
            for place in self.images:
                size = getattr(place, name, None)
                if isinstance(size, dict):
                    size = (size.get("height"), size.get("width"))
                if isinstance(size, (list, tuple)) and size and all(isinstance(extent, int) for extent in size):
                    return size[-2] if len(size) > 1 else size[0], size[-1]
                if isinstance(size, int) and not isinstance(size, bool) and size > 0:
                    return size
        return next((size for module in self.model.modules() if (size := _said_by_timm(module))), usual)

    def channels(self) -> int:
        return self.number(self.images, "num_channels", "in_channels", "in_chans") or 3

    def side(self, *names: str) -> int | None:
        """Of a square in images: one number, or the first of two."""
        for name in names:
            for place in self.images:
                size = getattr(place, name, None)
                size = size[0] if isinstance(size, (list, tuple)) and size else size
                if isinstance(size, int) and not isinstance(size, bool) and size > 0:
                    return size
        return None

    def patch(self) -> int:
        return self.side("patch_size") or 14

    def lacks(self, kind: str) -> bool:
        """Whether the model was made without what reads images or sound: the configuration has a place for it that is empty."""
        places = {"image": _IMAGES, "video": _IMAGES, "audio": _SOUND}.get(kind, ())
        held = [
            getattr(whole, name)
            for whole, name in product(self.whole, places)
            if name.endswith("_config") and hasattr(whole, name)
        ]
        return bool(held) and all(place is None for place in held)

    def word(self) -> int:
        """A token that is nothing special: neither padding nor a border nor the place of an image."""
        special = {
            value
            for place in (*self.text, self.own)
            for name, value in vars(place).items()
            if name.endswith(("token_id", "token_index")) and isinstance(value, int)
        }
        return next(token for token in range(len(special) + 1) if token not in special)
