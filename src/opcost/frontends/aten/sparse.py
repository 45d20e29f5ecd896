"""Sparse and nested layouts: conversions and bookkeeping. Their arithmetic stands with the dense operators."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, always, on

always(
    "copy",
    (
        "_to_dense", "to_dense", "to_dense_backward", "_to_sparse", "_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc",
        "_to_sparse_csr", "to_sparse", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_csc", "to_sparse_csr",
        "_to_sparse_semi_structured", "_sparse_semi_structured_apply", "_sparse_semi_structured_apply_dense",
        "_sparse_semi_structured_tile", "_cslt_compress", "to_mkldnn", "to_mkldnn_backward", "_spdiags",
        "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo",
        "_nested_from_padded", "_nested_from_padded_and_nested_example", "_nested_from_padded_tensor",
        "_nested_tensor_from_mask", "_nested_tensor_from_tensor_list", "_nested_select_backward", "_nested_sum_backward",
        "nested_to_padded_tensor", "to_padded_tensor", "_jagged_to_padded_dense_forward",
        "_padded_dense_to_jagged_forward", "mkldnn_reorder_conv2d_weight", "mkldnn_reorder_conv3d_weight",
    ),
)  # fmt: skip

always(
    "view",
    (
        "sparse_coo_tensor", "sparse_compressed_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor",
        "sparse_bsc_tensor", "_sparse_coo_tensor_unsafe", "_sparse_compressed_tensor_unsafe",
        "_sparse_csr_tensor_unsafe", "_sparse_csc_tensor_unsafe", "_sparse_bsr_tensor_unsafe",
        "_sparse_bsc_tensor_unsafe", "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors",
        "_sparse_compressed_tensor_with_dims", "_validate_sparse_bsc_tensor_args", "_validate_sparse_bsr_tensor_args",
        "_validate_sparse_compressed_tensor_args", "_validate_sparse_coo_tensor_args",
        "_validate_sparse_csc_tensor_args", "_validate_sparse_csr_tensor_args",
        "_nested_get_jagged_dummy", "_nested_get_lengths", "_nested_get_max_seqlen", "_nested_get_min_seqlen",
        "_nested_get_offsets", "_nested_get_ragged_idx", "_nested_tensor_size", "_nested_tensor_storage_offsets",
        "_nested_tensor_strides", "_nested_compute_contiguous_strides_offsets", "_nested_tensor_from_mask_left_aligned",
    ),
)  # fmt: skip


@on("_coalesce", "coalesce")
def _coalesce(call: Call) -> Translation:
    """The indices are sorted, and values at equal places added."""
    return Translation("sort", {"length": max(call["self"]._nnz(), 1)})


@on("_sparse_sum_backward")
def _sparse_sum_backward(call: Call) -> Translation:
    return Translation("gather", {}, call.tensors("grad", "self"))
