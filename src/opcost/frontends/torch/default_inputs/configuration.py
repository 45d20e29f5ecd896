"""The configuration of a model of Hugging Face, and those inside of it: entries that many models have under several names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import nn

from opcost.frontends.torch.default_inputs.engine import is_size, named

_PARTS = {"image": "images", "video": "images", "audio": "sound"}


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
        names = named("parts", place)
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
        return next(filter(is_size, self.entries(*names)), None)

    def lacks(self, kind: str) -> bool:
        """Whether the model was made without what reads images or sound: its configuration has an entry for it that is None."""
        names = [name for name in named("parts", _PARTS.get(kind, "")) if name.endswith("_config")]
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
        return self.size(*[f"{place}.{name}" for name in named("parts", "positions")])

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
            if is_size(size):
                return size
        of_parts: Iterator[Any] = (getattr(module, "img_size", None) for module in self.model.modules())
        return next(((size[0], size[1]) for size in of_parts if _is_row(size) and len(size) == 2), usual)


def _is_row(size: Any) -> bool:
    return isinstance(size, (list, tuple)) and bool(size) and all(isinstance(extent, int) for extent in size)
