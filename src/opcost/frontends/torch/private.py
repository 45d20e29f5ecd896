"""The private names of PyTorch that the recorder uses, all in one place. Checked with PyTorch 2.13.

What another version lacks shows here first; names that only some versions have come with what is used instead.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL, c_int
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack as no_transforms
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode
from torch.utils._python_dispatch import _disable_current_modes as no_modes
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes
from torch.utils.checkpoint import _allowed_determinism_checks_to_fns as checkpoint_checks
from torch.utils.checkpoint import _StopRecomputationError as StopRecomputation

__all__ = [
    "FakeTensor", "OpOverload", "StopRecomputation", "checkpoint_checks", "dispatch_modes", "no_modes", "no_transforms",
    "pop_mode", "push_mode", "pytree",
]  # fmt: skip

_C: Any = torch._C
pop_mode, push_mode = _pop_mode, _push_mode


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that does not wrap every call, with which the first operator would import torch._dynamo, for seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


# -- settings of the process
device_context: Any = torch._GLOBAL_DEVICE_CONTEXT
print_options: Any = torch._tensor_str.PRINT_OPTS
InferenceMode: Any = _C._InferenceMode
set_grad_enabled: Callable[[bool], None] = _C._set_grad_enabled
BACKEND_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...] = tuple(
    (getattr(_C, f"_get_{name}"), getattr(_C, f"_set_{name}"))
    for name in ("cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "mkldnn_enabled", "mkldnn_deterministic")
)

# -- tensors
make_wrapper: Callable[..., torch.Tensor] = torch.Tensor._make_wrapper_subclass
make_subclass: Callable[..., torch.Tensor] = torch.Tensor._make_subclass
empty_quantized: Callable[..., torch.Tensor] = torch._empty_affine_quantized
refuse_access: Callable[[torch.Tensor], None] = _C._set_throw_on_mutable_data_ptr
"""Makes compiled code raise where it asks for the address of memory, instead of reading what was never written."""
use_count: Callable[[Any], int] = getattr(torch.Tensor, "_use_count", lambda _: 0)

# -- functions of tensors, before the dispatcher
plain_function: Any = _C._disabled_torch_function_impl
NoFunctionSubclass: Any = _C.DisableTorchFunctionSubclass
function_modes: Callable[[], int] = _C._len_torch_function_stack
functions: Any = _C._VariableFunctions
nn_functions: Any = _C._nn
variable_functions: Any = torch._VF

# -- the dispatcher
NoDispatch: Any = _C._DisableTorchDispatch
mode_count: Callable[[], int] = _C._len_torch_dispatch_stack
has_kernel: Callable[[str, str], bool] = _C._dispatch_has_kernel_for_dispatch_key
DispatchKey, DispatchKeySet = _C.DispatchKey, _C.DispatchKeySet
ExcludeKeys, IncludeKey = _C._ExcludeDispatchKeyGuard, _C._IncludeDispatchKeyGuard
any_autocast: Callable[[], bool] = getattr(_C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
transform_level: Callable[[], int | None] = _C._functorch.maybe_current_level
interpreter_stack: Callable[[], Any] = _C._functorch.peek_interpreter_stack
is_transformed: Callable[[Any], bool] = _C._functorch.is_functorch_wrapped_tensor
ATTENTION_KERNELS: tuple[Callable[[], bool], ...] = (
    _C._get_flash_sdp_enabled, _C._get_mem_efficient_sdp_enabled, _C._get_math_sdp_enabled, _C._get_cudnn_sdp_enabled,
)  # fmt: skip
"""Which kernels of attention are switched on."""

# -- autograd
autograd_node: Callable[[], Any] = _C._current_autograd_node
sequence_number: Callable[[], int] = _C._autograd._get_sequence_nr
set_version: Callable[..., None] = _C._autograd._unsafe_set_version_counter
run_backward: Callable[..., Any] = torch.autograd.graph._engine_run_backward

# -- the profiler
profiler_runs: Callable[[], bool] = torch.autograd._profiler_enabled
Annotation: Callable[[str], Any] = _C._profiler._RecordFunctionFast  # quicker than `torch.profiler.record_function`
_SILENT = 6  # above all levels of Kineto: its lines "profiler_start" and "profiler_stop" are of the highest, 5


@contextmanager
def quiet_profiler() -> Iterator[None]:
    """Kineto, PyTorch's profiler, writes nothing to stderr; it must have been prepared, which sets its level."""
    try:
        level = c_int.in_dll(CDLL(_C.__file__), "_ZN9libkineto6Logger14severityLevel_E")
    except (OSError, ValueError):  # built without Kineto, or with its names hidden
        yield
        return
    before, level.value = level.value, _SILENT
    try:
        yield
    finally:
        level.value = before


