"""All libraries in the order in which they are tried, and those whose models have one kind of input."""

import sys
from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from opcost.errors import InputError
from opcost.frontends.torch.default_inputs import engine
from opcost.frontends.torch.default_inputs.diffusers import diffusers
from opcost.frontends.torch.default_inputs.engine import InputMaker, Inputs, ShapeWords
from opcost.frontends.torch.default_inputs.layers import example, from_layers
from opcost.frontends.torch.default_inputs.transformers import Configuration, transformers
from opcost.frontends.torch.tree import map_tensors, tensors_in

_FRAMES = 16  # Of a video: all of torchvision's models were trained with this number
_FLOW = (520, 960)  # Of a pair of frames: the size in torchvision's own example


def default_inputs(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """Inputs by the first library that knows the model or its largest part, or else by what its first layers read."""
    by_part = _of_largest_part(model, maker) if engine.signature(model) and not engine.arguments(model) else None
    return by_part or _by_library(model, maker) or _of_largest_part(model, maker) or from_layers(model, maker)


def _by_library(model: nn.Module, maker: InputMaker) -> Inputs | None:
    return next((found for library in _LIBRARIES if (found := library(model, maker)) is not None), None)


def _of_largest_part(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """The inputs of the part with nearly all parameters, where the model takes arguments of the same names or just one.

    A model whose forward names no argument passes all of them to that part.
    """
    sizes = {part: sum(p.numel() for p in part.parameters() if not is_lazy(p)) for part in (*model.children(), model)}
    whole = sizes.pop(model)
    part = max(sizes, key=lambda part: sizes[part], default=None)
    if part is None or isinstance(part, (nn.ModuleList, nn.ModuleDict)) or 10 * sizes[part] < 9 * whole:
        return None
    wanted, names = engine.needed(model), engine.arguments(model)
    if engine.signature(model) and not names:
        if (found := default_inputs(part, maker)) is None:
            return None
        if not engine.takes_any(model):
            all_forms = (found, *found.others)
            found, *others = (form._replace(args=(*form.args, *form.kwargs.values()), kwargs={}) for form in all_forms)
            found = found._replace(others=tuple(others))
        return found._replace(hint=found.hint or example(model, None, "x"))
    if (found := _by_library(part, maker) or _of_largest_part(part, maker)) is None:
        return None
    named = {**dict(zip(engine.arguments(part), found.args, strict=False)), **found.kwargs}
    source = f"{found.source}, as its {type(part).__name__} takes it"
    if set(wanted) <= named.keys():
        forms = (named, *(other.kwargs for other in found.others))
        return engine.candidates([{name: form[name] for name in names if name in form} for form in forms], source)
    return Inputs((*named.values(),), {}, source) if len(wanted) == len(named) == 1 else None


# -- images ------------------------------------------------------------------------------------------------------------


def timm(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """A model of timm, or one that has its image size in timm's way."""
    for name in ("pretrained_cfg", "default_cfg"):
        size = (getattr(model, name, None) or {}).get("input_size")
        if size is not None:
            channels, height, width = size
            return Inputs((maker.floats(channels, *maker.image((height, width))),), {}, f"its {name}")
    return None


def torchvision(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """A model of torchvision: a detector takes a list of images, a video model frames, a flow model two images."""
    if not engine.comes_from(model, "torchvision"):
        return None
    module = type(model).__module__
    if ".detection." in module:
        transform = getattr(model, "transform", None)
        fixed, least = getattr(transform, "fixed_size", None), getattr(transform, "min_size", (800,))
        size = (int(least[-1]), int(least[-1])) if fixed is None else (int(fixed[1]), int(fixed[0]))
        images = [maker.empty(3, *maker.image(size)) for _ in range(maker.batch)]
        return Inputs((images,), {}, "the size to which its own transform brings images")
    if ".optical_flow." in module:
        pair = tuple(maker.floats(3, *maker.image(_FLOW)) for _ in range(2))
        return Inputs(pair, {}, "the size of torchvision's own example")
    size, source = _trained_on(model)
    frames = (_FRAMES,) if ".video." in module else ()
    image = maker.floats(3, *frames, *maker.image(size))
    return Inputs((image,), {}, f"{_FRAMES} frames, and {source}" if frames else source)


def _trained_on(model: nn.Module) -> tuple[tuple[int, int], str]:
    """The size of images in the transforms of the weights that fit this model: those with as many parameters."""
    homes = [cls.__module__ for cls in type(model).__mro__ if cls.__module__.startswith("torchvision.models")]
    named = [value for home in homes for name, value in vars(sys.modules[home]).items() if name.endswith("_Weights")]
    least: tuple[int, int] | None = None
    count = sum(parameter.numel() for parameter in model.parameters())
    for weights in chain.from_iterable(named):
        settings = getattr(weights.transforms, "keywords", {})
        size = settings.get("crop_size") or settings.get("resize_size")
        if not isinstance(size, (int, list, tuple)):
            continue
        crop = (int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[-1]))
        if weights.meta.get("num_params") == count:
            return crop, f"the transforms of its weights {weights}"
        least = crop if least is None else min(least, crop)
    return least or (224, 224), "the transforms of its family's weights" if least else "the usual size"


def open_clip(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """An image and a text, as open_clip's models take them, or what one of their two parts takes."""
    if not engine.comes_from(model, "open_clip"):
        return None
    size = getattr(getattr(model, "visual", model), "image_size", None)
    text = getattr(model, "text", model)
    length = getattr(model, "context_length", None) or getattr(text, "context_length", None)
    given = []
    if size is not None or "image" in engine.arguments(model):
        size = 224 if size is None else size
        given.append(maker.floats(3, *maker.image(size if isinstance(size, int) else (size[0], size[1]))))
    if length is not None or "text" in engine.arguments(model):
        given.append(maker.integers(maker.tokens(length or 77)))
    return Inputs(tuple(given), {}, "its image size and context length") if given else None


# -- examples and texts ------------------------------------------------------------------------------------------------


def lightning(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """Lightning's `example_input_array`, in the element type of the weights and with the requested batch size."""
    example = getattr(model, "example_input_array", None)
    if example is None:
        return None
    batches = {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors_in(example)}
    batch = maker.sizes.batch and maker.batch
    if batch and (len(batches) != 1 or 0 in batches):
        raise InputError(
            f"a batch of {batch} was requested, and the tensors of the model's own example begin with different lengths",
            hint="give the inputs: shapes=..., or on the command line --input name:SHAPE",
        )

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(maker.dtype) if tensor.is_floating_point() else tensor
        return tensor[:1].expand(batch, *tensor.shape[1:]) if batch else tensor

    example = map_tensors(example, changed)
    if isinstance(example, Mapping):
        return Inputs((), dict(example), "its example_input_array")
    return Inputs(example if isinstance(example, tuple) else (example,), {}, "its example_input_array")


def sentence_transformers(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """The tokens of a sentence, in the mapping that the parts of a sentence model pass on."""
    layers = list(model.modules())
    reads_tokens = any(isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) for layer in layers)
    if not engine.comes_from(model, "sentence_transformers") or not reads_tokens:
        return None
    inner = (layer for layer in layers if engine.comes_from(layer, "transformers") and hasattr(layer, "config"))
    most = [getattr(model, "max_seq_length", None), *(Configuration(layer).positions() for layer in islice(inner, 1))]
    count = maker.tokens(min((length for length in most if length), default=None))
    tokens = maker.integers(count, value=1)
    if any(isinstance(layer, nn.EmbeddingBag) for layer in layers):  # all sentences in one row, and where each begins
        features = {"input_ids": tokens.flatten(), "offsets": torch.arange(maker.batch) * count}
    else:
        features = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if any(isinstance(layer, nn.LSTM) for layer in layers):
            features["sentence_lengths"] = torch.full((maker.batch,), count)
    return Inputs((features,), {}, "its max_seq_length")


# -- graphs: models of torch-geometric, and nets built of its layers -------------------------------------------------------

_NODES, _EDGES = 1000, 5000  # Of a graph: about what a small citation graph has
_SPACE = 3  # Coordinates of a point

Width = int | tuple[int, int]


def torch_geometric(model: nn.Module, maker: InputMaker) -> Inputs | None:
    """A graph without structure, as arguments or as the one `Data` object that a net takes."""
    if not any(engine.comes_from(module, "torch_geometric") for module in model.modules()):
        return None
    encoder = getattr(model, "encoder", None)
    reader = encoder if isinstance(encoder, nn.Module) and not engine.arguments(model) else model
    wanted = engine.needed(reader)
    whole = wanted[0] if len(wanted) == 1 and wanted[0] in ("data", "graph") else None
    if not wanted or (whole is None and wanted[0] not in engine.table("torch_geometric")):
        return None
    # The features of a node, the likeliest number first: a layer of edges reads both ends, one of points coordinates too.
    own, first = _width(reader), _first_width(reader)
    if first is None:  # it has a table of nodes, or reads coordinates
        widths: list[Width] = [] if "x" in wanted else [1]
    elif own is not None or isinstance(first, tuple):
        widths = [first]
    else:
        widths = [*dict.fromkeys(width for width in (first, first // 2, first - _SPACE) if width > 0)]
    graphs = [_GraphInputs(reader, maker, width) for width in widths]
    made = [graph.arguments(whole) for graph in graphs]
    if not made:
        return None
    return engine.candidates(made, f"a graph of {graphs[0].value('nodes')} nodes and {graphs[0].value('edges')} edges")


def _first_width(model: nn.Module) -> Width | None:
    """The model's own width, or what its first layer reads."""
    return next((width for module in model.modules() if (width := _width(module)) is not None), None)


def _width(module: nn.Module) -> Width | None:
    for name in ("in_channels", "channels", "in_features", "input_size"):
        width = getattr(module, name, None)
        if engine.is_size(width):
            return width
        if isinstance(width, (list, tuple)) and len(width) == 2 and all(map(engine.is_size, width)):
            return width[0], width[1]
    return None


class _GraphInputs(ShapeWords):
    """One copy of a graph for each sample of the batch, without an edge between them."""

    def __init__(self, model: nn.Module, maker: InputMaker, width: Width) -> None:
        super().__init__(model, maker)
        self.width = width
        fixed = getattr(model, "num_nodes", None)
        self.copies = 1 if isinstance(fixed, int) else maker.batch
        self.each = fixed if isinstance(fixed, int) else _NODES

    words: ClassVar[dict[str, str | Callable[[Any], Any]]] = {
        "nodes": lambda self: self.each * self.copies,
        "nodes_of_one": lambda self: _NODES,
        "edges": lambda self: _EDGES * self.copies,
        "edge_features": lambda self: self.edge_width() or 1,
        "samples": lambda self: torch.arange(self.copies).repeat_interleave(self.each),
    }

    def arguments(self, whole: str | None) -> dict[str, Any]:
        """All that the model takes, as they are or as `Data` in the argument `whole`."""
        made: dict[str, Any] = {}
        optional = {"edge_attr": self.edge_width(), "edge_type": self._attribute("num_relations")}
        known = [name for name, width in optional.items() if width is not None and name in self.names]
        names = ["x", "edge_index", "edge_attr", "pos", "batch"] if whole else [*self.needed, *known]
        self.give(names, engine.table("torch_geometric"), made)
        if whole is None:
            return made
        from torch_geometric.data import Data

        return {whole: Data(**made)}

    def _attribute(self, *names: str) -> int | None:
        """The first number of such a name that the model or a layer of it has."""
        found = (getattr(part, name, None) for part in self.model.modules() for name in names)
        return next(filter(engine.is_size, found), None)

    def edge_width(self) -> int | None:
        """What the model has for its edges, or what the net reads that makes a layer's weights of them."""
        own = self._attribute("edge_dim", "dim")
        net = getattr(self.model, "nn", None)
        if own is not None or not isinstance(net, nn.Module):
            return own
        read = _first_width(net)
        return read if isinstance(read, int) else None

    def features(self) -> Any:
        if isinstance(self.width, tuple):
            return tuple(self.make(f"nodes {width}") for width in self.width)
        return self.make(f"B {_NODES} {self.width}" if "adj" in self.names else f"nodes {self.width}")

    def ends(self) -> torch.Tensor:
        ends = torch.arange(_EDGES)
        one = torch.stack([ends % self.each, (ends * 7 + 1) % self.each])
        return torch.cat([one + copy * self.each for copy in range(self.copies)], dim=1)

    def coordinates(self) -> torch.Tensor:
        """With their content, because models compare distances."""
        nodes = self.value("nodes")
        steps = torch.arange(nodes * _SPACE, dtype=torch.float64) * 0.6180339887498949
        return steps.frac().reshape(nodes, _SPACE).to(self.maker.dtype)


_LIBRARIES: tuple[Callable[[nn.Module, InputMaker], Inputs | None], ...] = (
    lightning, sentence_transformers, diffusers, open_clip, transformers, timm, torchvision, torch_geometric,
)  # fmt: skip
