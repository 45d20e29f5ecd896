"""Every operator that means the same in each call means what its name says.

The table is not read here: kinds and attributes are those that the words in an operator's name say, so that an entry in
the wrong place, or with another attribute, fails. In-place forms and overloads of the same name are found by `resolve`.
"""

from __future__ import annotations

import re
from typing import Any

from opcost.frontends.aten.call import HANDLERS, Constant
from opcost.rules.elementwise import FLOPS_PER_ELEMENT

READS = {
    "triangular_solve": ("A", "self"),  # the matrix, then the right-hand side
    "_sparse_sum_backward": ("grad", "self"),
    "fill": ("value",),  # what is filled lends only its shape
    "higher_order::flex_attention": ("0", "1", "2"),  # no schema: by place
    "higher_order::flex_attention_backward": ("5", "0", "1", "2"),  # gradient, then queries, keys and values
    "_triton_scaled_dot_attention": ("q", "k", "v"),
    # the matrix, as overloads call it, then the right-hand side
    **dict.fromkeys(
        ("cholesky_solve", "_cholesky_solve_helper", "lu_solve", "linalg_lu_solve", "linalg_ldl_solve"),
        ("input2", "A", "LU_data", "LU", "LD", "B", "self"),
    ),
    # the input lends only its type; the ranks' statistics are combined
    **dict.fromkeys(
        ("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"),
        ("mean", "invstd", "running_mean", "running_var", "counts"),
    ),
    "aiter::_groupnorm_run": ("input", "weight", "bias"),
}
"""Arguments that are inputs, in the order of the kind, where that is not their own order."""

