"""Models and operators that measure_gpu.py measures on a GPU and predict.py compares with predictions; weights are random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from harness import load_torchvision

# -- whole models: a library, a slash and a name --------------------------------------------------------------------------

_LLAMA_TINY = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16,
    "num_key_value_heads": 8,
}  # fmt: skip
_QWEN = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151936,
}  # fmt: skip
TEXTS: dict[str, tuple[str, str, dict[str, int], int]] = {
    "distilbert": ("DistilBertModel", "DistilBertConfig", {}, 256),
    "opt-125m": ("OPTForCausalLM", "OPTConfig", {}, 512),
    "llama-tiny": ("LlamaForCausalLM", "LlamaConfig", _LLAMA_TINY, 1024),
    "t5-small-enc": ("T5EncoderModel", "T5Config", {}, 256),
    "roberta": ("RobertaModel", "RobertaConfig", {}, 128),
    "bert-base": ("BertModel", "BertConfig", {}, 128),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}, 1024),
    "qwen2-0.5b": ("Qwen2ForCausalLM", "Qwen2Config", _QWEN, 1024),
    "clip-text": ("CLIPTextModel", "CLIPTextConfig", {}, 77),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {}, 512),
    "whisper-tiny-encdec": ("WhisperModel", "WhisperConfig", {}, 32),
}
"""Class, configuration and its settings in transformers, and tokens of the input."""


def made(name: str) -> Any:
    """A model of torchvision (tv/), timm or transformers (hf/)."""
    load_torchvision()
    library, _, model = name.partition("/")
    if library == "hf":
        import transformers

        if model not in TEXTS:  # a class, with its own configuration
            cls = getattr(transformers, model)
            return cls(cls.config_class())
        cls, config, settings, _ = TEXTS[model]
        return getattr(transformers, cls)(getattr(transformers, config)(**settings))
    if library == "timm":
        import timm

        return timm.create_model(model)
    import torchvision

    return torchvision.models.get_model(model, **({"init_weights": False} if model == "googlenet" else {}))


def inputs(row: dict[str, Any], dtype: torch.dtype, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a model by the batch, and the image, of a measured row."""
    library, _, model = row["name"].partition("/")
    if library != "hf":
        extent = row.get("image", 224)
        return (torch.empty(row["batch"], 3, extent, extent, dtype=dtype, device=device),), {}
    tokens = TEXTS[model][3] if model in TEXTS else row["tokens"]
    ids = torch.zeros(row["batch"], tokens, dtype=torch.int64, device=device)
    if model.startswith("whisper"):
        sound = torch.zeros(row["batch"], 80, 3000, dtype=dtype, device=device)
        return (), {"input_features": sound, "decoder_input_ids": ids}
    return (), {"input_ids": ids}


# -- language models whose prefill and decode steps are measured ----------------------------------------------------------

_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
LANGUAGE: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", {}),
    "opt-125m": ("OPTConfig", {}),
    "llama-tiny": ("LlamaConfig", _LLAMA_TINY),
    "qwen2-1.5b": ("Qwen2Config", {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    }),
    "mistral-window": ("MistralConfig", {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "sliding_window": 1024,
    }),
    "phi3-mini": ("Phi3Config", {"pad_token_id": 0}),
    "gpt-neox-410m": ("GPTNeoXConfig", {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 50304,
    }),
    "llama-8b": ("LlamaConfig", {
        **_8B, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192,
    }),
}  # fmt: skip
"""Configurations in transformers: different caches of keys and values, and different sizes."""


def language_model(name: str, device: str) -> Any:
    load_torchvision()
    import transformers

    kind, settings = LANGUAGE[name]
    with torch.device(device):
        config = getattr(transformers, kind)(**settings)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


# -- models whose eager runs are measured beside a calibration of their host -----------------------------------------------

