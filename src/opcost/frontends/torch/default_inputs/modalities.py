"""What configurations of Hugging Face give: entries, and images, sounds and series in the shapes in which models take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, ClassVar

import torch
from torch import nn

from opcost.frontends.torch.default_inputs.engine import ShapeWords, is_size

_TEXT = ("text_config", "llm_config", "language_config", "decoder", "text_encoder")
_IMAGES = (
    "vision_config", "vit_config", "image_config", "backbone_config", "encoder", "image_encoder", "perceptual_encoder",
)  # fmt: skip
_SOUND = (
    "audio_config", "audio_encoder", "speech_config", "encoder_config", "audio_encoder_config", "semantic_model_config",
)  # fmt: skip
_PARTS = {"image": _IMAGES, "video": _IMAGES, "audio": _SOUND}
_POSITIONS = (
    "max_text_len", "max_text_positions", "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length",
    "max_seq_length", "n_ctx", "seq_length", "max_target_positions", "block_size",
)  # fmt: skip


class Configuration:
    """The configuration of a model, and those inside of it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.own: Any = getattr(model, "config", None)
        around = getattr(self.own, "vlm_config", None)
        self.whole = [self.own] if around is None else [around, self.own]
        """The configuration itself, and that of a model with images around which another is built."""
        self.text, self.images, self.sound = ([*self.inner(names), *self.whole] for names in (_TEXT, _IMAGES, _SOUND))

    def inner(self, names: tuple[str, ...]) -> Iterator[Any]:
        """Configurations of parts, the innermost first."""
        for whole, name in product(self.whole, names):
            found = getattr(whole, name, None)
            if hasattr(found, "to_dict"):
                yield from (each for each in _entries([found], names) if hasattr(each, "to_dict"))
                yield found

    def lacks(self, kind: str) -> bool:
        """Whether the model was made without what reads images or sound: its configuration has an entry for it that is None."""
        names = [name for name in _PARTS.get(kind, ()) if name.endswith("_config")]
        found = [getattr(whole, name) for whole, name in product(self.whole, names) if hasattr(whole, name)]
        return bool(found) and all(part is None for part in found)

    def has_part(self, kind: str) -> bool:
        """Whether there is a configuration of what reads images or sounds."""
        return next(self.inner(_PARTS[kind]), None) is not None

    def number(self, places: list[Any], *names: str) -> int | None:
        """The first of these entries that is a number above zero."""
        return next(filter(is_size, _entries(places, names)), None)

    def positions(self) -> int | None:
        """The longest text in tokens. A table of positions whose first are for padding has fewer for tokens."""
        most = self.number(self.text, *_POSITIONS)
        for name, module in self.model.named_modules():
            padding, table = getattr(module, "padding_idx", None), getattr(module, "weight", None)
            if "position" in name and isinstance(padding, int) and isinstance(table, torch.Tensor):
                return min(most or len(table), len(table) - padding - 1)
        return most

    def shorter(self, than: int) -> list[int]:
        """Smaller numbers of tokens: that of another part of the model, or two less, if the model adds a begin and an end."""
        parts = [part for part in vars(self.own).values() if hasattr(part, "to_dict")]
        known = (self.number([part], *_POSITIONS) for part in (*parts, *self.whole))
        return sorted({length for length in (*known, than - 2) if length and 0 < length < than}, reverse=True)

    def token(self, *kinds: str) -> int | None:
        """The token in the place of an image, or a sound, or an end, in a text."""
        names = [f"{kind}_{end}" for kind in kinds for end in ("token_id", "token_index", "placeholder_token_id")]
        return next((value for value in _entries(self.whole, names) if isinstance(value, int) and value >= 0), None)

    def word(self) -> int:
        """A token without a special meaning: neither padding nor a border nor the place of an image."""
        entries = [entry for place in (*self.text, self.own) for entry in vars(place).items()]
        special = {v for name, v in entries if name.endswith(("token_id", "token_index")) and isinstance(v, int)}
        return next(token for token in range(len(special) + 1) if token not in special)

    def image_size(self, usual: int) -> int | tuple[int, int]:
        """Height and width of images, also where a model of timm inside has them."""
        for size in _entries(self.images, ("image_size", "input_size", "img_size", "max_img_size")):
            if isinstance(size, dict):
                size = (size.get("height"), size.get("width"))  # noqa: PLW2901
            if isinstance(size, (list, tuple)) and size and all(isinstance(extent, int) for extent in size):
                return size[-2] if len(size) > 1 else size[0], size[-1]
            if is_size(size):
                return size
        for size in _entries(self.model.modules(), ("img_size",)):
            if isinstance(size, (tuple, list)) and len(size) == 2 and all(isinstance(extent, int) for extent in size):
                return size[0], size[1]
        return usual


