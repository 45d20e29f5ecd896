"""Models of transformers: which arguments are given tells the model, how large they are its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.errors import InputError, OpcostError
from opcost.frontends.torch.guessing import sounds
from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Guess, Maker, Other, arguments, cannot, comes_from, needed
from opcost.frontends.torch.guessing.vision import Vision


def transformers(model: nn.Module, maker: Maker) -> Guess | None:
    """A model of transformers, by its configuration; another that has only `dummy_inputs`, by those."""
    if comes_from(model, "transformers") and hasattr(model, "config"):
        inputs = _Inputs(model, maker)
        return Guess((), inputs.all(), "its configuration", inputs.others())
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
        self.names = arguments(model)
        self.needed = needed(model)
        kinds = getattr(model, "input_modalities", "text")
        self.kinds = {kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if not self.config.lacks(kind)}
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
        if "image" in self.kinds and "pixel_values" in self.names:
            wanted.pop("pixel_values_videos", None)
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
        return any(other in wanted for other in _COMPANIONS[name])

    def _choose(self, name: str) -> None:
        """The first form of an image or a sound that the model can make features of."""
        kind = "image" if name == "pixel_values" else "audio"
        forms = self.vision.forms() if kind == "image" else sounds.forms(name, self.names, self.config, self.maker)
        first, *others = ({n: value for n, value in form.items() if n in self.names} for form in forms)
        parts = (self.model, getattr(self.model, "model", None))
        method = next((found for part in parts if (found := getattr(part, f"get_{kind}_features", None))), None)
        known = {} if method is None else inspect.signature(method).parameters
        for form in (first, *others) if method is not None else ():
            try:
                shapes = self.maker.probe(method, {n: value for n, value in form.items() if n in known})
            except OpcostError:
                continue
            self.made.update(form)
            self.features[kind] = sum(_rows(shape) for shape in shapes) // self.maker.batch
            return
        self.made.update(first)
        self.left += others

    def others(self) -> tuple[Other, ...]:
        """What the model may be called with instead: other forms, and a text without images or sounds if it may do without."""
        found = [Other({**self.made, **form}) for form in self.left]
        found += [Other({**self.made, **form}) for form in self._coded()]
        more = self.made.keys() - _OF_TEXT
        if "input_ids" in self.made and more and more.isdisjoint(self.needed):
            kept = {name: value for name, value in self.made.items() if name in _OF_TEXT}
            text = {**kept, "input_ids": self.like_tokens(self.config.word())}
            found.append(Other(text, "a text alone because the model fails with more"))
        return tuple(found)

    def _coded(self) -> Iterator[dict[str, torch.Tensor]]:
        """Tokens of sound: at every step as many as there are codebooks, or one row for each of those."""
        own = self.config.own
        decoder = getattr(own, "decoder_config", None)
        for name, places in (("decoder_input_ids", [decoder]), ("input_ids", [own])):
            count = self.config.number(places, "num_codebooks", "num_channels")
            if name in self.made and count is not None:
                yield {name: self.made[name][..., None].repeat(1, 1, count)}
                yield {name: self.made[name].repeat(count, 1)}

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
        return [] if token is None else [token] * self.features.get(kind, 0)

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

    def boxes(self) -> torch.Tensor | None:
        """Where each token stands on its page: left, upper, right and lower edge."""
        ids = self.made.get("input_ids")
        return None if ids is None else torch.zeros((*ids.shape, 4), dtype=torch.int64)

    def like_tokens(self, value: int) -> torch.Tensor | None:
        ids = self.made.get("input_ids")
        return None if ids is None else torch.full_like(ids, value)

    # -- anything else ---------------------------------------------------------------------------------------------

    def encoded(self) -> torch.Tensor | None:
        """What the model that reads images or another text has made of it."""
        width = self.config.number([self.config.own], "encoder_hidden_size")
        return self.hidden() if width is None else self.maker.floats(_PATCHES, width)

    def asked(self) -> torch.Tensor:
        """The tokens of a question that a model puts to an image."""
        config, maker = self.config, self.maker
        most = config.number([getattr(config.own, "qformer_config", None)], "max_position_embeddings")
        return maker.integers(maker.tokens(most), value=config.word())

    def hidden(self) -> torch.Tensor | None:
        """What another model has made of its input."""
        if self.vision.grid_name() is not None:
            return self.vision.images()
        width = self.config.number([self.config.own], "hidden_size", "d_model", "n_embd")
        return None if width is None else self.maker.floats(self.maker.tokens(self.config.positions()), width)


def _rows(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape[:-1]:
        count *= extent
    return count


_STEPS = 20
"""Of what an agent has seen and done: as many as a decision transformer is usually told."""


def _of_agent(entry: str | None, inputs: _Inputs) -> torch.Tensor | None:
    """What an agent has seen, done or been paid at each step, in as many numbers as an entry of the configuration says."""
    width = 1 if entry is None else inputs.config.number([inputs.config.own], entry)
    return None if width is None else inputs.maker.floats(_STEPS, width)


def _queries(inputs: _Inputs) -> torch.Tensor | None:
    """What is asked about an image, one row a question."""
    own = inputs.config.number([inputs.config.own], "hidden_size")
    return None if own is None else inputs.maker.floats(_QUERIES, own)


def _like_image(inputs: _Inputs) -> torch.Tensor | None:
    images = inputs.made.get("pixel_values")
    return None if images is None else torch.empty_like(images)


def _heard(make: Callable[[Configuration, Maker], Any], inputs: _Inputs) -> Any:
    return make(inputs.config, inputs.maker)


_PATCHES = 257
"""Of an image that another model has read: 16 by 16, and one for the whole."""
_QUERIES = 32
"""Of a model that asks about images: as many as those that were published have."""
_FORMS = ("pixel_values", "input_features", "input_values")
"""Arguments that come in several forms."""
_ARGUMENTS = {
    "text": ("input_ids",),
    "image": ("pixel_values", "flattened_patches"),
    "audio": ("input_features", "input_values"),
    "video": ("pixel_values_videos", "pixel_values"),
    "time": ("past_values",),
}
"""Which argument brings which kind of input."""
_OF_TEXT = frozenset({"input_ids", "decoder_input_ids", "attention_mask", "token_type_ids"})
_AFTER = {
    "input_ids": 1, "attention_mask": 2, "token_type_ids": 2, "mm_token_type_ids": 2, "bbox": 2, "prompt_pixel_values": 1,
    "prompt_masks": 1,
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
    "actions": ("states",),
    "rewards": ("states",),
    "returns_to_go": ("states",),
    "timesteps": ("states",),
    "encoder_hidden_states": ("query_embeds",),
}
"""Arguments that are given with others, though they have a default."""
_MAKERS: dict[str, Callable[[_Inputs], Any]] = {
    "input_ids": _Inputs.tokens,
    "qformer_input_ids": _Inputs.asked,
    "decoder_input_ids": _Inputs.decoder_tokens,
    "attention_mask": lambda inputs: inputs.like_tokens(1),
    "mm_token_type_ids": _Inputs.kinds_of_tokens,
    "bbox": _Inputs.boxes,
    "token_type_ids": lambda inputs: inputs.like_tokens(0),
    "pixel_values_videos": lambda inputs: inputs.vision.videos(),
    "flattened_patches": lambda inputs: inputs.vision.flattened(),
    "prompt_pixel_values": _like_image,
    "prompt_masks": _like_image,
    "grid_thw": lambda inputs: inputs.vision.grid(),
    "task_inputs": lambda inputs: inputs.maker.integers(
        inputs.config.number([inputs.config.own], "task_seq_len") or 77
    ),
    "inputs_embeds": _Inputs.hidden,
    "hidden_states": _Inputs.hidden,
    "encoder_hidden_states": _Inputs.encoded,
    "query_embeds": _queries,
    "states": partial(_of_agent, "state_dim"),
    "actions": partial(_of_agent, "act_dim"),
    "rewards": partial(_of_agent, None),
    "returns_to_go": partial(_of_agent, None),
    "timesteps": lambda inputs: inputs.maker.rows([*range(_STEPS)]),
    **{name: partial(_heard, make) for name, make in sounds.MAKERS.items()},
}
