"""The names that an attribute may choose from. What each costs stands in the rules; a test holds the two against each other."""

from __future__ import annotations

ELEMENTARY = tuple(
    """
    add sub mul div neg abs sign copysign reciprocal square sqrt rsqrt cbrt pow exp exp2 expm1 log log2 log10 log1p
    sin cos tan asin acos atan atan2 deg2rad rad2deg
    erf erfc erfinv erfcx lgamma digamma polygamma gammainc gammaincc zeta bessel ndtri log_ndtr polynomial
    floor ceil round trunc min max compare logical bitwise shift where masked_fill nan_check nextafter gcd angle conj triangle
    """.split()
)
"""One operation for each element: arithmetic, a comparison, a selection, a function of the mathematical library."""

COMPOSITE = tuple(
    """
    fma mul_mul_add mul_high round_shift_clamp add_mul_round_shift_clamp colour frac frexp ldexp floor_divide remainder clamp
    lerp addcmul addcdiv hypot sinh cosh asinh acosh atanh sinc xlogy entropy logit logaddexp heaviside nan_to_num polar cross
    relu relu6 add_relu add_sigmoid add_tanh add_hardswish hardtanh threshold leaky_relu prelu rrelu elu selu celu sigmoid tanh
    silu glu swiglu geglu geglu_tanh rotary gelu gelu_tanh quick_gelu softplus mish logsigmoid softsign hardsigmoid hardswish
    hardshrink softshrink tanhshrink smooth_l1 dropout lstm_cell gru_cell lstm_cell_grad gru_cell_grad fake_quantize
    abs_grad asinh_grad atanh_grad relu_grad threshold_grad hardtanh_grad hardshrink_grad softshrink_grad leaky_relu_grad
    rrelu_grad prelu_grad elu_grad logit_grad sigmoid_grad tanh_grad silu_grad glu_grad gelu_grad gelu_tanh_grad softplus_grad
    mish_grad logsigmoid_grad hardsigmoid_grad hardswish_grad dropout_grad fake_quantize_grad
    sgd_step momentum_step adagrad_step rmsprop_step lion_step adam_step adamw_step
    """.split()
)
"""Functions of each element that are made of several operations."""

ELEMENTWISE = (*ELEMENTARY, *COMPOSITE)

REDUCTIONS = tuple(
    """
    sum mean prod trace max min argmax argmin any all cumsum cumprod cummax cummin minmax nansum nanmean count_nonzero equal
    norm dot dist hash var std var_mean std_mean logsumexp logcumsumexp histogram
    """.split()
)

LOSSES = tuple(
    """
    mse l1 smooth_l1 huber bce bce_with_logits kl_div soft_margin multi_margin multilabel_margin hinge poisson_nll nll
    cross_entropy ctc
    """.split()
)

NORMS = ("batch", "instance", "layer", "group", "rms", "weight", "lp", "local_response")
POOLS = ("max", "adaptive_max", "avg", "adaptive_avg", "lp", "unpool")
RESIZES = ("nearest", "linear", "bilinear", "trilinear", "bicubic", "area", "lanczos")
CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
SCATTERS = ("copy", "add", "mul", "max", "min", "mean")
BAGS = ("none", "sum", "max", "mean")
FACTORIZATIONS = tuple(
    """
    inverse solve triangular_solve factored_solve cholesky lu det qr householder svd eig eigh lstsq matrix_exp
    """.split()
)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send", "recv", "wait")
