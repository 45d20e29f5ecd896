"""Models of diffusers: what is denoised or encoded, in the form that its first layer reads, and what it is told besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.frontends.torch.guessing.guess import Guess, Maker, Other, arguments, cannot, comes_from, needed

_MAIN = ("hidden_states", "sample", "latents", "x")
_TEXT = 77
"""Tokens of a text that tells what is wanted."""
_LATENT, _PICTURE = 64, 256
"""Height and width of what is denoised and of what is encoded, where the configuration says neither."""
_FRAMES = (17, 16)
"""Of a video: most autoencoders want one more than a multiple of how many they make one of, the others a multiple."""
_SAMPLES = 65_536
_CONDITION = 8
"""How many points of a picture become one of what is denoised."""
_WIDTHS_OF_TEXT = (
    "encoder_hid_dim", "caption_channels", "text_embed_dim", "text_dim", "cap_feat_dim", "cross_attention_input_dim",
    "in_text_dim", "context_in_dim", "joint_attention_dim", "cross_attention_dim", "embedding_dim",
)  # fmt: skip
"""Entries of the configuration that say how many numbers a token has, the more exact first."""


class _Form(NamedTuple):
    """What is denoised or encoded, without its batch, and how many frames, rows and columns it has."""

    shape: tuple[int, ...]
    grid: tuple[int, int, int]


def diffusers(model: nn.Module, maker: Maker) -> Guess | None:
    """A denoiser or autoencoder of diffusers, by its configuration and its first layer."""
    if not comes_from(model, "diffusers"):
        return None
    names = arguments(model)
    main = next((name for name in _MAIN if name in names), None)
    if main is None:
        return None
    first, *others = (_told(model, maker, main, names, form) for form in _forms(model, maker))
    if "timestep" in first:  # some compute in the element type in which they are told the time
        others += [{**kwargs, "timestep": maker.floats()} for kwargs in (first, *others)]
    return Guess((), first, "its configuration", tuple(Other(kwargs) for kwargs in others))


def _told(model: nn.Module, maker: Maker, main: str, names: list[str], form: _Form) -> dict[str, Any]:
    asked = _Asked(model, _config(model), maker, form)
    kwargs: dict[str, Any] = {main: maker.floats(*form.shape)}
    must = needed(model)
    for name in names:
        make = _MAKERS.get(name)
        wanted = name != main and (name in must or not name.endswith("_mask"))
        if wanted and make is not None and (made := make(asked)) is not None:
            kwargs[name] = made
    for name in must:
        if name not in kwargs:
            raise cannot(model, name)
    return kwargs


# -- what is denoised or encoded ---------------------------------------------------------------------------------------


def _forms(model: nn.Module, maker: Maker) -> Iterator[_Form]:
    """An image, a video, a sequence of patches or a wave: first what the layer takes that reads it, then the others."""
    config = _config(model)
    layer = _reader(model, config.get("in_channels"))
    if "embedding_dim" in config:  # denoises what another model has made of an image
        yield _Form((config["embedding_dim"],), (1, 1, 1))
        return
    channels: int = config.get("in_channels") or getattr(layer, "in_channels", None) or 3
    height, width = _size(model, maker)
    if isinstance(layer, nn.Conv1d):
        size = config.get("sample_size")
        yield _Form((layer.in_channels, size if isinstance(size, int) else _SAMPLES), (1, 1, 1))
        return
    said = next((config[name] for name in ("num_frames", "sample_frames", "video_length") if config.get(name)), None)
    if said is not None and (
        ratio := config.get("temporal_compression_ratio")
    ):  # of the video that is denoised smaller
        said = (said - 1) // ratio + 1
    frames = (said,) if said is not None else _FRAMES
    image = _Form((channels, height, width), (1, height, width))
    videos = [_Form((channels, count, height, width), (count, height, width)) for count in frames]
    turned = [_Form((count, channels, height, width), (count, height, width)) for count in frames]
    if isinstance(layer, nn.Linear):
        count = frames[0] if _MAKERS.keys() & {"num_frames"} & set(arguments(model)) else 1
        yield _Form((count * height * width, layer.in_features), (count, height, width))
    if said is not None or isinstance(layer, nn.Conv3d):
        yield from (*videos, *turned, image)
    else:
        yield from (image, *videos, *turned)


def _reader(model: nn.Module, channels: int | None) -> nn.Module | None:
    """The layer that reads what is denoised: the first that takes as many channels as the configuration says."""
    layers = [module for module in model.modules() if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear))]
    for layer in layers:
        taken = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
        if taken == channels:
            return layer
    return next((layer for layer in layers if not isinstance(layer, nn.Linear)), None)


def _size(model: nn.Module, maker: Maker) -> tuple[int, int]:
    config = _config(model)
    size = config.get("sample_size") or (config.get("sample_height"), config.get("sample_width"))
    if isinstance(size, (list, tuple)):
        size = size[0] if len(size) == 1 else tuple(size[-2:])
    if not isinstance(size, int) and not all(size):
        size = _LATENT if "timestep" in arguments(model) else _PICTURE
    return maker.image(size)


def _config(model: nn.Module) -> dict[str, Any]:
    return dict(getattr(model, "config", None) or {})


# -- what the model is told besides ------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    """For whom an argument is made, and what goes with it."""

    model: nn.Module
    config: dict[str, Any]
    maker: Maker
    form: _Form

    def of_width(self, *entries: str) -> torch.Tensor | None:
        """A row of as many numbers as one of these entries says."""
        width = self._first(entries)
        return None if width is None else self.maker.floats(width)

    def text(self) -> torch.Tensor | None:
        width = self._first(_WIDTHS_OF_TEXT)
        return None if width is None else self.maker.floats(self.tokens, width)

    @property
    def tokens(self) -> int:
        return self.maker.tokens(self._first(("max_text_seq_length", "num_embeddings")) or _TEXT)

    def _first(self, entries: tuple[str, ...]) -> int | None:
        for entry in entries:
            value = self.config.get(entry)
            value = value[0] if isinstance(value, (list, tuple)) and value else value
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    def places(self, count: int) -> torch.Tensor | None:
        """Where each token stands: one row a token, for all of the batch."""
        axes = self.config.get("axes_dims_rope")
        return None if axes is None else self.maker.empty(count, len(axes))

    def picture(self) -> torch.Tensor:
        """What a control looks at: a picture, of which what is denoised is a smaller copy, or something just like that."""
        if not hasattr(self.model, "controlnet_cond_embedding"):
            return self.maker.floats(*self.form.shape)
        channels = self._first(("conditioning_channels",)) or 3
        height, width = (_CONDITION * extent for extent in self.form.grid[1:])
        return self.maker.floats(channels, height, width)

    def added(self) -> dict[str, Any] | None:
        """What SDXL and PixArt are told of the picture as a whole."""
        config, maker = self.config, self.maker
        if config.get("addition_embed_type") == "text_time":
            ids = 6
            pooled = config["projection_class_embeddings_input_dim"] - ids * config["addition_time_embed_dim"]
            return {"text_embeds": maker.floats(pooled), "time_ids": maker.floats(ids)}
        if config.get("norm_type") == "ada_norm_single":
            wanted = config.get("use_additional_conditions")
            wanted = config.get("sample_size") == 128 if wanted is None else wanted  # as PixArt itself decides it
            return {
                "resolution": maker.floats(2) if wanted else None,
                "aspect_ratio": maker.floats(1) if wanted else None,
            }
        return None

    def times(self) -> torch.Tensor | None:
        """What a video model is told of speed and motion."""
        total, each = (
            self._first((name,)) for name in ("projection_class_embeddings_input_dim", "addition_time_embed_dim")
        )
        return self.maker.floats(total // each) if total and each else None

    def label(self) -> torch.Tensor | None:
        known = self.config.get("norm_type") == "ada_norm_zero" and self.config.get("num_embeds_ada_norm")
        return self.maker.integers() if known or self.config.get("num_class_embeds") else None

    def guidance(self) -> torch.Tensor | None:
        return self.maker.floats() if self.config.get("guidance_embeds") else None

    def patches(self) -> int:
        return self.form.shape[0]


_MAKERS: dict[str, Callable[[_Asked], Any]] = {
    "timestep": lambda asked: asked.maker.integers(),
    "r_timestep": lambda asked: asked.maker.integers(),
    "encoder_hidden_states": _Asked.text,
    "encoder_attention_mask": lambda asked: asked.maker.integers(asked.tokens, value=1).bool(),
    "encoder_hidden_states_mask": lambda asked: asked.maker.integers(asked.tokens, value=1).bool(),
    "pooled_projections": lambda asked: asked.of_width("pooled_projection_dim"),
    "proj_embedding": lambda asked: asked.of_width("embedding_proj_dim", "embedding_dim"),
    "global_hidden_states": lambda asked: (
        asked.maker.floats(1, asked.config["global_states_input_dim"])
        if "global_states_input_dim" in asked.config
        else None
    ),
    "guidance": _Asked.guidance,
    "class_labels": _Asked.label,
    "added_cond_kwargs": _Asked.added,
    "added_time_ids": _Asked.times,
    "controlnet_cond": _Asked.picture,
    "img_ids": lambda asked: asked.places(asked.patches()),
    "txt_ids": lambda asked: asked.places(asked.tokens),
    "img_shapes": lambda asked: [[asked.form.grid]] * asked.maker.batch,
    "original_size": lambda asked: asked.maker.floats(2),
    "target_size": lambda asked: asked.maker.floats(2),
    "crop_coords": lambda asked: asked.maker.floats(2),
    "num_frames": lambda asked: asked.form.grid[0],
    "height": lambda asked: asked.form.grid[1],
    "width": lambda asked: asked.form.grid[2],
    "padding_mask": lambda asked: torch.zeros((1, 1, *asked.form.grid[1:]), dtype=asked.maker.dtype, device="meta"),
}
"""What is made for an argument of this name; None where the model goes without."""
