"""Communication between ranks: functional collectives, and those of `torch.distributed` on process groups."""

from __future__ import annotations

from typing import Any

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on

_FUNCTIONS = {
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "reduce": "all_reduce",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "_allgather": "all_gather",
    "gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "shard_dim_alltoall": "all_to_all",
    "scatter": "broadcast",
    "broadcast": "broadcast",
    "send": "send",
    "isend": "send",
    "batch_p2p": "send",
    "recv": "recv",
    "irecv": "recv",
    "wait": "wait",
    "barrier": "wait",
    "monitored_barrier": "wait",
    "check_for_nan": "wait",
}
"""Our word for the longest of these that an operator's name begins with."""


def _fn(base: str) -> str:
    return _FUNCTIONS[max((start for start in _FUNCTIONS if base.startswith(start)), key=len)]


@on(
    *(
        f"_c10d_functional::{name}"
        for name in (
            "all_reduce", "all_reduce_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
            "all_gather_into_tensor_out", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced",
            "reduce_scatter_tensor_out", "all_to_all_single", "broadcast", "isend", "irecv", "wait_tensor",
            "batch_p2p_ops",
        )
    ),
    *(
        f"_c10d_functional_autograd::{name}"
        for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
    ),
    *(
        f"c10d_functional::{name}"
        for name in (
            "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast", "wait_tensor",
        )
    ),
    "_dtensor::shard_dim_alltoall",
)  # fmt: skip
def _functional(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"fn": _fn(call.base)}
    size = call.get("group_size")
    if isinstance(size, int):
        attrs["group"] = size
    return Translation("collective", attrs)


@on(
    *(
        f"c10d::{name}"
        for name in (
            "_allgather_base", "_reduce_scatter_base", "allgather", "allgather_coalesced",
            "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base",
            "barrier", "broadcast", "check_for_nan", "gather", "monitored_barrier", "recv", "recv_any_source", "reduce",
            "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send",
        )
    ),
)  # fmt: skip
def _process_group(call: Call) -> Translation:
    """Outputs are handed in as the first argument, except where one tensor is both."""
    attrs: dict[str, Attr] = {"fn": _fn(call.base)}
    size = _group_size(call.args.get("process_group"))
    if size:
        attrs["group"] = size
    inputs = call.tensors("input_tensor", "input_tensors", "input_list", "inputs", "input")
    outputs = call.tensors("output_tensor", "output_tensors", "output_lists", "outputs", "output")
    both = call.tensors("tensors", "tensor")
    return Translation("collective", attrs, inputs or both, outputs or both)


def _group_size(group: Any) -> int:
    """The number of ranks of a process group, which arrives as an opaque object."""
    size = getattr(group, "size", None)
    try:
        found = size() if callable(size) else 0
    except (RuntimeError, TypeError):
        return 0
    return found if isinstance(found, int) else 0
