"""Operators that only look at memory or metadata, where the schema does not say so.

Views proper are found by their schema. Here stand those that torch declares as if they made something new, memory that is
handed out but not written (`empty`; what fills it counts), and orders that leave data alone. `set_` and `resize_` change
which memory a tensor looks at, not what lies in it.
"""

from __future__ import annotations

from opcost.frontends.aten.call import always

always(
    "view",
    (
        # results that share memory without saying so
        "_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "lift", "positive",
        "unflatten_dense_tensors", "broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "_unpack_dual",
        "_mkldnn_reshape", "_mkldnn_transpose", "_reshape_from_tensor", "_coalesced", "data", "_add_batch_dim",
        "_remove_batch_dim", "export::access_subclass_inner_tensor", "inductor::_reinterpret_tensor",
        "inductor::_alloc_from_pool",
        # in-place changes of what a tensor looks at
        "set", "resize", "resize_as", "_resize_output", "resize_as_sparse", "sparse_resize", "sparse_resize_and_clear",
        "as_strided_", "t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "detach_",
        "inductor::resize_storage_bytes",
        # memory that is not written
        "empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized", "new_empty", "new_empty_strided",
        "_empty_affine_quantized", "_empty_per_channel_affine_quantized",
        # questions that are answered with a tensor, and orders that leave data alone
        "_local_scalar_dense", "record_stream", "requires_grad_", "_functional_assert_async", "_functional_assert_scalar",
        "_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size", "_make_dep_token",
        "q_per_channel_scales", "q_per_channel_zero_points", "get_gradients", "debug_mode_ops::annotate",
        "profiler::_record_function_enter",
    ),
)  # fmt: skip
