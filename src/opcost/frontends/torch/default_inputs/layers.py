"""Inputs of any model: the shape from the layer that reads them, the sizes from attributes, the rest from argument names.

Several shapes may fit one layer. They are tried in order, the usual ones first, and the first with which the model runs is taken.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice, product, zip_longest
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.frontends.torch.default_inputs import engine
from opcost.frontends.torch.default_inputs.engine import InputMaker, Inputs

_MOST = 32  # Attempts at one model
_READERS = 6  # Layers whose shapes are tried
_KIND_OF = engine.table("kinds")
_IMAGE_SIZES, _LENGTHS = (engine.named("attributes", kind) for kind in ("image", "length"))
_AXES = {"image": 2, "volume": 3, "audio": 1, "text": -1}  # Of the layers that read these
_BESIDE = ("time", "lengths", "mask", "label")  # Kinds of arguments that go with another
_SQUARES = (224, 256, 32, 28, 299, 331, 64, 84, 96, 128, 384, 512)
_VOLUMES = ((96,) * 3, (64,) * 3, (128,) * 3, (32,) * 3)
_VIDEOS = ((16, 112, 112), (16, 224, 224), (8, 224, 224), (32, 256, 256))
_DETECTED = 640
"""Height and width for a detector of the YOLO family, which has the strides of its outputs as an attribute."""
_RATE = 16_000  # Samples of a second of speech
_POINTS = 1024  # Steps of a sequence of measured values, or points of a cloud, where no attribute has a number


class _InputLayer(NamedTuple):
    """A layer that may read the inputs."""

    path: str
    label: str
    width: int  # Channels, features or the entries of a table
    axes: int
    """Of space or time: of a convolution; 0: features alone; -1: a table of tokens; -2: a sequence of features."""
    patch: tuple[int, ...] = ()  # The extents of what a convolution makes one token of
    swapped: bool = False  # A recurrent layer or attention whose inputs have the batch on the second axis


class _InputForm(NamedTuple):
    """A shape without the batch, and what it is."""

    kind: str
    shape: tuple[int, ...]
    sizes: frozenset[str] = frozenset({"batch"})  # Options that change it
    batch_axis: int = 0

    def tensor(self, maker: InputMaker) -> torch.Tensor:
        if self.kind == "text":
            return maker.integers(*self.shape, value=1)
        return maker.floats(*self.shape).movedim(0, self.batch_axis)


_IMAGE, _TOKENS = frozenset({"batch", "image"}), frozenset({"batch", "tokens"})


def from_layers(model: nn.Module, maker: InputMaker, place: str | None = None) -> Inputs | None:
    """What the first layers of a model read, or the one at a path; None where no layer is known."""
    # Of a forward that needs no argument the first: one that is None by default, or any number of them
    optional = [p.name for p in engine.signature(model) if p.default is None or p.kind is p.VAR_POSITIONAL]
    names = [name for name in engine.needed(model) or optional[:1] if name not in maker.given]
    if not names or (not engine.needed(model) and maker.given):
        return None
    main = next((name for name in names if _KIND_OF.get(name) not in _BESIDE), names[0])
    kind = _KIND_OF.get(main.lower())
    axes = _AXES.get(kind or "")
    layers = [layer for layer in _layers(model) if place in (None, layer.path)]
    layers.sort(key=lambda layer: axes is not None and layer.axes != axes)
    layers = list({layer[1:]: layer for layer in reversed(layers)}.values())[::-1][:_READERS]
    sizes = _ExpectedSizes(model, maker, layers)
    in_turn = zip_longest(*([(layer, form) for form in sizes.forms(layer)] for layer in layers))
    made = [pair for turn in in_turn for pair in turn if pair is not None]
    made.sort(key=lambda pair: kind is not None and pair[1].kind != kind)
    requested = {name for name, size in maker.sizes._asdict().items() if size is not None}
    fitting = [pair for pair in made if requested <= pair[1].sizes] or made
    if not fitting:
        return None
    unnamed = {p.name for p in engine.signature(model) if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY)}
    found: dict[Any, Inputs] = {}
    for layer, form in fitting:
        source = f"its first layer, a {layer.label}"
        for given in _arguments(names, main, form, maker, made):
            key = tuple((name, tuple(value.shape), value.dtype) for name, value in given.items())
            by_place = not unnamed.isdisjoint(given)
            args, kwargs = (tuple(given.values()), {}) if by_place else ((), given)
            found.setdefault(key, Inputs(args, kwargs, source))
    form = fitting[0][1]
    maker.unused = requested - form.sizes
    first, *others = islice(found.values(), _MOST)
    hint = example(model, form.kind, main, (maker.batch, *form.shape))
    read_by = partial(from_layers, model, maker) if place is None else None
    return first._replace(others=tuple(others), hint=hint, read_by=read_by)


def _arguments(
    names: list[str], main: str, form: _InputForm, maker: InputMaker, made: list[tuple[_InputLayer, _InputForm]]
) -> Iterator[dict[str, torch.Tensor]]:
    """A tensor for each argument: the main one in this shape, others by their names, or in the same shape."""
    longest = max(form.shape, default=1)
    kinds = {name: _KIND_OF.get(name.lower()) for name in names}
    for whole_times in (False, True) if "time" in kinds.values() else (True,):
        given: dict[str, torch.Tensor] = {}
        for name, kind in kinds.items():
            if name == main or kind is None or kind == form.kind:
                given[name] = form.tensor(maker)
            elif kind == "mask":
                given[name] = maker.integers(longest, value=1).bool()
            elif kind == "time" and not whole_times:
                given[name] = maker.floats()
            elif kind in _BESIDE:
                given[name] = maker.integers(value=longest if kind == "lengths" else 0)
            else:
                given[name] = next((other for _, other in made if other.kind == kind), form).tensor(maker)
        yield given


# -- layers ------------------------------------------------------------------------------------------------------------


def _layers(model: nn.Module) -> Iterator[_InputLayer]:
    """Layers that may read the inputs, in the order in which the model has them; recognised by their attributes."""
    cut: tuple[str, str, tuple[int, ...]] | None = None
    for path, module in model.named_modules():
        label = type(module).__name__
        if (patch := _cut(module)) is not None:
            cut = path, label, patch
        if (layer := _layer(module, path, label)) is not None:
            extents = cut[2] if cut is not None else ()
            if cut is not None and not layer.patch and layer.axes != -1 and layer.width % prod(extents) == 0:
                patch = () if cut[1] == "Unfold" else extents  # those of `nn.Unfold` overlap
                whole = _InputLayer(cut[0], cut[1], layer.width // prod(extents), len(extents), patch)
                yield whole
                yield whole._replace(path=path)
            cut = None
            yield layer


def _layer(module: nn.Module, path: str, label: str) -> _InputLayer | None:
    def number(name: str) -> int | None:
        return value if engine.is_size(value := getattr(module, name, None)) else None

    kernel = getattr(module, "kernel_size", None)
    if (width := number("in_channels")) is not None and isinstance(kernel, tuple) and 1 <= len(kernel) <= 3:
        stride = getattr(module, "stride", ())
        whole = kernel if stride == kernel and prod(kernel) > 1 and not getattr(module, "transposed", False) else ()
        return _InputLayer(path, label, width, len(kernel), whole)
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        axes = re.search(r"Conv\w*([123])d", label)
        return _InputLayer(path, label, 3, int(axes[1])) if axes else None
    if (width := number("num_embeddings")) is not None:
        return _InputLayer(path, label, width, -1)
    recurrent = number("input_size") if number("hidden_size") is not None else None
    attention = number("embed_dim") if isinstance(module, nn.MultiheadAttention) else None
    if (width := recurrent or attention) is not None:
        return _InputLayer(path, label, width, -2, swapped=not getattr(module, "batch_first", True))
    if (width := number("in_features") or getattr(getattr(module, "irreps_in", None), "dim", None)) is not None:
        return _InputLayer(path, label, width, 0)
    axes = re.search(r"Norm([123])d", label)
    if (width := number("num_features")) is not None and axes:
        return _InputLayer(path, label, width, int(axes[1]) if axes[1] != "1" else 0)
    shape = getattr(module, "normalized_shape", None)
    return _InputLayer(path, label, shape[0], -2) if isinstance(shape, tuple) and len(shape) == 1 else None


def _cut(module: nn.Module) -> tuple[int, ...] | None:
    """The extents of patches that a module cuts out of an image: `b c (h p1) (w p2) -> ...` of einops, or `nn.Unfold`."""
    side = vars(module).get("patch_size")  # its forward cuts them
    if not isinstance(side, (int, tuple)) and isinstance(module, nn.Unfold):
        side = module.kernel_size
    if isinstance(side, (int, tuple)):
        return (side, side) if isinstance(side, int) else side
    pattern, lengths = getattr(module, "pattern", None), getattr(module, "axes_lengths", None)
    if not isinstance(pattern, str) or not isinstance(lengths, dict):
        return None
    groups = re.findall(r"\(([^)]*)\)", pattern.partition("->")[0])
    patch = tuple(prod(lengths.get(axis, 1) for axis in group.split()) for group in groups)
    return patch if patch and all(isinstance(extent, int) for extent in patch) and prod(patch) > 1 else None


# -- sizes -------------------------------------------------------------------------------------------------------------


class _ExpectedSizes:
    """The extents that a model may expect: those of its attributes or its tables of positions, then usual ones."""

    def __init__(self, model: nn.Module, maker: InputMaker, layers: list[_InputLayer]) -> None:
        self.requested = maker.sizes
        self.own = [module for module in model.modules() if not type(module).__module__.startswith("torch.nn")]
        self.positions: dict[int, None] = {}  # The lengths of tables of positions
        for path, module in model.named_modules():
            if "pos" in path.rpartition(".")[2].lower() and isinstance(getattr(module, "num_embeddings", None), int):
                self.positions[int(module.num_embeddings)] = None  # type: ignore[arg-type]
            for name, value in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
                absolute = "pos" in name.lower() and "rel" not in name.lower() and "bias" not in name.lower()
                if absolute and isinstance(value, torch.Tensor) and value.dim() in (2, 3) and value.is_floating_point():
                    self.positions[value.shape[-2]] = None
        self.patch = next((layer.patch for layer in layers if layer.patch), ())
        self.spatial = any(layer.axes > 0 for layer in layers)
        stride = vars(model).get("stride")
        detects = isinstance(stride, torch.Tensor) and stride.numel() and stride.max() > 1
        self.usual = _DETECTED if detects else _SQUARES[0]

    def forms(self, layer: _InputLayer) -> Iterator[_InputForm]:
        width, side = layer.width, self.requested.image
        if layer.axes >= 2:
            found: list[tuple[int, ...]] = [*self._extents(layer.axes, layer.patch)]
            if layer.axes == 3:
                found += (*_VIDEOS, *_VOLUMES) if width == 3 else (*_VOLUMES, *_VIDEOS)
            else:  # the usual ones that are not smaller than those of the model
                least = max(map(min, found), default=0)
                found += [(usual, usual) for usual in (self.usual, *_SQUARES) if usual >= least]
            for extents in dict.fromkeys(found):
                spatial = extents if side is None else (*extents[:-2], side, side)
                yield _InputForm("volume" if layer.axes == 3 else "image", (width, *spatial), _IMAGE)
            if layer.axes == 2:
                yield _InputForm("image", (width, 1, 1))
        elif layer.axes == 1:  # a wave where there are one or two channels, else measured values
            rate = next(self._numbers("sample_rate", "samplerate", "sampling_rate"), _RATE)
            if width <= 2:
                yield _InputForm("audio", (width, rate))
            if width == 1:
                yield _InputForm("audio", (rate,))
            for length in (*(extents[0] for extents in self._extents(1, layer.patch)), *self._lengths(_POINTS)):
                yield _InputForm("features", (width, length), _TOKENS)
                yield _InputForm("features", (length, width), _TOKENS)
        elif layer.axes == -1:
            yield from (_InputForm("text", (length,), _TOKENS) for length in self._lengths())
            yield _InputForm("text", ())
        else:
            alone = _InputForm("features", (width,))
            sequence = [_InputForm("features", (n, width), _TOKENS, int(layer.swapped)) for n in self._lengths(_POINTS)]
            yield from (*sequence, alone) if layer.axes else (alone, *sequence)
            for channels in () if self.spatial else (1, 3):
                square = round((width / channels) ** 0.5)
                if square > 3 and channels * square * square == width:
                    yield _InputForm("image", (channels, square, square))

    def _extents(self, axes: int, patch: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Height and width, or also depth, from attributes and from the number of positions of patches."""
        for value in self._values(*_IMAGE_SIZES):
            if isinstance(value, int) and value > 1:
                frames = next(self._numbers("frames", "num_frames"), value)
                yield (frames, *(value,) * (axes - 1)) if axes == 3 else (value,) * axes
            elif isinstance(value, (tuple, list)) and len(value) >= axes and all(isinstance(v, int) for v in value):
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

    def _lengths(self, usual: int = engine.TOKENS) -> Iterator[int]:
        """Tokens or steps."""
        if self.requested.tokens:
            yield self.requested.tokens
            return
        found = [min(length, engine.TOKENS) for length in (*self._numbers(*_LENGTHS), *self.positions) if length > 1]
        yield from dict.fromkeys([*found, usual, 512, 128, 64, 16])

    def _numbers(self, *names: str) -> Iterator[int]:
        return filter(engine.is_size, self._values(*names))

    def _values(self, *names: str) -> Iterator[Any]:
        for module in self.own:
            own = vars(module)
            settings = (own.get("pretrained_cfg"), own.get("default_cfg"), own, own.get("args"), own.get("config"))
            places = [each if isinstance(each, dict) else getattr(each, "__dict__", {}) for each in settings]
            yield from (place[name] for place, name in product(places, names) if name in place)


# -- the hint where nothing fits ---------------------------------------------------------------------------------------

_EXAMPLES = {"volume": (1, 1, 96, 96, 96), "audio": (1, 1, _RATE), "text": (1, 128), "features": (1, 16)}


def example(model: nn.Module, kind: str | None, name: str, shape: tuple[int, ...] | None = None) -> str:
    """How inputs of a kind are given, in Python and on the command line."""
    shape = shape or _EXAMPLES.get(kind or "", (1, 3, 224, 224))
    text = "x".join(map(str, shape))
    if kind == "text":
        return f'pass inputs=... or shapes={{"{name}": {shape}}}, dtypes="int64"; on the command line --input {name}:{text}:int64'
    named = f"{name}:" if len(engine.arguments(model)) > 1 else ""
    return f"pass inputs=... or shapes={shape}; on the command line --input {named}{text}"