# -- scripted code
tracing_state: Callable[[], Any] = _C._get_tracing_state
set_tracing_state: Callable[[Any], None] = _C._set_tracing_state
function_of_graph: Callable[[str, Any], Any] = _C._create_function_from_graph
list_of_tensors: Callable[[], Any] = _C.ListType.ofTensors


def own_operators(**arguments: str) -> tuple[Any, ...]:
    """Operators of opcost's own that do nothing, by name, as long as the process is there; and their library."""
    library = torch.library.Library("opcost", "FRAGMENT")
    for name, given in arguments.items():
        library.define(f"{name}({given}) -> ()")
        library.impl(name, lambda *_: None, "CompositeExplicitAutograd")
    return *[getattr(torch.ops.opcost, name).default for name in arguments], library


def fully_sharded_groups(model: torch.nn.Module) -> Iterator[Any]:
    """The groups of parameters that a model gathers together, of which each knows its shards."""
    for module in model.modules():
        if (state := getattr(module, "_get_fsdp_state", None)) is not None:
            yield from state()._fsdp_param_groups


def flat_handles(model: torch.nn.Module) -> Iterator[tuple[Any, Any]]:
    """The modules in FullyShardedDataParallel, and what handles the flat parameter of each; None where there is none."""
    known: Any = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    for module in model.modules() if known is not None else ():
        if isinstance(module, known.FullyShardedDataParallel):
            yield module, module._handle


def first_bucket_bytes() -> int:
    """How many bytes the first bucket of DistributedDataParallel has, after which it is sent."""
    return int(torch.distributed._DEFAULT_FIRST_BUCKET_BYTES)


def distributed() -> Any:
    """Process groups and the work that they return; only where PyTorch was built with them."""
    from torch._C import _distributed_c10d

    return _distributed_c10d


def fake_store() -> Any:
    """What ranks of a fake process group, which sends nothing, meet at; importing it makes the backend known."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    return FakeStore()


def fake_mode() -> Any:
    """Inside, tensors are made on a device without taking memory there."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def group_names(mesh: Any) -> list[str]:
    """The names of the process groups along the dimensions of a `DeviceMesh`."""
    return getattr(mesh, "_dim_group_names", [])


def fully_sharded_parameters() -> Any:
    """Where `fully_shard` divides parameters."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    return _fsdp_param


@contextmanager
def forgotten_meshes() -> Iterator[None]:
    """Inside, distributed tensors remember nothing of meshes before, and afterwards nothing of those inside.

    To what they remember a mesh of equal ranks in another process group is the same.
    """
    _forget_meshes()
    try:
        yield
    finally:
        _forget_meshes()


def _forget_meshes() -> None:
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import _redistribute, debug

        debug._clear_sharding_prop_cache()
        _redistribute.clear_redistribute_planner_cache()
        _redistribute._gen_transform_infos.cache_clear()


@contextmanager
def loss_in_parts() -> Iterator[None]:
    """Inside, cross entropy of logits in parts of the vocabulary is computed on the parts; `loss_parallel` ends on no error."""
    from torch.distributed.tensor.parallel import loss

    loss._enable_custom_loss_ops()
    try:
        yield
    finally:
        loss._disable_custom_loss_ops()


def context_parallelism() -> Any:
    """PyTorch's attention of queries with keys and values of other ranks, and how it exchanges these."""
    from torch.distributed.tensor.experimental._context_parallel import _attention

    return _attention


def pipelining_schedules() -> Any:
    """PyTorch's schedules of pipelines."""
    from torch.distributed.pipelining import schedules

    return schedules


def pipelining_backward() -> Any:
    """How the stages of a pipeline run backward."""
    from torch.distributed.pipelining import _backward

    return _backward
