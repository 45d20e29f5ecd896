"""Every dump that MegEngine 1.13.0 made: shapes as it stored them, types and MACs as its own tool lists them."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.frontends.megengine.model import HOLDERS, INPUT, Model, read_model
from opcost.frontends.megengine.walk import DumpWalk

DATA = Path(__file__).parents[2] / "data" / "megengine"

THEIR_TYPES = {"ConvolutionBackwardData": "ConvTranspose", "Softmax": "SoftmaxForward"}
"""Where MegEngine's Python calls an operator by another name than its files do."""
NUMPY = {"qint8": "int8", "qint32": "int32", "quint8": "uint8"}
COUNTED_IN_MACS = ("Convolution", "ConvBias", "MatrixMul")

NETS = ("dwnet_nogn", "handlstm", "mlp", "qnet_float", "qnet_qint8", "resnet18_slim", "two_io")


def of_batch_one(model: Model) -> dict[int, tuple[int, ...]]:
    """MegEngine's tool looks at everything with the first extent of all inputs set to 1."""
    tensors = {v: t for op in model.operators if op.type == INPUT for v, t in zip(op.outputs, op.tensors, strict=True)}
    return {variable: (1, *tensor.shape[1:]) for variable, tensor in tensors.items()}


def test_inferred_shapes_are_those_that_megengine_stored(any_dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_model(any_dump)
    monkeypatch.setattr(DumpWalk, "known", staticmethod(lambda ours, theirs: ours))
    found = DumpWalk(model).run()
    for op in model.operators:
        for variable in op.outputs:
            stored = model.variables[variable].shape
            if stored is not None:
                assert found.tensor(variable).shape == stored, f"{op.type} {op.name} {model.variables[variable].name}"


def test_only_what_depends_on_data_has_an_unknown_shape(any_dump: Path) -> None:
    model = read_model(any_dump)
    found = DumpWalk(model).run()
    unknown = {
        op.type
        for op in model.operators
        if any(found.tensor(v).shape is None or None in found.tensor(v).shape for v in op.outputs)  # type: ignore[operator]
    }
    if any_dump.stem.startswith("op_condtake"):
        assert unknown == {"CondTake", "Elemwise"}
    elif any_dump.stem.startswith("op_nms"):
        assert unknown == {"Subtensor", "IndexingMultiAxisVec", "Elemwise"}
    else:
        assert unknown == set()


def test_types_and_shapes_are_those_of_network_visualize(any_visualized: str, visualized: Any) -> None:
    model = read_model(DATA / "mge" / f"{any_visualized}.mge")
    found = DumpWalk(model, of_batch_one(model)).run()
    ours: Counter[Any] = Counter()
    for op in model.operators:
        variable = op.outputs[-1] if op.type == "BatchNorm" else op.outputs[0]
        dtype = found.tensor(variable).dtype
        ours[THEIR_TYPES.get(op.type, op.type), NUMPY.get(dtype, dtype), found.tensor(variable).shape] += 1
    rows = visualized(any_visualized)["details"]["activations"]
    assert ours == Counter((r["class_name"], r["dtype"], tuple(r["shape"])) for r in rows if r["name"] != "total")


def test_macs_are_those_of_network_visualize(any_visualized: str, visualized: Any) -> None:
    model = read_model(DATA / "mge" / f"{any_visualized}.mge")
    tensors = {t.name: t for op in model.operators if op.type == INPUT for t in op.tensors}
    report = opcost.count(
        DATA / "mge" / f"{any_visualized}.mge", shapes={name: (1, *t.shape[1:]) for name, t in tensors.items()}
    )
    ours: Counter[Any] = Counter()
    for row in report.rows:
        kind = row.op.raw.removeprefix("mge::")
        if kind in COUNTED_IN_MACS:
            assert row.cost is not None
            # MegEngine adds the bias of a fused convolution to its products.
            biases = row.outs[0].numel if kind == "ConvBias" else 0
            ours[kind, row.cost.macs + biases] += 1
    rows = visualized(any_visualized)["details"]["flops"]
    theirs = Counter((r["class_name"], int(r["flops_num"])) for r in rows if r.get("class_name") in COUNTED_IN_MACS)
    assert ours == theirs


def test_weights_are_those_of_network_visualize_less_what_only_makes_shapes(
    any_visualized: str, visualized: Any
) -> None:
    report = opcost.count(DATA / "mge" / f"{any_visualized}.mge")
    rows = [r for r in visualized(any_visualized)["details"]["params"] if r["name"] != "total"]
    weights = [r for r in rows if r["param_dim"] > 1 and not (r["dtype"] == "int32" and len(r["shape"]) == 1)]
    biases = [r for r in rows if r["dtype"] == "int32" and "qint8" in any_visualized and r["param_dim"] > 2]
    expected = Counter(tuple(r["shape"]) for r in weights)
    if "qint8" in any_visualized:  # a quantized bias is a whole number for NumPy
        expected = Counter(tuple(r["shape"]) for r in rows if r in biases or r["dtype"] == "int8")
    assert Counter(p.spec.shape for p in report.parameters) == expected


# -- the nets, from their own description ------------------------------------------------------------------------------


def conv(image: int, cin: int, cout: int, kernel: int, groups: int = 1) -> int:
    return image * image * cout * (cin // groups) * kernel * kernel


def resnet18_macs(width: int, image: int, classes: int) -> int:
    size = image // 2
    macs = conv(size, 3, width, 7)
    size //= 2
    cin = width
    for stage in range(4):
        cout = width * 2**stage
        size = size if stage == 0 else size // 2
        macs += conv(size, cin, cout, 3) + 3 * conv(size, cout, cout, 3)
        macs += conv(size, cin, cout, 1) if stage else 0
        cin = cout
    return macs + cin * classes


DW_MACS = (
    conv(16, 3, 16, 3)
    + conv(16, 16, 16, 3, groups=16)
    + conv(16, 16, 32, 1)
    + conv(16, 32, 32, 3, groups=4)
    + 8 * 8 * 32 * 16 * 4 * 4  # transposed: each of the 8x8x32 inputs meets a kernel for 16 channels
    + 16 * 16 * 16 * (16 // 4) * 3 * 3
    + 16 * 10
)
LSTM_STEPS, LSTM_BATCH, LSTM_IN, LSTM_HIDDEN = 5, 2, 16, 24
EXPECTED_MACS = {
    "mlp": 784 * 128 + 128 * 64 + 64 * 10,
    "dwnet_nogn": DW_MACS,
    "resnet18_slim": resnet18_macs(width=8, image=32, classes=10),
    "qnet_float": conv(8, 3, 8, 3) + conv(8, 8, 8, 3) + conv(4, 8, 16, 3, groups=2) + 16 * 4 * 4 * 10,
    "qnet_qint8": conv(8, 3, 8, 3) + conv(8, 8, 8, 3) + conv(4, 8, 16, 3, groups=2) + 16 * 4 * 4 * 10,
}


@pytest.mark.parametrize("net", EXPECTED_MACS)
def test_every_dump_of_a_net_has_the_macs_of_its_description(net: str) -> None:
    dumps = sorted((DATA / "mge").glob(f"{net}.*.mge"))
    assert dumps
    for path in dumps:
        report = opcost.count(path)
        batch = report.inputs[0][1].dims[0]
        assert report.totals.macs == batch * EXPECTED_MACS[net], path.name
        assert not report.coverage.uncounted


def test_an_unrolled_lstm_has_the_macs_of_its_steps() -> None:
    report = opcost.count(DATA / "mge" / "handlstm.v2.mge")
    steps, batch, size = report.inputs[0][1].dims
    gates = 4 * LSTM_HIDDEN * (LSTM_IN + LSTM_HIDDEN)
    assert size == LSTM_IN
    assert report.totals.macs == batch * (steps * gates + LSTM_HIDDEN * 4)


def test_parameters_of_a_net_without_batch_norm_are_those_of_its_layers() -> None:
    report = opcost.count(DATA / "mge" / "mlp.v2.mge")
    assert report.totals.params == (784 * 128 + 128) + 128 * 64 + (64 * 10 + 10)
    names = {parameter.name: parameter.spec.dims for parameter in report.parameters}
    assert names["fc1.weight"] == (128, 784)
    assert names["fc2.weight"] == (64, 128)


def test_a_folded_batch_norm_leaves_the_macs_and_takes_its_own_flops() -> None:
    """The optimizer multiplies the scale into the filter and keeps an addition."""
    folded = opcost.count(DATA / "mge" / "resnet18_slim.v1_fuse.mge")
    plain = opcost.count(DATA / "mge" / "resnet18_slim.v2_noopt.mge")
    assert folded.totals.macs == plain.totals.macs
    norms = [row for row in plain.rows if row.op.kind == "norm"]
    assert norms
    assert not [row for row in folded.rows if row.op.kind == "norm"]
    assert folded.totals.flops < plain.totals.flops


def test_a_fused_convolution_costs_what_its_parts_cost() -> None:
    """ConvBias with RELU: products, a bias for each result, and a comparison for each result."""
    report = opcost.count(DATA / "mge" / "resnet18_slim.v1_fuse.mge")
    first = next(row for row in report.rows if row.op.raw == "mge::ConvBias")
    y = first.outs[0].numel
    assert first.op.native["nonlineMode"] == "RELU"
    assert first.cost is not None
    assert first.cost.macs == y * 3 * 7 * 7
    assert first.cost.flops == 2 * first.cost.macs + y + y


@pytest.mark.parametrize("net", NETS)
def test_the_same_net_costs_the_same_in_both_formats(net: str) -> None:
    totals = {path.name: opcost.count(path).totals.macs for path in sorted((DATA / "mge").glob(f"{net}.*.mge"))}
    assert len(set(totals.values())) == 1, totals


def test_weights_are_found_by_place_and_not_copied(any_dump: Path) -> None:
    model = read_model(any_dump)
    size = any_dump.stat().st_size
    for op in model.operators:
        for tensor in op.tensors:
            if op.type in HOLDERS:
                assert tensor.offset > 0
                assert tensor.offset + tensor.nbytes <= size
                assert tensor.nbytes * 8 >= prod(tensor.shape)
