"""Inputs of any model: the form from the layer that reads them, the sizes from attributes, the rest from argument names.

Several forms may fit one layer. They are tried in order, the usual ones first, and the first with which the model runs is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice, product, zip_longest
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.frontends.torch.guessing.guess import TOKENS, Guess, Maker, Other, needed, parameters_of, signature

_MOST = 32
"""Attempts at one model."""
_READERS = 6
"""Layers whose forms are tried."""
_KINDS = {
    "image": "image images img imgs picture rgb pixel_values left right img1 img2 image1 image2",
    "volume": "volume vol video videos frames clip clips",
    "audio": "audio wav wavs waveform waveforms wave mix mixture signal speech sound",
    "text": "input_ids tokens token_ids ids idx text texts src tgt",
    "time": "t time times timestep timesteps sigma noise_level",
    "lengths": "lengths length lens input_lengths x_lens xlens",
    "mask": "mask attention_mask padding_mask",
    "label": "y label labels class_labels classes",
}
"""Names of arguments by what they bring."""
_WORDS = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_AXES = {"image": 2, "volume": 3, "audio": 1, "text": -1}
"""Of the layers that read these."""
_BESIDE = ("time", "lengths", "mask", "label")
"""Kinds of arguments that go with another."""
_IMAGE_SIZES = (
    "image_size", "img_size", "imgsz", "input_image_size", "in_size", "crop_size", "sample_size", "input_size", "resolution",
)  # fmt: skip
_LENGTHS = (
    "max_seq_len", "max_length", "block_size", "context_length", "seq_len", "seq_length", "n_ctx", "max_len",
    "max_position_embeddings", "n_positions",
)  # fmt: skip
_SQUARES = (224, 256, 32, 28, 299, 331, 64, 84, 96, 128, 384, 512)
_VOLUMES = ((96,) * 3, (64,) * 3, (128,) * 3, (32,) * 3)
_VIDEOS = ((16, 112, 112), (16, 224, 224), (8, 224, 224), (32, 256, 256))
_DETECTED = 640
"""Height and width for a detector of the YOLO family, which has the strides of its outputs as an attribute."""
_RATE = 16_000
"""Samples of a second of speech."""
_POINTS = 1024
"""Steps of a sequence of measured values, or points of a cloud, where nothing says how many."""


class _Reader(NamedTuple):
    """A layer that may read the inputs."""

    path: str
    label: str
    width: int
    """Channels, features or the entries of a table."""
    axes: int
    """Of space or time: of a convolution; 0: features alone; -1: a table of tokens; -2: a sequence of features."""
    patch: tuple[int, ...] = ()
    """The extents of what a convolution makes one token of."""
    swapped: bool = False
    """A recurrent layer or attention whose inputs have the batch on the second axis."""


class _Form(NamedTuple):
    kind: str
    shape: tuple[int, ...]
    """Without the batch."""
    sizes: frozenset[str] = frozenset({"batch"})
    """Options that change it."""
    batch_axis: int = 0


_IMAGE, _TOKENS = frozenset({"batch", "image"}), frozenset({"batch", "tokens"})


def from_layers(model: nn.Module, maker: Maker, place: str | None = None) -> Guess | None:
    """What the first layers of a model read, or the one at a place; None where nothing is known of them."""
    names = [name for name in needed(model) or _optional(model) if name not in maker.given]
    if not names or (not needed(model) and maker.given):
        return None
    main = next((name for name in names if _WORDS.get(name) not in _BESIDE), names[0])
    axes = _AXES.get(_WORDS.get(main.lower(), ""))
    readers = [reader for reader in _readers(model) if place in (None, reader.path)]
    readers.sort(key=lambda reader: axes is not None and reader.axes != axes)
    readers = list({reader[1:]: reader for reader in reversed(readers)}.values())[::-1][:_READERS]
    sizes = _Sizes(model, maker, readers)
    in_turn = zip_longest(*([(reader, form) for form in sizes.forms(reader)] for reader in readers))
    made = [pair for turn in in_turn for pair in turn if pair is not None]
    made.sort(key=lambda pair: not _fits(pair[1].kind, _WORDS.get(main.lower())))
    wanted = {name for name, size in maker.sizes._asdict().items() if size is not None}
    heeding = [pair for pair in made if wanted <= pair[1].sizes] or made
    if not heeding:
        return None
    found: dict[Any, Other] = {}
    for reader, form in heeding:
        for given in _arguments(model, names, main, form, maker, made):
            key = tuple((name, tuple(value.shape), value.dtype) for name, value in given.items())
            found.setdefault(key, Other(given, source=f"its first layer, a {reader.label}"))
    maker.unheeded = wanted - heeding[0][1].sizes
    first, *others = islice((_positional(model, other) for other in found.values()), _MOST)
    hint = example(model, heeding[0][1].kind, main, (maker.batch, *heeding[0][1].shape))
    read_by = partial(from_layers, model, maker) if place is None else None
    return Guess(first.args, first.kwargs, first.source, tuple(others), hint, read_by)


def _fits(kind: str, word: str | None) -> bool:
    return word is None or kind == word


def _optional(model: nn.Module) -> list[str]:
    """The first argument of a forward that needs none: one that is None by default, or any number of them."""
    found = (p.name for p in signature(model) if p.default is None or p.kind is p.VAR_POSITIONAL)
    return list(islice(found, 1))


def _positional(model: nn.Module, other: Other) -> Other:
    """Arguments of a forward that takes any number of them have no names."""
    unnamed = {p.name for p in signature(model) if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY)}
    if unnamed.isdisjoint(other.kwargs):
        return other
    return other._replace(args=tuple(other.kwargs.values()), kwargs={})


def _arguments(
    model: nn.Module, names: list[str], main: str, form: _Form, maker: Maker, made: list[tuple[_Reader, _Form]]
) -> Iterator[dict[str, torch.Tensor]]:
    """A tensor for each argument: the main one in this form, others by their names, or in the same form."""
    longest = max(form.shape, default=1)
    kinds = {name: _WORDS.get(name.lower()) for name in names}
    for time in (False, True) if "time" in kinds.values() else (False,):
        given: dict[str, torch.Tensor] = {}
        for name in names:
            kind = kinds[name]
            if name == main or kind not in _BESIDE:
                own = next(
                    (f for _, f in made if name != main and kind not in (None, form.kind) and f.kind == kind), form
                )
                given[name] = _tensor(own, maker)
            elif kind == "mask":
                given[name] = maker.integers(longest, value=1).bool()
            elif kind == "time" and not time:
                given[name] = maker.floats()
            else:
                given[name] = maker.integers(value=longest if kind == "lengths" else 0)
        yield given


def _tensor(form: _Form, maker: Maker) -> torch.Tensor:
    if form.kind == "text":
        return maker.integers(*form.shape, value=1)
    made = maker.floats(*form.shape)
    return made.movedim(0, form.batch_axis) if form.batch_axis else made


# -- layers ------------------------------------------------------------------------------------------------------------


def _readers(model: nn.Module) -> Iterator[_Reader]:
    """Layers that may read the inputs, in the order in which the model has them; recognised by their attributes."""
    cut: tuple[str, str, tuple[int, ...]] | None = None
    for path, module in model.named_modules():
        label = type(module).__name__
        if (patch := _cut(module)) is not None:
            cut = path, label, patch
        if (reader := _reader(module, path, label)) is not None:
            extents = cut[2] if cut is not None else ()
            if cut is not None and not reader.patch and reader.axes != -1 and reader.width % prod(extents) == 0:
                patch = () if cut[1] == "Unfold" else extents  # those of `nn.Unfold` overlap
                whole = _Reader(cut[0], cut[1], reader.width // prod(extents), len(extents), patch)
                yield whole
                yield whole._replace(path=path)
            cut = None
            yield reader


def _reader(module: nn.Module, path: str, label: str) -> _Reader | None:
    def number(name: str) -> int | None:
        value = getattr(module, name, None)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    kernel = getattr(module, "kernel_size", None)
    if (width := number("in_channels")) is not None and isinstance(kernel, tuple) and 1 <= len(kernel) <= 3:
        stride = getattr(module, "stride", ())
        whole = kernel if stride == kernel and prod(kernel) > 1 and not getattr(module, "transposed", False) else ()
        return _Reader(path, label, width, len(kernel), whole)
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        axes = re.search(r"Conv\w*([123])d", label)
        return _Reader(path, label, 3, int(axes[1])) if axes else None
    if (width := number("num_embeddings")) is not None:
        return _Reader(path, label, width, -1)
    swapped = not getattr(module, "batch_first", True)
    if (width := number("input_size")) is not None and number("hidden_size") is not None:
        return _Reader(path, label, width, -2, swapped=swapped)
    if (width := number("embed_dim")) is not None and isinstance(module, nn.MultiheadAttention):
        return _Reader(path, label, width, -2, swapped=swapped)
    if (width := number("in_features")) is not None:
        return _Reader(path, label, width, 0)
    if (width := getattr(getattr(module, "irreps_in", None), "dim", None)) is not None:
        return _Reader(path, label, width, 0)
    axes = re.search(r"Norm([123])d", label)
    if (width := number("num_features")) is not None and axes:
        return _Reader(path, label, width, int(axes[1]) if axes[1] != "1" else 0)
    shape = getattr(module, "normalized_shape", None)
    if isinstance(shape, tuple) and len(shape) == 1:
        return _Reader(path, label, shape[0], -2)
    return None


def _cut(module: nn.Module) -> tuple[int, ...] | None:
    """The extents of patches that a module cuts out of an image: `b c (h p1) (w p2) -> ...` of einops, or `nn.Unfold`."""
    side = vars(module).get("patch_size")
    if isinstance(side, (int, tuple)):  # its forward cuts them
        return (side, side) if isinstance(side, int) else side
    if isinstance(module, nn.Unfold):
        kernel = module.kernel_size
        return kernel if isinstance(kernel, tuple) else (kernel, kernel)
    pattern, lengths = getattr(module, "pattern", None), getattr(module, "axes_lengths", None)
    if not isinstance(pattern, str) or not isinstance(lengths, dict):
        return None
    groups = re.findall(r"\(([^)]*)\)", pattern.partition("->")[0])
    patch = tuple(prod(lengths.get(axis, 1) for axis in group.split()) for group in groups)
    return patch if patch and all(isinstance(extent, int) for extent in patch) and prod(patch) > 1 else None


# -- sizes -------------------------------------------------------------------------------------------------------------


class _Sizes:
    """The extents that a model may expect: those that its attributes or its tables of positions give, then usual ones."""

    def __init__(self, model: nn.Module, maker: Maker, readers: list[_Reader]) -> None:
        self.maker = maker
        self.own = [module for module in model.modules() if not type(module).__module__.startswith("torch.nn")]
        self.positions = list(dict.fromkeys(_positions(model)))
        patches = (reader.patch for reader in readers if reader.patch)
        self.patch = next(patches, ())
        self.spatial = any(reader.axes > 0 for reader in readers)
        stride = vars(model).get("stride")
        self.usual = (
            _DETECTED if isinstance(stride, torch.Tensor) and stride.numel() and stride.max() > 1 else _SQUARES[0]
        )

    def forms(self, reader: _Reader) -> Iterator[_Form]:
        width = reader.width
        if reader.axes == 3:
            kinds = (_VIDEOS, _VOLUMES) if width == 3 else (_VOLUMES, _VIDEOS)
            for extents in dict.fromkeys([*self.extents(3, reader.patch), *kinds[0], *kinds[1]]):
                asked = (extents[0], *self.maker_image()) if self.maker.sizes.image else extents
                yield _Form("volume", (width, *asked), _IMAGE)
        elif reader.axes == 2:
            for extents in self.images(reader.patch):
                yield _Form("image", (width, *(self.maker_image() if self.maker.sizes.image else extents)), _IMAGE)
            yield _Form("image", (width, 1, 1))
        elif reader.axes == 1:
            yield from self._sequences(width, reader.patch)
        elif reader.axes == -1:
            yield from (_Form("text", (length,), _TOKENS) for length in self.lengths())
            yield _Form("text", ())
        else:
            sequence = [_Form("features", (n, width), _TOKENS, int(reader.swapped)) for n in self.lengths(_POINTS)]
            yield from (
                (*sequence, _Form("features", (width,))) if reader.axes else (_Form("features", (width,)), *sequence)
            )
            for channels in () if self.spatial else (1, 3):
                side = round((width / channels) ** 0.5)
                if side > 3 and channels * side * side == width:
                    yield _Form("image", (channels, side, side))

    def images(self, patch: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Of images: the extents that the model gives, then usual ones that are not smaller."""
        found = dict.fromkeys(self.extents(2, patch))
        least = max((min(extents) for extents in found), default=0)
        usual = [side for side in (self.usual, *_SQUARES) if side >= least]
        yield from dict.fromkeys([*found, *((side, side) for side in usual)])

    def maker_image(self) -> tuple[int, int]:
        size = self.maker.sizes.image or 0
        return size, size

    def _sequences(self, channels: int, patch: tuple[int, ...]) -> Iterator[_Form]:
        """Of a convolution over one axis: a wave where there are one or two channels, else measured values."""
        rate = next(self._numbers("sample_rate", "samplerate", "sampling_rate"), _RATE)
        if channels <= 2:
            yield _Form("audio", (channels, rate))
            if channels == 1:
                yield _Form("audio", (rate,))
        for length in (*(extents[0] for extents in self.extents(1, patch)), *self.lengths(_POINTS)):
            yield _Form("features", (channels, length), _TOKENS)
            yield _Form("features", (length, channels), _TOKENS)

    def extents(self, axes: int, patch: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Height and width, or also depth, from attributes and from the number of positions of patches."""
        for value in self._values(*_IMAGE_SIZES):
            if isinstance(value, int) and value > 1:
                frames = next(self._numbers("frames", "num_frames"), value)
                yield (frames, *(value,) * (axes - 1)) if axes == 3 else (value,) * axes
            elif (
                isinstance(value, (tuple, list, torch.Size))
                and len(value) >= axes
                and all(isinstance(v, int) for v in value)
            ):
                yield tuple(value[-axes:])
        patch = patch or self.patch
        for count, extra in product(self.positions, (0, 1, 2)):
            side = round(max(count - extra, 0) ** (1 / axes))
            if len(patch) == axes and side > 1 and side**axes == count - extra:
                yield tuple(side * extent for extent in patch)
        for count, extra in product(self.positions, (0, 1)):  # twice as high as wide, or as wide as high
            side = round(max(count - extra, 0) ** 0.5 / 2**0.5)
            if len(patch) == axes == 2 and side > 1 and 2 * side * side == count - extra:
                yield from ((2 * side * patch[0], side * patch[1]), (side * patch[0], 2 * side * patch[1]))

    def lengths(self, usual: int = TOKENS) -> Iterator[int]:
        """Tokens or steps."""
        if self.maker.sizes.tokens:
            yield self.maker.sizes.tokens
            return
        found = [min(length, TOKENS) for length in (*self._numbers(*_LENGTHS), *self.positions) if length > 1]
        yield from dict.fromkeys([*found, usual, 512, 128, 64, 16])

    def _numbers(self, *names: str) -> Iterator[int]:
        return (v for v in self._values(*names) if isinstance(v, int) and not isinstance(v, bool) and v > 0)

    def _values(self, *names: str) -> Iterator[Any]:
        for module in self.own:
            for config in ("pretrained_cfg", "default_cfg"):
                if isinstance(found := vars(module).get(config), dict) and found.get("input_size"):
                    yield found["input_size"] if "input_size" in names else None
            places = [vars(module), _entries(vars(module).get("args")), _entries(vars(module).get("config"))]
            yield from (place[name] for place, name in product(places, names) if name in place)


def _entries(settings: Any) -> dict[str, Any]:
    return settings if isinstance(settings, dict) else getattr(settings, "__dict__", {})


def _positions(model: nn.Module) -> Iterator[int]:
    """The lengths of tables of positions."""
    for path, module in model.named_modules():
        if "pos" in path.rpartition(".")[2].lower() and isinstance(getattr(module, "num_embeddings", None), int):
            yield int(module.num_embeddings)  # type: ignore[arg-type]
        for name, value in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
            absolute = "pos" in name.lower() and "rel" not in name.lower() and "bias" not in name.lower()
            if absolute and isinstance(value, torch.Tensor) and value.dim() in (2, 3) and value.is_floating_point():
                yield value.shape[-2]


# -- what is said where nothing fits -----------------------------------------------------------------------------------

_EXAMPLES = {
    "image": (1, 3, 224, 224),
    "volume": (1, 1, 96, 96, 96),
    "audio": (1, 1, _RATE),
    "text": (1, 128),
    "features": (1, 16),
}


def example(model: nn.Module, kind: str | None, name: str, shape: tuple[int, ...] | None = None) -> str:
    """How inputs of a kind are given, in Python and on the command line."""
    shape = shape or _EXAMPLES.get(kind or "image", _EXAMPLES["image"])
    text = "x".join(map(str, shape))
    more = f", --input {name}:{text}" if len(parameters_of(model)) > 1 else f", --input {text}"
    if kind == "text":
        return f'pass inputs=... or shapes={{"{name}": {shape}}}, dtypes="int64"; on the command line --input {name}:{text}:int64'
    return f"pass inputs=... or shapes={shape}; on the command line{more.removeprefix(',')}"
