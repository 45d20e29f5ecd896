"""The switches of the process that a forward pass may turn: read before, and turned back where they differ."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from opcost.core.interrupts import handlers

_Switch = tuple[Callable[[], Any], Callable[[Any], Any]]


def _attribute(owner: Any, name: str) -> _Switch:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _autocast(device: str) -> Iterator[_Switch]:
    yield lambda: torch.is_autocast_enabled(device), lambda on: torch.set_autocast_enabled(device, on)
    yield lambda: torch.get_autocast_dtype(device), lambda dtype: torch.set_autocast_dtype(device, dtype)


def default_device() -> Any:
    """What `torch.set_default_device` was told last in this thread, or None."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _set_environment(before: dict[str, str]) -> None:
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


def _set_filters(before: list[Any]) -> None:
    warnings.filters[:] = before  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - a comparison of texts
    except OSError:  # it is gone
        return None


def _content(listed: list[Any]) -> _Switch:
    return lambda: list(listed), lambda content: listed.__setitem__(slice(None), content)


def _umask() -> int:
    """The mask can only be read by setting it: for that time to one under which no file becomes readable."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _set_handlers(before: dict[int, Any]) -> None:
    if threading.current_thread() is threading.main_thread():  # Python lets no other one
        now = handlers()
        for number, handler in before.items():
            if handler is not None and now[number] is not handler:
                signal.signal(number, handler)


def _loggers() -> dict[logging.Logger, tuple[Any, ...]]:
    """Levels, handlers and filters of every logger, and the levels of the handlers."""
    found = [one for one in list(logging.root.manager.loggerDict.values()) if type(one) is not logging.PlaceHolder]
    return {one: _of_logger(one) for one in (logging.root, *found)}  # type: ignore[misc]


def _of_logger(logger: Any) -> tuple[Any, ...]:
    held = logger.__dict__
    handlers, filters = held["handlers"], held["filters"]
    if not handlers and not filters:  # as most have none
        return held["level"], held["propagate"], held["disabled"], (), (), ()
    levels = tuple([one.level for one in handlers])
    return held["level"], held["propagate"], held["disabled"], tuple(handlers), tuple(filters), levels


def _set_loggers(before: dict[logging.Logger, tuple[Any, ...]]) -> None:
    changed = [(logger, was) for logger, was in before.items() if _of_logger(logger) != was]
    for logger, was in changed:
        logger.level, logger.propagate, logger.disabled, logger.handlers[:], logger.filters[:], levels = was
        for handler, level in zip(was[3], levels, strict=True):
            handler.level = level
    if changed:
        logging.root.manager._clear_cache()  # type: ignore[attr-defined]


def _decimal() -> tuple[Any, ...]:
    decimal = sys.modules.get("decimal")
    if decimal is None:
        return ()
    context = decimal.getcontext()
    return *(getattr(context, name) for name in _DECIMAL), dict(context.traps), dict(context.flags)


def _set_decimal(state: tuple[Any, ...]) -> None:
    context = sys.modules["decimal"].getcontext()
    *numbers, traps, flags = state
    for name, value in zip(_DECIMAL, numbers, strict=True):
        setattr(context, name, value)
    context.traps.update(traps)
    context.flags.update(flags)


def _autocasts() -> int:
    """How many blocks of autocast stand around; casts are kept until the outermost ends."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _set_autocasts(wanted: int) -> None:
    while _autocasts() > wanted:
        torch.autocast_decrement_nesting()
    while _autocasts() < wanted:
        torch.autocast_increment_nesting()
    if not wanted:
        torch.clear_autocast_cache()


def _remove_modules(before: frozenset[str]) -> None:
    """Take away the modules that no import has brought: somebody made them by hand, to keep something in."""
    for name in sys.modules.keys() - before:
        if getattr(sys.modules[name], "__spec__", None) is None:
            del sys.modules[name]


_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_BACKENDS = torch.backends
_SWITCHES: tuple[_Switch, ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (default_device, torch.set_default_device),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (_anomaly, lambda state: torch.set_anomaly_enabled(*state)),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (_autocasts, _set_autocasts),
    *_autocast("cpu"),
    *_autocast("cuda"),
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    (torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark),
    (torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    (torch._C._get_mkldnn_deterministic, torch._C._set_mkldnn_deterministic),
    (_BACKENDS.cuda.flash_sdp_enabled, _BACKENDS.cuda.enable_flash_sdp),
    (_BACKENDS.cuda.math_sdp_enabled, _BACKENDS.cuda.enable_math_sdp),
    (_BACKENDS.cuda.mem_efficient_sdp_enabled, _BACKENDS.cuda.enable_mem_efficient_sdp),
    (_BACKENDS.cuda.cudnn_sdp_enabled, _BACKENDS.cuda.enable_cudnn_sdp),
    _attribute(_BACKENDS.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    _attribute(_BACKENDS.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    _attribute(_BACKENDS.cuda.matmul, "allow_tf32"),
    _attribute(_BACKENDS.cudnn, "allow_tf32"),
    _attribute(_BACKENDS.mha, "_is_fastpath_enabled"),
    _attribute(_BACKENDS.quantized, "engine"),
    _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    (lambda: vars(torch._tensor_str.PRINT_OPTS).copy(), vars(torch._tensor_str.PRINT_OPTS).update),
    *(_attribute(sys, name) for name in ("excepthook", "unraisablehook", "stdin", "stdout", "stderr")),
    (_loggers, _set_loggers),
    (lambda: logging.root.manager.disable, logging.disable),
    *(_content(paths) for paths in (sys.path, sys.meta_path, sys.path_hooks)),
    (_umask, os.umask),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    (handlers, _set_handlers),
    (_decimal, _set_decimal),
    (lambda: frozenset(sys.modules), _remove_modules),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (lambda: list(warnings.filters), _set_filters),
    (lambda: dict(os.environ), _set_environment),
    (_directory, lambda path: os.chdir(path) if path is not None else None),
)


@contextmanager
def switches() -> Iterator[None]:
    """Turn every switch back that was turned inside."""
    before = [_read(read) for read, _ in _SWITCHES]
    try:
        yield
    finally:
        for (read, write), value in zip(_SWITCHES, before, strict=True):
            if value is not _UNREADABLE and _read(read) != value:
                write(value)


_UNREADABLE = object()


def _read(read: Callable[[], Any]) -> Any:
    """What a switch says; some of PyTorch's refuse to answer where the older and the newer way to turn them were mixed."""
    try:
        return read()
    except (RuntimeError, AttributeError):
        return _UNREADABLE
