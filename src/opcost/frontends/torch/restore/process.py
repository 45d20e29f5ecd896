"""The state of the whole process that a run may change: switches, random generators, and functions of PyTorch."""

import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from threading import RLock
from typing import Any

import torch

from opcost.core.interrupts import allow_signals, handlers
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.recorder_state import counting_thread
from opcost.frontends.torch.tree import ABSENT

_Switch = tuple[Callable[[], Any], Callable[[Any], Any]]


def _set_environment(before: dict[str, str]) -> None:
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


def _set_filters(before: list[Any]) -> None:
    warnings.filters[:] = before  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _umask() -> int:
    """The mask can only be read by setting it: meanwhile to one under which no file becomes readable."""
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
    loggers: list[Any] = [logging.root, *logging.root.manager.loggerDict.values()]
    return {
        one: (
            one.level, one.propagate, one.disabled, tuple(one.handlers), tuple(one.filters), [h.level for h in one.handlers],
        )
        for one in loggers if type(one) is not logging.PlaceHolder
    }  # fmt: skip


def _set_loggers(before: dict[logging.Logger, tuple[Any, ...]]) -> None:
    now = _loggers()
    for logger, was in before.items():
        if now.get(logger) != was:
            logger.level, logger.propagate, logger.disabled, logger.handlers[:], logger.filters[:], levels = was
            for handler, level in zip(was[3], levels, strict=True):
                handler.level = level
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]


def _decimal() -> Any:
    """What `pickle` keeps of the context: all arguments of its constructor."""
    return "decimal" in sys.modules and sys.modules["decimal"].getcontext().__reduce__()[1]


def _autocasts() -> int:
    """The depth of nested autocast blocks; casts are cached until the outermost ends."""
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
    """Remove modules that no import has added: code of the model made them, to keep something in."""
    for name in sys.modules.keys() - before:
        if getattr(sys.modules[name], "__spec__", None) is None:
            del sys.modules[name]


_BACKENDS = torch.backends
_ATTRIBUTES = (
    *((_BACKENDS.cuda.matmul, f"allow_{kind}_reduced_precision_reduction") for kind in ("fp16", "bf16")),
    *((backend, "allow_tf32") for backend in (_BACKENDS.cuda.matmul, _BACKENDS.cudnn)),
    (_BACKENDS.mha, "_is_fastpath_enabled"),
    (_BACKENDS.quantized, "engine"),
    (torch.utils.deterministic, "fill_uninitialized_memory"),
    *((sys, name) for name in ("excepthook", "unraisablehook", "stdin", "stdout", "stderr")),
)
_SWITCHES: tuple[_Switch, ...] = (
    *((getattr(torch, f"get_{name}"), getattr(torch, f"set_{name}")) for name in (
        "default_dtype", "deterministic_debug_mode", "num_threads", "float32_matmul_precision",
    )),
    (lambda: getattr(getattr(private.device_context, "device_context", None), "device", None), torch.set_default_device),
    (torch.is_grad_enabled, private.set_grad_enabled),
    (lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()), lambda on: torch.set_anomaly_enabled(*on)),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (_autocasts, _set_autocasts),
    *((partial(read, device), partial(write, device)) for device in ("cpu", "cuda") for read, write in (
        (torch.is_autocast_enabled, torch.set_autocast_enabled), (torch.get_autocast_dtype, torch.set_autocast_dtype),
    )),
    *private.BACKEND_SWITCHES,
    *((getattr(_BACKENDS.cuda, f"{name}_sdp_enabled"), getattr(_BACKENDS.cuda, f"enable_{name}_sdp")) for name in (
        "flash", "math", "mem_efficient", "cudnn",
    )),
    *((partial(getattr, owner, name), partial(setattr, owner, name)) for owner, name in _ATTRIBUTES),
    (lambda: vars(private.print_options).copy(), vars(private.print_options).update),
    (_loggers, _set_loggers),
    (lambda: logging.root.manager.disable, logging.disable),
    *((partial(list, paths), partial(paths.__setitem__, slice(None))) for paths in (sys.path, sys.meta_path, sys.path_hooks)),
    (_umask, os.umask),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    (handlers, _set_handlers),
    (_decimal, lambda before: before and sys.modules["decimal"].getcontext().__init__(*before)),
    (lambda: frozenset(sys.modules), _remove_modules),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (lambda: list(warnings.filters), _set_filters),
    (lambda: dict(os.environ), _set_environment),
    (os.getcwd, os.chdir),
)  # fmt: skip


