"""Operators without MACs: shapes, kinds and FLOPs derived from their settings."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from opcost.errors import OpcostError
from opcost.frontends.megengine.operators import ROWS
from opcost.frontends.megengine.operators.elements import MODES
from opcost.frontends.megengine.schema import ENUMS
from opcost.rules.elementwise import FLOPS_PER_ELEMENT

N, C, H, W = 2, 8, 6, 7
IMAGE = (N, C, H, W)


def shapes(row: Any) -> list[tuple[int | None, ...]]:
    return [spec.shape for spec in row.outs]


# -- elementwise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ENUMS["Elemwise"])
def test_every_mode_is_a_function_of_ours(mode: str, apply: Any) -> None:
    row = apply("Elemwise", (3, 1), (1, 4), table="Elemwise", mode=mode)
    assert shapes(row) == [(3, 4)]
    assert row.cost.flops == 12 * FLOPS_PER_ELEMENT[MODES[mode]]


@pytest.mark.parametrize("mode", ENUMS["MultiType"])
def test_every_mode_of_several_types_is_counted(mode: str, apply: Any) -> None:
    row = apply("ElemwiseMultiType", (3, 4), table="ElemwiseMultiType", mode=mode)
    assert row.op.kind == "elementwise"
    assert row.cost.flops > 0


@pytest.mark.parametrize(
    ("mode", "per_element"),
    [
        ("FUSE_ADD_RELU", 1 + 1),
        ("FUSE_MUL_ADD3", 1 + 1),
        ("FUSE_MUL_ADD4", 1 + 1 + 1),
        ("FUSE_ADD_SIGMOID", 1 + FLOPS_PER_ELEMENT["sigmoid"]),
        ("FUSE_ADD_TANH", 1 + FLOPS_PER_ELEMENT["tanh"]),
        ("FUSE_ADD_H_SWISH", 1 + FLOPS_PER_ELEMENT["hardswish"]),
        ("CLIP", 2),
    ],
)
def test_a_fused_function_costs_its_parts(mode: str, per_element: int, apply: Any) -> None:
    assert apply("Elemwise", (3, 4), (3, 4), table="Elemwise", mode=mode).cost.flops == 12 * per_element


def test_a_quantized_function_costs_what_the_plain_one_costs(apply: Any) -> None:
    plain = apply("Elemwise", (3, 4), (3, 4), table="Elemwise", mode="FUSE_ADD_RELU")
    quantized = apply(
        "ElemwiseMultiType",
        (3, 4),
        (3, 4),
        table="ElemwiseMultiType",
        mode="QFUSE_ADD_RELU",
        dtype="qint8",
        result="qint8",
    )
    assert quantized.cost.flops == plain.cost.flops
    assert quantized.cost.bytes_read * 4 == plain.cost.bytes_read


def test_a_mode_of_a_later_version_is_unknown_and_not_zero(apply: Any) -> None:
    row = apply("Elemwise", (3, 4), table="Elemwise", mode="mode999")
    assert row.op.kind == "unknown"
    assert row.cost is None


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("float32", "float16", "copy"),
        ("int32", "float32", "copy"),
        ("float32", "qint8", "quantize"),
        ("qint8", "float32", "quantize"),
        ("qint32", "qint8", "quantize"),
    ],
)
def test_a_conversion_computes_only_where_a_scale_is_applied(before: str, after: str, kind: str, apply: Any) -> None:
    row = apply("TypeCvt", (3, 4), dtype=before, result=after)
    assert row.op.kind == kind
    assert row.outs[0].dtype == after


@pytest.mark.parametrize("kind", ["FakeQuant", "TQT"])
def test_a_quantization_in_training_is_a_function(kind: str, apply: Any) -> None:
    row = apply(kind, IMAGE, (1,), (1,), table=kind)
    assert row.cost.flops == prod(IMAGE) * FLOPS_PER_ELEMENT["fake_quantize"]


def test_where_takes_a_mask_and_two_tensors(apply: Any) -> None:
    assert shapes(apply("Where", (3, 4), (3, 4), (3, 1))) == [(3, 4)]
    assert apply("MaskedFill", (3, 4), (3, 4), table="Fill").cost.flops == 12


# -- norms and pools ---------------------------------------------------------------------------------------------------


def test_batch_norm_in_use_and_in_training(apply: Any) -> None:
    scale = (1, C, 1, 1)
    used = apply("BatchNorm", IMAGE, scale, scale, scale, scale, outputs=4, table="BN", fwd_mode="INFERENCE")
    assert used.outs[0].dims == IMAGE
    assert used.cost.flops == 4 * prod(IMAGE)  # subtract, multiply; scale, shift
    trained = apply("BatchNorm", IMAGE, scale, scale, scale, scale, outputs=6, table="BN", fwd_mode="TRAINING")
    assert trained.outs[0].dims == IMAGE
    assert trained.cost.flops == 8 * prod(IMAGE)


@pytest.mark.parametrize(
    ("kind", "table", "settings", "kept"),
    [
        ("LayerNorm", "LayerNorm", {"normalized_dim": 2}, (N, C)),
        ("GroupNorm", "GroupNorm", {"group": 4}, (N, 4)),
        ("InstanceNorm", "GroupNorm", {"group": C}, (N, C)),
        ("GeneralNorm", "GeneralNorm", {"axis_start": 1, "axis_end": 3}, (N, W)),
    ],
)
def test_norms_keep_their_statistics(
    kind: str, table: str, settings: dict[str, Any], kept: tuple[int, ...], apply: Any
) -> None:
    row = apply(kind, IMAGE, (C,), (C,), outputs=3, table=table, **settings)
    assert shapes(row) == [IMAGE, kept, kept]
    assert row.cost.flops == (4 + 2 + 2) * prod(IMAGE)
    plain = apply(kind, IMAGE, outputs=3, table=table, affine=False, **settings)
    assert plain.cost.flops == (4 + 2) * prod(IMAGE)


def test_local_response_and_softmax(apply: Any) -> None:
    assert apply("LRN", IMAGE, table="LRN", n=7).cost.flops == (7 + 5) * prod(IMAGE)
    assert apply("Softmax", IMAGE, table="Softmax").cost.flops == 5 * prod(IMAGE)


@pytest.mark.parametrize("mode", ENUMS["Pool"])
def test_a_window_slides_over_the_image(mode: str, apply: Any) -> None:
    rows, columns = (H + 2 - 3) // 2 + 1, (W - 2) // 1 + 1
    row = apply(
        "Pooling", IMAGE, table="Pooling", mode=mode, window_h=3, window_w=2, stride_h=2, stride_w=1, pad_h=1, pad_w=0
    )
    assert shapes(row) == [(N, C, rows, columns)]
    assert row.cost.flops == N * C * rows * columns * 6


def test_packed_images_are_pooled_alike(apply: Any) -> None:
    row = apply("Pooling", (N, C // 4, H, W, 4), table="Pooling", format="NCHW44")
    assert shapes(row) == [(N, C // 4, H // 2, W // 2, 4)]
    assert shapes(apply("Pooling", (N, H, W, C), table="Pooling", format="NHWC")) == [(N, H // 2, W // 2, C)]


def test_adaptive_pooling_takes_its_size_as_an_input(apply: Any) -> None:
    row = apply("AdaptivePooling", IMAGE, [3, 2], table="AdaptivePooling", mode="AVERAGE")
    window = -(-H // 3) * -(-W // 2)
    assert shapes(row) == [(N, C, 3, 2)]
    assert row.cost.flops == N * C * 3 * 2 * window


# -- reductions, sorting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "per_input"), [("SUM", 1), ("PRODUCT", 1), ("MIN", 1), ("MAX", 1), ("SUM_SQR", 2)])
def test_a_reduction_keeps_its_axis(mode: str, per_input: int, apply: Any) -> None:
    row = apply("Reduce", IMAGE, table="Reduce", mode=mode, axis=1)
    assert shapes(row) == [(N, 1, H, W)]
    assert row.cost.flops == per_input * prod(IMAGE)
    assert shapes(apply("Reduce", IMAGE, table="Reduce", mode=mode, axis=-1)) == [(N, C, H, 1)]


def test_a_mean_divides_once_for_each_result(apply: Any) -> None:
    assert apply("Reduce", IMAGE, table="Reduce", mode="MEAN", axis=1).cost.flops == prod(IMAGE) + N * H * W


def test_a_reduction_may_be_given_its_shape(apply: Any) -> None:
    assert shapes(apply("Reduce", IMAGE, [1, C, 1, 1], table="Reduce")) == [(1, C, 1, 1)]


def test_places_of_extrema_are_whole_numbers(apply: Any) -> None:
    row = apply("Argmax", IMAGE, table="Axis", axis=1)
    assert shapes(row) == [(N, 1, H, W)]
    assert row.outs[0].dtype == "int32"
    assert row.cost.flops == prod(IMAGE)
    assert shapes(apply("Argmin", IMAGE, table="Axis", axis=-1)) == [(N, C, H, 1)]


def test_a_running_sum_keeps_the_shape(apply: Any) -> None:
    row = apply("Cumsum", (3, 4), table="Cumsum", axis=1)
    assert shapes(row) == [(3, 4)]
    assert row.cost.flops == 12


def test_sorting_and_selecting(apply: Any) -> None:
    row = apply("Argsort", (3, 16), outputs=2, table="Argsort")
    assert shapes(row) == [(3, 16), (3, 16)]
    assert [spec.dtype for spec in row.outs] == ["float32", "int32"]
    assert row.cost.flops == 3 * 16 * 4  # log2 of 16
    best = apply("TopK", (3, 16), [-5], outputs=2, table="TopK", mode="VALUE_IDX_SORTED")
    assert shapes(best) == [(3, 5), (3, 5)]
    assert best.cost.flops == 3 * 16 * 3  # 5 are kept: 3 comparisons each
    assert shapes(apply("TopK", (3, 16), [99], outputs=2, table="TopK", mode="VALUE_IDX_SORTED"))[0] == (3, 16)
    assert shapes(apply("TopK", (3, 16), [2], table="TopK", mode="KTH_ONLY")) == [(3,)]


def test_what_depends_on_data_is_unknown_and_said(apply: Any) -> None:
    taken = apply("CondTake", (3, 4), (3, 4), outputs=2, table="CondTake")
    assert shapes(taken) == [(None,), (None,)]
    assert taken.cost is None
    assert shapes(apply("NonZero", (3, 4))) == [(2, None)]
    kept = apply("NMSKeepMGB", (2, 10, 4), outputs=2, table="NMSKeep", max_output=5)
    assert shapes(kept) == [(2, 5), (2,)]
    assert kept.cost is None


# -- indexing ----------------------------------------------------------------------------------------------------------


def test_slices_and_numbers(apply: Any) -> None:
    every = (2, False, False, True, False)
    part = (1, True, True, False, False)
    one = (0, False, False, False, True)
    row = apply("Subtensor", IMAGE, [2], [1], [-1], [-1], items=(every, part, one))
    assert shapes(row) == [(len(range(C)[1:-1]), len(range(H)[::2]), W)]
    assert row.op.kind == "view"
    assert row.cost.flops == 0
    assert shapes(apply("Subtensor", (5,), [0], items=((0, False, False, False, True),))) == [(1,)]


def test_picked_axes_are_where_they_were_or_in_front(apply: Any) -> None:
    def pick(axis: int) -> tuple[int, bool, bool, bool, bool]:
        return (axis, False, False, False, True)

    assert shapes(apply("IndexingMultiAxisVec", IMAGE, (4,), items=(pick(1),))) == [(N, 4, H, W)]
    assert shapes(apply("IndexingMultiAxisVec", IMAGE, (4,), (4,), items=(pick(2), pick(1)))) == [(N, 4, W)]
    assert shapes(apply("IndexingMultiAxisVec", IMAGE, (4,), (4,), items=(pick(3), pick(1)))) == [(4, N, H)]
    assert shapes(apply("IndexingMultiAxisVec", IMAGE, (3, 4), items=(pick(0),))) == [(3, 4, C, H, W)]
    assert shapes(apply("MeshIndexing", IMAGE, (4,), (5,), items=(pick(3), pick(1)))) == [(N, 5, H, 4)]


@pytest.mark.parametrize(
    ("kind", "flops"), [("SetSubtensor", 0), ("IncrSubtensor", 1), ("IndexingIncrMultiAxisVec", 1)]
)
def test_writing_moves_what_is_put(kind: str, flops: int, apply: Any) -> None:
    row = apply(kind, (5, 4), (2, 4), [0], [2], items=((0, True, True, False, False),))
    assert shapes(row) == [(5, 4)]
    assert row.op.kind == "scatter"
    assert row.cost.flops == flops * 2 * 4


def test_one_of_many(apply: Any) -> None:
    assert shapes(apply("IndexingOneHot", (3, 9), (3,), table="Axis", axis=1)) == [(3, 1)]
    assert shapes(apply("IndexingSetOneHot", (3, 9), (3,), (3, 1), table="Axis", axis=1)) == [(3, 9)]
    assert shapes(apply("Diag", (4, 6), table="Diag", k=1)) == [(4,)]
    assert shapes(apply("Diag", (4, 6), table="Diag", k=-1)) == [(3,)]
    assert shapes(apply("Diag", (4,), table="Diag", k=-2)) == [(6, 6)]


# -- moves -------------------------------------------------------------------------------------------------------------


def test_reshaping_leaves_one_extent_open(apply: Any) -> None:
    row = apply("Reshape", IMAGE, [N, -1], table="OptionalAxisV1")
    assert shapes(row) == [(N, C * H * W)]
    assert row.op.kind == "view"
    assert shapes(apply("Reshape", IMAGE, [N, 1, W], table="OptionalAxisV1", axis=1)) == [(N, C * H, W)]
    with pytest.raises(OpcostError, match="do not divide"):
        apply("Reshape", IMAGE, [5, -1], table="OptionalAxisV1")
    with pytest.raises(OpcostError, match="has 672 elements"):
        apply("Reshape", IMAGE, [5, 5], table="OptionalAxisV1")


def test_other_looks(apply: Any) -> None:
    assert shapes(apply("Broadcast", (C, 1, 1), [N, C, H, W])) == [IMAGE]
    assert shapes(apply("Dimshuffle", IMAGE, table="Dimshuffle", pattern=(0, 2, 3, -1, 1))) == [(N, H, W, 1, C)]
    changes = (("add", 0), ("remove", 2), ("add", -1))
    assert shapes(apply("AxisAddRemove", (N, 1, H), table="AxisAddRemove", desc=changes)) == [(1, N, H, 1)]
    for kind in ("Identity", "MarkDynamicVar", "MarkNoBroadcastElemwise"):
        assert apply(kind, IMAGE).cost.bytes_written == 0


def test_more_axes_than_megengine_has_are_refused(apply: Any) -> None:
    with pytest.raises(OpcostError, match="more than 7 axes"):
        apply("AxisAddRemove", (3,), table="AxisAddRemove", desc=(("add", 0),) * 1000)


def test_joining_splitting_padding(apply: Any) -> None:
    assert shapes(apply("Concat", (N, 3, H), (N, 4, H), (N, 5, H), table="Axis", axis=1)) == [(N, 12, H)]
    split = apply("Split", (N, 12, H), [3], [4], [5], outputs=3, table="Axis", axis=1)
    assert shapes(split) == [(N, 3, H), (N, 4, H), (N, 5, H)]
    padded = apply("Padding", (3, 4), table="Padding", front_offset_dim0=1, back_offset_dim1=2)
    assert shapes(padded) == [(4, 6)]
    assert padded.cost.bytes_written == 4 * 6 * 4


def test_the_shape_of_a_tensor_is_free(apply: Any) -> None:
    row = apply("GetVarShape", IMAGE, table="OptionalAxisV1")
    assert shapes(row) == [(4,)]
    assert row.op.kind == "view"
    assert shapes(apply("GetVarShape", IMAGE, table="OptionalAxisV1", axis=1)) == [(1,)]


@pytest.mark.parametrize(
    ("mode", "before", "after"),
    [
        ("NCHW_NCHW88", (N, 12, H, W), (N, 2, H, W, 8)),
        ("NCHW88_NCHW", (N, 2, H, W, 8), (N, 16, H, W)),
        ("NCHW_NHWCD4", (N, 6, H, W), (N, H, 2, W, 4)),
        ("NHWCD4_NCHW", (N, H, 2, W, 4), (N, 8, H, W)),
        ("NCHW_NCHW4_IC_SMALL", (N, 3, H, W), (N, 1, H, W, 4)),
        ("NCHW4_CHWN4", (N, 2, H, W, 4), (2, H, W, N, 4)),
        ("NCHW_NHWC", (N, C, H, W), (N, H, W, C)),
        ("NCHW_NCHW64", (N, C, H, W), (N, 1, H, W, 64)),
        ("NCHW_NCHW88_CONV_DENSE_WEIGHT", (16, 8, 3, 3), (2, 1, 3, 3, 8, 8)),
        ("NCHW_NCHW88_CONV_CHAN_WEIGHT", (16, 1, 1, 3, 3), (2, 1, 1, 3, 3, 8)),
        ("NCHW_NCHW88_CONV_GROUP_WEIGHT", (2, 16, 8, 3, 3), (2, 2, 1, 3, 3, 8, 8)),
        ("NCHW_NCHW4_WEIGHT", (6, 8, 3, 3), (8, 2, 3, 3, 4)),
        ("NCHW_NCHW4_WEIGHT", (2, 6, 8, 3, 3), (2, 8, 2, 3, 3, 4)),
        ("INTER_WEIGHT_DENSE", (8, 6, 3, 3), (2, 3, 3, 8, 4)),
        ("INTER_WEIGHT_CHAN", (8, 1, 1, 3, 3), (2, 1, 3, 3, 4)),
        ("INTER_WEIGHT_GROUPI_DOT", (2, 8, 4, 3, 3), (2, 2, 3, 3, 1, 4, 4)),
    ],
)
def test_layouts_change_into_each_other(mode: str, before: tuple[int, ...], after: tuple[int, ...], apply: Any) -> None:
    row = apply("RelayoutFormat", before, table="RelayoutFormat", mode=mode)
    assert shapes(row) == [after]
    assert row.op.kind == "copy"


def test_every_change_of_layout_is_known(apply: Any) -> None:
    from opcost.frontends.megengine.operators.convolution import _CONVERSIONS, _FILTERS

    assert {*_FILTERS, *_CONVERSIONS} == set(ENUMS["Relayout"])


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "per_result"), [("NEAREST", 0), ("LINEAR", 9), ("CUBIC", 35), ("LANCZOS4", 2 * 64)])
def test_resizing(mode: str, per_result: int, apply: Any) -> None:
    row = apply("Resize", IMAGE, [9, 10], table="Resize", imode=mode, format="NCHW")
    assert shapes(row) == [(N, C, 9, 10)]
    assert row.cost.flops == N * C * 90 * per_result
    assert shapes(apply("Resize", (N, H, W, C), [9, 10], table="Resize")) == [(N, 9, 10, C)]


def test_warping_takes_samples(apply: Any) -> None:
    row = apply("WarpPerspective", IMAGE, (N, 3, 3), [4, 5], table="WarpPerspective")
    assert shapes(row) == [(N, C, 4, 5)]
    assert row.cost.flops == N * C * 20 * 4 * 2
    chosen = apply("WarpPerspective", IMAGE, (5, 3, 3), (5,), [4, 5], table="WarpPerspective")
    assert shapes(chosen) == [(5, C, 4, 5)]
    assert shapes(apply("WarpAffine", IMAGE, (N, 2, 3), [4, 5], table="WarpAffine", format="NCHW")) == [(N, C, 4, 5)]
    assert shapes(apply("Remap", IMAGE, (N, 4, 5, 2), table="Remap", format="NCHW")) == [(N, C, 4, 5)]


def test_regions_take_samples(apply: Any) -> None:
    row = apply(
        "ROIAlign", IMAGE, (5, 5), outputs=2, table="ROIAlign", pooled_height=3, pooled_width=4, sample_height=2,
        sample_width=2,
    )  # fmt: skip
    assert shapes(row)[0] == (5, C, 3, 4)
    assert row.cost.flops == 5 * C * 12 * 4 * 4 * 2
    pooled = apply("ROIPooling", IMAGE, (5, 5), [3, 4], outputs=2, table="ROIPooling")
    assert shapes(pooled)[0] == (5, C, 3, 4)


def test_windows_laid_out_and_put_back(apply: Any) -> None:
    row = apply("Images2Neibs", IMAGE, table="Images2Neibs", pad_h=1, pad_w=1)
    assert shapes(row) == [(N, C, H, W, 3, 3)]
    back = apply("SlidingWindowTranspose", (N, C, H, W, 3, 3), table="SlidingWindowTranspose", out_h=H, out_w=W)
    assert shapes(back) == [IMAGE]
    assert back.cost.flops == N * C * H * W * 9


# -- made from nothing -------------------------------------------------------------------------------------------------


def test_ranges_and_constants(apply: Any) -> None:
    assert shapes(apply("Linspace", [0], [1], [9], table="Linspace")) == [(9,)]
    assert shapes(apply("Alloc", [3, 4], table="DType")) == [(3, 4)]
    assert shapes(apply("Eye", [3, 4], table="Eye")) == [(3, 4)]
    for kind in ("UniformRNG", "GaussianRNG"):
        assert apply(kind, [3, 4], table=kind).cost.flops == 12
    assert shapes(apply("MultinomialRNG", (3, 9), table="MultinomialRNG", num_samples=4)) == [(3, 4)]
    dropped = apply("Dropout", (3, 4), outputs=2, table="Dropout")
    assert dropped.op.kind == "random"


# -- all ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_no_rule_breaks_on_inputs_that_do_not_fit(kind: str, apply: Any) -> None:
    """A damaged file gives an operator anything; the answer is a clear error or a count."""
    for inputs in ((), ((3,),), ((3, 4), (5,)), ((1, 2, 3, 4), (0,), (2, 2)), ([1, 2], (3,), [4], (5,), (6,), (7,))):
        for outputs in (1, 2):
            try:
                apply(kind, *inputs, outputs=outputs)
            except OpcostError:
                continue


def test_an_operator_without_a_row_is_reported(apply: Any) -> None:
    row = apply("FutureOperator", (3, 4))
    assert row.op.raw == "mge::FutureOperator"
    assert row.op.kind == "unknown"
    assert row.cost is None
