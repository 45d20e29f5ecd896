"""The switches of the whole process that a forward pass may turn: how each is read, and how a test puts it back itself."""

from __future__ import annotations

import builtins
import decimal
import gc
import logging
import math
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from stateful.registry import MARK
from torch import nn
from torch.utils import deterministic
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import CheckpointFunction


class Switch(NamedTuple):
    """Something of which a process has one."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


def _attribute(owner: Any, name: str) -> Switch:
    return Switch(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _default_device() -> Any:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _put_environment(content: dict[str, str]) -> None:
    for name in set(os.environ) - set(content):
        del os.environ[name]
    for name, value in content.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _put_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _blocks_of_autocast() -> int:
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _put_blocks_of_autocast(wanted: int) -> None:
    for _ in range(_blocks_of_autocast() - wanted):
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()


def _put_print_options(options: dict[str, Any]) -> None:
    vars(torch._tensor_str.PRINT_OPTS).update(options)


def _mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_A_LOGGER = logging.getLogger("asyncio")


def _logger() -> tuple[int, list[Any]]:
    return _A_LOGGER.level, list(_A_LOGGER.handlers)


def _put_logger(state: tuple[int, list[Any]]) -> None:
    _A_LOGGER.setLevel(state[0])
    _A_LOGGER.handlers[:] = state[1]


def _put_names(module: Any, names: dict[str, Any]) -> None:
    for name in set(vars(module)) - set(names):
        delattr(module, name)
    vars(module).update(names)


SWITCHES: dict[str, Switch] = {
    "torch generator": Switch(torch.get_rng_state, torch.set_rng_state),
    "python generator": Switch(random.getstate, random.setstate),
    "numpy generator": Switch(np.random.get_state, np.random.set_state),
    "default dtype": Switch(torch.get_default_dtype, torch.set_default_dtype),
    "default device": Switch(_default_device, torch.set_default_device),
    "grad mode": Switch(torch.is_grad_enabled, torch._C._set_grad_enabled),
    "autocast on cpu": Switch(
        lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)
    ),
    "autocast on cuda": Switch(
        lambda: torch.is_autocast_enabled("cuda"), lambda on: torch.set_autocast_enabled("cuda", on)
    ),
    "autocast dtype on cpu": Switch(
        lambda: torch.get_autocast_dtype("cpu"), lambda dtype: torch.set_autocast_dtype("cpu", dtype)
    ),
    "autocast dtype on cuda": Switch(
        lambda: torch.get_autocast_dtype("cuda"), lambda dtype: torch.set_autocast_dtype("cuda", dtype)
    ),
    "autocast cache": Switch(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "deterministic algorithms": Switch(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda pair: torch.use_deterministic_algorithms(pair[0], warn_only=pair[1]),
    ),
    "fill uninitialized memory": _attribute(deterministic, "fill_uninitialized_memory"),
    "anomaly detection": Switch(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda pair: torch.set_anomaly_enabled(*pair),
    ),
    "multithreaded autograd": Switch(
        torch._C._is_multithreading_enabled,
        torch._C._set_multithreading_enabled,
    ),
    "threads": Switch(torch.get_num_threads, torch.set_num_threads),
    "matmul precision": Switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cudnn enabled": _attribute(torch.backends.cudnn, "enabled"),
    "cudnn benchmark": _attribute(torch.backends.cudnn, "benchmark"),
    "cudnn deterministic": _attribute(torch.backends.cudnn, "deterministic"),
    "cudnn tf32": _attribute(torch.backends.cudnn, "allow_tf32"),
    "reduced precision in half": _attribute(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    "reduced precision in bfloat16": _attribute(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    "blocks of autocast": Switch(_blocks_of_autocast, _put_blocks_of_autocast),
    "mkldnn": Switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "flash attention": Switch(torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "memory efficient attention": Switch(
        torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp
    ),
    "math attention": Switch(torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "fast path of attention": Switch(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    "quantized engine": _attribute(torch.backends.quantized, "engine"),
    "print options": Switch(lambda: dict(vars(torch._tensor_str.PRINT_OPTS)), _put_print_options),
    "warning filters": Switch(lambda: list(warnings.filters), _put_filters),
    "recursion limit": Switch(sys.getrecursionlimit, sys.setrecursionlimit),
    "environment": Switch(lambda: dict(os.environ), _put_environment),
    "working directory": Switch(os.getcwd, os.chdir),
    "decimal context": Switch(lambda: decimal.getcontext().copy(), decimal.setcontext),
    "numpy errors": Switch(np.geterr, lambda errors: np.seterr(**errors)),
    "numpy print options": Switch(np.get_printoptions, lambda options: np.set_printoptions(**options)),
    "level of logging": Switch(lambda: logging.getLogger().level, lambda level: logging.getLogger().setLevel(level)),
    "standard output": _attribute(sys, "stdout"),
    "exception hook": _attribute(sys, "excepthook"),
    "search path": Switch(lambda: list(sys.path), lambda path: sys.path.__setitem__(slice(None), path)),
    "file mask": Switch(_mask, os.umask),
    "thresholds of the collector": Switch(gc.get_threshold, lambda numbers: gc.set_threshold(*numbers)),
    "collector": Switch(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "a logger": Switch(_logger, _put_logger),
    "math": Switch(lambda: dict(vars(math)), lambda names: _put_names(math, names)),
    "builtins": Switch(lambda: dict(vars(builtins)), lambda names: _put_names(builtins, names)),
    "termination handler": Switch(
        lambda: signal.getsignal(signal.SIGTERM), lambda handler: signal.signal(signal.SIGTERM, handler)
    ),
    "interrupt handler": Switch(
        lambda: signal.getsignal(signal.SIGINT), lambda handler: signal.signal(signal.SIGINT, handler)
    ),
}
"""Everything that has a value of its own, which a forward may change and which can be read and put back."""

_COMPARED_OTHERWISE = ("decimal context",)

FIXED: dict[str, Callable[[], Any]] = {
    "inference mode": torch.is_inference_mode_enabled,
    "dispatch modes": lambda: tuple(map(id, _get_current_dispatch_mode_stack())),
    "function modes": torch._C._len_torch_function_stack,
    "profiler": torch._C._autograd._profiler_enabled,
    "nn.Module.__call__": lambda: id(nn.Module.__call__),
    "nn.Module's attributes": lambda: sorted(vars(nn.Module)),
    "torch.compile": lambda: id(torch.compile),
    "torch.inference_mode": lambda: id(torch.inference_mode.__enter__),
    "checkpoint": lambda: sorted(vars(CheckpointFunction)),
    "pad_packed": lambda: id(torch._VF._pad_packed_sequence),
    "function that reads the fast path switch": lambda: id(torch.backends.mha.get_fastpath_enabled),
    "global hooks": lambda: (
        len(torch.nn.modules.module._global_forward_hooks),
        len(torch.nn.modules.module._global_forward_pre_hooks),
        len(torch.nn.modules.module._global_backward_hooks),
    ),
    "modules of the user's": lambda: sorted(name for name in sys.modules if name.startswith(MARK)),
    "root handlers of logging": lambda: tuple(map(id, logging.getLogger().handlers)),
}
"""What opcost itself turns, and what only it could leave turned."""


def look() -> dict[str, Any]:
    """Every switch, in a form that can be compared."""
    found = {name: _comparable(name, switch.read()) for name, switch in SWITCHES.items()}
    return {f"process: {name}": value for name, value in {**found, **{n: read() for n, read in FIXED.items()}}.items()}


def _comparable(name: str, value: Any) -> Any:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_comparable(name, item) for item in value]
    return repr(value) if name in _COMPARED_OTHERWISE else value


@contextmanager
def kept() -> Iterator[None]:
    """Put every switch back after a test, without any help of the code under test."""
    before = {name: switch.read() for name, switch in SWITCHES.items()}
    with torch.inference_mode(mode=torch.is_inference_mode_enabled()):
        yield
    for name, value in before.items():
        if _comparable(name, SWITCHES[name].read()) != _comparable(name, value):
            SWITCHES[name].write(value)
