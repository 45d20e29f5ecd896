"""Models of transformers: which arguments are given follows from the model, their sizes from its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, ClassVar

import torch
from torch import nn

from opcost.errors import InputError, OpcostError
from opcost.frontends.torch.default_inputs import engine
from opcost.frontends.torch.default_inputs.engine import InputMaker, Inputs
from opcost.frontends.torch.default_inputs.modalities import STEPS, Configuration, Form, Modalities

_CHOICES = 4  # Endings of a text in a multiple choice: as many as the best known benchmarks have
_ACTIONS = 20  # Steps of an agent's past, as for a decision transformer
_OBJECTS = 36  # Detected objects in an image, as such models were trained with
_ENTITIES, _MENTION = 2, 30
"""Entities of which a text speaks, as many as are compared, and the tokens of a mention at most."""
_QUERIES, _PATCHES = 32, 257
"""Of a model that queries an image: learnt queries, and patches of the encoded image (16 by 16 and one for the whole)."""

_CROSS_ATTENTION = frozenset({"crossattention", "cross_attn", "cross_attention", "encoder_attn"})
_FORMS = ("pixel_values", "pixel_values_images", "input_features", "input_values")
"""Arguments that come in several shapes."""
_KINDS = {
    "text": ("input_ids",),
    "image": ("pixel_values", "pixel_values_images", "flattened_patches"),
    "audio": ("input_features", "input_values"),
    "video": ("pixel_values_videos", "pixel_values"),
    "time": ("past_values",),
}
"""Which argument brings which kind of input."""
_OF_TEXT = frozenset({"input_ids", "decoder_input_ids", "attention_mask", "token_type_ids"})
_ORDER = {
    **dict.fromkeys(_FORMS, -1),
    **dict.fromkeys(("input_ids", "prompt_pixel_values", "prompt_masks"), 1),
    **dict.fromkeys(("attention_mask", "token_type_ids", "mm_token_type_ids", "bbox", "image_embeds_position_mask"), 2),
}
"""Arguments that are made of others are made after them."""
_COMPANIONS = engine.by_name({
    "": "decoder_input_ids",
    "input_ids": "bbox visual_feats visual_pos visual_embeds entity_ids entity_position_ids entity_start_positions "
                 "entity_end_positions protein_input_ids protein_attention_mask moshi_audio_codes user_audio_codes",
    "pixel_values": "mm_token_type_ids image_embeds_position_mask",
    "past_values": "past_time_features past_observed_mask future_values future_time_features "
                   "static_categorical_features static_real_features",
    "query_embeds": "encoder_hidden_states",
    "flattened_patches": "attention_mask",
    "states": "actions rewards returns_to_go timesteps",
    "input_ids input_values": "decoder_input_values",
    "state": "timestep",
})  # fmt: skip
"""Arguments that are given with others, though they have a default."""


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


class TransformersInputs(Modalities):
    """The inputs of one model."""

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
        self.made: Form = {}
        self.left: list[Form] = []
        """Other forms of an image or a sound, where only a run of the whole model shows which is meant."""
        self.features: dict[str, int] = {}
        """How many features the model makes of each kind of input."""

    words: ClassVar[dict[str, str | Callable[[Any], Any]]] = {
        **Modalities.words,
        "word": lambda self: self.config.word(),
        "text": lambda self: self._shape_of("input_ids"),
        "image": lambda self: self._shape_of("pixel_values"),
        "row_of_patches": lambda self: self._shape_of("flattened_patches", 2),
        "decoder_tokens": lambda self: self.maker.tokens(
            self.value("text.max_target_positions|text.max_decoder_position_embeddings") or self.config.positions()
        ),
        "qformer_tokens": lambda self: self._tokens_of("qformer_config"),
        "protein_tokens": lambda self: self._tokens_of("protein_encoder_config"),
    }

    def _tokens_of(self, part: str) -> int:
        return self.maker.tokens(self.config.number([getattr(self.config.own, part, None)], "max_position_embeddings"))

    def _shape_of(self, name: str, axes: int | None = None) -> tuple[int, ...] | None:
        """The shape of another argument, or its first axes; None where it is not made."""
        return tuple(self.made[name].shape[:axes]) if name in self.made else None

    # -- which arguments -----------------------------------------------------------------------------------------------

    def all(self) -> Form:
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
        given = {name for name, others in _COMPANIONS.items() if not wanted.keys().isdisjoint(others.split())}
        if getattr(self.config.own, "is_encoder_decoder", False):
            given.add("decoder_input_ids")
        modules = (path.rpartition(".")[2] for path, _ in self.model.named_modules())
        if "input_ids" in self.names and not _CROSS_ATTENTION.isdisjoint(modules):
            given.add("encoder_hidden_states")  # of a decoder that reads what an encoder has made
        wanted |= dict.fromkeys([name for name in _COMPANIONS if name in given and name in self.names])
        for name in sorted(wanted, key=lambda name: _ORDER.get(name, 0)):
            if name in _FORMS:
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
        forms: Iterator[Form] = self.sound_forms(name)
        if kind == "image":
            forms = ({name: form.pop("pixel_values"), **form} for form in self.image_forms())
        first, *others = ({n: value for n, value in form.items() if n in self.names} for form in forms)
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

    def _texts(self) -> Iterator[Form]:
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

    def _codebooks(self) -> Iterator[Form]:
        """Tokens of sound: at every step as many as there are codebooks, or one row for each of those."""
        own = self.config.own
        decoders = [getattr(own, name, None) for name in ("decoder_config", "decoder")]
        for name, places in (("decoder_input_ids", decoders), ("input_ids", [own])):
            count = self.config.number(places, "num_codebooks", "num_channels", "n_codes_total")
            if name in self.made and count is not None:
                tokens = self.made[name]
                each, rows = tokens[..., None].repeat(1, 1, count), tokens.repeat(count, 1)
                yield from ({name: made} for made in ((rows, each) if hasattr(own, "decoder") else (each, rows)))
                yield {name: tokens[..., None].repeat(1, 1, count + 1)}  # and one of a text

    # -- single arguments ----------------------------------------------------------------------------------------------

    def tokens(self) -> torch.Tensor:
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
        """What another model has made of its input."""
        if self.has_grid():
            return self.images()
        sound = self.convolved() if "hidden_states" in self.needed else None
        return self.make("B T hidden_size|d_model|n_embd") if sound is None else sound

    def encoded(self) -> Any:
        """What the encoder of images, or of another text, has made."""
        known = self.make(f"B {_PATCHES} encoder_hidden_size")
        return self.hidden() if known is None else known

    def entity_positions(self) -> torch.Tensor:
        """In which tokens the text mentions each entity: in the first, and in no other."""
        places: torch.Tensor = self.make(f"int B {_ENTITIES} max_mention_length|{_MENTION}") - 1
        places[..., 0] = 0
        return places


_ARGUMENTS: dict[str, str | Callable[[TransformersInputs], Any]] = {
    **engine.by_name({
        # text
        "int=word B decoder_tokens": "decoder_input_ids",
        "int=word B qformer_tokens": "qformer_input_ids",
        "int=1 B protein_tokens": "protein_input_ids protein_attention_mask",
        "int B num_codebooks T": "moshi_audio_codes user_audio_codes",
        "int B task_seq_len|77": "task_inputs",
        f"int B {_ENTITIES}": "entity_ids entity_start_positions entity_end_positions",
        "=n_codes_given": "codebook_idx",
        "int=1 row_of_patches|text": "attention_mask",  # which hides none
        "int=1 text": "global_attention_mask",
        "int text": "token_type_ids",
        "int text 4": "bbox",  # left, upper, right and lower edge on the page
        # images
        "B frames C H W": "pixel_values_videos",
        "B any_tokens 2+flat_patch": "flattened_patches",  # each begins with its row and column
        "image": "prompt_pixel_values prompt_masks",
        "int=merge B": "merge_sizes",  # how many patches of a row become one token
        f"B {_QUERIES} hidden_size": "query_embeds",
        f"B {_OBJECTS} visual_feat_dim": "visual_feats",
        f"B {_OBJECTS} visual_pos_dim": "visual_pos",
        f"B {_OBJECTS} visual_embedding_dim": "visual_embeds",
        # sound
        f"B {STEPS} num_mel_bins": "decoder_input_values",
        f"B {STEPS} model_in_dim": "spectrogram",
        f"B {STEPS} input_feat_size": "audio_mel",
        f"bool B {STEPS}": "audio_mel_mask",
        # series in time
        "B past channels": "past_values",
        "bool=1 B past channels": "past_observed_mask",
        "B past time_features": "past_time_features",
        "B past": "past_values_padding",
        "B future channels": "future_values",
        "B prediction_length time_features": "future_time_features",
        "int B num_static_categorical_features": "static_categorical_features",
        "B num_static_real_features": "static_real_features",
        "int B 1": "freq",
        # agents
        "B": "timestep",
        "B max_state_dim": "state",
        f"B {_ACTIONS} state_dim": "states",
        f"B {_ACTIONS} act_dim": "actions",
        f"B {_ACTIONS} 1": "rewards returns_to_go",
    }),
    "timesteps": lambda inputs: inputs.maker.rows([*range(_ACTIONS)]),
    "input_ids": TransformersInputs.tokens,
    "inputs": TransformersInputs.any_kind,
    "mm_token_type_ids": TransformersInputs.image_tokens,
    "bool_masked_pos": TransformersInputs.masked,
    "grid_thw": TransformersInputs.grid,
    "image_embeds_position_mask": TransformersInputs.replaced_tokens,
    **dict.fromkeys(("inputs_embeds", "hidden_states"), TransformersInputs.hidden),
    "encoder_hidden_states": TransformersInputs.encoded,
    "entity_position_ids": TransformersInputs.entity_positions,
}  # fmt: skip
"""How an argument of this name is made; None where the model goes without."""