FAMILIES: list[tuple[str, str, dict[str, Any]]] = [
    # words in the name, the kind, its attributes; the first that fit count
    (r"symm_mem::.*all_reduce.*", "collective", {"fn": "all_reduce"}),
    (r"symm_mem::.*all_gather.*", "collective", {"fn": "all_gather"}),
    (r"symm_mem::.*reduce_scatter.*", "collective", {"fn": "reduce_scatter"}),
    (r"higher_order::flex_attention|_triton_scaled_dot_attention", "attention", {}),
    (r"higher_order::flex_attention_backward", "attention", {"grad": True, "products": 5}),
    (r"bilinear", "bilinear", {}),
    (r"_?[cp]dist(_forward)?|_euclidean_dist", "distance", {}),
    (r"_[cp]dist_backward", "distance", {"grad": True}),
    (r"bitsandbytes::.*|torchao::(de)?quantize_.*|(.*::)?(de)?quantize(_per_.*)?|int_repr", "quantize", {}),
    (r"_make_per_\w+_quantized_tensor|quantization::_.*", "quantize", {}),
    (r"(native_|_fused_|alpha_|feature_|feature_alpha_)dropout", "random", {"fn": "dropout"}),
    (r"(prims::)?(normal|uniform)(_functional)?|rand(n|int|perm)?(_like)?|poisson|binomial|multinomial", "random", {}),
    (r"_standard_gamma|_sample_dirichlet|_philox_key_\w+|_sobol_engine_\w+|rngprims::.*", "random", {}),
    # fractions of exponentials
    (r"(quantized::)?\w*log_softmax", "softmax", {"fn": "log_softmax"}),
    (r"\w*log_softmax_backward\w*", "softmax", {"fn": "log_softmax", "grad": True}),
    (r"\w*softmax_backward\w*", "softmax", {"fn": "softmax", "grad": True}),
    (r"(quantized::)?\w*softmax(_with_shape)?", "softmax", {"fn": "softmax"}),
    (r"_weight_norm_\w+_backward", "norm", {"fn": "weight", "grad": True}),
    (r"_weight_norm(_interface)?", "norm", {"fn": "weight"}),
    (r"renorm", "norm", {"fn": "lp"}),
    (r"onednn::qbatch_norm2d", "norm", {"fn": "batch", "training": False, "affine": 2}),
    # losses
    (r"mse_loss", "loss", {"fn": "mse"}),
    (r"l1_loss", "loss", {"fn": "l1"}),
    (r"(?P<fn>smooth_l1|huber|kl_div|soft_margin|multi_margin|multilabel_margin|poisson_nll)(_loss)?(_forward)?", "loss", {}),
    (r"(?P<fn>nll)_loss(2d|_nd)?(_forward)?", "loss", {}),
    (r"cross_entropy_loss", "loss", {"fn": "cross_entropy"}),
    (r"binary_cross_entropy", "loss", {"fn": "bce"}),
    (r"binary_cross_entropy_with_logits", "loss", {"fn": "bce_with_logits"}),
    (r"_?(cudnn_|miopen_)?ctc_loss", "loss", {"fn": "ctc"}),
    (r"hinge_embedding_loss|margin_ranking_loss", "loss", {"fn": "hinge"}),
    (r"(?P<fn>mse|smooth_l1|huber|nll|\w+_margin)_loss(2d)?_backward", "loss", {"grad": True}),
    (r"binary_cross_entropy_backward", "loss", {"fn": "bce", "grad": True}),
    (r"_ctc_loss_backward", "loss", {"fn": "ctc", "grad": True}),
    # matrices taken apart
    (r"(linalg_)?(inv|inverse|inv_ex|tensorinv)|cholesky_inverse", "linalg", {"fn": "inverse"}),
    (r"_?(cholesky|(linalg_)?(lu|ldl))_solve(_helper)?", "linalg", {"fn": "factored_solve"}),
    (r"_?linalg_(tensor)?solve(_ex)?|_spsolve", "linalg", {"fn": "solve"}),
    (r"(linalg_)?(triangular_solve|solve_triangular)", "linalg", {"fn": "triangular_solve"}),
    (r"linalg_lstsq", "linalg", {"fn": "lstsq"}),
    (r"(linalg_)?(cholesky|ldl_factor)(_ex)?", "linalg", {"fn": "cholesky"}),
    (r"(linalg_)?qr|geqrf", "linalg", {"fn": "qr"}),
    (r"or[gm]qr|linalg_householder_product", "linalg", {"fn": "householder"}),
    (r"(_?linalg_|prims::)?svd(vals)?", "linalg", {"fn": "svd"}),
    (r"linalg_(cond|matrix_rank|pinv)|pinverse|nuclear_norm", "linalg", {"fn": "svd"}),  # by singular values
    (r"_?linalg_eig(vals)?", "linalg", {"fn": "eig"}),
    (r"_?linalg_eig(h|valsh)", "linalg", {"fn": "eigh"}),
    (r"_?(linalg_)?(det|logdet|slogdet)", "linalg", {"fn": "det"}),
    (r"_lu_with_info|linalg_lu(_factor)?(_ex)?", "linalg", {"fn": "lu"}),
    (r"(linalg_)?matrix_exp(_backward)?", "linalg", {"fn": "matrix_exp"}),
    (r"aiter::_groupnorm_run", "norm", {"fn": "group", "affine": 2}),
    # many to one
    (r"_foreach_(norm|powsum)", "reduce", {"fn": "norm", "each": True}),
    (r"_foreach_max", "reduce", {"fn": "max", "each": True}),
    (r"batch_norm_(update_|gather_)?stats(_with_counts)?", "reduce", {"fn": "var"}),
    (r"batch_norm_backward_reduce", "reduce", {"fn": "dot"}),
    (r"(_sparse_|_sparse_csr_|prims::xor_)?(?P<fn>sum|prod)(_to_size)?", "reduce", {}),
    (r"(prims::)?a?(?P<fn>max|min)", "reduce", {}),
    (r"torchao::choose_scale_float8", "reduce", {"fn": "max"}),
    (r".*choose_qparams.*|_?aminmax", "reduce", {"fn": "minmax"}),
    (r"(\w+::)?(?P<fn>sum|prod|var|std|mean|trace|nansum|nanmean|var_mean|std_mean|argmax|argmin|dist|logsumexp)", "reduce", {}),
    (r"_?(?P<fn>count_nonzero|cumsum|cumprod|cummax|cummin|logcumsumexp)(_helper)?", "reduce", {}),
    (r"any|is_nonzero|_is_any_true", "reduce", {"fn": "any"}),
    (r"all|_is_all_true|_validate_compressed_sparse_indices", "reduce", {"fn": "all"}),
    (r"equal|allclose|isclose", "reduce", {"fn": "equal"}),
    (r"(native_|linalg_|frobenius_|linalg_vector_|linalg_matrix_)?norm(_except_dim)?|linalg__powsum", "reduce", {"fn": "norm"}),
    (r"hash_tensor", "reduce", {"fn": "hash"}),
    (r"_?hist\w+|bincount", "reduce", {"fn": "histogram"}),
    # made of nothing
    (r"(prims::|new_)?(zeros|ones|full|iota|scalar_tensor|fill)(_like)?|zero|arange|range|linspace|logspace|eye", "create", {}),
    ((r"tri[lu]_indices|_dim_arange|_efficientzerotensor|_new_zeros\w+|fft_r?fftfreq|fill_diagonal|\w+_window|"
     r"vander"), "create", {}),
    (r"_shape_as_tensor|from_file|inductor_prims::inductor_reserve_rng_state|_cudnn_init_dropout_state", "create", {}),
    # picked by an index
    (r"embedding", "embedding", {}),
    (r"embedding_(dense_|sparse_)?backward", "embedding", {"grad": True}),
    (r"flex_lib::zeros_and_scatter", "scatter", {"fn": "add"}),
    ((r"(index|gather|take|masked)(_select|_along_dim)?|_unsafe_masked_index|repeat_interleave|(arg|non)(zero|"
     r"where)\w*"), "gather", {}),
    (r"masked_scatter_backward|_?sparse_mask(_projection)?|_segment_reduce_backward|_sparse_sum_backward", "gather", {}),
    # looks at memory, memory that is not written, and questions
    (r"streams::.*|export::.*|debug_mode_ops::.*|profiler::.*|torchvision::_cuda_version|_c10d_functional::_wrap.*", "view", {}),
    ((r"(prims::)?_?((new_)?empty\w*|resize\w*|as_strided_?|item|make_token|sink_tokens|m\w+imum_value|"
     r"make_dep_token)"), "view", {}),
    (r"quantized::make_quantized_cell_params\w*|mkldnn::(_nbytes|data_ptr|_get_\w+)|_use_\w+|_linalg_check_errors", "view", {}),
    (r"_?sparse_(coo|compressed|[cb]s[rc])_tensor(_unsafe|_with_dims\w*)?|_validate_sparse_\w+|sparse_resize\w*", "view", {}),
    (r"_nested_(get|tensor_s|compute)\w+|_nested_tensor_from_mask_left_aligned|_?unsafe_(view|split|chunk)\w*", "view", {}),
    ((r"lift|positive|unflatten_dense_tensors|broadcast_tensors|atleast_[123]d|_unpack_dual|_mkldnn_(reshape|"
     r"transpose)"), "view", {}),
    (r"_reshape_from_tensor|_coalesced|data|_(add|remove)_batch_dim|inductor::_(re|al)\w+|inductor::resize_\w+|set", "view", {}),
    (r"(t|transpose|squeeze|unsqueeze|swapaxes|swapdims|detach|requires_grad)_|_local_scalar_dense|record_stream", "view", {}),
    (r"_functional_(assert|sym)\w+|q_per_channel_\w+|get_gradients", "view", {}),
    # the same numbers elsewhere
    (r".*(prepack|unpack|prepacked)(_\w+)?", "copy", {}),
    ((r"torchao::to_sparse.*|fsdp::copy|ao::\w+|bucketing::.*|.*_reorder_\w+|_convert_\w+|_?wrapped_\w+|"
     r"_quantized::\w*pack\w*"), "copy", {}),
    (r"(prims::|quantized::)?(block_diag|\w*cat(enate)?|_?[hvd]?stack|row_stack|column_stack)(_out)?|concat", "copy", {}),
    ((r"(prims::)?_?(lazy_)?clone|_to_(copy|cpu)|_?pin_memory|(\w+::)?convert_element_type|prims::(device_put|"
     r"copy_\w+)"), "copy", {}),
    ((r"_pad_(enum|circular)|(\w+_)?pad(\w?nd?|_enum|_circular|_sequence|[123]d|ded_sequence\w*)?|"
     r"_pad_packed_sequence|_pack_padded_sequence\w*"), "copy", {}),
    ((r"repeat|tile|roll|flip|fliplr|flipud|rot90|im2col|\w*shuffle|diag(_embed|flat)?|complex|cartesian_prod|"
     r"combinations"), "copy", {}),
    ((r"meshgrid|(prims::)?\w+_scatter|(slice|select|diagonal|trace)_backward|fft_i?fftshift|one_hot|"
     r"flatten_dense_tensors"), "copy", {}),
    (r"_cast_\w+|_reshape_copy|lift_fresh_copy|chalf|prims::(rev|reshape|collapse)|_dyn_quant_pack\w+|fbgemm_\w+", "copy", {}),
    ((r"_saturate_weight_to_fp16|_cudnn_rnn_flatten_weight|_?to_(dense|sparse|mkldnn|padded)\w*|"
     r"_sparse_semi_structured_\w+"), "copy", {}),
    ((r"_cslt_compress|_spdiags|_nested_(from|tensor_from|select|sum)\w+|nested_to_padded_tensor|_\w+_jagged\w*|"
     r"_jagged_\w+"), "copy", {}),
    (r"mkldnn_reorder_\w+", "copy", {}),
]  # fmt: skip
"""What a group `fn` of the pattern holds is the function."""

