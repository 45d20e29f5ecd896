"""Models of transformers: which arguments are given tells the model, how large they are its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.errors import InputError, OpcostError
from opcost.frontends.torch.guessing import sounds
from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Guess, Maker, comes_from

_WINDOW = 448
"""Of an image for a model that takes any size: 32 by 32 patches of 14."""


def transformers(model: nn.Module, maker: Maker) -> Guess | None:
    """A model of transformers, by its configuration; another that has only `dummy_inputs`, by those."""
    if comes_from(model, "transformers") and hasattr(model, "config"):
        inputs = _Inputs(model, maker)
        return Guess((), inputs.all(), "its configuration", inputs.text_alone())
    dummy = getattr(model, "dummy_inputs", None)
    if not isinstance(dummy, Mapping):
        return None
    main = getattr(model, "main_input_name", None)
    if main is not None and main not in dummy:
        raise InputError(
            f"{type(model).__name__} takes {main}, which its own example inputs ({', '.join(dummy)}) do not have",
            hint=f"pass kwargs={{{main!r}: ...}}, or its shape (on the command line --input {main}:SHAPE)",
        )
    return Guess((), dict(dummy), "its dummy_inputs")


class _Inputs:
    """The inputs of one model."""

    def __init__(self, model: nn.Module, maker: Maker) -> None:
        self.model = model
        self.maker = maker
        self.config = Configuration(model)
        parameters = inspect.signature(model.forward).parameters.values()
        self.names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self.needed = [
            p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        kinds = getattr(model, "input_modalities", "text")
        self.kinds = {kinds} if isinstance(kinds, str) else set(kinds)
        main = getattr(model, "main_input_name", "input_ids")
        self.main = [main] if isinstance(main, str) else list(main)
        self.made: dict[str, Any] = {}

    def all(self) -> dict[str, Any]:
        """The arguments, those on which others depend first."""
        wanted = dict.fromkeys([*self.needed, *(name for name in self.main if name in self.names)])
        for kind, arguments in _ARGUMENTS.items():
            if kind in self.kinds and not any(name in wanted for name in arguments):
                wanted.update(dict.fromkeys([name for name in arguments if name in self.names][:1]))
        if "image" in self.kinds and "pixel_values" in self.names:
            wanted.pop("pixel_values_videos", None)
        wanted.update(
            dict.fromkeys(name for name in _COMPANIONS if name in self.names and self._goes_with(name, wanted))
        )
        for name in sorted(wanted, key=lambda name: _AFTER.get(name, 0)):
            maker = _MAKERS.get(name)
            if maker is None or (found := maker(self)) is None:
                if name in self.needed:
                    raise InputError(
                        f"{type(self.model).__name__}.forward needs {', '.join(self.needed)}, and {name} cannot be guessed",
                        hint=f"pass kwargs={{{name!r}: ...}}, or shapes (on the command line --input {name}:SHAPE)",
                    )
                continue
            self.made[name] = found
        return self.made

    def _goes_with(self, name: str, wanted: Mapping[str, Any]) -> bool:
        if name == "decoder_input_ids":
            return bool(getattr(self.config.own, "is_encoder_decoder", False))
        if name == "pixel_mask":
            return "pixel_values" in wanted and self.config.has([self.config.own], "num_queries")
        return any(other in wanted for other in _COMPANIONS[name])

    def text_alone(self) -> dict[str, Any] | None:
        """A text without images or sounds, where the model takes such besides and may do without."""
        others = self.made.keys() - _OF_TEXT
        if "input_ids" not in self.made or not others or not others.isdisjoint(self.needed):
            return None
        kept = {name: value for name, value in self.made.items() if name in _OF_TEXT}
        return {**kept, "input_ids": self.like_tokens(self.config.word())}

    # -- text ------------------------------------------------------------------------------------------------------

    def tokens(self) -> torch.Tensor:
        """The tokens of a text, with the place of each image or sound among them."""
        config, maker = self.config, self.maker
        row = [token for kind in ("image", "audio") for token in self._places(kind)]
        length = max(maker.tokens(config.positions()), len(row) + 1)
        word = config.word()
        return maker.rows([word, *row, *[word] * (length - len(row) - 1)])

    def _places(self, kind: str) -> list[int]:
        """As many special tokens as an input of this kind has features."""
        config = self.config
        token = config.number([config.own], f"{kind}_token_id", f"{kind}_token_index", f"{kind}_placeholder_token_id")
        method = getattr(self.model, f"get_{kind}_features", None)
        given = {name: self.made[name] for name in _FEATURES[kind] if name in self.made}
        if token is None or method is None or not given:
            return []
        known = inspect.signature(method).parameters
        told = {name: value for name, value in given.items() if name in known}
        try:
            features = self.maker.probe(method, told)
        except OpcostError:  # the model itself will say so in its own place
            return []
        return [token] * (sum(_rows(shape) for shape in features) // self.maker.batch)

    def decoder_tokens(self) -> torch.Tensor:
        config, maker = self.config, self.maker
        most = (
            config.number(config.text, "max_target_positions", "max_decoder_position_embeddings") or config.positions()
        )
        return maker.integers(maker.tokens(most), value=config.word())

    def kinds_of_tokens(self) -> torch.Tensor | None:
        """For each token, whether it is the place of an image."""
        token = self.config.number([self.config.own], "image_token_id", "image_token_index")
        ids = self.made.get("input_ids")
        return None if ids is None or token is None else (ids == token).to(torch.int64)

    def like_tokens(self, value: int) -> torch.Tensor | None:
        ids = self.made.get("input_ids")
        return None if ids is None else torch.full_like(ids, value)

    # -- images ----------------------------------------------------------------------------------------------------

    def images(self) -> torch.Tensor:
        config, maker = self.config, self.maker
        channels, patch = config.channels(), config.patch()
        if self._grid_name() is not None:
            rows, columns = self._grid()
            depth = config.number(config.images, "temporal_patch_size") or 1
            flat = maker.floats(rows * columns, channels * depth * patch * patch)
            return flat.reshape(-1, flat.shape[-1])
        if "spatial_shapes" in self.names:
            patches = config.number(config.images, "num_patches") or 256
            return maker.floats(patches, channels * patch * patch)
        height, width = self._size()
        if self.kinds & {"video"} and "image" not in self.kinds:
            return maker.floats(config.number(config.images, "num_frames") or 8, channels, height, width)
        if "pixel_attention_mask" in self.names and "input_ids" in self.names:  # several images of one text
            return maker.floats(1, channels, height, width)
        if (tiles := self._tiles()) is not None:
            return maker.floats(tiles, channels, height, width)
        return maker.floats(channels, height, width)

    def videos(self) -> torch.Tensor:
        config, maker = self.config, self.maker
        frames = config.number(config.images, "num_frames", "frames_per_clip") or 8
        return maker.floats(frames, config.channels(), *self._size())

    def flattened(self) -> torch.Tensor:
        config = self.config
        return self.maker.floats(self.maker.tokens(None), 2 + config.channels() * config.patch() ** 2)

    def image_mask(self) -> torch.Tensor | None:
        shape = self.made["pixel_values"].shape if "pixel_values" in self.made else None
        return None if shape is None else self.maker.integers(*shape[-2:], value=1)

    def patch_mask(self) -> torch.Tensor | None:
        """Which patches, or which points of several images, are there: all of them."""
        images = self.made.get("pixel_values")
        if images is None:
            return None
        if images.dim() == 3:
            return self.maker.integers(images.shape[1], value=1)
        return torch.ones((*images.shape[:2], *images.shape[-2:]), dtype=torch.bool, device="cpu")

    def patch_shapes(self) -> torch.Tensor:
        side = int((self.config.number(self.config.images, "num_patches") or 256) ** 0.5)
        return self.maker.rows([side, side])

    def grid(self) -> torch.Tensor:
        return self.maker.rows([1, *self._grid()])

    def image_sizes(self) -> torch.Tensor | None:
        """Of an image that is cut into several, its size as a whole."""
        pinpoints = getattr(self.config.own, "image_grid_pinpoints", None)
        return self.maker.rows(list(pinpoints[0])) if pinpoints else None

    def task(self) -> torch.Tensor:
        return self.maker.integers(self.config.number([self.config.own], "task_seq_len") or 77)

    def _size(self) -> tuple[int, int]:
        detects = self.config.has([self.config.own], "num_queries")
        return self.maker.image(self.config.image_size(800 if detects else 224))

    def _grid_name(self) -> str | None:
        return next((name for name in ("image_grid_thw", "grid_thw") if name in self.names), None)

    def _grid(self) -> tuple[int, int]:
        """Rows and columns of patches, in whole groups of those that become one token."""
        merge = self.config.number(self.config.images, "spatial_merge_size", "merge_size") or 1
        step = self.config.patch() * merge
        height, width = self.maker.image(self.config.image_size(_WINDOW))
        return max(height // step, 1) * merge, max(width // step, 1) * merge

    def _tiles(self) -> int | None:
        """Into how many images one is cut, and once the whole."""
        pinpoints = getattr(self.config.own, "image_grid_pinpoints", None)
        if "image_sizes" not in self.names or not pinpoints:
            return None
        height, width = self._size()
        return int((pinpoints[0][0] // height) * (pinpoints[0][1] // width) + 1)

    # -- anything else ---------------------------------------------------------------------------------------------

    def hidden(self) -> torch.Tensor | None:
        """What another model has made of its input."""
        if self._grid_name() is not None:
            return self.images()
        width = self.config.number([self.config.own], "hidden_size", "d_model", "n_embd")
        return None if width is None else self.maker.floats(self.maker.tokens(self.config.positions()), width)


def _rows(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape[:-1]:
        count *= extent
    return count


def _heard(make: Callable[[Configuration, Maker], Any], inputs: _Inputs) -> Any:
    return make(inputs.config, inputs.maker)


_ARGUMENTS = {
    "text": ("input_ids",),
    "image": ("pixel_values", "flattened_patches"),
    "audio": ("input_features", "input_values"),
    "video": ("pixel_values_videos", "pixel_values"),
    "time": ("past_values",),
}
"""Which argument brings which kind of input."""
_OF_TEXT = frozenset({"input_ids", "decoder_input_ids", "attention_mask", "token_type_ids"})
_AFTER = {"input_ids": 1, "attention_mask": 2, "token_type_ids": 2, "mm_token_type_ids": 2}
"""Arguments that are made of others."""
_FEATURES = {
    "image": ("pixel_values", "image_grid_thw", "image_sizes", "pixel_attention_mask", "spatial_shapes"),
    "audio": ("input_features", "input_values", "input_features_mask", "feature_attention_mask"),
}
_COMPANIONS: dict[str, tuple[str, ...]] = {
    "decoder_input_ids": (),
    "pixel_mask": (),
    "image_grid_thw": ("pixel_values",),
    "mm_token_type_ids": ("pixel_values",),
    "image_sizes": ("pixel_values",),
    "pixel_attention_mask": ("pixel_values",),
    "spatial_shapes": ("pixel_values",),
    "input_features_mask": ("input_features",),
    "feature_attention_mask": ("input_features",),
    "past_time_features": ("past_values",),
    "past_observed_mask": ("past_values",),
    "future_values": ("past_values",),
    "future_time_features": ("past_values",),
}
"""Arguments that are given with others, though they have a default."""
_MAKERS: dict[str, Callable[[_Inputs], Any]] = {
    "input_ids": _Inputs.tokens,
    "decoder_input_ids": _Inputs.decoder_tokens,
    "attention_mask": lambda inputs: inputs.like_tokens(1),
    "mm_token_type_ids": _Inputs.kinds_of_tokens,
    "token_type_ids": lambda inputs: inputs.like_tokens(0),
    "pixel_values": _Inputs.images,
    "pixel_values_videos": _Inputs.videos,
    "flattened_patches": _Inputs.flattened,
    "pixel_mask": _Inputs.image_mask,
    "pixel_attention_mask": _Inputs.patch_mask,
    "spatial_shapes": _Inputs.patch_shapes,
    "image_grid_thw": _Inputs.grid,
    "grid_thw": _Inputs.grid,
    "image_sizes": _Inputs.image_sizes,
    "task_inputs": _Inputs.task,
    "inputs_embeds": _Inputs.hidden,
    "hidden_states": _Inputs.hidden,
    "encoder_hidden_states": _Inputs.hidden,
    **{name: partial(_heard, make) for name, make in sounds.MAKERS.items()},
}
