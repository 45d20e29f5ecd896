"""Real models of libraries that are not among the test dependencies, where they are installed: guessed inputs, equal products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import opcost

pytestmark = pytest.mark.zoo


def assert_as_run(model: Any, inputs: Any = (), **kwargs: Any) -> opcost.Report:
    """A count with no inputs equals the products of a real run on inputs of the shapes in the report."""
    model = model.eval()
    report = opcost.count(model)
    assert report.coverage.complete, report.coverage.uncounted
    with FlopCounterMode(display=False) as run, torch.no_grad():
        model(*inputs, **kwargs)
    assert 2 * report.totals.macs == run.get_total_flops()
    return report


def graph(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(1000, width), torch.randint(0, 1000, (2, 5000))


@pytest.mark.parametrize("name", ["GCN", "GAT", "GIN", "GraphSAGE", "EdgeCNN", "PNA"])
def test_graph_nets(name: str) -> None:
    nets = pytest.importorskip("torch_geometric.nn")
    special = (
        {"aggregators": ["mean"], "scalers": ["identity"], "deg": torch.tensor([0, 2, 3])} if name == "PNA" else {}
    )
    assert_as_run(getattr(nets, name)(16, 32, 2, 7, **special), graph(16))


def test_a_net_of_points_and_one_on_a_whole_graph() -> None:
    nets = pytest.importorskip("torch_geometric.nn")

    class Points(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nets.PointNetConv(nets.MLP([6, 16])), nets.PointNetConv(nets.MLP([19, 16]))

        def forward(self, pos: Any, edge_index: Any, batch: Any) -> Any:
            x = self.first(pos, pos, edge_index)
            return nets.global_max_pool(self.second(x, pos, edge_index), batch)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nets.GCNConv(16, 7)

        def forward(self, data: Any) -> Any:
            return self.convolution(data.x, data.edge_index)

    edges = torch.stack([torch.arange(5000) % 1000, (torch.arange(5000) * 7 + 1) % 1000])
    assert_as_run(Points(), (torch.rand(1000, 3), edges, torch.zeros(1000, dtype=torch.int64)))
    assert opcost.count(Whole()).totals.macs == 1000 * 16 * 7


@pytest.mark.parametrize("name", ["RN50", "ViT-B-32", "ViT-B-16-SigLIP", "coca_ViT-B-32", "convnext_tiny"])
def test_models_of_an_image_and_a_text(name: str) -> None:
    clip = pytest.importorskip("open_clip")
    model = clip.create_model(name, pretrained=None).to("meta").eval().requires_grad_(requires_grad=False)
    report = opcost.count(model)
    assert report.coverage.complete
    (_, image), (_, text) = report.inputs
    given = torch.empty(image.dims, device="meta"), torch.zeros(text.dims, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as run, torch.no_grad():
        model(*given)
    assert 2 * report.totals.macs == run.get_total_flops()


def test_lightning_modules() -> None:
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            return self.net(x)

    model = Net()
    assert opcost.count(model).totals.macs == 16 * 4
    model.example_input_array = torch.rand(5, 16)
    assert_as_run(model, (torch.rand(5, 16),))


UNET: dict[str, Any] = {
    "block_out_channels": (32, 64), "layers_per_block": 1, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "cross_attention_dim": 32, "attention_head_dim": 8, "sample_size": 16,
}  # fmt: skip
SMALL: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "UNet2DConditionModel": (UNET, {"sample": (1, 4, 16, 16), "timestep": (1,), "encoder_hidden_states": (1, 77, 32)}),
    "AutoencoderKL": ({"sample_size": 64}, {"sample": (1, 3, 64, 64)}),
    "SD3Transformer2DModel": (
        {"sample_size": 16, "num_layers": 1, "attention_head_dim": 8, "num_attention_heads": 4, "joint_attention_dim": 32,
         "caption_projection_dim": 32, "pooled_projection_dim": 16, "pos_embed_max_size": 16},
        {"hidden_states": (1, 16, 16, 16), "encoder_hidden_states": (1, 77, 32), "pooled_projections": (1, 16), "timestep": (1,)},
    ),
    "FluxTransformer2DModel": (
        {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32,
         "pooled_projection_dim": 16, "axes_dims_rope": (4, 4, 8), "in_channels": 8},
        {"hidden_states": (1, 4096, 8), "encoder_hidden_states": (1, 77, 32), "pooled_projections": (1, 16), "timestep": (1,),
         "img_ids": (4096, 3), "txt_ids": (77, 3)},
    ),
    "WanTransformer3DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 12, "text_dim": 16, "freq_dim": 16, "ffn_dim": 32, "num_layers": 1},
        {"hidden_states": (1, 16, 17, 64, 64), "timestep": (1,), "encoder_hidden_states": (1, 77, 16)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_denoisers_and_autoencoders(name: str) -> None:
    models = pytest.importorskip("diffusers")
    settings, shapes = SMALL[name]
    model = getattr(models, name)(**settings).to("meta").eval()
    report = opcost.count(model)
    assert {key: spec.shape for key, spec in report.inputs} == shapes
    kwargs = {key: torch.ones(shape, device="meta") for key, shape in shapes.items()}
    with FlopCounterMode(display=False) as run, torch.no_grad():
        model(**kwargs)
    assert 2 * report.totals.macs == run.get_total_flops()


def test_sentences_through_a_small_bert(tmp_path: Any) -> None:
    sentences = pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    parts = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=99,
        max_position_embeddings=24, attn_implementation="eager",
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(94))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    read = parts.Transformer(str(tmp_path), model_kwargs={"attn_implementation": "eager"})
    model = sentences.SentenceTransformer(modules=[read, parts.Pooling(32), parts.Dense(32, 8)], device="cpu")
    tokens = torch.ones(1, 24, dtype=torch.int64)
    assert_as_run(model, ({"input_ids": tokens, "attention_mask": tokens},))
    table = sentences.SentenceTransformer(
        modules=[parts.StaticEmbedding(read.tokenizer._tokenizer, embedding_dim=8)], device="cpu"
    )
    assert {name: spec.shape for name, spec in opcost.count(table, tokens=5, batch=2).inputs} == {
        "input.input_ids": (10,), "input.offsets": (2,),
    }  # fmt: skip
