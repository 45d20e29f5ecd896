"""What single operators of MXNet cost, worked out by hand: a number for every name, and rows for all that depends on shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import pytest

from opcost.analysis.costing import cost_graph
from opcost.core.graph import TensorSpec
from opcost.frontends.mxnet.load import Opened, load_graph
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.table import SymbolCall
from opcost.frontends.mxnet.roles import upgraded
from opcost.frontends.mxnet.symbol import Attributes, parse_symbol
from opcost.frontends.options import CountOptions
from opcost.frontends.rows import RowOperator
from opcost.rules import default_rules
from opcost.rules.registry import OpView

P, Q, R, S, C = 3, 5, 7, 11, 4
N = P * Q

# -- what a name alone says -----------------------------------------------------------------------------------------------

ELEMENTWISE = {
    1: """abs absolute add arccos arcsin arctan arctan2 around bitwise_and bitwise_left_shift bitwise_not bitwise_or
          bitwise_right_shift
          bitwise_xor cbrt ceil copysign cos deg2rad degrees digamma div div_sqrt_dim equal erf erfinv exp expm1 fix floor
          fmax fmin gamma
          gammaln gcd grad_add greater greater_equal invert isfinite isinf isnan isneginf isposinf khatri_rao lcm less
          less_equal lesser lesser_equal
          log log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum minus mul multiply negative
          not_equal plus
          power quantized_elemwise_add quantized_elemwise_mul quantized_npi_add rad2deg radians rcbrt reciprocal relu rint
          round rsqrt sign
          sin sqrt square sub subtract tan to_tensor tril triu true_divide trunc where where_lscalar where_rscalar
                where_scalar2""",
    2: """adjust_lighting clip floor_divide ldexp normalize random_brightness random_color_jitter random_contrast
          random_flip_left_right
          random_flip_top_bottom random_hue random_lighting random_saturation""",
    3: "softsign",
    4: "LogisticRegressionOutput cosh fmod hard_sigmoid hypot mod sigmoid sinh",
    5: "arccosh arcsinh arctanh gelu silu smooth_l1 softplus tanh SoftmaxActivation SoftmaxOutput softmax log_softmax softmin "
       "masked_softmax "
       "masked_log_softmax",
    6: "log_sigmoid logaddexp nan_to_num",
    8: "mish",
}  # fmt: skip
"""Functions by their FLOPs for each element of the result."""
REDUCED = {
    (1, 0): "sum sum_axis linalg_sumlogdiag max max_axis amax min min_axis amin prod product any sometrue all argmax argmin "
       "argmax_channel cumsum trace",
    (1, 1): "mean average",
    (2, 0): "nansum nanprod square_sum",
    (2, 1): "norm",
    (4, 2): "var moments",
    (4, 3): "std",
}  # fmt: skip
"""Reductions by their FLOPs for each element, and for each result."""
QUANTIZED = "quantize contrib_quantize quantize_v2 contrib_quantize_v2 quantize_asym requantize dequantize"
DRAWN = """bernoulli exponential gamma gumbel logistic normal normal_n pareto random_exponential random_exponential_like
      random_gamma
    random_gamma_like random_generalized_negative_binomial random_generalized_negative_binomial_like random_negative_binomial
    random_negative_binomial_like random_normal random_normal_like random_poisson random_poisson_like random_randint
    random_uniform
    random_uniform_like rayleigh sample_exponential sample_gamma sample_generalized_negative_binomial sample_multinomial
    sample_negative_binomial sample_normal sample_poisson sample_uniform shuffle uniform uniform_n
          weibull"""
MOVED = {
    "copy": """Concat Crop Pad SliceChannel SwapAxis amp_multicast array_split axes axis boolean_mask_assign
          boolean_mask_assign_tensor
        column_stack concat concatenate crop crop_assign depth_to_space diag diagonal dsplit dstack fill_element_0index flip
        flip_left_right
        flip_top_bottom hsplit hstack im2col like linalg_extractdiag linalg_extracttrian linalg_makediag linalg_maketrian
        moveaxis pad quantized_concat quantized_transpose
        ravel_multi_index repeat repeats retain reverse rnn_param_concat roll rot90 slice slice_assign slice_axis
        slice_channel slice_like
        space_to_depth split split_v2 stack swapaxes tile to transpose unravel_index vsplit vstack""",
    "create": """MultiBoxPrior arange arange_like blackman empty eye full full_like hamming hanning identity index_array
          indices linspace
        logspace multibox_prior one_hot ones ones_like shape_array size_array sldwin_atten_mask_like zeros zeros_like
              zeros_without_dtype""",
    "gather": "batch_take boolean_mask choose_element_0index gather_nd nonzero pick take",
    "view": """BlockGrad CrossDeviceCopy Flatten IdentityAttachKLSparseReg LinearRegressionOutput MAERegressionOutput
          MakeLoss Reshape SVMOutput
        atleast_1d atleast_2d atleast_3d batch_flatten calibrate_entropy cast_storage constraint_check copy copyto
        expand_dims flatten
        quantized_flatten quantized_reshape
        gradientmultiplier identity identity_with_attr_like_rhs make_loss reshape reshape_like squeeze stop_gradient""",
    "embedding": "Embedding embedding SparseEmbedding quantized_embedding",
}  # fmt: skip
"""Operators that move elements, or not even that, by the kind of their costs."""


def base(name: str) -> str:
    """A name without the words that say how it is called: for sparse tensors, NumPy's, with a number, from the right."""
    found = re.sub(r"^(_sparse_|_npi_|_np_|_npx_|_contrib_|_scatter_|_)+", "", name)
    found = re.sub(r"^(elemwise_|broadcast_|image_)", "", found)
    found = re.sub(r"_scalar$|_ste$", "", found)
    known = {word for words in ELEMENTWISE.values() for word in words.split()}
    return found[1:] if found not in known and found.startswith("r") and found[1:] in known else found


