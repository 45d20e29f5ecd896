"""Which variables are inputs, what shapes they have, and what is said where that is not known."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import InputError, SourceError, UnknownName

Make = Callable[..., dict[str, Any]]


class Tensor:
    """Anything with a shape and an element type can be an input."""

    def __init__(self, *shape: int, dtype: str = "float32") -> None:
        self.shape = shape
        self.dtype = dtype


@pytest.fixture
def two_towers(node: Make, var: Make) -> list[dict[str, Any]]:
    """Two inputs with a layer each, and a loss that needs a label."""
    return [
        var("left"), var("left_weight"), node("FullyConnected", "l", 0, 1, num_hidden=4, no_bias=True),
        var("right"), var("right_weight"), node("FullyConnected", "r", 3, 4, num_hidden=4, no_bias=True),
        node("elemwise_add", "sum", 2, 5), var("target"), node("SoftmaxOutput", "loss", 6, 7),
    ]  # fmt: skip


def test_shapes_are_given_by_name_or_in_order(two_towers: list[Any], write: Callable[..., Path]) -> None:
    path = str(write(*two_towers))
    by_name = opcost.count(path, shapes={"left": (2, 3), "right": (2, 5)})
    in_order = opcost.count(path, shapes=[(2, 3), (2, 5)])
    of_tensors = opcost.count(path, (Tensor(2, 3), Tensor(2, 5)))
    by_keyword = opcost.count(path, kwargs={"left": Tensor(2, 3), "right": Tensor(2, 5)})
    both = opcost.count(path, Tensor(2, 3), kwargs={"right": Tensor(2, 5)})
    for report in (by_name, in_order, of_tensors, by_keyword, both):
        assert report.totals.macs == 2 * 4 * 3 + 2 * 4 * 5
        assert report.totals.params == 4 * 3 + 4 * 5
    assert dict(by_name.inputs)["target"].dims == (2,)


def test_a_missing_shape_is_required_by_name(two_towers: list[Any], count: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="inputs 'left', 'right'\n"):
        count(*two_towers)
    with pytest.raises(InputError, match=r"input 'right'\n.*--input right:"):
        count(*two_towers, shapes={"left": (2, 3)})


def test_a_misspelt_input_is_named_with_the_right_one(two_towers: list[Any], count: Callable[..., Any]) -> None:
    with pytest.raises(UnknownName, match="did you mean 'right'"):
        count(*two_towers, shapes={"left": (2, 3), "rigth": (2, 3)})


def test_too_many_shapes_are_refused(two_towers: list[Any], count: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="the model has 3 inputs: left, right, target"):
        count(*two_towers, shapes=[(2, 3)] * 4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shapes": 224}, "not a shape"),
        ({"shapes": [(2, -3)]}, "negative extent"),
        ({"inputs": "tensor"}, "not an array"),
        ({"inputs": Tensor(2, 3), "shapes": [(2, 3)]}, "both inputs and shapes"),
        ({"shapes": [(2, 3)], "dtypes": ["float12"]}, "unknown element type"),
        ({"shapes": {"left": (2, 3)}, "dtypes": {"right": "float16"}}, "to give an element type"),
    ],
)
def test_inputs_that_make_no_sense_are_refused(
    options: Any, says: str, two_towers: list[Any], count: Callable[..., Any]
) -> None:
    with pytest.raises((InputError, UnknownName), match=says):
        count(*two_towers, **options)


def test_a_shape_that_does_not_fit_names_the_node_and_who_said_what(
    node: Make, var: Make, count: Callable[..., Any]
) -> None:
    nodes = [
        var("data"),
        var("w", __shape__=(8, 3, 3, 3)),
        node("Convolution", "conv", 0, 1, kernel=(3, 3), num_filter=8, no_bias=1),
    ]
    said = r"node 2 \('conv', Convolution\)(.|\n)*data is 1x4x9x9 \(as given\); w is 8x3x3x3 \(by the symbol\)"
    with pytest.raises(InputError, match=said):
        count(*nodes, shapes={"data": (1, 4, 9, 9)})
    with pytest.raises(InputError, match="a kernel that reaches 3 does not fit 2"):
        count(*nodes, shapes={"data": (1, 3, 2, 9)})
    with pytest.raises(InputError, match="takes 4"):
        count(*nodes, shapes={"data": (1, 3, 9)})


def test_the_shapes_that_a_symbol_declares_are_used(node: Make, var: Make, count: Callable[..., Any]) -> None:
    report = count(
        var("data", __shape__="(2, 6)", __dtype__="2"),
        var("w"),
        node("FullyConnected", "fc", 0, 1, num_hidden=4, no_bias=1),
    )
    assert report.totals.macs == 2 * 4 * 6
    assert report.totals.param_bytes == 2 * 4 * 6


def test_an_element_type_is_given_with_the_shape(node: Make, var: Make, count: Callable[..., Any]) -> None:
    nodes = [var("data"), var("w"), node("FullyConnected", "fc", 0, 1, num_hidden=4, no_bias=1)]
    report = count(*nodes, shapes=(2, 6), dtypes="float16")
    assert report.outputs[0].dtype == "float16"
    assert report.totals.param_bytes == 2 * 4 * 6


def test_a_weight_that_is_computed_is_a_weight(node: Make, var: Make, count: Callable[..., Any]) -> None:
    report = count(
        var("img"), var("raw", __shape__=(8, 3, 3, 3)), node("_mul_scalar", "scaled", 1, scalar=2),
        node("Convolution", "conv", 0, 2, kernel=(3, 3), num_filter=8, no_bias=True), shapes=(1, 3, 9, 9),
    )  # fmt: skip
    assert [name for name, _ in report.inputs] == ["img"]
    assert report.totals.params == 8 * 3 * 9


def test_indices_lengths_and_states_are_inputs_and_not_weights(
    node: Make, var: Make, count: Callable[..., Any]
) -> None:
    report = count(
        var("data"), var("which", __shape__=(4,)), node("take", "taken", 0, 1),
        var("rnn_parameters"), var("s"), var("c"),
        node("RNN", "rnn", 2, 3, 4, 5, mode="lstm", state_size=6, num_layers=1), shapes={"data": (9, 2, 5)},
    )  # fmt: skip
    assert {name: spec.dims for name, spec in report.inputs} == {
        "data": (9, 2, 5), "which": (4,), "s": (1, 2, 6), "c": (1, 2, 6),
    }  # fmt: skip
    assert report.totals.params == 4 * 6 * (5 + 6 + 2)
    assert report.totals.macs == 4 * 2 * 4 * 6 * (5 + 6)


def test_an_exported_cell_finds_its_batch_backwards(node: Make, var: Make, count: Callable[..., Any]) -> None:
    report = count(
        var("data"), var("i_weight"), node("FullyConnected", "i2h", 0, 1, num_hidden=6, no_bias=1),
        node("_zeros", "begin", shape="(0, 6)"), var("h_weight"),
        node("FullyConnected", "h2h", 3, 4, num_hidden=6, no_bias=1), node("elemwise_add", "next", 2, 5),
        shapes={"data": (3, 5)},
    )  # fmt: skip
    assert report.totals.macs == 3 * 6 * 5 + 3 * 6 * 6


def params_file(path: Path, arrays: dict[str, tuple[int, ...]]) -> Path:
    with path.open("wb") as file:
        file.write(struct.pack("<3Q", 0x112, 0, len(arrays)))
        for shape in arrays.values():
            extents = struct.pack(f"<i{len(shape)}q", len(shape), *shape)
            size = 4
            for extent in shape:
                size *= extent
            file.write(struct.pack("<Ii", 0xF993FAC9, 0) + extents + struct.pack("<3i", 1, 0, 0) + bytes(size))
        file.write(struct.pack("<Q", len(arrays)))
        for name in arrays:
            file.write(struct.pack("<Q", len(name)) + name.encode())
    return path


@pytest.fixture
def ambiguous(node: Make, var: Make, write: Callable[..., Path]) -> Path:
    """A product of two variables: only a parameter file says which of them is a weight."""
    return write(var("a", __shape__=(4, 6)), var("b", __shape__=(6, 5)), node("dot", "product", 0, 1))


def test_what_the_parameter_file_holds_is_a_weight_and_the_rest_comes_in(ambiguous: Path) -> None:
    params_file(ambiguous.with_name("net-0000.params"), {"arg:b": (6, 5)})
    report = opcost.count(str(ambiguous))
    assert [name for name, _ in report.inputs] == ["a"]
    assert report.totals.params == 6 * 5


def test_the_last_epoch_is_taken_unless_another_is_requested(ambiguous: Path) -> None:
    params_file(ambiguous.with_name("net-0003.params"), {"arg:a": (4, 6)})
    params_file(ambiguous.with_name("net-0012.params"), {"arg:b": (6, 5)})
    assert opcost.count(str(ambiguous)).totals.params == 6 * 5
    assert opcost.count(str(ambiguous), options={"epoch": 3}).totals.params == 4 * 6
    assert opcost.count(str(ambiguous.with_name("net")), options={"epoch": 3}).totals.params == 4 * 6
    assert opcost.count(str(ambiguous.with_name("net-0003.params"))).totals.params == 4 * 6
    with pytest.raises(SourceError, match=r"no parameters of epoch 7(.|\n)*epochs beside it: 3, 12"):
        opcost.count(str(ambiguous), options={"epoch": 7})


def test_a_parameter_file_elsewhere_is_named(ambiguous: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    there = params_file(tmp_path / "far/weights.params", {"a": (4, 6)})
    assert opcost.count(str(ambiguous), options={"params": there}).totals.params == 4 * 6
    with pytest.raises(SourceError, match="there is no parameter file"):
        opcost.count(str(ambiguous), options={"params": "nowhere.params"})
    with pytest.raises(SourceError, match="give one of them"):
        opcost.count(str(ambiguous), options={"params": there, "epoch": 1})
    with pytest.raises(SourceError, match="no operators"):
        opcost.count(str(there))


def test_a_parameter_file_of_another_model_is_refused_if_named_and_noted_if_found(
    ambiguous: Path, tmp_path: Path
) -> None:
    other = params_file(tmp_path / "other.params", {"0.weight": (4, 6)})
    with pytest.raises(SourceError, match="none of the 1 names"):
        opcost.count(str(ambiguous), options={"params": other})
    params_file(ambiguous.with_name("net-0000.params"), {"0.weight": (4, 6)})
    report = opcost.count(str(ambiguous), shapes={"a": (4, 6)})
    assert [note.code for note in report.notes] == ["parameters-ignored"]


def test_files_that_do_not_belong_together_are_refused(node: Make, var: Make, write: Callable[..., Path]) -> None:
    path = write(var("data"), var("w", __shape__="(4, 0)"), node("FullyConnected", "fc", 0, 1, num_hidden=4, no_bias=1))
    params_file(path.with_name("net-0000.params"), {"arg:w": (5, 6)})
    with pytest.raises(SourceError, match=r"'w' is 4x\? in the symbol and 5x6 in the parameter file"):
        opcost.count(str(path), shapes=(2, 6))


def test_weights_that_the_file_lacks_and_arrays_that_are_not_used_are_noted(
    node: Make, var: Make, write: Callable[..., Path]
) -> None:
    path = write(var("data"), var("w"), var("b"), node("FullyConnected", "fc", 0, 1, 2, num_hidden=4))
    params_file(path.with_name("net-0000.params"), {"arg:w": (4, 6), "arg:old": (3,)})
    report = opcost.count(str(path), shapes=(2, 6))
    assert report.totals.params == 4 * 6 + 4
    assert {note.code for note in report.notes} == {"weights-not-in-file", "unused-arrays"}


def test_a_damaged_parameter_file_beside_the_symbol_is_not_passed_over(ambiguous: Path) -> None:
    ambiguous.with_name("net-0000.params").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(SourceError, match="Git LFS pointer"):
        opcost.count(str(ambiguous))


def test_the_backward_pass_is_refused_and_training_changes_norms_and_dropout(
    node: Make, var: Make, count: Callable[..., Any]
) -> None:
    nodes = [
        var("data"), var("g"), var("b"), var("m"), var("v"), node("BatchNorm", "bn", 0, 1, 2, 3, 4), node("Dropout", "drop", 5),
    ]  # fmt: skip
    with pytest.raises(InputError, match="backward pass"):
        count(*nodes, shapes=(2, 3), backward=True)
    numel = 2 * 3
    assert count(*nodes, shapes=(2, 3)).totals.flops == numel * 4
    assert count(*nodes, shapes=(2, 3), mode="train").totals.flops == numel * 8 + numel * 4


def test_a_misspelt_option_of_the_front_end_is_named_with_the_right_one(ambiguous: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'epoch'"):
        opcost.count(str(ambiguous), options={"epohc": 3})


def test_a_parameter_file_is_refused_where_there_is_no_symbol() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(UnknownName, match="option of the torch front end 'params'"):
        opcost.count(torch.nn.Linear(2, 3), shapes=(1, 2), options={"params": "x.params"})
