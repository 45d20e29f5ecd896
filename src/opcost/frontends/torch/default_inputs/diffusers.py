"""Models of diffusers: what is denoised or encoded, in the shape that its first layer reads, and the other arguments."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, ClassVar

import torch
from torch import nn

from opcost.frontends.torch.default_inputs import engine
from opcost.frontends.torch.default_inputs.engine import InputMaker, Inputs, ShapeWords

_MAIN = ("hidden_states", "sample", "latents", "x")
_LATENT, _PICTURE = 64, 256
"""Height and width of what is denoised and of what is encoded, where the configuration has neither."""
_FRAMES = (17, 16)
"""Of a video: most autoencoders take one more than a multiple of their temporal stride, the others a multiple."""
_SAMPLES = 65_536
_TIMES = frozenset({"timestep", "timesteps", "t"})  # A model with one of these arguments denoises
_TEXT_PARTS = ("text", "txt", "caption", "context", "cond")

_Latent = tuple[tuple[int, ...], tuple[int, int, int]]
"""What is denoised or encoded, without its batch, and its frames, rows and columns."""


def diffusers(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """A denoiser or autoencoder of diffusers, by its configuration and its first layer."""
    main = next((name for name in _MAIN if name in engine.arguments(model)), None)
    if main is None or not engine.comes_from(model, "diffusers"):
        return None
    config = dict(getattr(model, "config", None) or {})
    made = [_Words(model, maker, config, latent).arguments(main) for latent in _latents(model, config, maker)]
    if "timestep" in made[0]:  # some compute in the element type of the timestep
        made += [{**kwargs, "timestep": maker.floats()} for kwargs in made]
    for kwargs in [*made]:  # the text or the timestep of a video, once for each of its frames
        video, text = kwargs[main], kwargs.get("encoder_hidden_states")
        if not isinstance(video, torch.Tensor) or video.dim() != 5:
            continue
        if isinstance(text, torch.Tensor):
            made.append({**kwargs, "encoder_hidden_states": text.repeat_interleave(video.shape[2], 0)})
        if "r_timestep" in kwargs:
            made.append({**kwargs, **{name: maker.floats(video.shape[1]) for name in ("timestep", "r_timestep")}})
    return engine.candidates(made, "its configuration")


def _latents(model: nn.Module, config: dict[str, Any], maker: InputMaker) -> Iterator[_Latent]:
    """An image, a video, a sequence of patches or a wave: first what the layer takes that reads it, then the others."""
    if "embedding_dim" in config:  # denoises what another model has made of an image
        yield (config["embedding_dim"],), (1, 1, 1)
        return
    layers = [module for module in model.modules() if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear))]
    read = {layer: layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels for layer in layers}
    convolutions = [layer for layer in layers if not isinstance(layer, nn.Linear)]
    fitting = (layer for layer in layers if read[layer] == config.get("in_channels"))
    layer = next(fitting, next(iter(convolutions), None))
    channels: int = config.get("in_channels") or getattr(layer, "in_channels", None) or 3
    names = set(engine.arguments(model))
    size: Any = config.get("sample_size") or (config.get("sample_height"), config.get("sample_width"))
    if isinstance(size, (list, tuple)):
        size = size[0] if len(size) == 1 else tuple(size[-2:])
    if not isinstance(size, int) and not all(size):
        size = _PICTURE if _TIMES.isdisjoint(names) else _LATENT
    height, width = maker.image(size)
    if isinstance(layer, nn.Conv1d):
        length = config.get("sample_size")
        tracks = config.get("audio_channels") or layer.in_channels
        yield (tracks, length if isinstance(length, int) else _SAMPLES), (1, 1, 1)
        return
    known = next((config[name] for name in ("num_frames", "sample_frames", "video_length") if config.get(name)), None)
    if known is not None and (ratio := config.get("temporal_compression_ratio")):  # of the video before it was encoded
        known = (known - 1) // ratio + 1
    frames = _FRAMES if known is None else (known,)
    if "in_visual_dim" in config:
        yield (frames[0], height, width, config["in_visual_dim"]), (frames[0], height, width)
    if isinstance(layer, nn.Linear):
        count = frames[0] if "num_frames" in names else 1
        yield (count * height * width, layer.in_features), (count, height, width)
    image: list[_Latent] = [((channels, height, width), (1, height, width))]
    videos: list[_Latent] = [((channels, count, height, width), (count, height, width)) for count in frames]
    frames_first: list[_Latent] = [((count, channels, height, width), (count, height, width)) for count in frames]
    is_video = known is not None or isinstance(layer, nn.Conv3d)
    yield from (*videos, *frames_first, *image) if is_video else (*image, *videos, *frames_first)
    made = config.get("out_channels")
    if _TIMES.isdisjoint(names) and isinstance(made, int) and made != channels:  # an autoencoder reads its own output
        yield from (((made, *shape[1:]), grid) for shape, grid in (*image, *videos))


class _Words(ShapeWords):
    """Words for the arguments of one model beside what it denoises."""

    def __init__(self, model: nn.Module, maker: InputMaker, config: dict[str, Any], latent: _Latent) -> None:
        super().__init__(model, maker)
        self.config = config
        self.shape, self.grid = latent

    def arguments(self, main: str) -> dict[str, Any]:
        """All arguments that can be made: masks only where the model needs them."""
        kwargs: dict[str, Any] = {main: self.maker.floats(*self.shape)}
        if "cap_feats" in self.names:  # one for each sample of the batch, as a video of one frame
            channels = self.config["in_channels"]
            kwargs[main] = [self.maker.empty(channels, *self.grid) for _ in range(self.maker.batch)]
        optional = [name for name in self.names if name == "text_embedding_mask" or not name.endswith("_mask")]
        self.give([name for name in self.names if name in (*self.needed, *optional)], engine.table("diffusers"), kwargs)
        return kwargs

    def entry(self, name: str) -> int | None:
        """A number of the configuration, or the first of several."""
        value = self.config.get(name)
        value = value[0] if isinstance(value, (list, tuple)) and value else value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def width_of_text_layer(self) -> int | None:
        """What the first layer reads in a part named for a text."""
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Linear) and any(word in name.partition(".")[0] for word in _TEXT_PARTS):
                return int(module.in_features)
        return None

    def patches(self) -> int:
        side = self.entry("patch_size") or 1
        return (self.grid[1] // side) * (self.grid[2] // side)

    def motion(self) -> int | None:
        """Numbers that describe the speed and motion of a video."""
        total, each = map(self.entry, ("projection_class_embeddings_input_dim", "addition_time_embed_dim"))
        return total // each if total and each else None

    def if_labelled(self) -> tuple[()] | None:
        known = self.config.get("norm_type") == "ada_norm_zero" and self.config.get("num_embeds_ada_norm")
        return () if known or self.config.get("num_class_embeds") else None

    words: ClassVar[dict[str, str | Callable[[Any], Any]]] = {
        **engine.table("words of diffusers"),
        "T": lambda self: self.maker.tokens(self.value("prompt")),
        "frames": lambda self: self.grid[0],
        "height": lambda self: self.grid[1],
        "width": lambda self: self.grid[2],
        "sequence": lambda self: self.shape[0],
        "none": lambda self: (),
        "t5": lambda self: self.entry("caption_channels" if "llama_layers" in self.config else "cross_attention_dim_t5"),
        "axes": lambda self: len(self.config["axes_dims_rope"]) if self.config.get("axes_dims_rope") else None,
        "if_guided": lambda self: () if self.config.get("guidance_embeds") else None,
        "captions": lambda self: [self.make("T cap_feat_dim") for _ in range(self.maker.batch)],
        "grids": lambda self: [[self.grid]] * self.maker.batch,
        "chunks": lambda self: [self.grid[0]],
        "places_in_text": lambda self: torch.arange(self.value("T")),
    }  # fmt: skip

    def text_of_each_layer(self) -> list[torch.Tensor] | None:
        """A text as each layer of another model returns it."""
        if self.entry("text_encoder_dim") is None:
            return None
        layers = self.value("num_layers|0") + self.value("num_single_layers|0")
        return [self.make("B T text_encoder_dim") for _ in range(layers)]

    def text_of_llama(self) -> torch.Tensor | None:
        """A text as each of the requested layers of Llama returns it, in one tensor."""
        widths, layers = self.config.get("caption_channels"), self.config.get("llama_layers")
        width = widths[1] if isinstance(widths, (list, tuple)) and len(widths) > 1 else widths
        return self.make(f"B T {width}").expand(len(layers), -1, -1, -1) if isinstance(width, int) and layers else None

    def positions_of_patches(self) -> list[torch.Tensor]:
        """Along each direction."""
        sides = self.config.get("patch_size") or (1, 1, 1)
        return [torch.arange(extent // side) for extent, side in zip(self.grid, sides, strict=True)]

    def control_picture(self) -> Any:
        """The picture that controls: larger than what is denoised by the strides of its encoder, or of the same shape."""
        encoder = getattr(self.model, "controlnet_cond_embedding", None)
        if encoder is None:
            return self.maker.floats(*self.shape)
        scale = prod(layer.stride[0] for layer in encoder.modules() if isinstance(layer, nn.Conv2d))
        return self.make(f"B conditioning_channels|3 {scale}*height {scale}*width")

    def conditions(self) -> dict[str, Any] | None:
        """What SDXL and PixArt read of the picture as a whole."""
        config, maker = self.config, self.maker
        if config.get("addition_embed_type") == "text_time":
            ids = 6
            pooled = config["projection_class_embeddings_input_dim"] - ids * config["addition_time_embed_dim"]
            return {"text_embeds": maker.floats(pooled), "time_ids": maker.floats(ids)}
        if config.get("norm_type") == "ada_norm_single":
            wanted = config.get("use_additional_conditions")
            wanted = config.get("sample_size") == 128 if wanted is None else wanted  # as PixArt itself decides it
            sizes = {"resolution": 2, "aspect_ratio": 1}
            return {name: maker.floats(size) if wanted else None for name, size in sizes.items()}
        return None
