"""What a model would load from a checkpoint: names and shapes of its state, as the code has it and as its library saves it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from opcost.core.graph import Note
from opcost.errors import UnknownSource
from opcost.frontends.checkpoint.agreement import Expected, Shapes, disagreements
from opcost.frontends.checkpoint.scan import scan_files


def held_against(model: Any, checkpoint: Path) -> tuple[Note, ...]:
    """Where the weights in a folder differ from the code; without weights there is nothing to say."""
    try:
        found = scan_files([checkpoint])
    except UnknownSource:
        return ()
    return disagreements(found, expected_of(model))


def expected_of(model: Any) -> Expected:
    """The layouts in which a checkpoint of this model may come, with and without the prefix of its base."""
    state = {name: torch.empty_like(tensor, device="meta") for name, tensor in model.state_dict().items()}
    layouts = [_shapes(state)]
    try:
        from transformers.core_model_loading import revert_weight_conversion

        layouts.append(_shapes(revert_weight_conversion(model, dict(state))))
    except Exception:  # noqa: S110 - an older library stores what the code has; what this one cannot turn round stays as it is
        pass
    prefix = getattr(model, "base_model_prefix", "")
    if prefix:
        layouts += [_with(layout, prefix) for layout in (*layouts,)] + [
            _without(layout, prefix) for layout in (*layouts,)
        ]
    return Expected(layouts, frozenset(name for layout in layouts for name in _optional(model, layout)))


def _shapes(state: dict[str, Any]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _with(layout: Shapes, prefix: str) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in layout.items()}


def _without(layout: Shapes, prefix: str) -> Shapes:
    return {name.removeprefix(f"{prefix}."): shape for name, shape in layout.items()}


def _optional(model: Any, layout: Shapes) -> Iterator[str]:
    """Names that the library does not miss: of weights that are tied to others, and of those that it makes anew."""
    tied = getattr(model, "all_tied_weights_keys", None)
    if tied is None:  # of an older library
        tied = getattr(model, "_tied_weights_keys", None) or ()
    made = [re.compile(pattern) for pattern in getattr(model, "_keys_to_ignore_on_load_missing", None) or ()]
    yield from tied
    yield from (name for name in layout if any(pattern.search(name) for pattern in made))
