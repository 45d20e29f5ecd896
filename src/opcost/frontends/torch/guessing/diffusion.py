"""Models of diffusers: what is denoised or encoded, in the form that its first layer reads, and what it is told besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
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
_AUDIO = 126
"""Steps of a sound that goes with a video: five seconds of it."""
_WIDTHS_OF_TEXT = (
    "encoder_hid_dim", "caption_channels", "text_embed_dim", "text_dim", "cap_feat_dim", "cross_attention_input_dim",
    "in_text_dim", "text_in_dim", "text_hidden_dim", "context_in_dim", "joint_attention_dim", "cross_attention_dim",
    "embedding_dim",
)  # fmt: skip
"""Entries of the configuration that say how many numbers a token has, the more exact first."""


_TIMES = frozenset({"timestep", "timesteps", "t"})
"""Who is told the time denoises."""
_TEXT_PARTS = ("text", "txt", "caption", "context", "cond")


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
    others += [changed for kwargs in (first, *others) for changed in _of_frames(kwargs, main, maker)]
    return Guess((), first, "its configuration", tuple(Other(kwargs) for kwargs in others))


def _told(model: nn.Module, maker: Maker, main: str, names: list[str], form: _Form) -> dict[str, Any]:
    asked = _Asked(model, _config(model), maker, form)
    kwargs: dict[str, Any] = {main: maker.floats(*form.shape)}
    if "cap_feats" in names:  # one for each of the batch, as a video of one frame
        kwargs[main] = [maker.empty(asked.config["in_channels"], *form.grid) for _ in range(maker.batch)]
    must = needed(model)
    for name in names:
        make = _MAKERS.get(name)
        wanted = name != main and (name in must or name == "text_embedding_mask" or not name.endswith("_mask"))
        if wanted and make is not None and (made := make(asked)) is not None:
            kwargs[name] = made
    for name in must:
        if name not in kwargs:
            raise cannot(model, name)
    return kwargs


def _of_frames(kwargs: dict[str, Any], main: str, maker: Maker) -> Iterator[dict[str, Any]]:
    """What is told of a video, once for each of its frames: the text, or the time."""
    video, text = kwargs[main], kwargs.get("encoder_hidden_states")
    if not isinstance(video, torch.Tensor) or video.dim() != 5:
        return
    if isinstance(text, torch.Tensor):
        yield {**kwargs, "encoder_hidden_states": text.repeat_interleave(video.shape[2], 0)}
    if "r_timestep" in kwargs:
        yield {**kwargs, **{name: maker.floats(video.shape[1]) for name in ("timestep", "r_timestep")}}


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
        tracks = config.get("audio_channels") or layer.in_channels
        yield _Form((tracks, size if isinstance(size, int) else _SAMPLES), (1, 1, 1))
        return
    said = next((config[name] for name in ("num_frames", "sample_frames", "video_length") if config.get(name)), None)
    if said is not None and (
        ratio := config.get("temporal_compression_ratio")
    ):  # of the video that is denoised smaller
        said = (said - 1) // ratio + 1
    frames = (said,) if said is not None else _FRAMES
    image = _Form((channels, height, width), (1, height, width))
    if "in_visual_dim" in config:
        yield _Form((frames[0], height, width, config["in_visual_dim"]), (frames[0], height, width))
    videos = [_Form((channels, count, height, width), (count, height, width)) for count in frames]
    turned = [_Form((count, channels, height, width), (count, height, width)) for count in frames]
    if isinstance(layer, nn.Linear):
        count = frames[0] if _MAKERS.keys() & {"num_frames"} & set(arguments(model)) else 1
        yield _Form((count * height * width, layer.in_features), (count, height, width))
    if said is not None or isinstance(layer, nn.Conv3d):
        yield from (*videos, *turned, image)
    else:
        yield from (image, *videos, *turned)
    made = config.get("out_channels")
    if _TIMES.isdisjoint(arguments(model)) and isinstance(made, int) and made != channels:  # it is made again as it was
        yield from (_Form((made, *form.shape[1:]), form.grid) for form in (image, *videos) if form.shape[0] == channels)


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
        size = _LATENT if not _TIMES.isdisjoint(arguments(model)) else _PICTURE
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
        width = self._first(_WIDTHS_OF_TEXT) or self._read_as_text()
        layers = self._first(("num_text_layers",))
        if width is None:
            return None
        return (
            self.maker.floats(self.tokens, width) if layers is None else self.maker.floats(self.tokens, layers, width)
        )

    def another_text(self, entry: str, place: int = 0) -> torch.Tensor | None:
        """A text that another model has read, in as many numbers as an entry says, or one of its places."""
        width = self.config.get(entry)
        width = width[place] if isinstance(width, (list, tuple)) and len(width) > place else width
        return self.maker.floats(self.tokens, width) if isinstance(width, int) else None

    def texts_of_layers(self, width: int | None, count: int) -> list[torch.Tensor] | None:
        """A text as each of so many layers of another model hands it on."""
        return None if width is None else [self.maker.floats(self.tokens, width) for _ in range(count)]

    def _read_as_text(self) -> int | None:
        """How many numbers the first layer takes that stands in a part named for a text."""
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Linear) and any(word in name.partition(".")[0] for word in _TEXT_PARTS):
                return int(module.in_features)
        return None

    @property
    def tokens(self) -> int:
        return self.maker.tokens(self._first(("max_text_seq_length", "num_embeddings", "text_len")) or _TEXT)

    @property
    def squares(self) -> int:
        """How many patches what is denoised has."""
        side = self._first(("patch_size",)) or 1
        return (self.form.grid[1] // side) * (self.form.grid[2] // side)

    def whole(self) -> torch.Tensor | None:
        """What is told of the whole text."""
        return self.of_width("pooled_projection_dim", "text_emb_dim", "in_text_dim2")

    def ranges(self) -> list[torch.Tensor]:
        """The places of patches along each direction."""
        sides = self.config.get("patch_size") or (1, 1, 1)
        return [torch.arange(extent // side) for extent, side in zip(self.form.grid, sides, strict=True)]

    def seen_by_llama(self) -> torch.Tensor | None:
        """A text as each of the layers that are asked for hands it on, in one tensor."""
        text, layers = self.another_text("caption_channels", 1), self.config.get("llama_layers")
        return None if text is None or not layers else text.expand(len(layers), *text.shape)

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
        reader = getattr(self.model, "controlnet_cond_embedding", None)
        if reader is None:
            return self.maker.floats(*self.form.shape)
        channels = self._first(("conditioning_channels",)) or 3
        smaller = prod(layer.stride[0] for layer in reader.modules() if isinstance(layer, nn.Conv2d))
        height, width = (smaller * extent for extent in self.form.grid[1:])
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

    def captions(self) -> tuple[int | None, int]:
        """How wide a text is, and for how many of the batch."""
        return self._first(("cap_feat_dim",)), self.maker.batch

    def layers(self) -> int:
        return sum(self._first((name,)) or 0 for name in ("num_layers", "num_single_layers"))

    def sound(self) -> torch.Tensor | None:
        width = self._first(("audio_in_channels",))
        return None if width is None else self.maker.floats(_AUDIO, width)

    def control(self) -> torch.Tensor | None:
        """What guides a video: as many channels of it as an entry says."""
        channels = self._first(("vace_in_channels",))
        return None if channels is None else self.maker.floats(channels, *self.form.grid)

    def patches(self) -> int:
        return self.form.shape[0]


_MAKERS: dict[str, Callable[[_Asked], Any]] = {
    "timestep": lambda asked: asked.maker.integers(),
    "r_timestep": lambda asked: asked.maker.integers(),
    "encoder_hidden_states": _Asked.text,
    "encoder_attention_mask": lambda asked: asked.maker.integers(asked.tokens, value=1).bool(),
    "encoder_hidden_states_mask": lambda asked: asked.maker.integers(asked.tokens, value=1).bool(),
    "t": lambda asked: asked.maker.floats(),
    "timesteps": lambda asked: asked.maker.integers(),
    "text_bth": _Asked.text,
    "text_lens": lambda asked: asked.maker.integers(value=asked.tokens),
    "cap_feats": lambda asked: [text[0] for text in asked.texts_of_layers(*asked.captions()) or ()],
    "encoder_hidden_states_2": lambda asked: asked.another_text("text_embed_2_dim"),
    "encoder_attention_mask_2": lambda asked: asked.maker.integers(asked.tokens, value=1).bool(),
    "encoder_hidden_states_t5": lambda asked: (
        asked.another_text("cross_attention_dim_t5")
        if "llama_layers" not in asked.config
        else asked.another_text("caption_channels")
    ),
    "encoder_hidden_states_llama3": _Asked.seen_by_llama,
    "text_encoder_layers": lambda asked: asked.texts_of_layers(asked.config.get("text_encoder_dim"), asked.layers()),
    "text_embedding_mask": lambda asked: asked.maker.integers(asked.tokens, value=1).bool(),
    "text_embedding_mask_t5": lambda asked: asked.maker.integers(asked.tokens, value=1).bool(),
    "image_meta_size": lambda asked: asked.maker.floats(6),
    "style": lambda asked: asked.maker.integers(),
    "image_embeds": lambda asked: asked.another_text("image_embed_dim"),
    "audio_hidden_states": lambda asked: asked.sound(),
    "audio_encoder_hidden_states": _Asked.text,
    "audio_num_frames": lambda asked: _AUDIO,
    "prior_token_id": lambda asked: asked.maker.integers(asked.squares),
    "prior_token_drop": lambda asked: asked.maker.integers().bool(),
    "control_hidden_states": lambda asked: asked.control(),
    "chunk_partition": lambda asked: [asked.form.grid[0]],
    "visual_rope_pos": _Asked.ranges,
    "text_rope_pos": lambda asked: torch.arange(asked.tokens),
    "pooled_embeds": _Asked.whole,
    "pooled_projections": _Asked.whole,
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
    "position_ids": lambda asked: asked.places(asked.tokens + asked.patches()),
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
