"""Inputs of models whose libraries are not among the test dependencies: small classes of the same shape, made as theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.errors import InputError

WIDTH, OUT = 8, 5


def seen(report: opcost.Report) -> dict[str, Any]:
    return {name: spec.shape for name, spec in report.inputs}


def of(package: str, base: type[nn.Module], *args: Any) -> Any:
    """A model whose class is one of this package."""
    return type(base.__name__, (base,), {"__module__": f"{package}.models"})(*args)


# -- Lightning --------------------------------------------------------------------------------------------------------


class Example(nn.Module):
    def __init__(self, *examples: Tensor) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, OUT, bias=False), nn.Linear(WIDTH, OUT, bias=False)
        self.example_input_array = examples

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        total: Tensor = self.a(x) + self.b(y)
        return total


def test_an_example_is_taken_as_it_is_or_with_another_batch() -> None:
    model = Example(torch.rand(3, WIDTH), torch.rand(3, WIDTH))
    assert seen(opcost.count(model)) == {"x": (3, WIDTH), "y": (3, WIDTH)}
    wide = opcost.count(model, batch=7)
    assert seen(wide) == {"x": (7, WIDTH), "y": (7, WIDTH)}
    assert wide.totals.macs == 2 * 7 * WIDTH * OUT


def test_an_example_follows_the_element_type_of_the_weights() -> None:
    report = opcost.count(Example(torch.rand(3, WIDTH), torch.rand(3, WIDTH)), dtype="bf16")
    assert {spec.dtype for _, spec in report.inputs} == {"bfloat16"}


def test_an_example_whose_tensors_have_no_common_batch_cannot_get_another() -> None:
    with pytest.raises(InputError, match="begin with different lengths"):
        opcost.count(Example(torch.rand(3, WIDTH), torch.rand(1, WIDTH)), batch=2)


def test_a_size_that_no_input_has_is_refused_and_not_passed_over() -> None:
    with pytest.raises(InputError, match="image and tokens cannot be changed: nothing that Example is given"):
        opcost.count(Example(torch.rand(3, WIDTH), torch.rand(3, WIDTH)), image=8, tokens=9)


# -- a model around one that is known ---------------------------------------------------------------------------------


class Images(nn.Conv2d):
    def __init__(self) -> None:
        super().__init__(3, OUT, 1, bias=False)
        self.default_cfg = {"input_size": (3, 6, 4)}


class Around(nn.Module):
    def __init__(self, beside: int = 0) -> None:
        super().__init__()
        self.backbone = Images()
        if beside:
            self.head = nn.Linear(beside, 1, bias=False)

    def forward(self, picture: Tensor) -> Tensor:
        y: Tensor = self.backbone(picture)
        return y


def test_a_model_around_one_that_is_known_takes_what_that_takes() -> None:
    report = opcost.count(Around())
    assert seen(report) == {"picture": (1, 3, 6, 4)}
    assert report.totals.macs == 6 * 4 * 3 * OUT
    (note,) = report.notes
    assert "from its default_cfg, as its Images takes it" in note.text


def test_a_model_with_much_besides_gets_the_size_of_its_part_and_the_channels_of_its_first_layer() -> None:
    report = opcost.count(Around(beside=2))
    assert seen(report) == {"picture": (1, 3, 6, 4)}
    assert report.totals.macs == 6 * 4 * 3 * OUT


# -- sentence-transformers --------------------------------------------------------------------------------------------


class Sentences(nn.Module):
    max_seq_length = 6

    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense = nn.Embedding(9, WIDTH), nn.Linear(WIDTH, OUT, bias=False)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        mask = features["attention_mask"][..., None]
        y: Tensor = self.dense((self.table(features["input_ids"]) * mask).sum(1))
        return y


class Bags(nn.Module):
    max_seq_length = 6

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(9, WIDTH)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        y: Tensor = self.table(features["input_ids"], features["offsets"])
        return y


def test_a_sentence_comes_as_tokens_and_a_mask() -> None:
    report = opcost.count(of("sentence_transformers", Sentences), batch=2)
    assert seen(report) == {"features.input_ids": (2, 6), "features.attention_mask": (2, 6)}
    assert report.totals.macs == 2 * WIDTH * OUT
    assert seen(opcost.count(of("sentence_transformers", Sentences), tokens=3))["features.input_ids"] == (1, 3)


def test_a_table_of_words_gets_all_sentences_in_one_row() -> None:
    report = opcost.count(of("sentence_transformers", Bags), batch=2)
    assert seen(report) == {"features.input_ids": (12,), "features.offsets": (2,)}


def test_a_part_that_reads_no_tokens_is_not_given_any() -> None:
    class Dense(nn.Linear):
        def forward(self, features: Any) -> Any:
            return super().forward(features)

    assert seen(opcost.count(of("sentence_transformers", Dense, WIDTH, OUT))) == {"features": (1, WIDTH)}


# -- open_clip --------------------------------------------------------------------------------------------------------


class Looks(nn.Module):
    image_size = (6, 4)

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Conv2d(3, OUT, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.seen(x)
        return y


def test_the_part_of_a_clip_model_that_looks_gets_an_image_only() -> None:
    report = opcost.count(of("open_clip", Looks))
    assert seen(report) == {"x": (1, 3, 6, 4)}


# -- torch-geometric --------------------------------------------------------------------------------------------------

NODES, EDGES = 1000, 5000


class Convolution(nn.Module):
    """Mixes nodes, then hands each edge the features of where it begins."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels, self.edge_dim = in_channels, 2
        self.lin = nn.Linear(in_channels, OUT, bias=False)
        self.of_edge = nn.Linear(2, OUT, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        assert edge_attr is not None
        y: Tensor = self.lin(x)[edge_index[0]] + self.of_edge(edge_attr)
        return y


def convolution() -> Any:
    return of("torch_geometric", Convolution, WIDTH)


def test_a_graph_layer_gets_nodes_edges_and_what_its_edges_have() -> None:
    report = opcost.count(convolution())
    assert seen(report) == {"x": (NODES, WIDTH), "edge_index": (2, EDGES), "edge_attr": (EDGES, 2)}
    assert report.totals.macs == NODES * WIDTH * OUT + EDGES * 2 * OUT


def test_a_batch_of_graphs_is_one_of_as_many_parts() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = convolution()

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
            assert int(edge_index.max()) == 2 * NODES - 1
            assert int(batch.max()) == 1
            y: Tensor = self.convolution(x, edge_index, edge_attr)
            return y

    report = opcost.count(Pooled(), batch=2)
    assert seen(report)["batch"] == (2 * NODES,)
    assert report.totals.macs == 2 * (NODES * WIDTH * OUT + EDGES * 2 * OUT)


class OfEdges(nn.Module):
    """A layer of edges, whose net reads both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.nn = nn.Linear(2 * WIDTH, OUT, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        y: Tensor = self.nn(torch.cat([x[edge_index[0]], x[edge_index[1]]], -1))
        return y


class OfPoints(nn.Module):
    """A layer of points, whose net also reads where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.nn = nn.Linear(WIDTH + 3, OUT, bias=False)

    def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor) -> Tensor:
        y: Tensor = self.nn(torch.cat([x[edge_index[0]], pos[edge_index[1]] - pos[edge_index[0]]], -1))
        return y


