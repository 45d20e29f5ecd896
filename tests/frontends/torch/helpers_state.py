"""What must be the same before and after a count: a model down to its tensors, and the switches of the process."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import CheckpointFunction


def fingerprint(*roots: Any) -> dict[str, Any]:
    """Everything observable about models and arguments, by the path at which it is found, and about the process.

    Objects are distinguished by identity, so that one that is replaced by an equal one is seen as well.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for index, root in enumerate(roots):
        _look(root, f"{type(root).__name__}#{index}", found, seen)
    found.update(_process())
    return found


def _look(value: Any, path: str, found: dict[str, Any], seen: set[int]) -> None:
    found[path] = _word(value)
    if isinstance(value, (int, float, complex, str, bytes, bool, type(None), type)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        _look_at_tensor(value, path, found, seen)
    elif isinstance(value, torch.Generator):
        found[f"{path}.state"] = value.get_state().tolist()
    elif isinstance(value, dict):
        found[f"{path}.keys"] = [_word(key) for key in dict.keys(value)]
        for key in dict.keys(value):
            _look(dict.__getitem__(value, key), f"{path}[{key!r}]", found, seen)
    elif isinstance(value, (list, tuple, set)):
        found[f"{path}.length"] = len(value)
        for index, item in enumerate(_ordered(value)):
            _look(item, f"{path}[{index}]", found, seen)
    elif isinstance(value, nn.Module) or type(value).__module__.startswith(("test_", "helpers_", "transformers")):
        for name, item in _attributes(value).items():
            _look(item, f"{path}.{name}", found, seen)
        found[f"{path}.attributes"] = sorted(_attributes(value))


def _attributes(value: Any) -> dict[str, Any]:
    slots = {name: getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _ordered(value: Iterable[Any]) -> Iterable[Any]:
    return sorted(value, key=repr) if isinstance(value, set) else value


def _word(value: Any) -> Any:
    """Plain values by their content, everything else by its identity."""
    plain = isinstance(value, (int, float, complex, str, bytes, bool, type(None)))
    return (type(value).__name__, value) if plain else (type(value).__name__, id(value))


def _look_at_tensor(tensor: Tensor, path: str, found: dict[str, Any], seen: set[int]) -> None:
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        return
    found[f"{path}.like"] = (
        tensor.shape,
        tensor.dtype,
        tensor.device,
        tensor.layout,
        tensor.requires_grad,
        tensor.is_leaf,
    )
    found[f"{path}.version"] = tensor._version
    if tensor.layout is torch.strided:
        found[f"{path}.memory"] = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.stride())
    if tensor.device.type != "meta":
        content = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
        found[f"{path}.content"] = (
            content.clone().view(-1).tolist() if not content.is_quantized else content.int_repr().tolist()
        )
    if tensor.is_leaf:
        _look(tensor.grad, f"{path}.grad", found, seen)
    _look(tensor._backward_hooks, f"{path}.hooks", found, seen)
    found[f"{path}.named"] = sorted(tensor.__dict__)


def _process() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the generator that models use without asking
    return {
        "torch generator": torch.get_rng_state().tolist(),
        "python generator": random.getstate(),
        "numpy generator": (kind, keys.tolist(), *rest),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "fast path of attention": (
            torch.backends.mha.get_fastpath_enabled(),
            id(torch.backends.mha.get_fastpath_enabled),
        ),
        "nn.Module.__call__": id(nn.Module.__call__),
        "torch.compile": id(torch.compile),
        "checkpoint": sorted(vars(CheckpointFunction)),
        "pad_packed": id(torch._VF._pad_packed_sequence),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "modes": len(_get_current_dispatch_mode_stack()),
        "function modes": torch._C._len_torch_function_stack(),
        "garbage collector": gc.isenabled(),
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not the same any more, in words short enough to read."""
    return [
        f"{key}: {str(before.get(key, 'nothing'))[:80]} -> {str(after.get(key, 'nothing'))[:80]}"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]