class Fixed(NamedTuple):
    """What an operator does whatever its inputs are."""

    kind: str
    attrs: Mapping[str, Any]


FIXED = {
    name: Fixed(*each.meaning(SymbolCall(Attributes({}), [], [], [], [])))
    for name, each in all_operators().items()
    if isinstance(each.means, str)
}
ELSEWHERE = ("unknown", "linalg", "loss", "norm", "scatter", "resize", "sample")
"""Kinds of which rows with shapes are listed below, and what is never known by its name."""


def cost(found: Fixed, ins: Sequence[TensorSpec], outs: Sequence[TensorSpec]) -> Any:
    rule = default_rules().for_op(found.kind, "")
    assert rule
    return rule[1](OpView(found.kind, "", tuple(ins), tuple(outs), found.attrs))


NUMBERS = {each: number for number, names in ELEMENTWISE.items() for each in names.split()}
SUMS = {each: numbers for numbers, names in REDUCED.items() for each in names.split()}


def expected(found: Fixed, word: str) -> bool:
    """Whether the cost is that of the function of this name."""
    x, small, cube, left = TensorSpec((P, Q)), TensorSpec((P, Q), "int8"), TensorSpec((P, Q, R)), TensorSpec((P, R))
    match found.kind:
        case "elementwise" | "softmax":
            return bool(cost(found, [x, x], [x]).flops == NUMBERS[word] * N)
        case "reduce":
            each, last = SUMS[word]
            return bool(cost(found, [cube], [left]).flops == each * N * R + last * P * R)
        case "random":
            return word in DRAWN.split() and cost(found, [x], [x]).flops == N
        case "quantize":
            costs = cost(found, [x], [small]).flops, cost(found, [small], [x]).flops
            return word in QUANTIZED.split() and costs == (5 * N, 2 * N)
    return word in MOVED[found.kind].split() and not found.attrs


def test_a_name_has_the_cost_of_its_function() -> None:
    names = [name for name, each in FIXED.items() if each.kind not in ELSEWHERE]
    assert [name for name in names if not expected(FIXED[name], base(name))] == []
    words = {*NUMBERS, *SUMS, *QUANTIZED.split(), *DRAWN.split(), *" ".join(MOVED.values()).split()}
    assert words - {base(name) for name in all_operators()} == set()


# -- what depends on shapes -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One node: shapes of its inputs, attributes; shape of its first result, MACs, and FLOPs beside the two of each."""

    op: str
    ins: Sequence[tuple[int, ...]]
    out: tuple[int, ...]
    attrs: Mapping[str, Any] = {}
    macs: int = 0
    flops: int = 0
    moved: int | None = None
    """Bytes; all inputs and the result unless given."""
    first: str = "float32"
    numpy: bool = False
    results: int = 1


X = (2, C, R, Q)
ONE = {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "pad": (1, 1)}
"""Of 7 x 5: (7 + 2 - 3) // 2 + 1 = 4 by 5 + 2 - 3 + 1 = 5."""
SWEPT = 2 * S * 20
TRIANGLE = R * (R + 1) // 2
B, L, H, D = 2, Q, 4, 6
"""Sequences, steps, heads, features of each."""


def elements(*shapes: tuple[int, ...]) -> int:
    return 4 * sum(prod(shape) for shape in shapes)


def rnn(mode: str, gates: int, each: int, *, layers: int = 1, ways: int = 1, project: int = 0) -> Row:
    """Q steps of 2 sequences with R features, S units; two biases for every gate; the next layer reads all directions."""
    out = project or S
    sizes = [R] * ways + [ways * out] * ways * (layers - 1)
    macs = 2 * Q * sum(gates * S * (size + out) + (S * out if project else 0) for size in sizes)
    weights = sum(gates * S * (size + out + 2) + (S * out if project else 0) for size in sizes)
    states = [(layers * ways, 2, out), *[(layers * ways, 2, S)] * (mode == "lstm")]
    attrs = {
        "mode": mode,
        "state_size": S,
        "num_layers": layers,
        "bidirectional": ways == 2,
        **({"projection_size": project} if project else {}),
    }
    return Row("RNN", [(Q, 2, R), (weights,), *states], (Q, 2, ways * out), attrs, macs=macs,
               flops=2 * Q * S * len(sizes) * (each + 2 * gates))  # fmt: skip