_SMALL = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16,
    "num_key_value_heads": 8, "vocab_size": 32000,
}  # fmt: skip
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
EAGER: dict[str, tuple[str, dict[str, Any], str]] = {
    "albert": ("AlbertConfig", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}, "text"),
    "bart": ("BartConfig", {
        "encoder_layers": 6, "decoder_layers": 6, "d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
        "encoder_attention_heads": 12, "decoder_attention_heads": 12,
    }, "both"),
    "bloom": ("BloomConfig", {"hidden_size": 1024, "n_layer": 12, "n_head": 16, "vocab_size": 32000}, "language"),
    "deberta-v2": ("DebertaV2Config", _BASE, "text"),
    "dinov2": ("Dinov2Config", {}, "image"),
    "electra": ("ElectraConfig", {**_BASE, "embedding_size": 768}, "text"),
    "gemma2": ("Gemma2Config", {**_SMALL, "head_dim": 64}, "language"),
    "granite": ("GraniteConfig", _SMALL, "language"),
    "mpnet": ("MPNetConfig", {}, "text"),
    "olmo2": ("Olmo2Config", _SMALL, "language"),
    "phi": ("PhiConfig", _SMALL, "language"),
    "qwen3": ("Qwen3Config", {**_SMALL, "head_dim": 64}, "language"),
    "segformer": ("SegformerConfig", {}, "image"),
    "squeezebert": ("SqueezeBertConfig", {}, "text"),
    "starcoder2": ("Starcoder2Config", _SMALL, "language"),
    "t5": ("T5Config", {}, "both"),
    "vit": ("ViTConfig", {}, "image"),
    "wav2vec2": ("Wav2Vec2Config", {}, "sound"),
}  # fmt: skip
"""Configurations in transformers, and what the model reads: an image, a text, a text and one before it, a sound; the others are
models of timm."""


def eager_model(name: str, device: str) -> Any:
    """One of these in bfloat16."""
    load_torchvision()
    library, _, model = name.partition("/")
    with torch.device(device):
        if library == "timm":
            import timm

            return timm.create_model(model).to(torch.bfloat16)
        import transformers

        kind, settings, reads = EAGER[model]
        config = getattr(transformers, kind)(**settings)
        if reads == "language":
            config.pad_token_id = None
        auto = transformers.AutoModelForCausalLM if reads == "language" else transformers.AutoModel
        return auto.from_config(config, dtype=torch.bfloat16)


