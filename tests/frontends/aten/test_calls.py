"""What single calls of PyTorch's own operators mean."""

from __future__ import annotations

import pytest
from aten_rows import P, Q, R, Row, S, T, check, sparse, translated, x

from opcost.frontends.aten.tensor import Described

STARTS = x(P + 1, dtype="int32")
HEADS = {"query": x(P, Q, R, S), "key": x(P, T, R, S), "value": x(P, T, R, S)}
GATED = {
    "input": x(P, Q, R),
    "hx": [x(2, Q, S), x(2, Q, T)],
    "num_layers": 1,
    "bidirectional": True,
    "has_biases": True,
}

ROWS = [
    # products in lists: P·Q·R for the first, S·Q·T for the second
    Row("_native::_foreach_mm_native_0", {"a": [x(P, Q), x(S, T)], "b": [x(Q, R), x(T, 2)]}, (x(P, R), x(S, 2)),
        "matmul", {"depth": Q, "macs": P * Q * R + S * T * 2}),
    *(Row(f"{library}linear_backward", {"self": x(P, Q), "grad_output": x(P, R), "weight": x(R, Q), "output_mask": mask}, (),
          "matmul", {"depth": R, "macs": (mask[0] + mask[1]) * P * R * Q}, "grad_output weight self")
      for library in ("", "mkldnn_") for mask in ([True, True, False], [True, False, True])),
    # stored values, each of which meets the columns or the rows of the other side; a vector has one
    *(Row("addmm", {"self": x(P, R), "mat1": a, "mat2": b}, (x(P, R),), kind, attrs, ins) for a, b, kind, attrs, ins in (
        (sparse(T, P, Q), x(Q, R), "matmul", {"depth": Q, "bias": True, "macs": T * R}, "mat1 mat2 self"),
        (x(P, Q), sparse(T, Q, R), "matmul", {"depth": Q, "bias": True, "macs": T * P}, "mat1 mat2 self"),
        (sparse(T, P, Q), sparse(T, Q, R), "unknown", {}, "*"))),
    *(Row("mm", {"self": a, "mat2": b}, (), "matmul", {"depth": Q, "macs": macs}, "self mat2")
      for a, b, macs in ((sparse(T, P, Q, layout="sparse_csr"), x(Q, R), T * R), (x(P, Q), sparse(T, Q, R), T * P))),
    Row("mv", {"self": sparse(T, P, Q), "vec": x(Q)}, (), "matmul", {"depth": Q, "macs": T}, "self vec"),
    Row("dot", {"self": x(Q), "tensor": sparse(T, Q)}, (), "matmul", {"depth": Q, "macs": T}, "self tensor"),
    Row("_sparse_mm", {"sparse": sparse(T, P, Q), "dense": x(Q, R)}, (), "matmul", {"depth": Q, "macs": T * R}, "sparse dense"),
    Row("hspmm", {"mat1": sparse(T, P, Q), "mat2": x(Q, R)}, (), "matmul", {"depth": Q, "macs": T * R}, "mat1 mat2"),
    Row("_sparse_mm_reduce_impl", {"self": sparse(T, P, Q), "other": x(Q, R)}, (), "matmul", {"depth": Q, "macs": T * R},
        "self other"),
    Row("_sparse_mm_reduce_impl_backward", {"self": sparse(T, P, Q), "grad_out": x(P, R), "weight": x(Q, R),
        "output_mask": [True, True]}, (),
        "matmul", {"depth": R, "macs": 2 * T * R}, "grad_out weight"),
    Row("sparse_sampled_addmm", {"self": sparse(T, P, R), "mat1": x(P, Q), "mat2": x(Q, R)}, (), "matmul",
        {"depth": Q, "bias": True, "macs": T * Q}, "mat1 mat2 self"),
    Row("linalg_vecdot", {"x": x(P, Q), "y": x(P, Q), "dim": 0}, (x(Q),), "matmul", {"depth": P}, "x y"),
    Row("mkldnn_linear_backward_weights", {"grad_output": x(P, Q, R), "input": x(P, Q, S)}, (x(R, S), x(R)),
        "matmul", {"depth": P * Q}, "grad_output input"),
    *(Row("matmul_backward", {"grad": x(P, R), "self": x(P, Q), "other": x(Q, R), "mask": mask}, (x(P, Q), x(Q, R)),
          "matmul", {"depth": R, "macs": sum(mask) * P * R * Q}, "grad self other")
      for mask in ([True, True], [False, True])),
    Row("_mixed_dtypes_linear", {"input": x(P, Q), "weight": x(Q, R), "scale": x(R), "bias": x(R), "activation": "silu"},
        (x(P, R),), "matmul", {"depth": Q, "bias": True, "then": ("silu",)}, "input weight bias"),
    *(Row("semi_structured::cutlass_mm", {"dense": dense, "packed": x(S, 5), "bias": None, "meta": x(S, 2),
        "should_transpose_dense": turn},
          (x(R, S),), "matmul", {"depth": 5}, "dense packed meta")
      for dense, turn in ((x(10, R), False), (x(R, 10), True))),  # ten elements, of which two of four are there
    Row("_sparse_semi_structured_linear", {"input": x(P, 10), "weight": x(R, 5), "meta": x(R), "bias": None, "activation": None},
        (x(P, R),), "matmul", {"depth": 5}, "input weight"),
    Row("affine_grid_generator_backward", {"grad": x(P, Q, R, 2)}, (x(P, 2, 3),), "matmul", {"depth": Q * R}),
    Row("addr", {"self": x(P, Q), "vec1": x(P), "vec2": x(Q)}, (x(P, Q),), "elementwise", {"fn": "addcmul"}),
    Row("kron", {"self": x(P, Q), "other": x(R, S)}, (x(P * R, Q * S),), "elementwise", {"fn": "mul"}),
    Row("einsum", {"equation": "ij,jk->ik", "tensors": [x(P, Q, R)]}, (x(P, R),), "unknown", {}),  # letters for two operands
    Row("inductor::_mm_plus_mm", {"a": x(P, Q), "b": x(Q, R), "c": x(P, S), "d": x(S, R)}, (x(P, R),),
        "matmul", {"depth": Q + S}, "a b c d"),
    # convolutions: what else a library's kernel does
    Row("cudnn_convolution_relu", {"self": x(P, Q, R, R), "weight": x(S, Q, 2, 2), "bias": x(S), "stride": [1, 2],
        "dilation": [3, 1]},
        (x(P, S, 2, 2),), "conv", {"then": ("relu",), "stride": (1, 2), "dilation": (3, 1)}, "self weight bias"),
    *(Row("cudnn_convolution_add_relu", {"self": x(P, Q, R, R), "weight": x(S, Q, 2, 2), "z": x(P, S, 6, 6), "bias": bias},
          (x(P, S, 6, 6),), "conv", {"then": then}, ins)
      for bias, then, ins in ((None, ("relu",), "self weight z"), (x(S), ("add", "relu"), "self weight bias z"))),
    Row("conv_tbc", {"self": x(T, P, Q), "weight": x(2, Q, R), "bias": x(R)}, (x(12, P, R),),
        "matmul", {"depth": 2 * Q, "bias": True}, "self weight bias"),
    Row("conv_tbc_backward", {"self": x(T, P, R), "input": x(T + 1, P, Q), "weight": x(2, Q, R)}, (),
        "matmul", {"depth": 2 * Q, "macs": 2 * (T * P * R) * (2 * Q)}, "self input weight"),
    Row("_slow_conv2d_backward", {"grad_output": x(P, S, 6, 6), "self": x(P, Q, R, R), "weight": x(S, Q, 2, 2)}, (),
        "conv", {"grads": ("input", "weight", "bias")}, "grad_output self weight"),
    Row("_slow_conv2d_backward", {"grad_output": x(P, S, 6, 6), "self": x(P, Q, R, R), "weight": x(S, Q, 2, 2),
                                  "output_mask": [True, False, True]}, (), "conv", {"grads": ("input", "bias")},
        "grad_output self weight"),
    Row("mps_convolution_transpose_backward", {"grad_output": x(P, S, 6, 6), "self": x(P, Q, R, R), "weight": x(Q, S, 2, 2),
                                               "output_mask": [False, True]}, (), "conv",
        {"grads": ("weight",), "transposed": True}, "grad_output self weight"),
    # attention of packed sequences: their starts and the end are in one tensor
    Row("_cudnn_attention_forward", {**HEADS, "cum_seq_q": None, "is_causal": True, "attn_bias": None}, (x(P, Q, R, S),),
        "attention", {"causal": True}, "query key value"),
    Row("_cudnn_attention_forward", {**HEADS, "cum_seq_q": STARTS, "is_causal": False, "attn_bias": x(Q, T)}, (x(P, Q, R, S),),
        "attention", {"heads_last": True, "sequences": P}, "query key value attn_bias"),
    *(Row("_cudnn_attention_backward", {"grad_out": x(P, Q, R, S), **HEADS, "cum_seq_q": starts, "is_causal": True,
        "attn_bias": x(0)}, (), "attention",
          {"grad": True, "products": 5, "causal": True, **layout}, "grad_out query key value")
      for starts, layout in ((x(0), {}), (STARTS, {"heads_last": True, "sequences": P}), (x(1), {"heads_last": True}),
                              (x(2), {"heads_last": True, "sequences": 1}))),
    *(Row("_efficient_attention_backward", {"grad_out_": x(P, Q, R, S), **HEADS, "bias": None, "cu_seqlens_q": None,
        "custom_mask_type": mask},
          (), "attention", {"grad": True, "products": 5, "heads_last": True, **causal}, "grad_out_ query key value")
      for mask, causal in ((0, {}), (1, {"causal": True}), (2, {"causal": True}), (3, {}))),
    Row("_transform_bias_rescale_qkv", {"qkv": x(P, Q, 3 * R), "qkv_bias": x(3 * R), "num_heads": 1}, (x(P, 1, Q, R),) * 3,
        "elementwise", {"fn": "addcmul"}),
    # a layer: projections of P·Q queries and twice P·R keys, two products of Q × R pairs, the projection of the result
    Row("_native_multi_head_attention", {"query": x(P, Q, S), "key": x(P, R, S), "value": x(P, R, S), "embed_dim": T}, (x(P, Q,
        T),),
        "matmul", {"depth": T, "macs": P * ((Q + 2 * R) * S * T + Q * T * T + 2 * Q * R * T), "bias": True}),
    Row("_transformer_encoder_layer_fwd", {"src": x(P, Q, T), "embed_dim": T, "ffn_weight_1": x(S, T)}, (x(P, Q, T),),
        "matmul", {"depth": T, "macs": P * (3 * Q * T * T + Q * T * T + 2 * Q * Q * T) + 2 * P * Q * T * S, "bias": True}),
    # looked up in bags, and put back
    *(Row("_embedding_bag", {"weight": x(P, Q), "indices": x(R), "mode": mode, "per_sample_weights": None}, (x(S, Q),),
          "embedding", {"reduce": how}) for mode, how in enumerate(("sum", "mean", "max"))),
    Row("_embedding_bag", {"weight": x(P, Q), "indices": x(R), "mode": 0, "per_sample_weights": x(R)}, (x(S, Q),),
        "embedding", {"reduce": "sum", "weighted": True}),
    Row("_embedding_bag_dense_backward", {"grad": x(S, Q), "indices": x(R)}, (x(P, Q),), "scatter", {"fn": "add",
        "elements": R * Q}),
    Row("_embedding_bag_per_sample_weights_backward", {"grad": x(S, Q), "weight": x(P, Q), "indices": x(R)}, (x(R),),
        "elementwise", {"fn": "fma", "elements": R * Q}),
    Row("embedding_renorm_", {"self": x(P, Q), "indices": x(R), "max_norm": 1.0, "norm_type": 2.0}, (x(P, Q),),
        "elementwise", {"fn": "addcmul", "elements": R * Q}, in_place=True),
    Row("_unsafe_masked_index_put_accumulate", {"self": x(P, Q), "mask": x(R), "indices": [x(R)], "values": x(R, Q)}, (x(P, Q),),
        "scatter", {"fn": "add", "elements": R * Q}, "self indices values"),
    Row("index_put", {"self": x(P, Q, R, S), "indices": [None, x(T), None, x(2, 1)], "values": x(1), "accumulate": True}, (x(P,
        Q, R, S),),
        "scatter", {"fn": "add", "elements": P * R * 2 * T}, "self indices values"),
    Row("index_put", {"self": x(P, Q, R), "indices": [x(P, Q, dtype="bool")], "values": x(1), "accumulate": False}, (x(P, Q, R),),
        "scatter", {"fn": "copy", "elements": P * Q * R}, "self indices values"),
    Row("index_put", {"self": x(P, Q, R), "indices": [x(2, T), x(T)], "values": x(1), "accumulate": False}, (x(P, Q, R),),
        "scatter", {"fn": "copy", "elements": 2 * T * R}, "self indices values"),
    *(Row(name, {"self": x(P, Q), "index": x(R), "source": x(R, Q), **given}, (x(P, Q),), "scatter", {"fn": fn},
        "self index source")
      for name, given, fn in (("index_add", {"dim": 0}, "add"), ("index_copy", {"dim": 0}, "copy"), ("put",
      {"accumulate": True}, "add"),
                              ("index_reduce", {"dim": 0, "reduce": "amax"}, "max"))),
    Row("put", {"self": x(P, Q), "index": x(R), "source": x(R), "accumulate": False}, (x(P, Q),), "scatter", {"fn": "copy"},
        "self index source"),
    Row("index_fill_", {"self": x(P, Q), "dim": 1, "index": x(R), "value": 0}, (x(P, Q),), "scatter",
        {"fn": "copy", "elements": P * R, "overwrites": True}, "self index", in_place=True),
    Row("index_fill", {"self": x(), "dim": 0, "index": x(1), "value": 0}, (x(),), "scatter", {"fn": "copy", "elements": 1},
        "self index"),
    Row("masked_scatter", {"self": x(P, Q), "mask": x(P, 1), "source": x(R)}, (x(P, Q),), "scatter", {"fn": "copy",
        "elements": P},
        "self mask source"),
    *(Row("scatter", {"self": x(P, Q), "dim": 0, "index": x(R, Q), "src": x(R, Q), **given}, (x(P, Q),), "scatter", {"fn": fn},
          "self index src")
      for given, fn in (({}, "copy"), ({"reduce": "add"}, "add"), ({"reduce": "multiply"}, "mul"))),
    *(Row("scatter_reduce", {"self": x(P, Q), "index": x(R, Q), "src": x(R, Q), "reduce": how}, (x(P, Q),), "scatter", {"fn": fn},
          "self index src")
      for how, fn in (("sum", "add"), ("prod", "mul"), ("mean", "mean"), ("amax", "max"), ("amin", "min"))),
    Row("gather_backward", {"grad": x(P, Q), "self": x(R, Q), "dim": 0, "index": x(P, Q)}, (x(R, Q),), "scatter", {"fn": "add",
        "elements": P * Q}),
    Row("unfold_backward", {"grad_in": x(P, Q, 2), "input_sizes": [P, R]}, (x(P, R),), "scatter", {"fn": "add",
        "elements": P * Q * 2}),
    *(Row(f"{mode}_pad{axes}d_backward", {"grad_output": x(P, R), "self": x(P, Q), "padding": [1, 1]}, (x(P, Q),), "scatter",
          {"fn": "add", "elements": P * R}, "grad_output") for mode in ("reflection", "replication") for axes in (1, 2, 3)),
    # copies that read the one and write the other, or nothing
    Row("_copy_from", {"self": x(P), "dst": x(P), "non_blocking": False}, (x(P),), "copy", {}, "self"),
    Row("copy_", {"self": x(P, Q), "src": x(Q), "non_blocking": False}, (x(P, Q),), "copy", {}, "src", in_place=True),
    Row("contiguous", {"self": x(P, Q)}, (x(P, Q),), "view", {}, "self"),
    Row("to", {"self": x(P, Q)}, (x(P, Q, dtype="float64"),), "copy", {}, "self"),
    Row("reshape", {"self": x(P, Q), "shape": [Q, P]}, (x(Q, P),), "view", {}, "self"),
    Row("reshape", {"self": Described((P, Q), (1, P), "float32"), "shape": [P * Q]}, (x(P * Q),), "copy", {}, "self"),
    # norms: what is scaled and shifted, and how many of the gradients are requested
    Row("batch_norm_backward", {"grad_out": x(P, Q), "input": x(P, Q), "weight": x(Q), "update": True, "output_mask": [True,
        True, False]},
        (), "norm", {"fn": "batch", "grad": True, "affine": 1, "training": True}, "grad_out input weight"),
    Row("cudnn_batch_norm_backward", {"input": x(P, Q), "grad_output": x(P, Q), "weight": x(Q)}, (), "norm",
        {"fn": "batch", "grad": True, "affine": 2, "training": True}, "grad_output input weight"),
    Row("_batch_norm_impl_index_backward", {"input": x(P, Q), "grad_output": x(P, Q), "weight": x(Q), "train": False,
                                            "output_mask": [True, False, False]}, (), "norm",
        {"fn": "batch", "grad": True, "affine": 0, "training": False}, "grad_output input weight"),
    Row("native_batch_norm_backward", {"grad_out": x(P, Q), "input": x(P, Q), "train": True, "output_mask": [True, True, True]},
        (), "norm",
        {"fn": "batch", "grad": True, "affine": 2, "training": True}, "grad_out input"),
    Row("batch_norm_elemt", {"input": x(P, Q), "weight": x(Q), "bias": x(Q)}, (), "norm", {"fn": "batch", "affine": 2,
        "training": False}),
    Row("_batch_norm_with_update", {"input": x(P, Q), "weight": None, "bias": None}, (), "norm", {"fn": "batch", "affine": 0,
        "training": True}),
    Row("instance_norm", {"input": x(P, Q, R), "weight": x(Q), "bias": None, "use_input_stats": True}, (x(P, Q, R),), "norm",
        {"fn": "instance", "affine": 1, "training": True}),
    Row("batch_norm_gather_stats", {"input": x(P, Q), "mean": x(R, Q), "invstd": x(R, Q), "running_mean": None,
        "running_var": None, "count": 1},
        (x(Q), x(Q)), "reduce", {"fn": "var"}, "mean invstd"),
    # stacks of recurrent layers; the output of both directions is the next input
    Row("lstm", {**GATED, "num_layers": 2}, (), "recurrent",
        {"cell": "lstm", "steps": P * Q, "layers": ((R, T, S), (R, T, S), (2 * S, T, S), (2 * S, T, S)), "bias": True}),
    Row("lstm_mps_backward", GATED, (), "recurrent",
        {"cell": "lstm", "steps": P * Q, "layers": ((R, T, S), (R, T, S)), "bias": True, "grad": True}, "input hx"),
    Row("lstm_mps_backward", {**GATED, "bidirectional": False}, (), "recurrent",
        {"cell": "lstm", "steps": P * Q, "layers": ((R, T, S),), "bias": True, "grad": True}, "input hx"),
    Row("_cudnn_rnn", {"input": x(P, Q, R), "hidden_size": S, "proj_size": 0, "mode": 2, "num_layers": 1, "bidirectional": True,
                       "weight_stride0": 4}, (), "recurrent",
        {"cell": "lstm", "steps": P * Q, "layers": ((R, S, S), (R, S, S)), "bias": True}),
    *(Row("lstm_cell", {"input": x(P, R), "hx": [x(P, S), x(P, T)], "w_ih": x(4 * S, R), "w_hh": x(4 * S, S), "b_ih": bias}, (),
          "recurrent", {"cell": "lstm", "steps": P, "layers": ((R, S, S),), **attrs})
      for bias, attrs in ((None, {}), (x(4 * S), {"bias": True}))),
    *(Row("_cudnn_rnn", {"input": x(P, Q, R), "hidden_size": S, "proj_size": project, "mode": mode, "num_layers": 1,
        "bidirectional": False,
                         "weight_stride0": tensors}, (), "recurrent",
          {"cell": cell, "steps": P * Q, "layers": ((R, S, project or S),), **({"bias": True} if tensors > 3 else {})})
      for mode, cell, project, tensors in ((0, "rnn_relu", 0, 4), (1, "rnn_tanh", 0, 2), (2, "lstm", T, 5), (3, "gru", 0, 3))),
    Row("_thnn_fused_gru_cell", {"input_gates": x(P, 3 * Q), "hidden_gates": x(P, 3 * Q), "hx": x(P, Q)}, (x(P, Q), x(P, 5 * Q)),
        "elementwise", {"fn": "gru_cell", "elements": P * Q}),
    Row("_thnn_fused_gru_cell_backward", {"grad_hy": x(P, Q), "workspace": x(P, 5 * Q)}, (), "elementwise",
        {"fn": "gru_cell_grad", "elements": P * Q}),
    Row("_thnn_fused_lstm_cell_backward_impl", {"cx": x(P, Q)}, (), "elementwise", {"fn": "lstm_cell_grad", "elements": P * Q}),
    # resized with a kernel that widens with the reduction: 2·1·5/2 by 2·1·1, 2·2·1 by 2·2·7/2
    Row("_upsample_bilinear2d_aa", {"input": x(P, Q, 5, 3)}, (x(P, Q, 2, 4),), "resize", {"fn": "bilinear", "taps": 5 * 2}),
    Row("_upsample_bicubic2d_aa_backward", {"grad_output": x(P, Q, 4, 2), "input_size": [P, Q, 3, 7]}, (), "resize",
        {"fn": "bicubic", "grad": True, "taps": 4 * 14}),
    Row("_upsample_lanczos2d_aa", {"self": x(P, Q, 3, 3)}, (x(P, Q, 3, 3),), "resize", {"fn": "lanczos", "taps": 6 * 6}),
    *(Row("grid_sampler", {"input": x(P), "grid": x(P, Q, rank), "interpolation_mode": mode}, (x(P),), "sample", {"taps": taps})
      for mode, rank, taps in ((0, 2, 2**2), (0, 3, 2**3), (1, 2, 1), (1, 3, 1), (2, 2, 4**2), (2, 3, 4**3))),
    Row("cudnn_grid_sampler", {"self": x(P), "grid": x(P, 2)}, (x(P),), "sample", {"taps": 2**2}),
    Row("cudnn_grid_sampler_backward", {"self": x(P), "grid": x(P, 2), "grad_output": x(Q)}, (), "sample", {"taps": 2**2,
        "grad": True},
        "grad_output self grid"),
    # transforms: the real side has the whole length
    Row("_fft_r2c", {"self": x(P, Q, R), "dim": [0, 2]}, (), "fft", {"lengths": (P, R), "real": True}),
    Row("_fft_c2c", {"self": x(P, Q, R), "dim": [1]}, (), "fft", {"lengths": (Q,)}),
    Row("_fft_c2r", {"self": x(P, Q, 4), "dim": [1, 2], "last_dim_size": R}, (), "fft", {"lengths": (Q, R), "real": True}),
    Row("prims::fft_c2r", {"self": x(P, 4), "dim": [1], "last_dim_size": R}, (x(P, R),), "fft", {"lengths": (R,), "real": True}),
    Row("prims::fft_r2c", {"self": x(P, R), "dim": [1]}, (x(P, 4),), "fft", {"lengths": (R,), "real": True}),
    Row("prims::fft_c2c", {"self": x(P, R), "dim": [0]}, (x(P, R),), "fft", {"lengths": (P,)}),
    Row("fft_rfft2", {"self": x(P, Q, R), "s": None, "dim": [-2, -1]}, (x(P, Q, 4),), "fft", {"lengths": (Q, R), "real": True}),
    Row("fft_irfftn", {"self": x(P, Q, 4), "s": None, "dim": None}, (x(P, Q, R),), "fft", {"lengths": (P, Q, R), "real": True}),
    Row("fft_fftn", {"self": x(P, Q, R), "s": [S, T], "dim": None}, (x(P, S, T),), "fft", {"lengths": (S, T)}),
    Row("fft_fftn", {"self": x(P, Q, R), "s": [S], "dim": None}, (x(P, Q, S),), "fft", {"lengths": (S,)}),
    Row("stft", {"self": x(P, dtype="complex64"), "n_fft": Q}, (x(Q),), "fft", {"lengths": (Q,)}),
    Row("istft", {"self": x(P), "n_fft": Q}, (x(Q),), "fft", {"lengths": (Q,), "real": True}),
    # put in order
    Row("msort", {"self": x(P, Q)}, (x(P, Q),), "sort", {"length": P}),
    Row("sort", {"self": x(P, Q), "dim": 0}, (x(P, Q),), "sort", {"length": P}),
    Row("sort", {"self": x(), "dim": -1}, (x(),), "sort", {"length": 1}),
    Row("mode", {"self": x(), "dim": None}, (x(),), "sort", {"length": 1}),
    Row("median", {"self": x(P, Q)}, (x(),), "sort", {"length": P * Q}),
    Row("mode", {"self": x(P, Q), "dim": None}, (x(P),), "sort", {"length": Q}),
    Row("kthvalue", {"self": x(P, Q), "k": 2, "dim": 0}, (x(Q),), "sort", {"length": P, "selected": 2}),
    Row("searchsorted", {"sorted_sequence": x(P, Q), "self": x(P, R), "sorter": None}, (x(P, R),), "sort", {"length": Q},
        "self sorted_sequence"),
    Row("bucketize", {"self": x(P), "boundaries": x(Q)}, (x(P),), "sort", {"length": Q}),
    Row("isin", {"elements": x(P), "test_elements": x(Q)}, (x(P),), "sort", {"length": P + Q}),
    Row("segment_reduce", {"data": x(P, Q), "reduce": "max", "lengths": x(R)}, (x(R, Q),), "reduce", {"fn": "max"},
        "data lengths"),
    # pools
    Row("avg_pool2d_backward", {"grad_output": x(P), "self": x(P), "kernel_size": [3], "stride": []}, (), "pool",
        {"fn": "avg", "window": 9, "grad": True}),
    Row("max_pool3d_with_indices", {"self": x(P), "kernel_size": [2, 3, 5], "stride": [], "dilation": 2}, (), "pool",
        {"fn": "max", "window": 30, "kernel": (2, 3, 5), "stride": (2, 3, 5), "dilation": (2, 2, 2)}),
    Row("max_unpool2d", {"self": x(P), "indices": x(P), "output_size": [Q]}, (x(Q),), "pool", {"fn": "unpool", "window": 1}),
    Row("torchvision::roi_pool", {"input": x(P, Q, 9, 7), "rois": x(R, 5)}, (x(R, Q, 2, 3),), "pool", {"fn": "adaptive_max",
        "window": 5 * 3}),
    Row("torchvision::_ps_roi_pool_backward", {"grad": x(R, Q, 2, 3)}, (x(P, Q, 9, 7),), "pool",
        {"fn": "adaptive_avg", "window": 5 * 3, "grad": True}),
    *(Row(f"torchvision::{name}", {"input": x(P), "sampling_ratio": ratio}, (x(Q),), "sample", {"taps": 4 * taps**2, **grad})
      for name, grad in (("roi_align", {}), ("_ps_roi_align_backward", {"grad": True})) for ratio, taps in ((3, 3), (-1, 2), (0,
      2), (1, 1))),
    Row("torchvision::nms", {"dets": x(P, 4), "scores": x(P), "iou_threshold": 0.5}, (x(Q),), "sort", {"length": P},
        "scores dets"),
    Row("torchvision::_deform_conv2d_backward", {"grad": x(P), "input": x(Q), "weight": x(R), "offset": x(S), "mask": x(T)}, (),
        "conv",
        {"grads": ("input", "weight", "bias"), "sampled": 4}, "grad input weight offset mask"),
    # drawn
    Row("bernoulli_", {"self": x(P), "p": 0.5}, (x(P),), "random", {}, "", in_place=True),
    Row("bernoulli", {"self": x(P)}, (x(P),), "random", {}, "self"),
    Row("normal", {"mean": x(P), "std": x(P)}, (x(P),), "random", {}, "mean std"),
    *(Row("dropout", {"input": x(P), "p": p, "train": train}, (x(P),), kind, attrs)
      for p, train, kind, attrs in ((0.5, True, "random", {"fn": "dropout"}), (0.5, False, "view", {}), (0.0, True, "view", {}))),
    *(Row("pow", {"self": x(P), "exponent": exponent}, (x(P),), "elementwise", {"fn": fn})
      for exponent, fn in ((2, "square"), (0.5, "sqrt"), (-0.5, "rsqrt"), (-1, "reciprocal"), (3, "pow"), (x(P), "pow"))),
    Row("log_sigmoid_forward", {"self": x(P, Q)}, (x(P, Q), x(0)), "elementwise", {"fn": "logsigmoid", "elements": P * Q}),
    Row("cosine_similarity", {"x1": x(P), "x2": x(P)}, (x(),), "reduce", {"fn": "dot"}),
    Row("pairwise_distance", {"x1": x(P), "x2": x(P)}, (x(),), "reduce", {"fn": "norm"}),
    Row("_amp_foreach_non_finite_check_and_unscale_", {"self": [x(P, Q), x(R)], "found_inf": x(1), "inv_scale": x(1)}, (),
        "elementwise",
        {"fn": "fma", "elements": P * Q + R}, in_place=True),
    *(Row("_fused_sgd", {"self": [x(P), x(Q)], "momentum": momentum}, (), "elementwise", {"fn": fn, "elements": P + Q})
      for momentum, fn in ((0.0, "sgd_step"), (0.9, "momentum_step"))),
    Row("_fake_quantize_learnable_per_tensor_affine_backward", {"grad": x(P), "self": x(P)}, (), "elementwise",
        {"fn": "fake_quantize_grad", "elements": 3 * P}),
    Row("cholesky_inverse", {"self": x(P, P), "upper": False}, (x(P, P),), "linalg", {"fn": "inverse"}),
]  # fmt: skip


def test_a_file_may_not_declare_more_layers_than_any_model_has() -> None:
    args = {**GATED, "bidirectional": False}
    row = Row("lstm", {**args, "num_layers": 4096}, (), "", {})
    assert len(translated(row).attrs["layers"]) == 4096
    with pytest.raises(ValueError, match="4097 layers"):
        translated(row._replace(args={**args, "num_layers": 4097}))


@pytest.mark.parametrize("row", ROWS, ids=[f"{i}-{row.name}" for i, row in enumerate(ROWS)])
def test_a_call_means_what_was_worked_out(row: Row) -> None:
    check(row)