ROWS = [
    # vectors side by side are columns
    Row("_npi_column_stack", [(P,), (P,)], (P, 2), {"num_args": 2}, numpy=True),
    Row("_npi_column_stack", [(P, Q), (P, R)], (P, Q + R), {"num_args": 2}, numpy=True),
    # -- products
    *(Row(op, [(P, 2, Q), (S, 10), (S,)], (P, S), {"num_hidden": S}, macs=P * 10 * S, flops=P * S)
      for op in ("FullyConnected", "_npx_fully_connected", "_sparse_FullyConnected")),
    Row("FullyConnected", [(P, 2, Q), (S, Q)], (P, 2, S), {"num_hidden": S, "no_bias": True, "flatten": False},
        macs=P * 2 * Q * S),
    *(Row(op, [a, b], (P, R), {"transpose_a": left, "transpose_b": right}, macs=P * Q * R) for op in ("dot",
        "_sparse_dot") for a, b, left, right in (
        ((P, Q), (Q, R), 0, 0), ((Q, P), (Q, R), 1, 0), ((P, Q), (R, Q), 0, 1), ((Q, P), (R, Q), 1, 1))),
    *(Row(op, [(2, *a), (2, *b)], (2, P, R), {"transpose_a": left, "transpose_b": right},
        macs=2 * P * Q * R) for op in ("batch_dot", "_npx_batch_dot")
      for a, b, left, right in (((P, Q), (Q, R), 0, 0), ((Q, P), (Q, R), 1, 0), ((P, Q), (R, Q), 0, 1))),
    *(Row(op, [(2, P, Q), (2, Q, R), (2, P, R)], (2, P, R), macs=2 * P * Q * R, flops=2 * P * R) for op in ("_linalg_gemm",
        "linalg_gemm", "_npx_linalg_gemm")),
    *(Row(op, [(2, Q, P), (2, R, Q)], (2, P, R), {"transpose_a": 1, "transpose_b": 1}, macs=2 * P * Q * R)
      for op in ("_linalg_gemm2", "linalg_gemm2", "_npx_linalg_gemm2")),
    Row("_npi_matmul", [(2, P, Q), (Q, R)], (2, P, R), macs=2 * P * Q * R, numpy=True),
    *(Row(op, [(2, P, Q), (Q, R)], (2, P, R), macs=2 * P * Q * R, numpy=True) for op in ("_np_dot", "_npi_dot")),
    Row("_np_dot", [(P, Q), ()], (P, Q), flops=N, numpy=True),
    Row("_npi_tensordot", [(P, Q, R), (R, Q, S)], (P, S), {"a_axes_summed": (1, 2), "b_axes_summed": (1, 0)},
        macs=P * Q * R * S, numpy=True),
    Row("_npi_tensordot_int_axes", [(P, Q, R), (Q, R, S)], (P, S), {"axes": 2}, macs=P * Q * R * S, numpy=True),
    Row("_npi_einsum", [(2, P, Q), (2, Q, R)], (2, P, R), {"num_args": 2, "subscripts": "bij,bjk->bik"}, macs=2 * P * Q * R,
        numpy=True),
    Row("khatri_rao", [(P, R), (Q, R)], (P * Q, R), {"num_args": 2}, flops=N * R),
    # half of a square meets each column; a product with itself
    *(Row(op, [(2, R, R), (2, R, S)], (2, R, S), macs=2 * S * TRIANGLE) for op in ("_linalg_trmm", "linalg_trmm")),
    Row("linalg_trmm", [(2, R, R), (2, S, R)], (2, S, R), {"rightside": 1}, macs=2 * S * TRIANGLE),
    *(Row(op, [(2, P, Q)], (2, P, P), macs=2 * P * P * Q) for op in ("_linalg_syrk", "linalg_syrk")),
    Row("linalg_syrk", [(2, P, Q)], (2, Q, Q), {"transpose": 1}, macs=2 * Q * Q * P),
    # queries, keys and values side by side: length, batch, heads × 3 × features
    *(Row(f"{prefix}interleaved_matmul_selfatt_qk", [(L, B, H * 3 * D)], (B * H, L, L), {"heads": H},
        macs=B * H * L * L * D) for prefix in ("_contrib_", "_npx_")),
    *(Row(f"{prefix}interleaved_matmul_selfatt_valatt", [(L, B, H * 3 * D), (B * H, L, L)], (L, B, H * D), {"heads": H},
        macs=B * H * L * L * D)
      for prefix in ("_contrib_", "_npx_")),
    *(Row(f"{prefix}interleaved_matmul_encdec_qk", [(L, B, H * D), (R, B, H * 2 * D)], (B * H, L, R), {"heads": H},
        macs=B * H * L * R * D)
      for prefix in ("_contrib_", "_npx_")),
    *(Row(f"{prefix}interleaved_matmul_encdec_valatt", [(R, B, H * 2 * D), (B * H, L, R)], (L, B, H * D), {"heads": H},
        macs=B * H * L * R * D)
      for prefix in ("_contrib_", "_npx_")),
    # each query meets two places to either side and its own, or only those before
    *(Row(f"{prefix}sldwin_atten_score", [(B, L, H, D), (B, L, H, D), (H,)], (B, L, H, wide), {"w": 2, "symmetric": both},
        macs=B * L * H * wide * D,
          moved=elements((B, L, H, D), (B, L, H, D), (B, L, H, wide))) for prefix in ("_contrib_", "_npx_") for both,
          wide in ((True, 5), (False, 3))),
    *(Row(f"{prefix}sldwin_atten_context", [(B, L, H, 5), (B, L, H, D), (H,)], (B, L, H, D), {"w": 2}, macs=B * L * H * 5 * D,
          moved=elements((B, L, H, 5), (B, L, H, D), (B, L, H, D))) for prefix in ("_contrib_", "_npx_")),
    # -- convolutions
    *(Row(op, [X, (S, C, 3, 2), (S,)], (2, S, 4, 5), {**ONE, "num_filter": S}, macs=SWEPT * C * 6, flops=SWEPT)
      for op in ("Convolution", "_npx_convolution", "Convolution_v1")),
    Row("Convolution", [X, (S - 1, 2, 3, 2)], (2, S - 1, 4, 5), {**ONE, "num_filter": S - 1, "num_group": 2, "no_bias": True},
        macs=2 * (S - 1) * 20 * 2 * 6),
    # each element of the input meets the kernel: (7 - 1) · 2 + 3 - 2 by (5 - 1) + 2 · (2 - 1) + 1 - 2
    *(Row(op, [X, (C, S, 3, 2), (S,)], (2, S, 13, 5), {**ONE, "num_filter": S, "no_bias": False}, macs=2 * C * R * Q * S * 6,
        flops=2 * S * 65)
      for op in ("Deconvolution", "_npx_deconvolution")),
    # four elements, a product and an addition each, for every element under the kernel
    *(Row(op, [X, (2, 12, 4, 5), (S, C, 3, 2), (S,)], (2, S, 4, 5), {**ONE, "num_filter": S}, macs=SWEPT * C * 6,
        flops=SWEPT + 2 * 20 * C * 6 * 4 * 2)
      for op in ("_contrib_DeformableConvolution", "_npx_deformable_convolution")),
    *(Row(op, [X, (2, 12, 4, 5), (2, 6, 4, 5), (S, C, 3, 2), (S,)], (2, S, 4, 5), {**ONE, "num_filter": S}, macs=SWEPT * C * 6,
          flops=SWEPT + 2 * 20 * C * 6 * 4 * 2) for op in ("_contrib_ModulatedDeformableConvolution",
          "_npx_modulated_deformable_convolution")),
    Row("Correlation", [X, X], (2, 9, 3, 1), {"kernel_size": 3, "max_displacement": 1}, macs=2 * 9 * 3 * C * 9),
    Row("Correlation", [X, X], (2, 9, 3, 1), {"kernel_size": 3, "max_displacement": 1, "is_multiply": False},
        flops=2 * 2 * 9 * 3 * C * 9),
    *(Row(op, [X, (C, 1, 4, 4)], (2, C, 14, 10), {"scale": 2, "sample_type": "bilinear", "num_filter": C, "num_args": 2},
        macs=2 * C * R * Q * 16)
      for op in ("UpSampling", "_npx_upsampling")),
    Row("UpSampling", [X], (2, C, 14, 10), {"scale": 2, "sample_type": "nearest", "num_args": 1}),
    Row("UpSampling", [X, X, X], (2, C, 14, 10), {"scale": 2, "sample_type": "nearest", "num_args": 3,
        "multi_input_mode": "sum"}, flops=2 * 2 * C * 140),
    # -- recurrent layers
    rnn("lstm", 4, 30), rnn("lstm", 4, 30, ways=2), rnn("lstm", 4, 30, layers=3), rnn("lstm", 4, 30, layers=2, ways=2,
    project=P), rnn("gru", 3, 21),
    rnn("gru", 3, 21, layers=2, ways=2), rnn("rnn_tanh", 1, 6), rnn("rnn_relu", 1, 2), rnn("lstm", 4,
    30)._replace(op="_npx_rnn"),
    # -- functions whose name is an attribute
    *(Row(op, [(P, Q)], (P, Q), {"act_type": fn}, flops=each * N) for op in ("Activation", "_npx_activation")
      for fn, each in (("relu", 1), ("sigmoid", 4), ("tanh", 5), ("softrelu", 5), ("softsign", 3))),
    *(Row(op, [(P, Q)], (P, Q), {"act_type": fn}, flops=each * N) for op in ("LeakyReLU", "_npx_leaky_relu")
      for fn, each in (("leaky", 3), ("elu", 4), ("selu", 5), ("gelu", 5))),
    Row("LeakyReLU", [(P, Q), (Q,)], (P, Q), {"act_type": "prelu"}, flops=3 * N),
    *(Row(op, [(P, Q)] * 4, (P, Q), {"num_args": 4}, flops=3 * N)
      for op in ("add_n", "ElementWiseSum", "_sparse_ElementWiseSum", "_sparse_add_n", "_npx_add_n")),
    *(Row(op, [(P, Q)], (P, Q), {"a": 1, "b": 2, "c": 3}, flops=4 * N) for op in ("_contrib_quadratic", "_npx_quadratic")),
         # (a x + b) x + c
    *(Row(op, [(P, Q)], (P, Q), moved=0) for op in ("Dropout", "_npx_dropout")),
    Row("Dropout", [(P, Q)], (P, Q), {"mode": "always"}, flops=4 * N, results=2),
    *(Row(op, [(P, Q)], (P, Q), {"dtype": "float16"}, moved=6 * N) for op in ("Cast", "cast", "amp_cast", "_npi_cast",
        "_npx_cast", "_npx_amp_cast", "_npi_amp_cast")),
    Row("Cast", [(P, Q)], (P, Q), {"dtype": "float32"}, moved=0),
    *(Row(op, [(P, Q, R), (Q,)], (P, Q, R), {"use_sequence_length": True}, flops=N * R) for op in ("SequenceMask",
        "_npx_sequence_mask")),
    Row("SequenceMask", [(P, Q, R)], (P, Q, R), moved=0),
    *(Row(op, [(P, Q, R), (Q,)], out, {"use_sequence_length": True}, moved=2 * elements(out) + 4 * Q) for op, out in (
        ("SequenceReverse", (P, Q, R)), ("_npx_sequence_reverse", (P, Q, R)), ("SequenceLast", (Q, R)), ("_npx_sequence_last",
        (Q, R)))),
    Row("SequenceReverse", [(P, Q, R)], (P, Q, R)),
    # -- normalizations
    *(Row(op, [X, (C,), (C,), (C,), (C,)], X, {"fix_gamma": False}, flops=4 * prod(X))
      for op in ("BatchNorm", "_npx_batch_norm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_SyncBatchNorm",
      "_npx_sync_batch_norm")),
    Row("_contrib_BatchNormWithReLU", [X, (C,), (C,), (C,), (C,)], X, flops=5 * prod(X)),
    *(Row(op, [X, (Q,), (Q,)], X, flops=8 * prod(X)) for op in ("LayerNorm", "_npx_layer_norm")),
    *(Row(op, [X, (2,), (2,)], X, {"num_groups": 2}, flops=8 * prod(X)) for op in ("GroupNorm", "_npx_group_norm")),
    *(Row(op, [X, (C,), (C,)], X, flops=8 * prod(X)) for op in ("InstanceNorm", "_npx_instance_norm")),
    *(Row(op, [X], X, flops=3 * prod(X)) for op in ("L2Normalization", "_npx_l2_normalization")),
    *(Row(op, [X], X, {"nsize": 5}, flops=(5 + 5) * prod(X)) for op in ("LRN", "_npx_lrn")),
    # -- windows
    *(Row(op, [X], (2, C, 4, 6), {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "pool_type": fn}, flops=2 * C * 24 * each)
      for op in ("Pooling", "_npx_pooling", "Pooling_v1") for fn, each in (("max", 6), ("avg", 6), ("sum", 6))),
    Row("Pooling", [X], (2, C, 4, 6), {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "pool_type": "lp", "p_value": 2},
        flops=2 * C * 24 * 13),
    Row("Pooling", [X], (2, C, 1, 1), {"kernel": (1, 1), "global_pool": True, "pool_type": "avg"}, flops=2 * C * R * Q),
    Row("Pooling", [X], (2, C, 4, 3), {"kernel": (2, 2), "stride": (2, 2), "pooling_convention": "full"}, flops=2 * C * 12 * 4),
    *(Row(op, [(2, C, 8, 6)], (2, C, 2, 3), {"output_size": (2, 3)}, flops=2 * C * 6 * 8)
      for op in ("_contrib_AdaptiveAvgPooling2D", "_npx_adaptive_avg_pooling2d", "contrib_AdaptiveAvgPooling2D")),
    *(Row(op, [(2, C, 8, 6), (S, 5)], (S, C, 4, 3), {"pooled_size": (4, 3), "spatial_scale": 1},
        flops=S * C * 12 * 4) for op in ("ROIPooling", "_npx_roi_pooling")),
    Row("_contrib_PSROIPooling", [(2, 12 * C, 8, 6), (S, 5)], (S, C, 3, 3), {"pooled_size": 3, "output_dim": C,
        "spatial_scale": 1, "group_size": 3},
        flops=S * C * 9 * 3 * 2),
    *(Row(op, [(2, C, 8, 6), (S, 5)], (S, C, 4, 3), {"pooled_size": (4, 3), "spatial_scale": 1, "sample_ratio": ratio},
        flops=S * C * 12 * 4 * each * 2,
          moved=elements((2, C, 8, 6), (S, 5), (S, C, 4, 3))) for op in ("_contrib_ROIAlign", "_npx_roi_align") for ratio,
          each in ((3, 9), (-1, 4))),
    *(Row(op, [X], (2, C, 14, 10), {"height": 14, "width": 10}, flops=9 * 2 * C * 140) for op in ("_contrib_BilinearResize2D",
        "_npx_bilinear_resize2d")),
    *(Row(op, [(R, Q, 3)], (10, 14, 3), {"size": (14, 10), "interp": how}, flops=each * 420) for op in ("_image_resize",
        "_npx__image_resize")
      for how, each in ((0, 0), (1, 9), (2, 35), (4, 35))),
    Row("_image_resize", [(R, Q, 3)], (10, 14, 3), {"size": (14, 10), "interp": 3}, flops=R * Q * 3 + 420),
    Row("BilinearSampler", [X, (2, 2, 3, 4)], (2, C, 3, 4), flops=2 * C * 12 * 4 * 2, moved=elements(X, (2, 2, 3, 4), (2, C, 3,
        4))),
    Row("SpatialTransformer", [X, (2, 6)], (2, C, 3, 4), {"target_shape": (3, 4), "transform_type": "affine",
        "sampler_type": "bilinear"},
        flops=2 * C * 12 * 4 * 2, moved=elements(X, (2, 6), (2, C, 3, 4))),
    Row("GridGenerator", [(2, 6)], (2, 2, 3, 4), {"transform_type": "affine", "target_shape": (3, 4)}, flops=2 * 2 * 2 * 24),
    Row("GridGenerator", [(2, 2, 3, 4)], (2, 2, 3, 4), {"transform_type": "warp"}, flops=48),
    # -- sorting: ceil(log2) comparisons for each element
    *(Row(op, [(P, Q, R)], (P, Q, R), flops=3 * N * R) for op in ("sort", "_npi_sort", "argsort", "_npi_argsort")),
    Row("sort", [(P, Q, R)], (N * R,), {"axis": None}, flops=7 * N * R),
    *(Row(op, [(P, Q, R)], (P, Q, 2), {"k": 2, "ret_typ": "value"}, flops=N * R) for op in ("topk", "_npx_topk")),
    # -- boxes: sorted, compared (14 operations each, 14 to decode)
    *(Row(op, [(2, S, 6)], (2, S, 6), flops=2 * S * 4) for op in ("_contrib_box_nms", "_contrib_box_non_maximum_suppression",
        "_npx_box_nms")),
    *(Row(op, [(P, 4), (Q, 4)], (P, Q), flops=14 * N) for op in ("_contrib_box_iou", "_npx_box_iou")),
    *(Row(op, [(2, P, Q)], (2, P), {"threshold": 0.5}, flops=2 * N * 4, results=2) for op in ("_contrib_bipartite_matching",
        "_npx_bipartite_matching")),
    *(Row(op, [(2, S, 4), (1, S, 4)], (2, S, 4), flops=14 * 2 * S) for op in ("_contrib_box_decode", "_npx_box_decode")),
    *(Row(op, [(2, S), (2, S), (2, S, 4), (2, P, 4), (4,), (4,)], (2, S, 4), flops=14 * 2 * S, results=2)
      for op in ("_contrib_box_encode", "_npx_box_encode")),
    *(Row(op, [(1, S, 4), (2, P, 5), (2, Q, S)], (2, S * 4), flops=2 * S * P * 14, results=3)
      for op in ("_contrib_MultiBoxTarget", "_npx_multibox_target", "MultiBoxTarget")),
    *(Row(op, [(2, Q, S), (2, S * 4), (1, S, 4)], (2, S, 6), flops=2 * S * (4 + 14))
      for op in ("_contrib_MultiBoxDetection", "_npx_multibox_detection", "MultiBoxDetection")),
    *(Row(op, [(images, 2 * 9, R, Q), (images, 4 * 9, R, Q), (images, 3)], (kept, 5), {"rpn_post_nms_top_n": 6},
        flops=images * 9 * R * Q * (9 + 14))
      for op, images, kept in (("_contrib_Proposal", 1, 6), ("Proposal", 1, 6), ("_contrib_MultiProposal", 2, 12),
      ("MultiProposal", 2, 12))),
    Row("_contrib_RROIAlign", [(2, C, 8, 6), (S, 6)], (S, C, 4, 3), {"pooled_size": (4, 3), "spatial_scale": 1,
        "sampling_ratio": 3},
        flops=S * C * 12 * 4 * 9 * 2, moved=elements((2, C, 8, 6), (S, 6), (S, C, 4, 3))),
    # -- on bytes: each tensor has its least and greatest number beside it
    Row("_contrib_quantized_conv", [X, (S, C, 3, 2), (S,), *[(1,)] * 6], (2, S, 4, 5), {**ONE, "num_filter": S},
        macs=SWEPT * C * 6, flops=SWEPT, results=3),
    Row("_contrib_quantized_fully_connected", [(P, Q), (S, Q), (S,), *[(1,)] * 6], (P, S), {"num_hidden": S}, macs=P * Q * S,
        flops=P * S, results=3),
    Row("_contrib_quantized_fully_connected", [(P, Q), (S, Q), *[(1,)] * 4], (P, S), {"num_hidden": S, "no_bias": True},
        macs=P * Q * S, results=3),
    Row("_contrib_quantized_act", [(P, Q), (1,), (1,)], (P, Q), {"act_type": "relu"}, flops=N, results=3),
    Row("_contrib_quantized_pooling", [X, (1,), (1,)], (2, C, 6, 4), {"kernel": (2, 2)}, flops=2 * C * 24 * 4, results=3),
    Row("_contrib_quantized_flatten", [(P, Q, R), (1,), (1,)], (P, Q * R), results=3),
    Row("_contrib_quantized_reshape", [(P, Q), (1,), (1,)], (Q, P), {"newshape": (Q, P)}, results=3),
    Row("_contrib_quantized_transpose", [(P, Q), (1,), (1,)], (Q, P), results=3),
    Row("_contrib_quantized_concat", [(P, Q), (P, R), *[(1,)] * 4], (P, Q + R), {"num_args": 2, "dim": 1}, results=3),
    *(Row(op, [(P, Q), (S, Q), (1,), (S,)], (P, S), {"num_hidden": S}, macs=P * Q * S, flops=P * S, results=3)
      for op in ("_contrib_intgemm_fully_connected", "_npx_intgemm_fully_connected")),
    Row("_contrib_quantized_batch_norm", [X, (C,), (C,), (C,), (C,), (1,), (1,)], X, flops=4 * prod(X), results=3),
    *(Row(f"_contrib_quantized_elemwise_{name}", [(P, Q), (P, Q), *[(1,)] * 4], (P, Q), flops=N, results=3) for name in ("add",
        "mul")),
    # -- matrices: leading terms of the textbook
    *(Row(op, [(2, R, R)], (2, R, R), flops=2 * R**3 // 3) for op in ("_linalg_potrf", "linalg_potrf", "_npi_cholesky")),
    *(Row(op, [(2, R, R)], (2, R, R), flops=2 * 2 * R**3) for op in ("_linalg_inverse", "linalg_inverse", "_npi_inv",
        "_linalg_potri", "linalg_potri")),
    *(Row(op, [(2, R, R)], (2,), flops=2 * 2 * R**3 // 3, numpy="npi" in op) for op in ("_linalg_det", "linalg_det",
        "_npi_det")),
    *(Row(op, [(2, R, R), (2, R, S)], (2, R, S), flops=2 * R * R * S) for op in ("_linalg_trsm", "linalg_trsm")),
    Row("_npi_solve", [(2, R, R), (2, R, S)], (2, R, S), flops=2 * (2 * R**3 + 6 * R * R * S) // 3, numpy=True),
    *(Row(op, [(2, R, R)], (2,), flops=2 * 2 * R**3 // 3, results=2, numpy="npi" in op) for op in ("linalg_slogdet",
        "_npi_slogdet")),
    *(Row(op, [(2, P, R)], (2, P, R), flops=2 * (6 * R * P**2 - 2 * P**3) // 3, results=2) for op in ("_linalg_gelqf",
        "linalg_gelqf")),
    Row("_npi_qr", [(2, R, P)], (2, R, P), flops=2 * (6 * R * P**2 - 2 * P**3) // 3, results=2, numpy=True),
    *(Row(op, [(2, R, R)], (2, R, R), flops=2 * 9 * R**3, results=2) for op in ("_linalg_syevd", "linalg_syevd")),
    Row("_npi_eigh", [(2, R, R)], (2, R), flops=2 * 9 * R**3, results=2, numpy=True),
    Row("_npi_eigvalsh", [(2, R, R)], (2, R), flops=2 * 4 * R**3 // 3, numpy=True),
    Row("_npi_eig", [(2, R, R)], (2, R), flops=2 * 25 * R**3, results=2, numpy=True),
    Row("_npi_eigvals", [(2, R, R)], (2, R), flops=2 * 10 * R**3, numpy=True),
    Row("_npi_svd", [(2, P, R)], (2, P, P), flops=2 * (14 * R * P**2 + 8 * P**3), results=3, numpy=True),
    Row("_npi_pinv_scalar_rcond", [(2, P, R)], (2, R, P), flops=2 * (14 * R * P**2 + 8 * P**3), numpy=True),
    # 5 n log2 n of n complex numbers, two elements each
    Row("_contrib_fft", [(P, 16)], (P, 32), flops=P * 5 * 16 * 4),
    Row("_contrib_ifft", [(P, 32)], (P, 16), flops=P * 5 * 16 * 4),
    # -- the rest
    Row("softmax_cross_entropy", [(P, Q), (P,)], (1,), flops=(5 + 1) * N),
    *(Row(op, [(R, 2, Q), (2, 3)], (2,), flops=13 * R * (2 * 6 + 2)) for op in ("CTCLoss", "ctc_loss", "_contrib_CTCLoss",
        "_contrib_ctc_loss", "_npx_ctc_loss")),
    *(Row(op, [(3, R), (2, 3)], (P, Q, R), {"shape": (P, Q, R)}, results=2) for op in ("scatter_nd", "_npx_scatter_nd")),
    Row("_contrib_count_sketch", [(P, Q), (1, Q), (1, Q)], (P, S), {"out_dim": S}, flops=2 * N),
    Row("_npx_index_add", [(S, Q), (1, 3), (3, Q)], (S, Q), flops=3 * Q, numpy=True),
    Row("_npx_index_update", [(S, Q), (1, 3), (3, Q)], (S, Q), numpy=True),
    *(Row(op, [(S, Q), (3, Q), (1, 3)], (S, Q), {"shape": (S, Q)}) for op in ("_scatter_set_nd", "_npi_scatter_set_nd")),
    Row("_contrib_DeformablePSROIPooling", [(2, 9 * C, 8, 6), (S, 5)], (S, C, 3, 3), {"pooled_size": 3, "output_dim": C,
        "group_size": 3,
        "spatial_scale": 1, "sample_per_part": 2, "no_trans": True}, flops=S * C * 9 * 4 * 4 * 2, results=2),
    Row("col2im", [(2, C * 6, 20)], X, {**ONE, "output_size": (R, Q)}, flops=2 * C * 6 * 20),
    *(Row(op, [(S, Q), (3,), (3, Q)], (S, Q)) for op in ("_contrib_index_copy", "_npx_index_copy")),
]  # fmt: skip


def symbol_of(row: Row) -> Any:
    nodes = [{"op": "null", "name": f"x{place}", "inputs": []} for place in range(len(row.ins))]
    entries = [[place, 0, 0] for place in range(len(row.ins))]
    attrs = {key: str(value) for key, value in row.attrs.items()}
    nodes.append({"op": row.op, "name": "y", "attrs": attrs, "inputs": entries})  # type: ignore[dict-item]
    meta = {"mxnet_version": ["int", 10901], "is_np_shape": ["int", int(row.numpy)]}
    return upgraded(parse_symbol(json.dumps({"nodes": nodes, "heads": [[len(row.ins), 0, 0]], "attrs": meta})))


@pytest.mark.parametrize("row", ROWS, ids=[f"{at}-{row.op}" for at, row in enumerate(ROWS)])
def test_an_operator_costs_what_it_computes(row: Row) -> None:
    shapes = {f"x{place}": shape for place, shape in enumerate(row.ins)}
    report = cost_graph(load_graph(Opened(symbol_of(row), {}, "one", CountOptions(shapes=shapes))), default_rules())
    assert report.outputs[0].shape == row.out
    assert (report.totals.macs, report.totals.flops, report.totals.uncounted) == (row.macs, 2 * row.macs + row.flops, 0)
    moved = elements(*row.ins, row.out) if row.moved is None else row.moved
    if row.results == 1:
        assert report.totals.bytes_read + report.totals.bytes_written == moved


UNSHAPED = {"unknown", *MOVED, "elementwise", "softmax", "reduce", "random", "quantize"}


def handler(operator: RowOperator) -> int:
    """What distinguishes two operators: what works out their kind, or the row itself."""
    return id(operator.means if callable(operator.means) else operator)


def test_every_operator_whose_cost_depends_on_shapes_has_a_row() -> None:
    written = {row.op for row in ROWS}
    handlers = {handler(all_operators()[name]) for name in written}
    missing = {
        name
        for name, each in all_operators().items()
        if name not in written
        and handler(each) not in handlers
        and not (name in FIXED and FIXED[name].kind in UNSHAPED)
    }
    assert missing == set()
