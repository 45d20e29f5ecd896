"""Convolutions and the layers around them: exact MACs, and the FLOPs that the rules state."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from opcost.errors import DataDependent

N, CIN, COUT = 2, 4, 6


def t(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype)


def out(size: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """Extent of a convolution's or a window's output."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def transposed_out(size: int, kernel: int, stride: int, padding: int, output_padding: int, dilation: int) -> int:
    return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1


CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
RANKS = pytest.mark.parametrize("rank", [1, 2, 3])
SIZES = (9, 8, 7)


# -- convolutions ----------------------------------------------------------------------------------------------------


@RANKS
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 2)])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_meets_its_group_under_every_output(
    rank: int, stride: int, padding: int, dilation: int, groups: int, count: Any
) -> None:
    kernel = (3, 2, 3)[:rank]
    model = CONV[rank](CIN, COUT, kernel, stride, padding, dilation, groups)
    totals = count(model, t(N, CIN, *SIZES[:rank])).totals
    positions = math.prod(out(s, k, stride, padding, dilation) for s, k in zip(SIZES, kernel, strict=False))
    outputs = N * COUT * positions
    macs = outputs * (CIN // groups) * math.prod(kernel)
    assert (totals.macs, totals.flops) == (macs, 2 * macs + outputs)
    assert totals.params == COUT * (CIN // groups) * math.prod(kernel) + COUT
    assert totals.activations == outputs


@RANKS
def test_a_depthwise_convolution_has_one_channel_for_each_output(rank: int, count: Any) -> None:
    totals = count(CONV[rank](CIN, 2 * CIN, 3, groups=CIN, bias=False), t(N, CIN, *SIZES[:rank])).totals
    macs = N * 2 * CIN * math.prod(out(s, 3) for s in SIZES[:rank]) * 3**rank
    assert (totals.macs, totals.flops) == (macs, 2 * macs)


@RANKS
@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_lays_its_kernel_at_every_input(rank: int, groups: int, count: Any) -> None:
    kernel, stride, padding, output_padding, dilation = 3, 2, 1, 1, 2
    model = TRANSPOSED[rank](CIN, COUT, kernel, stride, padding, output_padding, groups, dilation=dilation)
    report = count(model, t(N, CIN, *SIZES[:rank]))
    macs = N * CIN * math.prod(SIZES[:rank]) * (COUT // groups) * kernel**rank
    sides = [transposed_out(s, kernel, stride, padding, output_padding, dilation) for s in SIZES[:rank]]
    assert report.outputs[0].shape == (N, COUT, *sides)
    assert (report.totals.macs, report.totals.flops) == (macs, 2 * macs + N * COUT * math.prod(sides))


@RANKS
@pytest.mark.parametrize("kinds", [CONV, TRANSPOSED], ids=["plain", "transposed"])
def test_a_convolution_without_a_batch_costs_one_image(rank: int, kinds: dict[int, Any], count: Any) -> None:
    model = kinds[rank](CIN, COUT, 3)
    single, batch = count(model, t(CIN, *SIZES[:rank])), count(model, t(N, CIN, *SIZES[:rank]))
    assert single.totals.macs > 0
    assert batch.totals.macs == N * single.totals.macs


@RANKS
@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding_keeps_every_position_also_with_even_kernels(
    rank: int, kernel: int, dilation: int, count: Any
) -> None:
    model = CONV[rank](CIN, COUT, kernel, padding="same", dilation=dilation)
    report = count(model, t(N, CIN, *SIZES[:rank]))
    assert report.totals.macs == N * COUT * math.prod(SIZES[:rank]) * CIN * kernel**rank
    assert report.outputs[0].shape == (N, COUT, *SIZES[:rank])


def test_valid_padding_is_none(count: Any) -> None:
    report = count(nn.Conv2d(CIN, COUT, 4, padding="valid"), t(N, CIN, 9, 9))
    assert report.totals.macs == N * COUT * out(9, 4) ** 2 * CIN * 4**2


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect", "replicate"])
def test_every_padding_counts_the_padded_positions(mode: str, count: Any) -> None:
    totals = count(nn.Conv2d(CIN, COUT, 3, padding=1, padding_mode=mode), t(N, CIN, 9, 9)).totals
    macs = N * COUT * 9 * 9 * CIN * 3**2
    assert (totals.macs, totals.flops) == (macs, 2 * macs + N * COUT * 9 * 9)


def test_a_convolution_over_time_first_is_a_product_over_kernel_and_channels(count: Any) -> None:
    steps, kernel = 9, 3
    totals = count(torch.conv_tbc, t(steps, N, CIN), t(kernel, CIN, COUT), t(COUT)).totals
    outputs = out(steps, kernel) * N * COUT
    macs = outputs * kernel * CIN
    assert (totals.macs, totals.flops) == (macs, 2 * macs + outputs)


# -- bilinear, lookups -----------------------------------------------------------------------------------------------


def test_a_bilinear_layer_contracts_its_weight_for_every_output(count: Any) -> None:
    in1, in2, features, rows = 5, 7, 3, 8
    totals = count(nn.Bilinear(in1, in2, features), t(2, 4, in1), t(2, 4, in2)).totals
    macs = rows * features * in1 * in2
    # the sum over the second input is 2 FLOPs for each of its elements; the bias is one for each output
    assert (totals.macs, totals.flops) == (macs, 2 * macs + 2 * rows * features * in2 + rows * features)
    assert totals.params == features * in1 * in2 + features


def test_an_embedding_is_free_of_arithmetic(count: Any) -> None:
    rows, width, looked_up = 100, 16, 2 * 7
    indices = torch.zeros(2, 7, dtype=torch.int64)
    totals = count(nn.Embedding(rows, width, padding_idx=0), indices).totals
    assert (totals.macs, totals.flops) == (0, 0)
    assert totals.params == rows * width
    assert totals.activations == looked_up * width
    assert totals.bytes_read == looked_up * width * 4 + looked_up * 8  # the rows, not the table; and the indices


@pytest.mark.parametrize(("mode", "once"), [("sum", 0), ("max", 0), ("mean", 1)])
def test_an_embedding_bag_combines_its_rows(mode: str, once: int, count: Any) -> None:
    width, bags, each = 16, 2, 7
    totals = count(nn.EmbeddingBag(100, width, mode=mode), torch.zeros(bags, each, dtype=torch.int64)).totals
    assert (totals.macs, totals.flops) == (0, bags * each * width + once * bags * width)


def test_bags_of_different_size_and_weights_count_every_row(count: Any) -> None:
    width, rows = 16, 10
    indices, offsets = torch.zeros(rows, dtype=torch.int64), torch.tensor([0, 4])
    plain = count(nn.EmbeddingBag(100, width, mode="sum"), indices, offsets).totals
    weighted = count(nn.EmbeddingBag(100, width, mode="sum"), indices, offsets, t(rows)).totals
    assert (plain.macs, plain.flops) == (0, rows * width)
    assert (weighted.macs, weighted.flops) == (0, 2 * rows * width)


# -- norms -----------------------------------------------------------------------------------------------------------

X = (N, CIN, 5, 5)
NUMEL = math.prod(X)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_applies_four_operations_and_four_more_in_training(rank: int, affine: bool, count: Any) -> None:
    kind = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[rank]
    shape = (N, CIN, *SIZES[:rank])
    applied = math.prod(shape) * (2 + (2 if affine else 0))
    evaluated = count(kind(CIN, affine=affine).eval(), t(*shape)).totals
    trained = count(kind(CIN, affine=affine).train(), t(*shape)).totals
    assert (evaluated.macs, evaluated.flops) == (0, applied)
    assert (trained.macs, trained.flops) == (0, applied + 4 * math.prod(shape) + 1)  # one for the batch counter


NORMS: dict[str, tuple[nn.Module, int]] = {
    # the mean is 1 and the variance 3, then subtract, multiply; weight and bias are one each
    "layer": (nn.LayerNorm(X[1:]), NUMEL * 8),
    "layer without bias": (nn.LayerNorm(X[1:], bias=False), NUMEL * 7),
    "layer without weight": (nn.LayerNorm(X[1:], elementwise_affine=False), NUMEL * 6),
    "group": (nn.GroupNorm(2, CIN), NUMEL * 8),
    "group without weight": (nn.GroupNorm(2, CIN, affine=False), NUMEL * 6),
    "instance": (nn.InstanceNorm2d(CIN), NUMEL * 6),
    "instance with weight": (nn.InstanceNorm2d(CIN, affine=True), NUMEL * 8),
    "batch of its own statistics": (nn.BatchNorm2d(CIN, track_running_stats=False).eval(), NUMEL * 8),
    # square, mean (with a division per row), epsilon, root; multiply, weight
    "rms": (nn.RMSNorm(5), NUMEL * 4 + (NUMEL // 5) * 3),
    # square, mean over the window, factor, addition, power, division
    "local response": (nn.LocalResponseNorm(3), NUMEL * (1 + 3 + 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_costs_what_its_rule_states(name: str, count: Any) -> None:
    layer, flops = NORMS[name]
    totals = count(layer, t(*X)).totals
    assert (totals.macs, totals.flops) == (0, flops)


def test_normalizing_to_unit_length_measures_and_divides(count: Any) -> None:
    rows, width = 8, 5
    totals = count(lambda x: F.normalize(x, dim=-1), t(rows, width)).totals
    # power, add, root of a row, compare with epsilon; divide
    assert (totals.macs, totals.flops) == (0, rows * width * 2 + rows + rows + rows * width)


def test_the_old_norm_across_channels_is_counted(count: Any) -> None:
    report = count(nn.CrossMapLRN2d(3), t(*X))
    assert report.totals.macs == 0
    assert report.outputs[0].shape == X


# -- pooling and resizing --------------------------------------------------------------------------------------------

SIDE = 12
IMAGE = (N, CIN, SIDE, SIDE)
PLANES = N * CIN

POOLS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "max": (nn.MaxPool2d(3, 2, 1), IMAGE, PLANES * out(SIDE, 3, 2, 1) ** 2 * 9),
    "max with places": (nn.MaxPool2d(3, 2, 1, return_indices=True), IMAGE, PLANES * out(SIDE, 3, 2, 1) ** 2 * 9),
    "max 1d": (nn.MaxPool1d(3), IMAGE[:3], PLANES * (SIDE // 3) * 3),
    "max 3d": (nn.MaxPool3d(2), (N, CIN, 4, 4, 4), PLANES * 2**3 * 2**3),
    "average": (nn.AvgPool2d(3, 2), IMAGE, PLANES * out(SIDE, 3, 2) ** 2 * 9),
    "average 1d": (nn.AvgPool1d(3), IMAGE[:3], PLANES * (SIDE // 3) * 3),
    "average 3d": (nn.AvgPool3d(2), (N, CIN, 4, 4, 4), PLANES * 2**3 * 2**3),
    "adaptive average": (nn.AdaptiveAvgPool2d(4), IMAGE, PLANES * 4**2 * 3**2),
    "adaptive average of uneven windows": (nn.AdaptiveAvgPool2d(5), IMAGE, PLANES * 5**2 * math.ceil(SIDE / 5) ** 2),
    "global average": (nn.AdaptiveAvgPool2d(1), IMAGE, PLANES * SIDE**2 + PLANES),
    "adaptive max": (nn.AdaptiveMaxPool2d((3, 4)), IMAGE, PLANES * 3 * 4 * (SIDE // 3) * (SIDE // 4)),
    "adaptive 3d": (nn.AdaptiveAvgPool3d(2), (N, CIN, 4, 4, 4), PLANES * 2**3 * 2**3),
    "unpool": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), IMAGE, PLANES * SIDE**2),
    "pixel shuffle": (nn.PixelShuffle(2), IMAGE, 0),
    "pixel unshuffle": (nn.PixelUnshuffle(2), IMAGE, 0),
    "channel shuffle": (nn.ChannelShuffle(2), IMAGE, 0),
    "unfold": (nn.Unfold(3), IMAGE, 0),
    "Tensor.unfold": (lambda x: x.unfold(2, 3, 1), IMAGE, 0),
    "fold": (nn.Fold((SIDE, SIDE), 3), (N, CIN * 9, out(SIDE, 3) ** 2), PLANES * 9 * out(SIDE, 3) ** 2),
    "nearest": (nn.Upsample(scale_factor=2), IMAGE, 0),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE, PLANES * (2 * SIDE) ** 2 * 9),
    "bicubic": (nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE, PLANES * (2 * SIDE) ** 2 * 35),
    "linear": (nn.Upsample(scale_factor=2, mode="linear"), IMAGE[:3], PLANES * 2 * SIDE * 3),
    "trilinear": (nn.Upsample(scale_factor=2, mode="trilinear"), (N, CIN, 4, 4, 4), PLANES * 8**3 * 21),
    # the kernel of a reduction by three spans six elements along each axis: a product and an addition for each
    "antialiased": (
        lambda x: F.interpolate(x, (4, 4), mode="bilinear", antialias=True), IMAGE, PLANES * 4**2 * 6**2 * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
def test_pooling_and_resizing_have_no_macs(name: str, count: Any) -> None:
    model, shape, flops = POOLS[name]
    totals = count(model, t(*shape)).totals
    assert (totals.macs, totals.flops) == (0, flops)


@pytest.mark.parametrize(("mode", "taps"), [("bilinear", 4), ("nearest", 1), ("bicubic", 16)])
def test_a_sampled_value_is_a_sum_over_its_taps(mode: str, taps: int, count: Any) -> None:
    totals = count(lambda x, g: F.grid_sample(x, g, mode=mode, align_corners=False), t(*IMAGE), t(N, 6, 7, 2)).totals
    assert (totals.macs, totals.flops) == (0, PLANES * 6 * 7 * taps * 2)


def test_an_affine_grid_is_a_product_of_every_position(count: Any) -> None:
    totals = count(lambda a: F.affine_grid(a, [N, 3, 5, 6], align_corners=False), t(N, 2, 3)).totals
    assert totals.macs == N * 5 * 6 * 2 * 3


# -- distances, transforms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("points", "p"), [(6, 2.0), (40, 2.0), (40, 1.0)], ids=["few", "many", "manhattan"])
def test_distances_have_no_macs_however_they_are_worked_out(points: int, p: float, count: Any) -> None:
    others, features = 30, 8
    totals = count(lambda a, b: torch.cdist(a, b, p=p), t(N, points, features), t(N, others, features)).totals
    assert (totals.macs, totals.flops) == (0, N * points * others * (3 * features + 1))


def test_distances_within_one_set_count_each_pair_once(count: Any) -> None:
    points, features = 6, 8
    totals = count(F.pdist, t(points, features)).totals
    assert (totals.macs, totals.flops) == (0, points * (points - 1) // 2 * (3 * features + 1))


def fft_flops(elements: int, *lengths: int) -> int:
    """Five for each element and level of a complex transform."""
    return 5 * elements * sum(int(math.log2(length)) for length in lengths)


COMPLEX = torch.complex64
FFTS: dict[str, tuple[Any, Tensor, int]] = {
    "complex": (torch.fft.fft, t(3, 16, dtype=COMPLEX), fft_flops(48, 16)),
    "inverse": (torch.fft.ifft, t(3, 16, dtype=COMPLEX), fft_flops(48, 16)),
    "two axes": (torch.fft.fft2, t(3, 16, 8, dtype=COMPLEX), fft_flops(3 * 16 * 8, 16, 8)),
    "padded": (lambda x: torch.fft.fft(x, n=32), t(3, 16, dtype=COMPLEX), fft_flops(3 * 32, 32)),
    "real": (torch.fft.rfft, t(3, 16), fft_flops(48, 16) // 2),
    "to real": (torch.fft.irfft, t(3, 9, dtype=COMPLEX), fft_flops(48, 16) // 2),
    "real along two axes": (torch.fft.rfft2, t(3, 16, 8), fft_flops(3 * 16 * 8, 16, 8) // 2),
    "to real along two axes": (
        lambda x: torch.fft.irfft2(x, s=(16, 8)), t(3, 16, 5, dtype=COMPLEX), fft_flops(3 * 16 * 8, 16, 8) // 2,
    ),
    "shift": (torch.fft.fftshift, t(3, 16), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FFTS)
def test_a_fourier_transform_has_five_flops_for_each_element_and_level(name: str, count: Any) -> None:
    function, x, flops = FFTS[name]
    totals = count(function, x).totals
    assert (totals.macs, totals.flops) == (0, flops)


def test_short_time_transforms_and_back(count: Any) -> None:
    batch, samples, window, hop = 2, 100, 16, 4
    frames = samples // hop + 1

    def there_and_back(x: Tensor, w: Tensor) -> Tensor:
        spectrum = torch.stft(x, window, hop, window=w, return_complex=True)
        assert spectrum.shape == (batch, window // 2 + 1, frames)
        return torch.istft(spectrum, window, hop, window=w)

    report = count(there_and_back, t(batch, samples), torch.hann_window(window))
    transforms = [row.cost.flops for row in report.rows if row.op.kind == "fft"]
    assert transforms == [fft_flops(batch * frames * window, window) // 2] * 2
    assert report.totals.macs == 0


# -- sparse tensors --------------------------------------------------------------------------------------------------

ROWS, COLUMNS, WIDTH = 4, 3, 5
PLACES = torch.tensor([[0, 1, 1, 3], [2, 0, 2, 1]])
STORED = PLACES.shape[1]


def adjacency(layout: torch.layout = torch.sparse_coo) -> Tensor:
    sparse = torch.sparse_coo_tensor(PLACES, torch.ones(STORED), (ROWS, COLUMNS))
    return sparse if layout is torch.sparse_coo else sparse.to_sparse(layout=layout)


LAYOUTS = pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])


@LAYOUTS
@pytest.mark.parametrize("function", [torch.sparse.mm, torch.mm, lambda a, b: a @ b], ids=["sparse.mm", "mm", "@"])
def test_a_sparse_product_counts_stored_values_times_columns(layout: torch.layout, function: Any, count: Any) -> None:
    assert count(function, adjacency(layout), t(COLUMNS, WIDTH)).totals.macs == STORED * WIDTH


def test_a_sparse_matrix_times_a_vector_counts_stored_values(count: Any) -> None:
    assert count(torch.mv, adjacency(), t(COLUMNS)).totals.macs == STORED


def test_a_sparse_product_with_something_added(count: Any) -> None:
    totals = count(torch.sparse.addmm, t(ROWS, WIDTH), adjacency(), t(COLUMNS, WIDTH)).totals
    assert (totals.macs, totals.flops) == (STORED * WIDTH, 2 * STORED * WIDTH + ROWS * WIDTH)


def test_a_sparse_matrix_made_inside_the_model(count: Any) -> None:
    def made(values: Tensor, x: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(PLACES, values, (ROWS, COLUMNS)).coalesce() @ x

    assert count(made, t(STORED), t(COLUMNS, WIDTH)).totals.macs == STORED * WIDTH


class Graph(nn.Module):
    """One step of message passing; the edges are a buffer."""

    def __init__(self, edges: Tensor) -> None:
        super().__init__()
        self.register_buffer("edges", edges)
        self.linear = nn.Linear(WIDTH, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.edges, self.linear(x))


def test_edges_kept_as_a_buffer_and_their_gradient(count: Any) -> None:
    report = count(Graph(adjacency()), t(COLUMNS, WIDTH), backward=True)
    linear = COLUMNS * WIDTH * 2
    assert report.phases["forward"].macs == linear + STORED * 2
    assert report.phases["backward"].macs == linear + STORED * 2  # through the transposed edges to the weight


def test_two_graphs_of_one_shape_and_different_edges_are_not_confused(count: Any) -> None:
    fewer = torch.sparse_coo_tensor(PLACES[:, :1], torch.ones(1), (ROWS, COLUMNS))
    report = count(lambda a, b, x: torch.sparse.mm(a, x) + torch.sparse.mm(b, x), adjacency(), fewer, t(COLUMNS, WIDTH))
    assert [row.cost.macs for row in report.rows if row.op.kind == "matmul"] == [STORED * WIDTH, WIDTH]


def test_how_much_a_dense_tensor_stores_as_a_sparse_one_is_not_guessed(count: Any) -> None:
    with pytest.raises(DataDependent, match="stored"):
        count(lambda x, y: x.to_sparse() @ y, t(ROWS, COLUMNS), t(COLUMNS, WIDTH), real=False)


# -- complex numbers -------------------------------------------------------------------------------------------------


def test_a_complex_mac_is_one_mac_and_eight_flops(count: Any) -> None:
    m, k, n = 3, 4, 5
    totals = count(torch.mm, t(m, k, dtype=COMPLEX), t(k, n, dtype=COMPLEX)).totals
    assert (totals.macs, totals.flops) == (m * k * n, 8 * m * k * n)


def test_a_complex_bias_is_two_additions(count: Any) -> None:
    m, k, n = 3, 4, 5
    totals = count(nn.Linear(k, n, dtype=COMPLEX), t(m, k, dtype=COMPLEX)).totals
    assert (totals.macs, totals.flops) == (m * k * n, 8 * m * k * n + 2 * m * n)
    assert totals.params == k * n + n
    assert totals.param_bytes == 8 * totals.params


@pytest.mark.parametrize(
    ("function", "flops"),
    [(torch.add, 2), (torch.mul, 6), (lambda a, b: a.abs(), 4), (lambda a, b: a.conj(), 0)],
    ids=["add", "multiply", "absolute", "conjugate"],
)
def test_complex_arithmetic_counts_its_real_operations(function: Any, flops: int, count: Any) -> None:
    totals = count(function, t(3, 4, dtype=COMPLEX), t(3, 4, dtype=COMPLEX)).totals
    assert (totals.macs, totals.flops) == (0, flops * 3 * 4)


def test_a_conjugate_and_a_real_view_hide_no_product(count: Any) -> None:
    m, k = 3, 4

    def gram(x: Tensor) -> Tensor:
        z = torch.view_as_complex(x)
        return torch.view_as_real(z.conj() @ z.mT)

    report = count(gram, t(m, k, 2))
    assert report.totals.macs == m * k * m
    assert report.outputs[0].shape == (m, m, 2)


def test_a_complex_convolution_is_the_three_real_ones_that_pytorch_runs(count: Any) -> None:
    report = count(nn.Conv2d(CIN, COUT, 3, dtype=COMPLEX), t(N, CIN, 9, 9, dtype=COMPLEX))
    real = N * COUT * out(9, 3) ** 2 * CIN * 3**2
    assert [row.cost.macs for row in report.rows if row.op.kind == "conv"] == [real] * 3
