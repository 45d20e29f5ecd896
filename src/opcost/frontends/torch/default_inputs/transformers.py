"""Models of transformers: which arguments are given follows from the model, their sizes from its configuration."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, ClassVar

import torch
from torch import nn

from opcost.errors import InputError, OpcostError
from opcost.frontends.torch.default_inputs import engine
from opcost.frontends.torch.default_inputs.engine import InputMaker, Inputs, ShapeWords

_CHOICES = 4  # Endings of a text in a multiple choice: as many as the best known benchmarks have
_WINDOW = 448  # Of an image for a model that takes any size: 32 by 32 patches of 14
_STRIDES = 53_760  # Samples that nearly all strides of models of sound divide: 2⁹·3·5·7

_CROSS_ATTENTION = frozenset({"crossattention", "cross_attn", "cross_attention", "encoder_attn"})
_KINDS = dict(engine.rows("kinds of transformers"))  # Which arguments bring which kind of input
_OF_TEXT = frozenset({"input_ids", "decoder_input_ids", "attention_mask", "token_type_ids"})
_ORDER = {
    **dict.fromkeys(("pixel_values", "pixel_values_images", "input_features", "input_values"), -1),
    **dict.fromkeys(("input_ids", "prompt_pixel_values", "prompt_masks"), 1),
    **dict.fromkeys(("attention_mask", "token_type_ids", "mm_token_type_ids", "bbox", "image_embeds_position_mask"), 2),
}
"""Arguments that are made of others are made after them."""
_PARTS = {"image": "images", "video": "images", "audio": "sound"}  # What the configurations of parts are found by
_FORMS = {
    "input_features": ("spectrograms of several lengths", "spectrograms"),
    "input_values": ("spectrograms of waves", "waves"),
    "pixel_values": ("images of a grid", "images with places", "images"),
}
"""The sections in which the forms of an argument are."""
_ARGUMENTS = engine.table("transformers")
_Made = dict[str, Any]  # Arguments: an image or a sound, and what goes with it


def transformers(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """A model of transformers, by its configuration; another that has only `dummy_inputs`, by those."""
    if engine.comes_from(model, "transformers") and hasattr(model, "config"):
        inputs = TransformersInputs(model, maker)
        return Inputs((), inputs.all(), "its configuration", inputs.others())
    own = "dummy_inputs" in vars(model) or hasattr(type(model), "dummy_inputs")  # not of a model that this one wraps
    dummy = getattr(model, "dummy_inputs", None) if own else None
    if not isinstance(dummy, Mapping):
        return None
    main = getattr(model, "main_input_name", None)
    if main is not None and main not in dummy:
        raise InputError(
            f"{type(model).__name__} takes {main}, which its own example inputs ({', '.join(dummy)}) do not have",
            hint=f"pass kwargs={{{main!r}: ...}}, or its shape (on the command line --input {main}:SHAPE)",
        )
    return Inputs((), dict(dummy), "its dummy_inputs")


class Configuration:
    """The configuration of a model, and those inside of it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.own: Any = getattr(model, "config", None)
        around = getattr(self.own, "vlm_config", None)
        self._whole = [self.own] if around is None else [around, self.own]
        self.places = {"": [self.own], "whole": self._whole}
        """Where entries are searched: the configuration, also that of a model with images around which another is built."""
        self.places |= {place: [*self._inner(place), *self._whole] for place in ("text", "images", "sound")}

    def _inner(self, place: str) -> Iterator[Any]:
        """Configurations of parts, the innermost first."""
        names = engine.named("parts", place)
        for whole, name in product(self._whole, names):
            found = getattr(whole, name, None)
            if hasattr(found, "to_dict"):
                yield from (each for inner in names if hasattr(each := getattr(found, inner, None), "to_dict"))
                yield found

    def entries(self, *names: str) -> Iterator[Any]:
        """The entries of these names; None where there is none.

        A name may begin with one of the places, or with an entry that is a configuration itself, as in `images.patch_size`.
        """
        for name in names:
            place, _, last = name.rpartition(".")
            for found in self.places.get(place) or [getattr(self.own, place, None)]:
                yield getattr(found, last, None)

    def size(self, *names: str) -> int | None:
        """The first of these entries that is a number above zero."""
        return next(filter(engine.is_size, self.entries(*names)), None)

    def lacks(self, kind: str) -> bool:
        """Whether the model was made without what reads images or sound: its configuration has an entry for it that is None."""
        names = [name for name in engine.named("parts", _PARTS.get(kind, "")) if name.endswith("_config")]
        found = [getattr(whole, name) for whole, name in product(self._whole, names) if hasattr(whole, name)]
        return bool(found) and all(part is None for part in found)

    def has_part(self, kind: str) -> bool:
        """Whether there is a configuration of what reads images or sounds."""
        return next(self._inner(_PARTS[kind]), None) is not None

    def positions(self) -> int | None:
        """The longest text in tokens. A table of positions whose first are for padding has fewer for tokens."""
        most = self._longest("text")
        for name, module in self.model.named_modules():
            padding, table = getattr(module, "padding_idx", None), getattr(module, "weight", None)
            if "position" in name and isinstance(padding, int) and isinstance(table, torch.Tensor):
                return min(most or len(table), len(table) - padding - 1)
        return most

    def _longest(self, place: str) -> int | None:
        return self.size(*[f"{place}.{name}" for name in engine.named("parts", "positions")])

    def shorter(self, than: int) -> list[int]:
        """Smaller numbers of tokens: that of another part of the model, or two less, if the model adds a begin and an end."""
        parts = [name for name, part in vars(self.own).items() if hasattr(part, "to_dict")]
        known = map(self._longest, ("", *parts))
        return sorted({length for length in (*known, than - 2) if length and 0 < length < than}, reverse=True)

    def token(self, *kinds: str) -> int | None:
        """The token in the place of an image, or a sound, or an end, in a text."""
        ends = ("token_id", "token_index", "placeholder_token_id")
        found = self.entries(*[f"whole.{kind}_{end}" for kind, end in product(kinds, ends)])
        return next((value for value in found if isinstance(value, int) and value >= 0), None)

    def word(self) -> int:
        """A token without a special meaning: neither padding nor a border nor the place of an image."""
        entries = [entry for place in (*self.places["text"], self.own) for entry in vars(place).items()]
        special = {v for name, v in entries if name.endswith(("token_id", "token_index")) and isinstance(v, int)}
        return next(token for token in range(len(special) + 1) if token not in special)

    def image_size(self, usual: int) -> int | tuple[int, int]:
        """Height and width of images, also where a model of timm inside has them."""
        for size in self.entries(
            *[f"images.{name}" for name in ("image_size", "input_size", "img_size", "max_img_size")]
        ):
            if isinstance(size, dict):
                size = (size.get("height"), size.get("width"))  # noqa: PLW2901
            if _is_row(size):
                return size[-2] if len(size) > 1 else size[0], size[-1]
            if engine.is_size(size):
                return size
        of_parts: Iterator[Any] = (getattr(module, "img_size", None) for module in self.model.modules())
        return next(((size[0], size[1]) for size in of_parts if _is_row(size) and len(size) == 2), usual)