def eager_inputs(
    name: str, model: Any, batch: int, device: str, *, training: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of such a model: texts of 128 tokens, sounds of a second, images as it was trained on."""
    reads = EAGER[name.removeprefix("hf/")][2] if name.startswith("hf/") else "image"
    floats = {"device": device, "dtype": torch.bfloat16}
    if reads == "image":
        extent = model.pretrained_cfg["input_size"][1] if name.startswith("timm/") else 224
        return (torch.empty(batch, 3, extent, extent, **floats),), {}
    if reads == "sound":
        return (torch.empty(batch, 16000, **floats),), {}
    ids = torch.zeros(batch, 128, dtype=torch.int64, device=device)
    more = {"both": {"decoder_input_ids": ids}, "language": {"use_cache": False} if training else {}}
    return (), {"input_ids": ids, **more.get(reads, {})}


# -- training steps -------------------------------------------------------------------------------------------------------

MIXED = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Stage(nn.Module):
    """A block of convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.group = nn.BatchNorm2d(width), nn.GroupNorm(8, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.group(self.second(F.relu(self.norm(self.first(x))))))


class Blocks(nn.Module):
    """Blocks in order, each with a checkpoint of its own where that is requested."""

    recompute = False

    def through(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x


class Decoder(Blocks):
    """A language model with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8192, 512)
        self.blocks = nn.ModuleList(Block(512) for _ in range(4))
        self.head = nn.Linear(512, 8192, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.through(self.embed(tokens))).flatten(0, 1), tokens.flatten())


class Convolutions(Blocks):
    """A network for images with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3)
        self.blocks = nn.ModuleList(Stage(64) for _ in range(3))
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        y = self.head(self.through(self.stem(images)).mean((2, 3))).softmax(-1)
        return F.mse_loss(y, torch.zeros_like(y))


STEP_NETS: dict[str, tuple[Callable[[], Blocks], Callable[[], Tensor]]] = {
    "decoder": (Decoder, lambda: torch.zeros(8, 512, dtype=torch.int64)),
    "convolutions": (Convolutions, lambda: torch.zeros(16, 3, 128, 128)),
}
STEPS: list[dict[str, Any]] = [
    {"precision": precision, "recompute": recompute, "accumulate": accumulate, "zero_grad": zero_grad}
    for precision in ("float32", "bfloat16", *MIXED)
    for recompute in (False, True)
    for accumulate, zero_grad in ((1, "none"), (1, "zero"), (2, "none"))
]


# -- single operators, for the counters of the hardware ------------------------------------------------------------------

Make = Callable[[str], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]


def _product(m: int, n: int, k: int, dtype: torch.dtype) -> Make:
    return lambda device: (torch.mm, (_random((m, k), dtype, device), _random((k, n), dtype, device)))


def _convolution(image: tuple[int, ...], weight: tuple[int, ...], dtype: torch.dtype, **how: int) -> Make:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=weight[-1] // 2, **how)

    return lambda device: (run, tuple(_channels_last(_random(shape, dtype, device)) for shape in (image, weight)))


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _attention(shape: tuple[int, ...], dtype: torch.dtype, *, causal: bool) -> Make:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return lambda device: (run, tuple(_random(shape, dtype, device) for _ in range(3)))


def _simple(run: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Make:
    return lambda device: (run, tuple(_random(shape, dtype, device) for shape in shapes))


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randn(shape, device=device).to(dtype)


BF16, FP16, SINGLE = torch.bfloat16, torch.float16, torch.float32
_IMAGE, _FLAT = (32, 64, 56, 56), (8192, 4096)
OPERATORS: dict[str, Make] = {
    "product 4096x4096x4096 bf16": _product(4096, 4096, 4096, BF16),
    "product 4096x4096x4096 fp16": _product(4096, 4096, 4096, FP16),
    "product 2048x2048x2048 fp32": _product(2048, 2048, 2048, SINGLE),
    "product 8192x1024x512 bf16": _product(8192, 1024, 512, BF16),
    "product 1024x8192x2048 bf16": _product(1024, 8192, 2048, BF16),
    "product 1000x1000x1000 bf16": _product(1000, 1000, 1000, BF16),
    "product 4100x4100x4100 bf16": _product(4100, 4100, 4100, BF16),
    "product 197x768x768 bf16": _product(197, 768, 768, BF16),
    "product 1x4096x4096 bf16": _product(1, 4096, 4096, BF16),
    "product 8x4096x4096 bf16": _product(8, 4096, 4096, BF16),
    "conv 3x3 64 to 64 bf16": _convolution(_IMAGE, (64, 64, 3, 3), BF16),
    "conv 3x3 256 to 256 bf16": _convolution((32, 256, 14, 14), (256, 256, 3, 3), BF16),
    "conv 1x1 64 to 256 bf16": _convolution(_IMAGE, (256, 64, 1, 1), BF16),
    "conv 1x1 512 to 128 fp16": _convolution((32, 512, 28, 28), (128, 512, 1, 1), FP16),
    "conv 7x7/2 3 to 64 bf16": _convolution((32, 3, 224, 224), (64, 3, 7, 7), BF16, stride=2),
    "conv 3x3 depthwise fp32": _convolution((32, 128, 56, 56), (128, 1, 3, 3), SINGLE, groups=128),
    "attention 8x16x1024x64 bf16": _attention((8, 16, 1024, 64), BF16, causal=False),
    "attention 8x16x1024x64 bf16 causal": _attention((8, 16, 1024, 64), BF16, causal=True),
    "attention 4x16x2048x128 bf16": _attention((4, 16, 2048, 128), BF16, causal=False),
    "attention 8x12x512x64 fp32": _attention((8, 12, 512, 64), SINGLE, causal=False),
    "add fp32": _simple(torch.add, _FLAT, _FLAT),
    "multiply fp32": _simple(torch.mul, _FLAT, _FLAT),
    "addcmul fp32": _simple(torch.addcmul, _FLAT, _FLAT, _FLAT),
    "relu fp32": _simple(torch.relu, _FLAT),
    "gelu bf16": _simple(F.gelu, _FLAT, dtype=BF16),
    "softmax fp32": _simple(lambda x: x.softmax(-1), _FLAT),
    "layer norm fp32": _simple(lambda x: F.layer_norm(x, (4096,)), _FLAT),
    "sum fp32": _simple(lambda x: x.sum(-1), _FLAT),
    "copy bf16": _simple(torch.clone, _FLAT, dtype=BF16),
    "cat fp32": _simple(lambda a, b: torch.cat((a, b)), _FLAT, _FLAT),
    "embedding fp32": lambda device: (
        F.embedding,
        (torch.arange(8192, device=device) * 3 % 32000, _random((32000, 1024), SINGLE, device)),
    ),
}
