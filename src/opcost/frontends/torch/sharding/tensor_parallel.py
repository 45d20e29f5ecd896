"""Tensor parallelism: which module is spread how, by the model's own plan, one that is given, or the usual names of layers."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from importlib import import_module
from typing import Any

from torch import nn

from opcost.distributed.sharding import Sharding, path_pattern
from opcost.errors import InputError, some
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.sharding.expert_parallel import SpreadExperts
from opcost.frontends.torch.sharding.sequence_parallel import Parts, parts_of, spread_between

USUAL_NAMES: dict[str, str] = {
    "q_proj k_proj v_proj wq wk wv query_proj key_proj value_proj to_q to_k to_v": "colwise",
    "gate_proj up_proj w1 w3 fc1 linear1": "colwise",
    "o_proj out_proj wo to_out down_proj w2 fc2 linear2": "rowwise",
    "embed_tokens tok_embeddings": "embedding_rowwise",
    "lm_head": "colwise_gather_output",
}
"""The last names of modules in models that have no plan of their own, and the style of each."""
_HINT = 'give a plan: tp_plan={"layers.*.wq": "colwise", "layers.*.wo": "rowwise"}'
_HEADS = ("num_attention_heads", "num_key_value_heads")
_OTHER_WORDS = {"colwise_rep": "colwise_gather_output", "rowwise_rep": "rowwise_split_input"}
"""Names that older versions of transformers have for the same styles."""


def parallelize(model: nn.Module, mesh: Any, sharding: Sharding, experts: SpreadExperts) -> None:
    """Spread a model, but for experts that are spread in their own way, over the ranks of a mesh of one axis."""
    own = (
        {} if sharding.plan else {key: style for key, style in _own_plan(model).items() if not experts.has(model, key)}
    )
    chosen = dict(sharding.plan) or own
    styles = _matched(model, chosen) if chosen else _by_usual_names(model)
    _check_divides(model, styles, mesh.size())
    if sharding.loss:
        styles |= dict.fromkeys(_heads(model, styles), "loss_parallel")
    apart = dict.fromkeys(experts.modules, "experts")
    tied = _names_of_tied(model)
    parts = parts_of(model, styles | apart) if sharding.splits_sequence else Parts()
    parts.spread.update((path, style) for path, style in styles.items() if style == "loss_parallel")
    apply = _of_transformers() if own else None
    if apply is not None:
        apply(model, mesh, _without(own, styles, parts.spread, type_name(model)))
    else:
        from torch.distributed.tensor.parallel import parallelize_module

        rest = {path: style for path, style in styles.items() if path not in parts.spread and style != "replicate"}
        parallelize_module(model, mesh, {path: _style(style) for path, style in rest.items()})
    spread_between(model, mesh, parts)
    _tie_again(tied)


def _heads(model: nn.Module, styles: Mapping[str, str]) -> list[str]:
    """The layers that make logits: those of the model itself whose parts of the output are gathered."""
    found = [path for path, style in styles.items() if style == "colwise_gather_output" and "." not in path]
    if not found:
        fault = (
            f"loss parallelism needs a layer of {type_name(model)} whose output is gathered, and the plan names none"
        )
        raise InputError(fault, hint='give a plan with the layer that makes logits: {"output": "loss_parallel", ...}')
    return found


def _without(plan: Mapping[str, str], styles: Mapping[str, str], done: Container[str], what: str) -> dict[str, str]:
    """What is left of a plan of patterns where some of its modules are spread already."""
    kept = {
        key: style
        for key, style in plan.items()
        if not any(path_pattern(key).fullmatch(p) for p in styles if p in done)
    }
    left = [path for path in styles if path not in done and not any(path_pattern(key).fullmatch(path) for key in kept)]
    if left:
        fault = f"sequence parallelism is not known for {what}, whose plan has one style for layers of several kinds"
        raise InputError(
            f"{fault}, as {', '.join(some(left))}", hint="leave it out, or give a plan of your own: tp_plan=..."
        )
    return kept


# -- which module is spread how --------------------------------------------------------------------------------------------


def _own_plan(model: nn.Module) -> dict[str, str]:
    """The plan that a model of transformers brings, by patterns of paths from the model that is counted."""
    return dict(getattr(model, "tp_plan", None) or {})


def _of_transformers() -> Callable[..., Any] | None:
    """What applies such a plan, with all of its styles; only in newer versions of the library."""
    try:
        found: Callable[..., Any] = import_module("transformers.distributed.tensor_parallel").apply_tensor_parallelism
    except (ImportError, AttributeError):
        return None
    return found


def _matched(model: nn.Module, plan: Mapping[str, str]) -> dict[str, str]:
    """The style of each module whose path one of the patterns matches."""
    patterns = [(path_pattern(key), _OTHER_WORDS.get(style, style)) for key, style in plan.items()]
    found: dict[str, str] = {}
    for path, _ in model.named_modules():
        for pattern, style in patterns:
            if pattern.fullmatch(path):
                found[path] = style
    if not found:
        names = ", ".join(some([repr(key) for key in plan]))
        raise InputError(f"the plan of tensor parallelism matches no module of {type_name(model)}: {names}", hint=_HINT)
    return found


def _by_usual_names(model: nn.Module) -> dict[str, str]:
    styles = {name: style for names, style in USUAL_NAMES.items() for name in names.split()}
    found = {path: styles[last] for path, _ in model.named_modules() if (last := path.rpartition(".")[2]) in styles}
    if not {"colwise", "rowwise"} <= {*found.values()}:
        known = ", ".join(names.replace(" ", ", ") for names in USUAL_NAMES)
        fault = f"{type_name(model)} has no plan of tensor parallelism, and no layers whose names say how to spread them: {known}"
        raise InputError(fault, hint=_HINT)
    return found


# -- what divides ----------------------------------------------------------------------------------------------------------


def _check_divides(model: nn.Module, styles: Mapping[str, str], ranks: int) -> None:
    """Raise where the ranks cannot have equal parts of heads or layers."""
    config = getattr(model, "config", None)
    for name in _HEADS:
        heads = getattr(config, name, None)
        if isinstance(heads, int):
            _check_size(f"{name} of {type_name(model)}", heads, ranks)
    for path, style in styles.items():
        layer = model.get_submodule(path)
        size = getattr(layer, "out_features" if style.startswith("colwise") else "in_features", None)
        if isinstance(size, int) and style.startswith(("colwise", "rowwise")):
            _check_size(f"the {'outputs' if style.startswith('colwise') else 'inputs'} of {path}", size, ranks)


def _check_size(what: str, size: int, ranks: int) -> None:
    if size % ranks:
        fits = [str(n) for n in range(1, size + 1) if size % n == 0]
        raise InputError(f"tp={ranks} does not divide {what}, {size}", hint=f"sizes that do: {', '.join(some(fits))}")


# -- PyTorch's styles ------------------------------------------------------------------------------------------------------


def _style(name: str) -> Any:
    """PyTorch's style of that name."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    made = {
        "colwise": ColwiseParallel,
        "rowwise": RowwiseParallel,
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
        "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
        "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    }
    if name not in made:
        hint = f"install a newer version of transformers, or give a plan with the styles {', '.join(made)}"
        raise InputError(f"the model's plan has the style {name!r}, which is not one of PyTorch's", hint=hint)
    return made[name]()


# -- tied weights ----------------------------------------------------------------------------------------------------------

_Tied = list[list[tuple[nn.Module, str]]]


def _names_of_tied(model: nn.Module) -> _Tied:
    """Where each parameter is that is at several places."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))
    return [several for several in places.values() if len(several) > 1]


def _tie_again(tied: _Tied) -> None:
    """Spread weights that were one are one again, if they are spread in the same way."""
    for (module, name), *others in tied:
        first: Any = module._parameters[name]
        for other, its in others:
            second: Any = other._parameters[its]
            if getattr(first, "placements", None) == getattr(second, "placements", None):
                other._parameters[its] = first