def _entries(places: Iterable[Any], names: Iterable[str]) -> Iterator[Any]:
    """The entries of these names, each in all places; None where there is none."""
    return (getattr(place, name, None) for name, place in product(names, places))


# -- images, sounds and series in time --------------------------------------------------------------------------------

_WINDOW = 448  # Of an image for a model that takes any size: 32 by 32 patches of 14
_SECONDS, _RATE = 10, 16_000  # Of a recording, for a model that takes any length
STEPS = 1000  # Of a spectrogram of ten seconds, one every ten milliseconds
_STRIDES = 53_760  # Samples that nearly all strides of models of sound divide: 2⁹·3·5·7
_FINE = 128  # Frequencies in the spectrograms of younger models

Form = dict[str, Any]  # The arguments that bring an image or a sound, and what goes with it


class Modalities(ShapeWords):
    """Inputs that are not text, of one model, whose forward has arguments of these names and takes inputs of these kinds.

    An entry is of the configuration itself, or, as in `images.patch_size`, of what reads images, sound or text.
    """

    config: Configuration
    kinds: set[str]

    def series_channels(self) -> tuple[int, ...]:
        """The axis of channels of a series, where there is one."""
        channels, width = self.entry("num_input_channels"), self.entry("input_size") or 1
        return (channels,) if channels is not None else (width,) if width > 1 else ()

    words: ClassVar[dict[str, str | Callable[[Any], Any]]] = {
        "T": lambda self: self.maker.tokens(self.config.positions()),
        "H": lambda self: self.image_size()[0],
        "W": lambda self: self.image_size()[1],
        "C": "images.num_channels|images.in_channels|images.in_chans|3",
        "P": lambda self: self.side("patch_size") or 14,
        "known_frames": "images.num_frames|images.frames_per_clip",
        "frames": "known_frames|8",
        "patches": "images.num_patches|256",
        "merge": lambda self: self.side("spatial_merge_size", "merge_size", "merge_kernel_size") or 1,
        "any_tokens": lambda self: self.maker.tokens(None),
        "flat_patch": lambda self: self.value("images.patch_embed_hidden_size") or self.value("C*P*P"),
        "bins": "sound.num_mel_bins|sound.input_feat_per_channel|sound.feature_projection_input_dim|sound.feature_size|"
        "sound.n_mels|sound.input_feat_size|sound.input_dim|sound.audio_embed_dim",  # of a spectrogram
        "past": lambda self: (
            self.value("context_length|prediction_length|32")
            + int(max(getattr(self.config.own, "lags_sequence", None) or [0]))
        ),
        "future": lambda self: self.entry("prediction_length") if self.has("lags_sequence") else None,
        "time_features": lambda self: self.value("num_time_features|0") + self.value("num_dynamic_real_features|0"),
        "channels": series_channels,
    }

    def _found(self, entry: str) -> Iterator[Any]:
        place, _, name = entry.rpartition(".")
        return _entries(getattr(self.config, place) if place else [self.config.own], (name,))

    def entry(self, name: str) -> int | None:
        return next(filter(is_size, self._found(name)), None)

    def has(self, *entries: str) -> bool:
        """Whether the configuration has one of these entries, of whatever type."""
        return any(value is not None for entry in entries for value in self._found(entry))

    def side(self, *names: str) -> int | None:
        """Of a square in images: one number, or the first of two."""
        found = _entries(self.config.images, names)
        return next(
            filter(is_size, (size[0] if isinstance(size, (list, tuple)) and size else size for size in found)), None
        )

    def _named(self, *names: str) -> str | None:
        """The first of these arguments that forward has."""
        return next((name for name in names if name in self.names), None)

    # -- images --------------------------------------------------------------------------------------------------------

    def image_forms(self) -> Iterator[Form]:
        """What may be meant by an image, the most usual for such a model first."""
        height, width = self.image_size()
        patch = self.value("P")
        if self.has_grid():
            yield from self._with_grid()
            return
        if (positions := self._named("image_position_ids", "pixel_position_ids")) is not None:
            # Flat patches, and the column and row of each
            rows, columns = self._grid(self.side("pooling_kernel_size") or 1)
            places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).flip(-1)
            flat = self.make(f"B {rows}*{columns} C*P*P")
            yield {"pixel_values": flat, positions: places.expand(self.maker.batch, -1, -1)}
            return
        if "aspect_ratio_ids" in self.names:  # an image that fills the first of several tiles, and their arrangement
            mask = self.make("int B 1 images.max_num_tiles|1")
            mask[..., 0] = 1
            arrangement = {"aspect_ratio_ids": self.make("int=1 B 1"), "aspect_ratio_mask": mask}
            yield {"pixel_values": self.make("B 1 images.max_num_tiles|1 C H W"), **arrangement}
            return
        yield self._companions({"pixel_values": self.images()})
        rows, columns = height // patch, width // patch
        whole = self.make("B C H W")
        if "image_sizes" in self.names:
            yield {"pixel_values": whole, "image_sizes": self.maker.rows([height, width])}
        if (target := self._named("target_sizes", "tgt_sizes")) is not None:
            sizes: Form = {target: self.maker.rows([rows, columns])}
            yield {"pixel_values": whole, **sizes}
            yield {"pixel_values": self.make(f"1 C P B*{rows}*W"), **sizes}  # all patches of all images in one row
        several = self.make("B num_images C H W")
        forms = [] if several is None else [several]
        if self.value("known_frames") is not None or "video" in self.kinds:
            film = self.make("B frames C H W")
            forms += [film, film.reshape(-1, *film.shape[2:])]
        if "input_ids" in self.names:  # one of several images of a text, which every token sees
            yield from ({"pixel_values": form} for form in forms)
            one = self.make("B 1 C H W")
            yield {"pixel_values": one, "image_attention_mask": self.make("int=1 B T 1")}
            if "pixel_attention_mask" in self.names:  # which of several cameras there are
                yield {"pixel_values": one, "pixel_attention_mask": self.make("bool=1 B 1")}
            forms = [self.make(f"B*{rows}*{columns} C*P*P")]
        else:  # two images, which are compared
            forms.append(self.make("B 2 C H W"))
        yield from ({"pixel_values": form} for form in (*forms, self.make(f"B {rows}*{columns} C*P*P")))

    def _with_grid(self) -> Iterator[Form]:
        """Patches of all images in one row, and the rows and columns of each image: flat, or as small images."""
        rows, columns = self._grid()
        depth = self.value("images.temporal_patch_size|images.patch_temporal|1")
        grid: Form = {name: self.grid() for name in ("image_grid_thw", "grid_thw") if name in self.names}
        grid |= {name: self.make("int=merge B") for name in ("merge_sizes", "image_merge_sizes") if name in self.names}
        if "images_per_sample" in self.names and "image_grid_thw" in grid:  # one that is given, and one to be made
            grid["image_grid_thw"] = grid["image_grid_thw"].repeat_interleave(2, 0)
            grid["images_per_sample"] = self.make("int=2 B")
        count, flat = f"{rows}*{columns}", f"{depth}*C*P*P"
        for shape in (f"B*{count} {flat}", f"B*{count} C P P", f"B {count} {flat}"):
            yield {"pixel_values": self.make(shape), **grid}

    def images(self) -> Any:
        """The most usual form."""
        if self.has_grid():
            return next(self._with_grid())["pixel_values"]
        if "spatial_shapes" in self.names:
            return self.make("B patches C*P*P")
        if "video" in self.kinds and "image" not in self.kinds:
            return self.make("B frames C H W")
        if "pixel_attention_mask" in self.names and "input_ids" in self.names:  # several images of one text
            return self.make("B 1 C H W")
        pinpoints = getattr(self.config.own, "image_grid_pinpoints", None)
        if "image_sizes" in self.names and pinpoints:  # the tiles into which an image is cut, and once the whole
            height, width = self.image_size()
            tiles = int((pinpoints[0][0] // height) * (pinpoints[0][1] // width) + 1)
            return self.make(f"B {tiles} C H W")
        return self.make("B C H W")

    def _companions(self, form: Form) -> Form:
        """What goes with a whole image where the model has an argument for it."""
        images, own = form["pixel_values"], self.config.own
        if "pixel_mask" in self.names and self.has("num_queries"):
            form["pixel_mask"] = self.maker.integers(*images.shape[-2:], value=1)
        if "pixel_attention_mask" in self.names:  # all patches, or all points of several images
            every = torch.ones((*images.shape[:2], *images.shape[-2:]), dtype=torch.bool, device="cpu")
            form["pixel_attention_mask"] = self.make(f"int=1 B {images.shape[1]}") if images.dim() == 3 else every
        if "spatial_shapes" in self.names:
            form["spatial_shapes"] = self.maker.rows([int(self.value("patches") ** 0.5)] * 2)
        finer = getattr(getattr(own, "high_res_vision_config", None), "image_size", None)
        if "high_res_pixel_values" in self.names and finer:  # the same image once more
            form["high_res_pixel_values"] = self.make(f"B C {finer} {finer}")
        pinpoints = getattr(own, "image_grid_pinpoints", None)
        if "image_sizes" in self.names and pinpoints:  # of an image that is cut into several, its size as a whole
            form["image_sizes"] = self.maker.rows(list(pinpoints[0]))
        return form

    def masked(self) -> torch.Tensor:
        """Which patches are hidden, to be predicted: the first half."""
        (height, width), each = self.image_size(), self.value("P")
        depth = self.value("images.tubelet_size")
        patches = (height // each) * (width // each) * (self.value("frames") // depth if depth else 1)
        return self.maker.rows([int(2 * patch < patches) for patch in range(patches)]).bool()

    def image_size(self) -> tuple[int, int]:
        """Height and width, such that whole windows of patches fill them where the model has a number of windows."""
        requested, patch = self.maker.sizes.image is not None, self.value("P")
        # The smallest of several sizes still is a patch.
        ratios = getattr(self.config.own, "scaled_images_ratios", None)
        usual = 800 if self.has("num_queries") else round(patch / min(ratios)) if ratios else 224
        height, width = self.maker.image(self.config.image_size(usual))
        if "prompt_pixel_values" in self.names and not requested:  # both are in one image
            height //= 2
        step = patch * (0 if requested else self.value("images.num_windows_side|images.num_windows|0"))
        return (height // step * step or step, width // step * step or step) if step else (height, width)

    def has_grid(self) -> bool:
        return self._named("image_grid_thw", "grid_thw") is not None

    def grid(self) -> torch.Tensor:
        return self.maker.rows([1, *self._grid()])

    def _grid(self, group: int | None = None) -> list[int]:
        """Rows and columns of patches, in whole groups of those that become one token."""
        group = group or self.value("merge")
        step = self.value("P") * group
        return [max(extent // step, 1) * group for extent in self.maker.image(self.config.image_size(_WINDOW))]

    # -- sound ---------------------------------------------------------------------------------------------------------

    def sound_forms(self, name: str) -> Iterator[Form]:
        """What may be meant by a sound, the most usual first, with masks that hide no step where the model takes such."""
        named = ("input_features_mask", "feature_attention_mask") if name == "input_features" else ()
        masks = [mask for mask in named if mask in self.names]
        for sound in self._spectrograms() if name == "input_features" else self._waves():
            bins_first = sound.dim() == 3 and sound.shape[1] == self.value("bins")
            ones = self.make(f"int=1 B {sound.shape[-1] if bins_first else sound.shape[1]}")
            for mask in (ones.bool(), ones, None) if masks else (None,):
                yield {name: sound, **dict.fromkeys(masks, mask)}

    def _spectrograms(self) -> Iterator[torch.Tensor]:
        """Frequencies over time: in Whisper's order where the model has a fixed length, else time first."""
        floats, bins = self.maker.floats, self.value("bins|80")
        if (side := self.value("sound.spec_size")) is not None:
            yield floats(1, side * side // bins, bins)
            return
        if (most := self.value("sound.max_source_positions")) and self.has("sound.num_mel_bins"):
            yield floats(bins, 2 * most)
        yield floats(STEPS, bins * (self.value("sound.input_channels|1") if self.has("sound.conv_channels") else 1))
        yield floats(bins, STEPS)
        if (frames := self.value("sound.num_stacked_frames")) is not None:
            yield floats(STEPS, bins * frames)
        if self.value("bins") is None:
            yield floats(STEPS, _FINE)
        first = self._first_layer()
        if isinstance(first, nn.Linear):  # several frames side by side
            yield floats(STEPS, first.in_features)
        elif first is not None:
            yield floats(first.in_channels, STEPS)

    def _waves(self) -> Iterator[torch.Tensor]:
        """A recording as it is; a spectrogram where the model has a number of frequencies."""
        if (known := self.make("B sound.max_length sound.num_mel_bins")) is not None:
            yield known
            return
        samples = _SECONDS * self.value(f"sound.sampling_rate|sound.sample_rate|{_RATE}")
        mono, mixed = self.maker.floats(samples), self.make(f"B audio_channels|1 {samples}")
        yield from (mixed, mono) if self.has("audio_channels", "codebook_size") else (mono, mixed)
        yield self.maker.floats(-(-samples // _STRIDES) * _STRIDES)

    def convolved(self) -> Any:
        """What a model convolves first over time: samples where there is one channel, else what another model made of them."""
        first = self._first_layer()
        if not isinstance(first, nn.Conv1d):
            return None
        return self.make(f"B {first.in_channels} {_SECONDS * _RATE if first.in_channels == 1 else 'any_tokens'}")

    def _first_layer(self) -> nn.Linear | nn.Conv1d | None:
        return next((layer for layer in self.model.modules() if isinstance(layer, (nn.Linear, nn.Conv1d))), None)
