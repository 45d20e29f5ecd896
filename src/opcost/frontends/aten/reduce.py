"""Reductions and running sums."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, always, on

_REDUCTIONS = {
    "sum": ("sum", "_sparse_sum", "_sparse_csr_sum", "sum_to_size"),
    "trace": ("trace",),
    "nansum": ("nansum",),
    "nanmean": ("nanmean",),
    "mean": ("mean",),
    "prod": ("prod", "_sparse_csr_prod"),
    "var": ("var",),
    "var_mean": ("var_mean",),
    "std": ("std",),
    "std_mean": ("std_mean",),
    "max": ("max", "amax"),
    "min": ("min", "amin"),
    "minmax": ("aminmax", "_aminmax"),
    "argmax": ("argmax",),
    "argmin": ("argmin",),
    "any": ("any", "is_nonzero", "_is_any_true"),
    "all": ("all", "_is_all_true", "_validate_compressed_sparse_indices"),
    "equal": ("equal", "allclose", "isclose"),
    "norm": (
        "norm", "native_norm", "linalg_vector_norm", "linalg_norm", "linalg_matrix_norm", "frobenius_norm",
        "norm_except_dim", "linalg__powsum",
    ),
    "dist": ("dist",),
    "hash": ("hash_tensor",),
    "logsumexp": ("logsumexp",),
    "count_nonzero": ("count_nonzero",),
    "cumsum": ("cumsum",),
    "cumprod": ("cumprod",),
    "cummax": ("cummax", "_cummax_helper"),
    "cummin": ("cummin", "_cummin_helper"),
    "logcumsumexp": ("logcumsumexp", "_logcumsumexp"),
    "histogram": (
        "histc", "histogram", "bincount", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts",
        "_histogramdd_from_bin_tensors",
    ),
}  # fmt: skip

for _fn, _names in _REDUCTIONS.items():
    always("reduce", _names, fn=_fn)

always("reduce", ["_foreach_norm", "_foreach_powsum"], fn="norm", each=True)
always("reduce", ["_foreach_max"], fn="max", each=True)


@on("segment_reduce")
def _segment_reduce(call: Call) -> Translation:
    return Translation("reduce", {"fn": call["reduce"]}, call.tensors("data", "lengths", "indices", "offsets"))


@on("_segment_reduce_backward")
def _segment_reduce_backward(call: Call) -> Translation:
    return Translation("gather", {})