@contextmanager
def switches() -> Iterator[None]:
    """Restore every switch that was changed inside."""
    before = [_read(read) for read, _ in _SWITCHES]
    try:
        yield
    finally:
        for (read, write), value in zip(_SWITCHES, before, strict=True):
            if value is not ABSENT and _read(read) != value:
                write(value)


def _read(read: Callable[[], Any]) -> Any:
    """The value of a switch; PyTorch's raise where its older and newer interface were mixed, and a directory may be gone."""
    try:
        return read()
    except (RuntimeError, AttributeError, OSError):
        return ABSENT


@contextmanager
def random_state() -> Iterator[None]:
    """Restore the random generators of torch, Python and numpy.

    They belong to the whole process: what other threads drew meanwhile is drawn again.
    """
    with ExitStack() as undo:
        undo.callback(torch.set_rng_state, torch.get_rng_state())
        if torch.cuda.is_initialized():
            undo.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        undo.callback(random.setstate, random.getstate())
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            undo.callback(numpy.set_state, numpy.get_state())
        yield


_COUNTING = RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Counts change switches of the whole process, so those of several threads run one after another.

    Signals can interrupt a thread that waits.
    """
    while not _COUNTING.acquire(timeout=0.05):
        with allow_signals():
            pass
    try:
        yield
    finally:
        _COUNTING.release()


# -- functions of PyTorch replaced during a count, because they would hide operators or outlast a run -------------------


@contextmanager
def replaced(owner: Any, name: str, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Replace a function for the calls of this thread and those it starts; other threads reach the original."""
    original = getattr(owner, name)
    inherited = name not in vars(owner)
    here = counting_thread()

    def choose(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if counting_thread() == here else original)(*args, **kwargs)

    setattr(owner, name, choose)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextmanager
def as_written() -> Iterator[None]:
    """Let compiled functions run as they are written."""

    def uncompiled(model: Any = None, **_: Any) -> Any:
        return model if model is not None else lambda function: function

    with ExitStack() as undo:
        if "torch._dynamo" in sys.modules:
            undo.enter_context(torch.compiler.set_stance("force_eager"))  # type: ignore[no-untyped-call]
        undo.enter_context(replaced(torch, "compile", uncompiled))
        yield


def no_inference_mode() -> AbstractContextManager[None]:
    """Inference mode as `no_grad`: it dispatches composite operators whole, and left open it would keep a mode active."""

    def enter(mode: Any) -> None:  # leaving it is the same for both
        mode._inference_mode_context = torch.no_grad() if mode.mode else private.InferenceMode(mode.mode)
        mode._inference_mode_context.__enter__()

    return replaced(torch.inference_mode, "__enter__", enter)


@contextmanager
def no_sharing() -> Iterator[None]:
    """Do not move memory to where other processes see it, because it would stay there.

    Copies that storages make by themselves are made, and are no operators of the run.
    """
    with ExitStack() as undo:
        undo.enter_context(replaced(torch.UntypedStorage, "share_memory_", lambda storage, *_: storage))
        for name in ("_share_fd_cpu_", "_share_filename_cpu_", "copy_"):
            undo.enter_context(replaced(torch.UntypedStorage, name, _unseen(getattr(torch.UntypedStorage, name))))
        yield


def _unseen(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of storages outside of dispatch modes; PyTorch raises for one that has no memory."""

    def called(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        with private.no_modes():
            storage.data_ptr()
            return method(storage, *args, **kwargs)

    return called
