"""MXNet's summary in MXNet's layout with right numbers, and a count of multiply-adds for any symbol."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.compat.mxnet import FlopCount, count_flops, print_summary
from opcost.errors import InputError

DATA = Path(__file__).parents[1] / "data/mxnet"
SUMMARIES = sorted(
    path.parent for path in DATA.glob("*/*/print_summary.txt") if (path.parent / "expected.json").exists()
)
AUXILIARY = re.compile(r"^Auxiliary states: (\d+)\n", re.MULTILINE)

RIGHT = (
    "gluoncv/googlenet", "gluoncv/mobilenetv3_small", "legacy/v08_dialect", "legacy/v09_dialect", "ops/bn_named_conv",
    "ops/conv_1d", "ops/conv_input_not_data", "ops/embedding", "ops/pooling_1d", "ops/pooling_adaptive", "ops/reshape",
    "small/tiny_resnet_v1", "thirdparty/resnet-34", "thirdparty/squeezenet_v1.0", "zoo/alexnet", "zoo/mobilenet1_0",
    "zoo/resnet18_v1", "zoo/resnet50_v2", "zoo/squeezenet1_1",
)  # fmt: skip
"""Cases on which MXNet's own summary is right, so that ours is the same to the letter."""


def expected_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return found


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in expected_of(folder)["inputs"].items()}