@pytest.mark.parametrize(("layer", "read"), [(OfEdges, 2 * WIDTH), (OfPoints, WIDTH + 3)])
def test_the_width_of_nodes_is_the_first_with_which_the_net_of_a_layer_runs(layer: Any, read: int) -> None:
    report = opcost.count(of("torch_geometric", layer))
    assert seen(report)["x"] == (NODES, WIDTH)
    assert report.totals.macs == EDGES * read * OUT


def test_a_graph_layer_that_learns_its_width_later_is_not_guessed() -> None:
    class Lazy(Convolution):
        def __init__(self) -> None:
            super().__init__(WIDTH)
            self.in_channels = -1
            self.lin = self.of_edge = nn.LazyLinear(OUT)  # type: ignore[assignment]

    with pytest.raises(InputError, match=r"Lazy\.forward\(x: .*, edge_index: .*\) needs inputs, and none were given"):
        opcost.count(of("torch_geometric", Lazy))


# -- diffusers --------------------------------------------------------------------------------------------------------


class Denoiser(nn.Module):
    """Reads what is denoised with a layer of one kind, and a text."""

    def __init__(self, layer: nn.Module, **config: Any) -> None:
        super().__init__()
        self.layer, self.text = layer, nn.Linear(WIDTH, OUT, bias=False)
        self.config = {"in_channels": 4, "cross_attention_dim": WIDTH, **config}

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        y: Tensor = self.layer(sample * timestep)
        return y + self.text(encoder_hidden_states).sum()


class Filmed(Denoiser):
    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        return super().forward(sample.transpose(1, 2)[:, 0], timestep, encoder_hidden_states)


TEXT = 77


@pytest.mark.parametrize(
    ("base", "layer", "config", "shape"),
    [
        (Denoiser, nn.Conv2d(4, OUT, 1, bias=False), {"sample_size": 6}, (4, 6, 6)),
        (Denoiser, nn.Conv2d(4, OUT, 1, bias=False), {"sample_height": 6, "sample_width": 4}, (4, 6, 4)),
        (Denoiser, nn.Conv3d(4, OUT, 1, bias=False), {"sample_size": 6}, (4, 17, 6, 6)),
        (Denoiser, nn.Conv3d(4, OUT, 1, bias=False), {"sample_size": 6, "num_frames": 9}, (4, 9, 6, 6)),
        (Denoiser, nn.Conv1d(4, OUT, 1, bias=False), {"sample_size": 50}, (4, 50)),
        (Denoiser, nn.Linear(4, OUT, bias=False), {"sample_size": 6}, (36, 4)),
    ],
)
def test_what_is_denoised_has_the_form_that_the_first_layer_reads(
    base: Any, layer: Any, config: Any, shape: tuple[int, ...]
) -> None:
    model = of("diffusers", base, layer)
    model.config |= config
    report = opcost.count(model)
    assert seen(report)["sample"] == (1, *shape)
    points = torch.Size(shape).numel() // 4
    assert report.totals.macs == points * 4 * OUT + TEXT * WIDTH * OUT


def test_a_video_is_tried_with_its_frames_first_too() -> None:
    """The model denoises every fourth of the frames that its configuration speaks of, and one."""
    model = of("diffusers", Filmed, nn.Conv2d(4, OUT, 1, bias=False))
    model.config |= {"sample_size": 6, "sample_frames": 33, "temporal_compression_ratio": 4}
    assert seen(opcost.count(model))["sample"] == (1, 4, 9, 6, 6)
    model.layer = nn.Conv2d(9, OUT, 1, bias=False)
    assert seen(opcost.count(model))["sample"] == (1, 9, 4, 6, 6)


def test_an_argument_of_which_nothing_is_known_is_named() -> None:
    class Moody(Denoiser):
        def forward(self, sample: Tensor, timestep: Tensor, mood: Tensor) -> Tensor: ...  # type: ignore[override]

    with pytest.raises(InputError, match="needs sample, timestep, mood, and mood cannot be guessed"):
        opcost.count(of("diffusers", Moody, nn.Conv2d(4, OUT, 1)))
