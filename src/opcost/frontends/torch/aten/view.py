"""Operators that only look at memory or metadata, where the schema does not say so.

Views proper are found by their schema. Here stand those that torch declares as if they made something new, memory that is
handed out but not written (`empty`; what fills it counts), and questions about a tensor. `set_` and `resize_` change which
memory a tensor looks at, not what lies in it.
"""

from __future__ import annotations

from opcost.frontends.torch.aten.call import always

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
        # questions and orders
        "_local_scalar_dense", "item", "size", "stride", "numel", "dim", "storage_offset", "get_device", "is_same_size",
        "is_set_to", "is_pinned", "is_coalesced", "is_contiguous", "is_complex", "is_conj", "is_floating_point",
        "is_inference", "is_leaf", "is_neg", "is_signed", "is_distributed", "_is_zerotensor", "_version", "output_nr",
        "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "sym_is_contiguous", "result_type", "can_cast",
        "promote_types", "record_stream", "retain_grad", "retains_grad", "requires_grad_", "_backward",
        "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_functional_assert_async",
        "_functional_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size",
        "_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size", "_make_dep_token", "_print",
        "_debug_has_internal_overlap", "_has_compatible_shallow_copy_type", "_has_same_storage_numel", "_nnz", "_dimI",
        "_dimV", "dense_dim", "sparse_dim", "q_scale", "q_zero_point", "q_per_channel_axis", "q_per_channel_scales",
        "q_per_channel_zero_points", "qscheme", "cudnn_is_acceptable", "_nnpack_available", "is_vulkan_available",
        "_fused_sdp_choice", "_cslt_sparse_mm_search", "_propagate_xla_data", "_cufft_clear_plan_cache",
        "_cufft_get_plan_cache_max_size", "_cufft_get_plan_cache_size", "_cufft_set_plan_cache_max_size",
        "profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit",
        "debug_mode_ops::annotate",
    ),
)  # fmt: skip