@pytest.fixture
def summary(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What print_summary prints."""

    def printed(*arguments: Any, **words: Any) -> str:
        capsys.readouterr()
        print_summary(*arguments, **words)
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize("name", RIGHT)
def test_where_mxnets_summary_is_right_ours_is_the_same(name: str, summary: Callable[..., str]) -> None:
    folder = DATA / name
    ours = summary(folder / "model-symbol.json", shapes_of(folder))
    assert AUXILIARY.sub("", ours).strip() == (folder / "print_summary.txt").read_text().strip()


@pytest.mark.parametrize("folder", SUMMARIES, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_the_rows_add_up_to_mxnets_arguments(folder: Path, summary: Callable[..., str]) -> None:
    if "totals" not in expected_of(folder):
        pytest.skip("MXNet gave no totals for this version")
    ours = summary(folder / "model-symbol.json", shapes_of(folder))
    totals = expected_of(folder)["totals"]
    rows = [int(line[76:88]) for line in ours.splitlines()[3:-3] if re.fullmatch(r"\d+", line[76:88].strip())]
    assert int(re.search(r"^Total params: (\d+)$", ours, re.MULTILINE)[1]) == totals["params_arg"]  # type: ignore[index]
    assert sum(rows) == totals["params_arg"]


def test_auxiliary_states_have_a_line_of_their_own(summary: Callable[..., str]) -> None:
    folder = DATA / "small/tiny_resnet_v1"
    states = AUXILIARY.search(summary(folder / "model", shapes_of(folder)))
    assert states is not None
    assert int(states[1]) == expected_of(folder)["totals"]["params_aux"]


def test_every_input_and_every_output_of_a_node_is_shown(summary: Callable[..., str]) -> None:
    printed = summary(DATA / "ops/conv_two_inputs_concat/model", {"data": (1, 3, 16, 16), "data2": (1, 2, 16, 16)})
    assert "data(null)" in printed
    assert "data2(null)" in printed
    split = summary(DATA / "ops/slice_conv/model", {"data": (1, 3, 12, 12)})
    (row,) = (line for line in split.splitlines() if line.startswith("split(SliceChannel)"))
    assert row.split()[1] == "4x12x12"


def test_lines_and_columns_are_as_long_as_requested(summary: Callable[..., str]) -> None:
    printed = summary(
        DATA / "zoo/alexnet/model", {"data": (1, 3, 224, 224)}, line_length=80, positions=[30, 50, 62, 80]
    )
    assert {len(line) for line in printed.splitlines() if not line.startswith("Total")} == {80}


def test_without_shapes_the_same_layers_are_listed(summary: Callable[..., str]) -> None:
    path = DATA / "zoo/alexnet/model"
    with_shapes, without = ([line[:50] for line in summary(path, *given).splitlines() if "(" in line]
                            for given in [({"data": (1, 3, 224, 224)},), ()])  # fmt: skip
    assert without == with_shapes


# -- count_flops: the multiply-adds are derived here from the shapes ------------------------------------------------


@pytest.fixture
def count(tmp_path: Path) -> Callable[..., FlopCount]:
    """Count one operator with a weight on one input."""

    def counted(
        op: str, shape: tuple[int, ...], *, name: str = "layer", data: str = "image", bias: bool = False, **attrs: Any
    ) -> FlopCount:
        names = [data, f"{name}_weight", *([f"{name}_bias"] if bias else [])]
        nodes: list[dict[str, Any]] = [{"op": "null", "name": variable, "inputs": []} for variable in names]
        entries = [[place, 0, 0] for place in range(len(names))]
        nodes.append(
            {"op": op, "name": name, "attrs": {key: str(value) for key, value in attrs.items()}, "inputs": entries}
        )
        path = tmp_path / "net-symbol.json"
        path.write_text(json.dumps({"nodes": nodes, "heads": [[len(names), 0, 0]]}))
        return count_flops(path, {data: shape})

    return counted


@pytest.mark.parametrize("kernel", [(3, 3), (1, 7), (7, 1), (11, 11), (2, 5)])
def test_a_kernel_may_have_any_size(kernel: tuple[int, int], count: Callable[..., FlopCount]) -> None:
    found = count("Convolution", (2, 6, 20, 20), kernel=kernel, num_filter=8, no_bias=True)
    height, width = (20 - size + 1 for size in kernel)
    assert found.macs == 2 * 8 * height * width * 6 * kernel[0] * kernel[1]


def test_a_kernel_may_have_one_axis_or_three(count: Callable[..., FlopCount]) -> None:
    assert count("Convolution", (1, 4, 9), kernel="(3,)", num_filter=5, no_bias=True).macs == 5 * 7 * 4 * 3
    found = count("Convolution", (1, 4, 5, 6, 7), kernel=(3, 2, 1), num_filter=5, no_bias=True)
    assert found.macs == 5 * 3 * 5 * 7 * 4 * 3 * 2 * 1


def test_groups_divide_and_absent_attributes_are_defaults(count: Callable[..., FlopCount]) -> None:
    assert (
        count("Convolution", (1, 8, 9, 9), kernel=(3, 3), num_filter=8, num_group=8, no_bias=True).macs == 8 * 7 * 7 * 9
    )
    assert count("Convolution", (1, 8, 9, 9), kernel=(3, 3), num_filter=8, bias=True).macs == 8 * 7 * 7 * 8 * 9


def test_a_bias_is_counted_apart(count: Callable[..., FlopCount]) -> None:
    found = count("Convolution", (2, 3, 9, 9), kernel=(3, 3), num_filter=8, bias=True)
    assert found.bias_adds == 2 * 8 * 7 * 7
    assert found.total == found.macs + found.bias_adds
    assert found.nodes[0].bias_adds == found.bias_adds


def test_a_transposed_convolution_is_counted_from_its_input(count: Callable[..., FlopCount]) -> None:
    found = count("Deconvolution", (1, 6, 5, 5), kernel=(4, 4), stride=(2, 2), num_filter=8)
    assert found.macs == 6 * 5 * 5 * 8 * 4 * 4


def test_what_an_operator_is_decides_and_not_its_name(count: Callable[..., FlopCount]) -> None:
    assert count("FullyConnected", (2, 3, 4), name="head", num_hidden=5, no_bias=True).macs == 2 * 5 * 12
    assert count("Activation", (2, 3, 4, 4), name="conv0_relu", act_type="relu").macs == 0


def test_shapes_are_given_as_module_bind_takes_them_or_as_one_shape() -> None:
    path = DATA / "zoo/alexnet/model"
    by_name = count_flops(path, {"data": (1, 3, 224, 224)})
    assert count_flops(path, [("data", (1, 3, 224, 224))]) == by_name
    assert count_flops(path, (1, 3, 224, 224)) == by_name
    assert by_name.params == by_name.trainable_params == expected_of(path.parent)["totals"]["params_arg"]


def test_a_constant_and_a_fixed_gamma_are_parameters_that_are_not_trained() -> None:
    folder = DATA / "gluoncv/ssd_300_mobilenet0_25_voc"
    totals = expected_of(folder)["totals"]
    found = count_flops(folder / "model-symbol.json", shapes_of(folder))
    assert (found.params, found.trainable_params) == (totals["params_arg"], totals["params_trainable"])


def test_operators_without_a_cost_are_named() -> None:
    assert count_flops(DATA / "adv/cond/model", {"data": (2, 3)}).uncounted == ("mxnet::_cond",)


def test_what_is_no_symbol_is_refused(tmp_path: Path) -> None:
    report = opcost.count(str(DATA / "zoo/alexnet/model"), shapes=(1, 3, 224, 224))
    report.save(str(tmp_path / "report.json"))
    with pytest.raises(InputError, match="is not an MXNet symbol"):
        count_flops(tmp_path / "report.json")


def test_a_summary_without_a_shape_says_what_it_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "null", "name": "emb_weight", "inputs": []},
        {
            "op": "Embedding",
            "name": "emb",
            "attrs": {"input_dim": "100", "output_dim": "28"},
            "inputs": [[0, 0], [1, 0]],
        },
        {"op": "null", "name": "fc_weight", "inputs": []},
        {"op": "null", "name": "fc_bias", "inputs": []},
        {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "10"}, "inputs": [[2, 0], [3, 0], [4, 0]]},
    ]
    path = tmp_path / "net-symbol.json"
    path.write_text(json.dumps({"nodes": nodes, "arg_nodes": [0, 1, 3, 4], "heads": [[5, 0, 0]]}))
    print_summary(path)
    rows = {line.split("(")[0]: line.split() for line in capsys.readouterr().out.splitlines() if "(" in line}
    assert rows["emb"][1:] == [str(100 * 28), "data"]
    assert rows["fc"][1:] == ["?", "emb"]
    print_summary(path, {"data": (1, 3)})
    rows = {line.split("(")[0]: line.split() for line in capsys.readouterr().out.splitlines() if "(" in line}
    assert rows["fc"][1:] == ["10", str(3 * 28 * 10 + 10), "emb"]
