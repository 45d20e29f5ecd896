"""Switches of the whole process that forward turns and leaves turned."""

from __future__ import annotations

import builtins
import ctypes
import decimal
import gc
import logging
import math
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stateful.registry import D, stateful
from torch import Tensor, nn
from torch.utils import deterministic


class Turns(nn.Module):
    """Runs its layer, then turns a switch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)

    def turn(self) -> Any:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x.to(self.layer.weight.dtype))
        self.turn()
        return y


def turns(name: str, why: str, turn: Callable[[], Any]) -> None:
    made = type(name, (Turns,), {"turn": lambda self: turn(), "__module__": __name__})
    globals()[name] = stateful(why)(made)


def other_engine() -> str:
    engines = torch.backends.quantized
    return next(engine for engine in engines.supported_engines if engine not in ("none", engines.engine))


turns("Deterministic", "use_deterministic_algorithms", lambda: torch.use_deterministic_algorithms(True, warn_only=True))
turns("AnomalyEnabled", "set_anomaly_enabled", lambda: torch.set_anomaly_enabled(True, check_nan=False))
turns("AnomalyDetected", "autograd.set_detect_anomaly", lambda: torch.autograd.set_detect_anomaly(True))
turns("Threads", "set_num_threads", lambda: torch.set_num_threads(torch.get_num_threads() + 1))
turns("MatmulPrecision", "set_float32_matmul_precision", lambda: torch.set_float32_matmul_precision("medium"))
turns("CudnnBenchmark", "backends.cudnn.benchmark", lambda: setattr(torch.backends.cudnn, "benchmark", True))
turns(
    "CudnnDeterministic", "backends.cudnn.deterministic", lambda: setattr(torch.backends.cudnn, "deterministic", True)
)
turns("CudnnTf32", "backends.cudnn.allow_tf32", lambda: setattr(torch.backends.cudnn, "allow_tf32", False))
turns("MatmulTf32", "backends.cuda.matmul.allow_tf32", lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True))
turns(
    "ReducedPrecision",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
)
turns("Mkldnn", "backends.mkldnn", lambda: torch._C._set_mkldnn_enabled(False))
turns(
    "QuantizedEngine", "backends.quantized.engine", lambda: setattr(torch.backends.quantized, "engine", other_engine())
)
turns("FastPath", "backends.mha.set_fastpath_enabled", lambda: torch.backends.mha.set_fastpath_enabled(False))
turns("FlashAttention", "backends.cuda.enable_flash_sdp", lambda: torch.backends.cuda.enable_flash_sdp(False))
turns("MathAttention", "backends.cuda.enable_math_sdp", lambda: torch.backends.cuda.enable_math_sdp(False))
turns(
    "EfficientAttention",
    "backends.cuda.enable_mem_efficient_sdp",
    lambda: torch.backends.cuda.enable_mem_efficient_sdp(False),
)
turns("DefaultDtype", "set_default_dtype", lambda: torch.set_default_dtype(torch.float64))
turns("DefaultTensorType", "set_default_tensor_type", lambda: torch.set_default_tensor_type(torch.DoubleTensor))
turns("DefaultDevice", "set_default_device", lambda: torch.set_default_device("meta"))
turns("DefaultDeviceCpu", "set_default_device to the device it has", lambda: torch.set_default_device("cpu"))
turns("GradMode", "set_grad_enabled, called as a function", lambda: torch.set_grad_enabled(not torch.is_grad_enabled()))
turns("AutocastEnabled", "set_autocast_enabled", lambda: torch.set_autocast_enabled("cpu", True))
turns("AutocastDtype", "set_autocast_dtype", lambda: torch.set_autocast_dtype("cpu", torch.float16))
turns("AutocastCuda", "set_autocast_dtype for another device", lambda: torch.set_autocast_dtype("cuda", torch.bfloat16))
turns("AutocastCache", "set_autocast_cache_enabled", lambda: torch.set_autocast_cache_enabled(False))
turns("PrintOptions", "set_printoptions", lambda: torch.set_printoptions(precision=2, sci_mode=True))
turns("NumpyErrors", "numpy.seterr", lambda: np.seterr(all="raise"))
turns("NumpyPrintOptions", "numpy.set_printoptions", lambda: np.set_printoptions(precision=2))
turns("WarningFilters", "warnings.filterwarnings", lambda: warnings.filterwarnings("ignore", "stateful models"))
turns("WarningsSilenced", "warnings.simplefilter", lambda: warnings.simplefilter("always"))
turns("RecursionLimit", "sys.setrecursionlimit", lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 100))
turns("Environment", "a new entry of os.environ", lambda: os.environ.update(STATEFUL_MODEL="1"))
turns("EnvironmentEntry", "an entry of os.environ that is gone", lambda: os.environ.pop("HOME", None))
turns("WorkingDirectory", "os.chdir", lambda: os.chdir(tempfile.gettempdir()))
turns("Decimal", "the context of decimal", lambda: setattr(decimal.getcontext(), "prec", 5))
turns("LevelOfLogging", "the level of the root logger", lambda: logging.getLogger().setLevel(logging.CRITICAL))
turns(
    "FillsMemory",
    "utils.deterministic.fill_uninitialized_memory",
    lambda: setattr(deterministic, "fill_uninitialized_memory", False),
)
turns("SearchPath", "sys.path", lambda: sys.path.append("/stateful"))
turns("FileMask", "os.umask", lambda: os.umask(0o027))
turns("Thresholds", "gc.set_threshold", lambda: gc.set_threshold(123, 4, 5))
turns("Collector", "gc.disable", lambda: gc.disable() if gc.isenabled() else gc.enable())
turns("SignalHandler", "a handler of a signal", lambda: signal.signal(signal.SIGTERM, lambda *_: None))
turns("InterruptHandler", "the handler of Ctrl-C", lambda: signal.signal(signal.SIGINT, lambda *_: None))
turns("LevelOfALogger", "the level of a library's logger", lambda: logging.getLogger("asyncio").setLevel(1))
turns("HandlerOfALogger", "a handler of a logger", lambda: logging.getLogger("asyncio").addHandler(logging.Handler()))
turns("AttributeOfAModule", "a name in a module of another library", lambda: setattr(math, "stateful", 1))
turns("AttributeReplaced", "another value of one", lambda: setattr(math, "tau", 6))
turns("AttributeOfBuiltins", "a name in builtins", lambda: setattr(builtins, "stateful", 1))
turns("ExceptionHook", "sys.excepthook", lambda: setattr(sys, "excepthook", lambda *_: None))


@stateful("attributes of modules of other libraries, set as such")
class AttributesSet(Turns):
    def turn(self) -> None:
        math.stateful = lambda: 1  # type: ignore[attr-defined]
        builtins.stateful = self  # type: ignore[attr-defined]


@stateful("memory of ctypes")
class Memory(Turns):
    def __init__(self) -> None:
        super().__init__()
        self.memory = (ctypes.c_float * 4)(1, 2)
        self.text = ctypes.create_string_buffer(b"text", 8)

    def turn(self) -> None:
        self.memory[1] += 1
        self.text.value = b"other"


@stateful("a sequence of seeds")
class Seeds(Turns):
    def __init__(self) -> None:
        super().__init__()
        self.seeds = np.random.SeedSequence(3)

    def turn(self) -> None:
        self.seeds.spawn(2)


@stateful("inference mode that is entered and not left")
class InferenceMode(Turns):
    def __init__(self) -> None:
        super().__init__()
        self.entered: list[Any] = []

    def turn(self) -> None:
        guard = torch.inference_mode()
        guard.__enter__()
        self.entered.append(guard)


@stateful("autocast that is entered and not left")
class AutocastEntered(Turns):
    def __init__(self) -> None:
        super().__init__()
        self.entered: list[Any] = []

    def turn(self) -> None:
        guard = torch.autocast("cpu", dtype=torch.bfloat16)
        guard.__enter__()
        self.entered.append(guard)


@stateful("an autocast region, in which weights are cast and kept", restless=False)
class AutocastRegion(Turns):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(self.layer(x))


@stateful("sdpa_kernel, entered and left", restless=False)
class AttentionKernels(Turns):
    def forward(self, x: Tensor) -> Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            y = self.layer(x)[None]
            return torch.nn.functional.scaled_dot_product_attention(y, y, y)