def _is_row(size: Any) -> bool:
    return isinstance(size, (list, tuple)) and bool(size) and all(isinstance(extent, int) for extent in size)


class TransformersInputs(ShapeWords):
    """The inputs of one model.

    An entry is of the configuration itself, or, as in `images.patch_size`, of what reads images, sound or text.
    """

    def __init__(self, model: nn.Module, maker: InputMaker) -> None:
        super().__init__(model, maker)
        self.config = Configuration(model)
        inner = getattr(model, "vlm", None)  # the model with images around which this one is built
        passed_on = engine.arguments(inner) if isinstance(inner, nn.Module) and engine.takes_any(model) else []
        self.names = list(dict.fromkeys([*self.names, *passed_on]))
        kinds = getattr(model, "input_modalities", "text")
        self.kinds = {kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if not self.config.lacks(kind)}
        # Also those of which the model makes features, or for which it has a part and an argument that brings them;
        # frames of a video come as images do.
        others = {name for other in self.kinds for name in _KINDS.get(other, ())}
        for kind in ("image", "audio"):
            brought = any(name in self.names and name not in others for name in _KINDS[kind])
            reads = (brought and self.config.has_part(kind)) or self._method(kind) is not None
            self.kinds |= {kind} if reads and not self.config.lacks(kind) else set()
        layers = (layer for layer in model.modules() if isinstance(layer, (nn.Linear, nn.Conv1d)))
        self.first_layer = next(layers, None)
        self.made: _Made = {}
        self.left: list[_Made] = []
        """Other forms of an image or a sound, where only a run of the whole model shows which is meant."""
        self.features: dict[str, int] = {}
        """How many features the model makes of each kind of input."""

    def entry(self, name: str) -> int | None:
        return self.config.size(name)

    def has(self, *entries: str) -> bool:
        """Whether the configuration has one of these entries, of whatever type."""
        return any(value is not None for value in self.config.entries(*entries))

    def side(self, *names: str) -> int | None:
        """Of a square in images: one number, or the first of two."""
        found = self.config.entries(*[f"images.{name}" for name in names])
        sides = (size[0] if isinstance(size, (list, tuple)) and size else size for size in found)
        return next(filter(engine.is_size, sides), None)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """The shape of another argument; None where it is not made."""
        return tuple(self.made[name].shape) if name in self.made else None

    def channels(self) -> tuple[int, ...]:
        """The axis of channels of a series, where there is one."""
        channels, width = self.entry("num_input_channels"), self.entry("input_size") or 1
        return (channels,) if channels is not None else (width,) if width > 1 else ()

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

    def grid(self, group: int) -> list[int]:
        """Rows and columns of patches, in whole groups of those that become one token."""
        step = self.value("P") * group
        return [max(extent // step, 1) * group for extent in self.maker.image(self.config.image_size(_WINDOW))]

    def pinpoint(self) -> torch.Tensor | None:
        """The size of an image as a whole that is cut into tiles."""
        pinpoints = getattr(self.config.own, "image_grid_pinpoints", None)
        return self.maker.rows(list(pinpoints[0])) if pinpoints else None

    def tiles(self) -> int | None:
        """As many as such an image is cut into, and the whole once more."""
        whole, (height, width) = self.pinpoint(), self.image_size()
        return None if whole is None else int(whole[0, 0]) // height * (int(whole[0, 1]) // width) + 1

    words: ClassVar[dict[str, str | Callable[[Any], Any]]] = {
        **engine.table("words of transformers"),
        "T": lambda self: self.maker.tokens(self.config.positions()),
        "any_tokens": lambda self: self.maker.tokens(None),
        "word": lambda self: self.config.word(),
        "text": lambda self: self.shape_of("input_ids"),
        "decoder_tokens": lambda self: self.maker.tokens(
            self.value("text.max_target_positions|text.max_decoder_position_embeddings") or self.config.positions()
        ),
        "qformer_tokens": lambda self: self.maker.tokens(self.entry("qformer_config.max_position_embeddings")),
        "protein_tokens": lambda self: self.maker.tokens(self.entry("protein_encoder_config.max_position_embeddings")),
        # images
        "H": lambda self: self.image_size()[0],
        "W": lambda self: self.image_size()[1],
        "P": lambda self: self.side("patch_size") or 14,
        "rows": lambda self: self.image_size()[0] // self.value("P"),
        "columns": lambda self: self.image_size()[1] // self.value("P"),
        "merge": lambda self: self.side("spatial_merge_size", "merge_size", "merge_kernel_size") or 1,
        "grid_rows": lambda self: self.grid(self.value("merge"))[0],
        "grid_columns": lambda self: self.grid(self.value("merge"))[1],
        "pooled": lambda self: prod(self.grid(self.side("pooling_kernel_size") or 1)),
        "side_of_patches": lambda self: int(self.value("patches") ** 0.5),
        "if_frames": lambda self: () if "video" in self.kinds or self.value("known_frames") is not None else None,
        "if_only_video": lambda self: () if "video" in self.kinds and "image" not in self.kinds else None,
        "if_no_text": lambda self: () if "input_ids" not in self.names else None,
        "if_queries": lambda self: () if self.has("num_queries") else None,
        "image": lambda self: self.shape_of("pixel_values"),
        "row_of_patches": lambda self: (self.shape_of("flattened_patches") or ())[:2] or None,
        # sound
        "more_mels": lambda self: 128 if self.value("bins") is None else None,  # those of younger models
        "fused_steps": lambda self: area // self.value("mels") if (area := self.value("fused_area")) else None,
        "heard": lambda self: self.value("sound.input_channels|1") if self.has("sound.conv_channels") else 1,
        "read_by_linear": lambda self: getattr(self.first_layer, "in_features", None),
        "read_by_convolution": lambda self: getattr(self.first_layer, "in_channels", None),
        "whole_strides": lambda self: -(-self.value("samples") // _STRIDES) * _STRIDES,
        "if_mixed": lambda self: () if self.has("audio_channels", "codebook_size") else None,
        "if_not_mixed": lambda self: () if not self.has("audio_channels", "codebook_size") else None,
        # series in time
        "lag": lambda self: int(max(getattr(self.config.own, "lags_sequence", None) or [0])),
        "future": lambda self: self.entry("prediction_length") if self.has("lags_sequence") else None,
        "time_features": lambda self: self.value("num_time_features|0") + self.value("num_dynamic_real_features|0"),
    }

    # -- which arguments -----------------------------------------------------------------------------------------------

    def all(self) -> _Made:
        """The arguments, those on which others depend first."""
        main: Any = getattr(self.model, "main_input_name", "input_ids")
        main = [main] if isinstance(main, str) else main
        wanted = dict.fromkeys([*self.needed, *(name for name in main if name in self.names)])
        for kind, bringing in _KINDS.items():
            if kind in self.kinds and wanted.keys().isdisjoint(bringing):
                wanted.update(dict.fromkeys([name for name in bringing if name in self.names][:1]))
        if "image" in self.kinds and not wanted.keys().isdisjoint(_KINDS["image"]):
            wanted.pop("pixel_values_videos", None)
        if "pixel_values" in wanted and "inputs" not in self.needed:
            wanted.pop("inputs", None)
        companions = engine.table("companions")
        given = {name for name, others in companions.items() if not wanted.keys().isdisjoint(others.split())}
        if getattr(self.config.own, "is_encoder_decoder", False):
            given.add("decoder_input_ids")
        modules = (path.rpartition(".")[2] for path, _ in self.model.named_modules())
        if "input_ids" in self.names and not _CROSS_ATTENTION.isdisjoint(modules):
            given.add("encoder_hidden_states")  # of a decoder that reads what an encoder has made
        wanted |= dict.fromkeys([name for name in companions if name in given and name in self.names])
        for name in sorted(wanted, key=lambda name: _ORDER.get(name, 0)):
            if _ORDER.get(name) == -1:
                self._choose(name)
            self.give([name], _ARGUMENTS, self.made)
        return self.made

    def _method(self, kind: str) -> Callable[..., Any] | None:
        """What makes features of an input of this kind: of the part that does it, because it names its arguments."""
        parts = (*(getattr(self.model, name, None) for name in ("model", "vlm")), self.model)
        return next((found for part in parts if (found := getattr(part, f"get_{kind}_features", None))), None)

    def _choose(self, name: str) -> None:
        """The first form of an image or a sound that the model can make features of."""
        kind = "image" if name.startswith("pixel_values") else "audio"
        sections = _FORMS.get(name, _FORMS["pixel_values"])
        every = next(forms for section in sections if (forms := [*self._forms(name, section)]))
        first, *others = ({n: value for n, value in form.items() if n in self.names} for form in every)
        method = self._method(kind)
        known = {} if method is None else inspect.signature(method).parameters
        for form in (first, *others) if method is not None else ():
            try:
                shapes = self.maker.probe(method, {n: value for n, value in form.items() if n in known})
            except OpcostError:
                continue
            self.features[kind] = sum(prod(shape[:-1]) for shape in shapes) // self.maker.batch
            first, others = form, [other for other in (first, *others) if other is not form]
            break
        self.made.update(first)
        self.left += others

    def _forms(self, name: str, section: str) -> Iterator[_Made]:
        """What may be meant by an image or a sound, with masks that hide no step of a sound where the model takes such."""
        named = ("input_features_mask", "feature_attention_mask") if name == "input_features" else ()
        masks = [mask for mask in named if mask in self.names]
        for spec, companions in engine.rows(section):
            if (made := self.make(spec)) is None:
                continue
            others = [pair for each in companions for pair in engine.table(each).items() if pair[0] in self.names]
            beside = {other: self.make(its) for other, its in others}
            form = {name: made, **{other: value for other, value in beside.items() if value is not None}}
            if not masks:
                yield form
                continue
            bins_first = made.dim() == 3 and made.shape[1] == self.value("bins")
            ones = self.make(f"int=1 B {made.shape[-1] if bins_first else made.shape[1]}")
            yield from ({**form, **dict.fromkeys(masks, mask)} for mask in (ones.bool(), ones, None))

    # -- alternatives --------------------------------------------------------------------------------------------------

    def others(self) -> tuple[Inputs, ...]:
        """What to call the model with instead: other forms, and a text without images or sounds if it may do without."""
        forms = (*self.left, *self._codebooks(), *self._texts())
        found = [Inputs((), {**self.made, **form}, "its configuration") for form in forms]
        more = self.made.keys() - _OF_TEXT
        if "input_ids" in self.made and more and more.isdisjoint(self.needed):
            kept = {name: value for name, value in self.made.items() if name in _OF_TEXT}
            text = Inputs((), {**kept, "input_ids": self.make("int=word text")}, "its configuration")
            found.append(text._replace(note="a text alone because the model fails with more"))
        return tuple(found)

    def _texts(self) -> Iterator[_Made]:
        """What some models need of a text: a mask, another for the decoder, an end, several to choose from, or fewer tokens."""
        ids = self.made.get("input_ids")
        if ids is None:
            return
        for name in ("attention_mask", "decoder_input_ids", "global_attention_mask"):
            made = self.make(_ARGUMENTS[name]) if name in self.names and name not in self.made else None
            if made is not None:
                yield {name: made}
        if (end := self.config.token("eos")) is not None:
            yield {"input_ids": torch.cat([ids[:, :-1], torch.full_like(ids[:, :1], end)], 1)}
        if any(cls.__name__.endswith("ForMultipleChoice") for cls in type(self.model).__mro__):
            tensors = {name: value for name, value in self.made.items() if isinstance(value, torch.Tensor)}
            yield {name: value[:, None].expand(-1, _CHOICES, *value.shape[1:]) for name, value in tensors.items()}
        if self.maker.sizes.tokens is None:
            alike = {name: value for name, value in self.made.items() if getattr(value, "shape", ())[:2] == ids.shape}
            for fewer in self.config.shorter(ids.shape[1]):
                yield {name: value[:, :fewer] for name, value in alike.items()}

    def _codebooks(self) -> Iterator[_Made]:
        """Tokens of sound: at every step as many as there are codebooks, or one row for each of those."""
        own = self.config.own
        for name, places in (("decoder_input_ids", ("decoder_config.", "decoder.")), ("input_ids", ("",))):
            kinds = ("num_codebooks", "num_channels", "n_codes_total")
            count = self.config.size(*[place + kind for kind, place in product(kinds, places)])
            if name in self.made and count is not None:
                tokens = self.made[name]
                each, rows = tokens[..., None].repeat(1, 1, count), tokens.repeat(count, 1)
                yield from ({name: made} for made in ((rows, each) if hasattr(own, "decoder") else (each, rows)))
                yield {name: tokens[..., None].repeat(1, 1, count + 1)}  # and one of a text

    # -- single arguments ----------------------------------------------------------------------------------------------

    def row_of_tokens(self) -> torch.Tensor:
        """The tokens of a text, with the place of each image or sound among them.

        It has one special token for each feature, or a single one if only forward makes features, between borders.
        """
        row: list[int] = []
        for kind, named in {"image": ("image", "vision"), "audio": ("audio",)}.items():
            token = self.config.token(kind)
            if token is not None and not self.made.keys().isdisjoint(_KINDS[kind]):
                first, last = (self.config.token(*(f"{name}_{edge}" for name in named)) for edge in ("start", "end"))
                count = max(self.features.get(kind, 1), self.value(f"whole.{kind}_soft_tokens_per_image|0"))
                row += [place for place in (first, *[token] * count, last) if place is not None]
        length = max(self.value("T"), len(row) + 1)
        word = self.config.word()
        return self.maker.rows([word, *row, *[word] * (length - len(row) - 1)])

    def image_tokens(self) -> torch.Tensor | None:
        """For each token, whether it is the place of an image."""
        ids, token = self.made.get("input_ids"), self.config.token("image")
        return None if ids is None or token is None else (ids == token).to(torch.int64)

    def replaced_tokens(self) -> Any:
        """Which tokens the image replaces: as many as the model makes of it, after the first."""
        count, mask = self.value("whole.latent_query_num"), self.make("int text")
        if mask is None or count is None:
            return None
        mask[:, 1 : count + 1] = 1
        return mask

    def any_kind(self) -> Any:
        """For a model that reads anything: a text, or else an image, or else what another model has made."""
        flow = getattr(self.config.own, "train_size", None)  # of two images, nine neighbours of each point
        pair = self.maker.floats(2, 9 * self.value("C"), *flow) if flow is not None else None
        others = (self.images(), self.hidden(), pair)
        self.left += [{"inputs": other} for other in others if other is not None]
        return self.make(_ARGUMENTS["decoder_input_ids"])

    def hidden(self) -> Any:
        """What another model has made of its input; where forward needs just that, images or sound that are convolved first.

        A convolution over time reads samples where there is one channel, else what another model made of them.
        """
        if "image_grid_thw" in self.names or "grid_thw" in self.names:
            return self.images()
        if "hidden_states" in self.needed and isinstance(self.first_layer, nn.Conv1d):
            steps = 160_000 if self.first_layer.in_channels == 1 else "any_tokens"  # ten seconds of a wave
            return self.make(f"B {self.first_layer.in_channels} {steps}")
        return self.make("B T hidden_size|d_model|n_embd")

    def encoded(self) -> Any:
        """What the encoder of images, or of another text, has made."""
        known = self.make("B encoded_patches encoder_hidden_size")
        return self.hidden() if known is None else known

    def images(self) -> Any:
        """The most usual form of images."""
        return next(made for spec, _ in engine.rows("usual images") if (made := self.make(spec)) is not None)

    def whole_images(self) -> Any:
        """A mask that hides nothing: neither a patch, nor a point of several images."""
        images = self.images()
        if images.dim() == 3:
            return self.make(f"int=1 B {images.shape[1]}")
        return torch.ones((*images.shape[:2], *images.shape[-2:]), dtype=torch.bool, device="cpu")

    def first_tile(self) -> torch.Tensor:
        """Which tiles of an image there are."""
        mask: torch.Tensor = self.make("int B 1 max_tiles")
        mask[..., 0] = 1
        return mask

    def grids(self) -> torch.Tensor:
        """The grid of each image: of one that is given and one to be made where a sample has several."""
        grid: torch.Tensor = self.make("int=1,grid_rows,grid_columns B")
        return grid.repeat_interleave(2, 0) if "images_per_sample" in self.names else grid

    def places(self) -> torch.Tensor:
        """The column and row of each patch."""
        extents = self.grid(self.side("pooling_kernel_size") or 1)
        return torch.cartesian_prod(*map(torch.arange, extents)).flip(-1).expand(self.maker.batch, -1, -1)

    def past_actions(self) -> torch.Tensor:
        """The steps of an agent's past."""
        return self.maker.rows([*range(self.value("actions"))])

    def masked(self) -> torch.Tensor:
        """Which patches are hidden, to be predicted: the first half."""
        depth = self.value("images.tubelet_size")
        patches = self.value("rows*columns") * (self.value("frames") // depth if depth else 1)
        return self.maker.rows([int(2 * patch < patches) for patch in range(patches)]).bool()

    def entity_positions(self) -> torch.Tensor:
        """In which tokens the text mentions each entity: in the first, and in no other."""
        places: torch.Tensor = self.make("int B entities max_mention_length|30") - 1
        places[..., 0] = 0
        return places