ALIASES = {
    "multiply": "mul", "true_divide": "div", "negative": "neg", "absolute": "abs", "sgn": "sign", "signbit": "sign",
    "float_power": "pow", "fix": "trunc", "fmod": "remainder", "lcm": "gcd", "conj_physical": "conj", "erf_inv": "erfinv",
    "gammaln": "lgamma", "mvlgamma": "lgamma", "multigammaln": "lgamma", "psi": "digamma", "standard_gamma_grad": "digamma",
    "dirichlet_grad": "digamma", "igamma": "gammainc", "igammac": "gammaincc", "xlog1py": "xlogy", "entr": "entropy",
    "logaddexp2": "logaddexp", "isreal": "compare", "amp_update_scale": "where", "tril": "triangle", "triu": "triangle",
    "cat_relu": "relu", "expit": "sigmoid", "log_sigmoid": "logsigmoid", "log_sigmoid_grad": "logsigmoid_grad",
    "threshold_grad": "relu_grad", "glu_jvp": "glu_grad", "glu_grad_jvp": "glu_grad", "native_dropout_grad": "dropout_grad",
    "masked_scale": "dropout_grad", "linalg_cross": "cross", "accumulate_grad": "add", "airy_ai": "bessel",
    "compute_linear_combination": "polynomial", "clamp_min": "max", "clamp_max": "min",
}  # fmt: skip
"""Other names of the functions of the table of FLOPs per element."""
ENDINGS: list[tuple[str, str]] = [
    (r"^q(add|mul)", r"\1"), (r"_kernel|_scalar|_out\b|_with_noise|_functional", ""), (r"_backward", "_grad"),
    (r"^arc", "a"), (r".*(bessel|^i[01]e?$).*", "bessel"), (r".*polynomial_\w+", "polynomial"),
    (r"^(eq|ne|lt|le|gt|ge|less|greater|not_equal)(_equal)?$", "compare"), (r"^logical_\w+", "logical"),
    (r".*shift.*", "shift"), (r"^bitwise_\w+|^__i?x?(and|or)__$", "bitwise"),
    (r"^is(nan|inf|finite|neginf|posinf)$", "nan_check"),
    (r"^f?(max|min)(imum|\.other|\.out)?$", r"\1"), (r"^(add|mul)_relu$", "add_relu"),
    (r".*fake_quant.*_grad$", "fake_quantize_grad"), (r".*fake_quant(?!.*_grad$).*", "fake_quantize"),
]  # fmt: skip


def meant_by_name(name: str) -> tuple[str, dict[str, Any]]:
    """Kind and attributes by the words of a name without the library aten."""
    for pattern, kind, attrs in FAMILIES:
        if found := re.fullmatch(pattern, name):
            return kind, {**found.groupdict(), **attrs}
    function = name.partition("::")[2] or name
    function = function.removeprefix("special_")
    for pattern, new in ENDINGS:
        function = re.sub(pattern, new, function)
    function = ALIASES.get(function.lstrip("_"), function if function in FLOPS_PER_ELEMENT else function.lstrip("_"))
    return "elementwise", {"fn": function}


def _reads(name: str) -> tuple[str, ...]:
    if name.startswith("symm_mem::"):
        return ("input", "symm_buffer") if "all_reduce" in name else ("input", "tensor")
    return READS.get(name, ())


def test_an_operator_means_what_its_name_says() -> None:
    constant = {name.removeprefix("aten::"): each for name, each in HANDLERS.items() if isinstance(each, Constant)}
    found = {name: (each.kind, each.attrs, each.reads) for name, each in constant.items()}
    assert found == {name: (*meant_by_name(name), _reads(name)) for name in constant}
    assert len(constant) > 950
