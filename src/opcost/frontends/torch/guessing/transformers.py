"""Models of transformers: which arguments are given tells the model, how large they are its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.errors import InputError, OpcostError
from opcost.frontends.torch.guessing import rare, sounds
from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Guess, Maker, Other, arguments, cannot, comes_from, needed, takes_any
from opcost.frontends.torch.guessing.vision import Vision


def transformers(model: nn.Module, maker: Maker) -> Guess | None:
    """A model of transformers, by its configuration; another that has only `dummy_inputs`, by those."""
    if comes_from(model, "transformers") and hasattr(model, "config"):
        inputs = _Inputs(model, maker)
        return Guess((), inputs.all(), "its configuration", inputs.others())
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
    return Guess((), dict(dummy), "its dummy_inputs")


class _Inputs:
    """The inputs of one model."""

    def __init__(self, model: nn.Module, maker: Maker) -> None:
        self.model = model
        self.maker = maker
        self.config = Configuration(model)
        self.names = list(dict.fromkeys([*arguments(model), *arguments_of_inner(model)]))
        self.needed = needed(model)
        kinds = getattr(model, "input_modalities", "text")
        self.kinds = {kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if not self.config.lacks(kind)}
        self.kinds |= {kind for kind in ("image", "audio") if self._reads(kind) and not self.config.lacks(kind)}
        main = getattr(model, "main_input_name", "input_ids")
        self.main = [main] if isinstance(main, str) else list(main)
        self.vision = Vision(self.config, maker, self.names, self.kinds)
        self.made: dict[str, Any] = {}
        self.left: list[dict[str, Any]] = []
        """Other forms of an image or a sound, where only a run of the whole model can tell which is meant."""
        self.features: dict[str, int] = {}
        """How many features the model makes of each kind of input."""

    def all(self) -> dict[str, Any]:
        """The arguments, those on which others depend first."""
        wanted = dict.fromkeys([*self.needed, *(name for name in self.main if name in self.names)])
        for kind, bringing in _ARGUMENTS.items():
            if kind in self.kinds and not any(name in wanted for name in bringing):
                wanted.update(dict.fromkeys([name for name in bringing if name in self.names][:1]))
        if "image" in self.kinds and any(name in wanted for name in _ARGUMENTS["image"]):
            wanted.pop("pixel_values_videos", None)
        if "pixel_values" in wanted and "inputs" not in self.needed:
            wanted.pop("inputs", None)
        wanted.update(
            dict.fromkeys(name for name in _COMPANIONS if name in self.names and self._goes_with(name, wanted))
        )
        for name in sorted(wanted, key=lambda name: -1 if name in _FORMS else _AFTER.get(name, 0)):
            if name in _FORMS:
                self._choose(name)
            if name in self.made:
                continue
            maker = _MAKERS.get(name)
            if maker is None or (found := maker(self)) is None:
                if name in self.needed:
                    raise cannot(self.model, name)
                continue
            self.made[name] = found
        return self.made

    def _goes_with(self, name: str, wanted: Mapping[str, Any]) -> bool:
        if name == "decoder_input_ids":
            return bool(getattr(self.config.own, "is_encoder_decoder", False))
        if name == "encoder_hidden_states" and self._attends_across():
            return True
        return any(other in wanted for other in _COMPANIONS[name])

    def _attends_across(self) -> bool:
        """Whether it is a decoder with layers that read what an encoder has made."""
        return "input_ids" in self.names and any(
            name.rpartition(".")[2] in _ACROSS for name, _ in self.model.named_modules()
        )

    def _reads(self, kind: str) -> bool:
        """Whether the model makes features of such inputs, or has a part for them and an argument that brings them."""
        others = {
            name for other in self.kinds for name in _ARGUMENTS.get(other, ())
        }  # frames of a video come as images do
        brought = any(name in self.names and name not in others for name in _ARGUMENTS[kind])
        return (brought and self.config.has_part(kind)) or self._method(kind) is not None

    def _method(self, kind: str) -> Callable[..., Any] | None:
        """What makes features of an input of this kind: of the part that does it, because it names its arguments."""
        parts = (*(getattr(self.model, name, None) for name in ("model", "vlm")), self.model)
        return next((found for part in parts if (found := getattr(part, f"get_{kind}_features", None))), None)

    def _choose(self, name: str) -> None:
        """The first form of an image or a sound that the model can make features of."""
        kind = "image" if name.startswith("pixel_values") else "audio"
        forms: Iterator[dict[str, Any]]
        if kind == "image":
            forms = ({name: form.pop("pixel_values"), **form} for form in self.vision.forms())
        else:
            forms = sounds.forms(name, self.names, self.config, self.maker)
        first, *others = ({n: value for n, value in form.items() if n in self.names} for form in forms)
        method = self._method(kind)
        known = {} if method is None else inspect.signature(method).parameters
        for form in (first, *others) if method is not None else ():
            try:
                shapes = self.maker.probe(method, {n: value for n, value in form.items() if n in known})
            except OpcostError:
                continue
            self.features[kind] = sum(_rows(shape) for shape in shapes) // self.maker.batch
            first, others = form, [other for other in (first, *others) if other is not form]
            break
        self.made.update(first)
        self.left += others

    def others(self) -> tuple[Other, ...]:
        """What the model may be called with instead: other forms, and a text without images or sounds if it may do without."""
        found = [Other({**self.made, **form}) for form in (*self.left, *self._coded(), *self._besides())]
        more = self.made.keys() - _OF_TEXT
        if "input_ids" in self.made and more and more.isdisjoint(self.needed):
            kept = {name: value for name, value in self.made.items() if name in _OF_TEXT}
            text = {**kept, "input_ids": self.like_tokens(self.config.word())}
            found.append(Other(text, "a text alone because the model fails with more"))
        return tuple(found)

    def _besides(self) -> Iterator[dict[str, torch.Tensor]]:
        """What some models ask of a text: a mask, another for the decoder, an end, several to choose from, or fewer tokens."""
        ids = self.made.get("input_ids")
        if ids is None:
            return
        for name in ("attention_mask", "decoder_input_ids", "global_attention_mask"):
            made = _MAKERS[name](self) if name in self.names and name not in self.made else None
            if made is not None:
                yield {name: made}
        if (end := self.config.token("eos")) is not None:
            yield {"input_ids": torch.cat([ids[:, :-1], torch.full_like(ids[:, :1], end)], 1)}
        length = ids.shape[1]
        like_it = {name: value for name, value in self.made.items() if getattr(value, "shape", ())[:2] == ids.shape}
        if any(cls.__name__.endswith("ForMultipleChoice") for cls in type(self.model).__mro__):
            tensors = {name: value for name, value in self.made.items() if isinstance(value, torch.Tensor)}
            yield {name: value[:, None].expand(-1, _CHOICES, *value.shape[1:]) for name, value in tensors.items()}
        if self.maker.sizes.tokens is None:
            for fewer in self.config.shorter(length):
                yield {name: value[:, :fewer] for name, value in like_it.items()}

    def _coded(self) -> Iterator[dict[str, torch.Tensor]]:
        """Tokens of sound: at every step as many as there are codebooks, or one row for each of those."""
        own = self.config.own
        decoders = [getattr(own, name, None) for name in ("decoder_config", "decoder")]
        for name, places in (("decoder_input_ids", decoders), ("input_ids", [own])):
            count = self.config.number(places, "num_codebooks", "num_channels", "n_codes_total")
            if name in self.made and count is not None:
                each, rows = self.made[name][..., None].repeat(1, 1, count), self.made[name].repeat(count, 1)
                yield from ({name: tokens} for tokens in ((rows, each) if hasattr(own, "decoder") else (each, rows)))
                yield {name: self.made[name][..., None].repeat(1, 1, count + 1)}  # and one of a text

    # -- text ------------------------------------------------------------------------------------------------------

    def tokens(self) -> torch.Tensor:
        """The tokens of a text, with the place of each image or sound among them."""
        config, maker = self.config, self.maker
        row = [token for kind in ("image", "audio") for token in self._places(kind)]
        length = max(maker.tokens(config.positions()), len(row) + 1)
        word = config.word()
        return maker.rows([word, *row, *[word] * (length - len(row) - 1)])

    def _places(self, kind: str) -> list[int]:
        """As many special tokens as an input of this kind has features, or one if only forward makes such, between borders."""
        token = self.config.token(kind)
        padded = self.config.number(self.config.whole, f"{kind}_soft_tokens_per_image") or 0
        if token is None or not any(name in self.made for name in _ARGUMENTS[kind]):
            return []
        named = (kind, "vision") if kind == "image" else (kind,)
        first, last = (self.config.token(*(f"{name}_{edge}" for name in named)) for edge in ("start", "end"))
        row = [first, *[token] * max(self.features.get(kind, 1), padded), last]
        return [place for place in row if place is not None]

    def decoder_tokens(self) -> torch.Tensor:
        config, maker = self.config, self.maker
        most = (
            config.number(config.text, "max_target_positions", "max_decoder_position_embeddings") or config.positions()
        )
        return maker.integers(maker.tokens(most), value=config.word())

    def kinds_of_tokens(self) -> torch.Tensor | None:
        """For each token, whether it is the place of an image."""
        token = self.config.token("image")
        ids = self.made.get("input_ids")
        return None if ids is None or token is None else (ids == token).to(torch.int64)

    def boxes(self) -> torch.Tensor | None:
        """Where each token stands on its page: left, upper, right and lower edge."""
        ids = self.made.get("input_ids")
        return None if ids is None else torch.zeros((*ids.shape, 4), dtype=torch.int64)

    def all_there(self) -> torch.Tensor | None:
        """A mask that hides no token, or no patch where there are such in place of tokens."""
        patches = self.made.get("flattened_patches")
        return self.like_tokens(1) if patches is None else self.maker.integers(patches.shape[1], value=1)

    def like_tokens(self, value: int) -> torch.Tensor | None:
        ids = self.made.get("input_ids")
        return None if ids is None else torch.full_like(ids, value)

    def places_of_image(self) -> torch.Tensor | None:
        """Which tokens give way to the image: as many as the model makes of it, after the first."""
        count = self.config.number(self.config.whole, "latent_query_num")
        mask = self.like_tokens(0)
        if mask is None or count is None:
            return None
        mask[:, 1 : count + 1] = 1
        return mask

    # -- anything else ---------------------------------------------------------------------------------------------

    def encoded(self) -> torch.Tensor | None:
        """What the model that reads images or another text has made of it."""
        width = self.config.number([self.config.own], "encoder_hidden_size")
        return self.hidden() if width is None else self.maker.floats(_PATCHES, width)

    def of_any_kind(self) -> torch.Tensor:
        """For a model that reads anything: a text, or else an image, or else what another model has made."""
        flow = getattr(self.config.own, "train_size", None)  # of two images, nine neighbours of each point
        pair = self.maker.floats(2, 9 * self.config.channels(), *flow) if flow is not None else None
        others = (self.vision.images(), self.hidden(), pair)
        self.left += [{"inputs": other} for other in others if other is not None]
        return self.decoder_tokens()

    def asked(self) -> torch.Tensor:
        """The tokens of a question that a model puts to an image."""
        config, maker = self.config, self.maker
        most = config.number([getattr(config.own, "qformer_config", None)], "max_position_embeddings")
        return maker.integers(maker.tokens(most), value=config.word())

    def hidden(self) -> torch.Tensor | None:
        """What another model has made of its input."""
        if self.vision.grid_name() is not None:
            return self.vision.images()
        if "hidden_states" in self.needed and (sound := sounds.convolved(self.config, self.maker)) is not None:
            return sound
        width = self.config.number([self.config.own], "hidden_size", "d_model", "n_embd")
        return None if width is None else self.maker.floats(self.maker.tokens(self.config.positions()), width)


def arguments_of_inner(model: nn.Module) -> list[str]:
    """What the model with images takes around which this one is built, if it is handed on whatever else this one is given."""
    inner = getattr(model, "vlm", None)
    return arguments(inner) if isinstance(inner, nn.Module) and takes_any(model) else []


def _rows(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape[:-1]:
        count *= extent
    return count


def _queries(inputs: _Inputs) -> torch.Tensor | None:
    """What is asked about an image, one row a question."""
    own = inputs.config.number([inputs.config.own], "hidden_size")
    return None if own is None else inputs.maker.floats(_QUERIES, own)


def _like_image(inputs: _Inputs) -> torch.Tensor | None:
    images = inputs.made.get("pixel_values")
    return None if images is None else torch.empty_like(images)


def _heard(make: Callable[[Configuration, Maker], Any], inputs: _Inputs) -> Any:
    return make(inputs.config, inputs.maker)


_ACROSS = frozenset({"crossattention", "cross_attn", "cross_attention", "encoder_attn"})
_CHOICES = 4
"""Endings of a text among which one is chosen: as many as the best known tests of it have."""
_PATCHES = 257
"""Of an image that another model has read: 16 by 16, and one for the whole."""
_QUERIES = 32
"""Of a model that asks about images: as many as those that were published have."""
_FORMS = ("pixel_values", "pixel_values_images", "input_features", "input_values")
"""Arguments that come in several forms."""
_ARGUMENTS = {
    "text": ("input_ids",),
    "image": ("pixel_values", "pixel_values_images", "flattened_patches"),
    "audio": ("input_features", "input_values"),
    "video": ("pixel_values_videos", "pixel_values"),
    "time": ("past_values",),
}
"""Which argument brings which kind of input."""
_OF_TEXT = frozenset({"input_ids", "decoder_input_ids", "attention_mask", "token_type_ids"})
_AFTER = {
    "input_ids": 1, "attention_mask": 2, "token_type_ids": 2, "mm_token_type_ids": 2, "bbox": 2, "prompt_pixel_values": 1,
    "prompt_masks": 1, "image_embeds_position_mask": 2,
}  # fmt: skip
"""Arguments that are made of others."""
_COMPANIONS: dict[str, tuple[str, ...]] = {
    "decoder_input_ids": (),
    "bbox": ("input_ids",),
    "mm_token_type_ids": ("pixel_values",),
    "past_time_features": ("past_values",),
    "past_observed_mask": ("past_values",),
    "future_values": ("past_values",),
    "future_time_features": ("past_values",),
    "encoder_hidden_states": ("query_embeds",),
    "image_embeds_position_mask": ("pixel_values",),
    "static_categorical_features": ("past_values",),
    "static_real_features": ("past_values",),
    "attention_mask": ("flattened_patches",),
    **rare.COMPANIONS,
}
"""Arguments that are given with others, though they have a default."""
_MAKERS: dict[str, Callable[[_Inputs], Any]] = {
    "input_ids": _Inputs.tokens,
    "inputs": _Inputs.of_any_kind,
    "qformer_input_ids": _Inputs.asked,
    "decoder_input_ids": _Inputs.decoder_tokens,
    "attention_mask": _Inputs.all_there,
    "global_attention_mask": lambda inputs: inputs.like_tokens(1),
    "mm_token_type_ids": _Inputs.kinds_of_tokens,
    "bbox": _Inputs.boxes,
    "token_type_ids": lambda inputs: inputs.like_tokens(0),
    "pixel_values_videos": lambda inputs: inputs.vision.videos(),
    "flattened_patches": lambda inputs: inputs.vision.flattened(),
    "bool_masked_pos": lambda inputs: inputs.vision.masked(),
    "prompt_pixel_values": _like_image,
    "prompt_masks": _like_image,
    "grid_thw": lambda inputs: inputs.vision.grid(),
    "merge_sizes": lambda inputs: inputs.vision.merged(),
    "image_embeds_position_mask": _Inputs.places_of_image,
    "inputs_embeds": _Inputs.hidden,
    "hidden_states": _Inputs.hidden,
    "encoder_hidden_states": _Inputs.encoded,
    "query_embeds": _queries,
    **{name: partial(_heard, make) for name, make in (*sounds.MAKERS.items(), *rare.MAKERS.items())},
}
