"""A Hugging Face configuration as plain data, from which a library may then make a model: nothing in it loads anything.

Three things are done with an entry that a library might follow to code or weights outside the file. What is never needed for a
count is left out (`auto_map`: transformers' own code is used, or none). What only chooses between random and trained weights
chooses random ones. What names something to be loaded is refused.
"""

import importlib
import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from opcost.core.files import read_whole
from opcost.core.graph import Note
from opcost.core.parsing import parse
from opcost.errors import MissingFramework, OpcostError, Refused, SourceError, UnknownName, shortened
from opcost.frontends.python import check_call, offline

LARGEST_FILE = 1 << 25  # Bytes. The labels of ImageNet-22k make a configuration of one megabyte
DEEPEST = 64  # Levels of nesting; real configurations have about five

LEFT_OUT = frozenset({"auto_map", "trust_remote_code", "custom_pipelines"})
"""Where foreign code is and whether it may be run: it is not."""
RANDOM_WEIGHTS = frozenset({"use_pretrained_backbone"})
"""Switches between random and trained weights. They change no count, so they are off."""
LOADS = frozenset({"checkpoint_path", "pretrained", "pretrained_backbone", "weights", "weights_backbone"})
"""What is loaded, as the argument of a function that makes a model."""

ATTENTION = "attn_implementation"  # an argument of the class, and no entry of the configuration
ATTENTIONS = ("sdpa", "eager")  # any other loads a library, or code from the hub

_ARGUMENTS = re.compile(r"(kwargs|args|arguments)$")
_ELSEWHERE = re.compile(r"\s*(hf[-_]hub|local[-_]dir):", re.IGNORECASE)
_IMPLEMENTATION = re.compile(r"(attn|attention|experts)_implementation(_internal)?$")
_NAMES_THE_FILE = frozenset({"_name_or_path", "name_or_path"})

_MOST = {
    re.compile(r"(^|_)(layers?|blocks?|depths?|stages?|levels?|codebooks|groups)$"): 10_000,
    re.compile(r"(^|_)experts$"): 100_000,
    re.compile(r"(^|_)(labels|classes)$"): 1_000_000,
}
"""What is made one by one, and how many of it. The deepest published models have about a thousand layers, and 16,384 experts."""
_NAME = re.compile(r"(?:[\w.-]+/)?[\w.-]+")  # Of a model on the hub, with its owner
_NAMES_ITS_PARTS = {
    "timm_wrapper": ("architecture",),
    **{f"{kind}encoder-decoder": ("encoder", "decoder") for kind in ("", "vision-", "speech-")},
}
"""Models that are only named by an entry; without it, some default model would be made."""


def cached_configuration(name: str) -> Path | None:
    """The config.json of a model that was fetched before, in the cache of Hugging Face: the newest state of its main branch."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        return None
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    model = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub") / f"models--{name.replace('/', '--')}"
    newest = model / "refs" / "main"
    try:
        state = newest.read_text(encoding="ascii").strip()
        found = model / "snapshots" / state / "config.json"
        return found if state.isalnum() and found.is_file() else None
    except (OSError, ValueError):
        return None


def read_entries(path: Path) -> dict[str, Any]:
    """The entries of a JSON file; what is no object, or has a key twice, is an error."""
    try:
        content = read_whole(path, LARGEST_FILE, "configuration").decode("utf-8-sig")
        entries = parse(content, parse_constant=float, object_pairs_hook=_once)
    except ValueError as exc:
        raise SourceError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(entries, dict):
        raise SourceError(f"{path} holds no entries")
    return entries


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it gives {shortened(repr(twice))} twice")
    return entries


def without_loads(entries: Mapping[str, Any], source: str, outer: tuple[str, ...] = ()) -> dict[str, Any]:
    """The entries, without those that lead to foreign code; one that must load something is refused by its name.

    `outer` is where they are; in arguments of a function that makes a model, `("args",)`, nothing can be left out.
    """
    if len(outer) > DEEPEST:
        raise SourceError(f"{source}: the configuration is nested more than {DEEPEST} levels deep")
    kept: dict[str, Any] = {}
    for key, value in entries.items():
        place = (*outer, str(key))
        if key in LEFT_OUT:
            continue
        if (reason := _reason_to_refuse(str(key), value, outer)) is not None:
            fault = f"{shortened('.'.join(place).removeprefix('args.'))} = {shortened(repr(value))} {reason}"
            hint = "a model is made and counted without loading anything; take the entry out, or set it to null"
            raise Refused(f"{source}: {fault}", hint=hint)
        # Sizes of tensors cost nothing; what is made one by one takes time and memory for each.
        most = next((most for pattern, most in _MOST.items() if pattern.search(str(key))), math.inf)
        items = value if isinstance(value, (list, tuple)) else (value,)
        if any(isinstance(item, (int, float)) and not isinstance(item, bool) and item > most for item in items):
            raise SourceError(f"{source}: {key} = {shortened(repr(value))} is more than the {most:,} that opcost makes")
        if isinstance(value, Mapping):
            kept[key] = without_loads(value, source, place)
        elif isinstance(value, (list, tuple)):
            kept[key] = [*without_loads({str(index): item for index, item in enumerate(value)}, source, place).values()]
        else:
            kept[key] = False if key in RANDOM_WEIGHTS else value
    return kept


def _reason_to_refuse(key: str, value: Any, outer: tuple[str, ...]) -> str | None:
    if key in LOADS and value and (key == "checkpoint_path" or any(map(_ARGUMENTS.search, outer))):
        return "would load trained weights"
    if isinstance(value, str) and _ELSEWHERE.match(value) and key not in _NAMES_THE_FILE:
        return "would load a model from elsewhere"
    inside = key if _IMPLEMENTATION.search(key) else outer[-1] if outer else ""
    if isinstance(value, str) and "/" in value and _IMPLEMENTATION.search(inside):
        return "would fetch a kernel and run it"
    return None


# -- collections by name: `timm:vit_base_patch16_224`, `torchvision:resnet18`, `hf:path/to/config.json` ---------------------
#
# Each function turns the name and the user's settings into a function without arguments that makes the model. Nothing is
# downloaded: weights are not wanted, configurations are local files, and what asks for more is refused.

Maker = Callable[[], object]
Settings = Mapping[str, object]
Result = TypeVar("Result")


def timm(name: str, settings: Settings) -> Maker:
    """A model of timm; a tag after a dot (`resnet50.a1_in1k`) is understood and changes nothing without weights."""
    library = _library("timm")
    known = library.list_models()
    if name.partition(".")[0] not in known:
        raise UnknownName("timm model", name, known, hint="`python -c 'import timm; print(timm.list_models())'`")
    without_loads(settings, f"timm:{name}", ("args",))
    return partial(library.create_model, name, **{**settings, "pretrained": False})


def torchvision(name: str, settings: Settings) -> Maker:
    """A model of torchvision: classification, detection, segmentation, video, optical flow."""
    library = _library("torchvision")
    models = library.models
    known = models.list_models()
    if name not in known:
        raise UnknownName("torchvision model", name, known)
    without_loads(settings, f"torchvision:{name}", ("args",))
    builder = models.get_model_builder(name)
    # Without this, some builders fetch the weights of their backbone although the model's own are not wanted.
    absent = {key: None for key in ("weights", "weights_backbone") if key in inspect.signature(builder).parameters}
    check_call(builder, settings, f"torchvision:{name}")
    return partial(builder, **{**absent, **settings})


def huggingface(name: str, settings: Settings) -> Maker:
    """The architecture that a config.json names, a local one or that of `org/name` in the cache of Hugging Face.

    Settings replace its entries, `text_config.hidden_size` nested ones; `attn_implementation` is sdpa or eager.
    """
    path = Path(name)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file() and (cached := cached_configuration(name)) is not None:
        path = cached
    if not path.is_file():
        hint = "hf: takes the path of a config.json, or the name org/name of a model in the cache of Hugging Face"
        fault = f"there is no configuration file {path}, and no model of this name in the local cache"
        raise SourceError(fault, hint=f"{hint}; nothing is fetched from the hub")
    entries = read_entries(path)
    kind = entries.get("model_type")
    if not isinstance(kind, str):
        raise SourceError(f"{path} is not a Hugging Face configuration: it has no model_type")
    for part in _NAMES_ITS_PARTS.get(kind, ()):
        if part not in entries:
            raise SourceError(f"{path} does not say which model it is: a {kind} has an entry {part!r}")
    library = _library("transformers")
    known = library.CONFIG_MAPPING
    if kind not in known:
        raise UnknownName("model_type", kind, known, hint=f"it is in {path}")
    made = {key: value for key, value in settings.items() if key == ATTENTION}
    if any(value not in ATTENTIONS for value in made.values()):
        raise UnknownName(ATTENTION, str(made[ATTENTION]), ATTENTIONS)
    try:
        with offline(f"hf:{path}"):
            entries = without_loads(entries, str(path))
            config = library.AutoConfig.for_model(**entries)
            if others := settings.keys() - made:
                for key in others:
                    _replace(entries, config, key, settings[key])
                config = library.AutoConfig.for_model(**without_loads(entries, str(path)))
            return partial(_architecture(library, config, path)._from_config, config, **made)
    except OpcostError:
        raise
    except Exception as exc:  # whatever transformers raises about a configuration
        fault = shortened(f"{type(exc).__name__}: {exc}", 1000)
        raise SourceError(f"transformers cannot use the configuration {path}: {fault}") from exc


COLLECTIONS: dict[str, Callable[[str, Settings], Maker]] = {"timm": timm, "torchvision": torchvision, "hf": huggingface}


def _replace(entries: dict[str, Any], config: Any, key: str, value: object) -> None:
    """Put a value under a dotted key; the key must exist in the configuration, so that a misspelt one is noticed."""
    *outer, last = key.split(".")
    for name in outer:
        parts = {part: at for part, at in _known(config).items() if isinstance(at, dict) or hasattr(at, "to_dict")}
        if (config := parts.get(name)) is None:
            raise UnknownName("part of the configuration:", name, parts)
        entries = entries.setdefault(name, dict(config) if isinstance(config, dict) else {})
    if last not in _known(config) and not hasattr(config, last):
        raise UnknownName("entry of the configuration:", last, _known(config))
    entries[last] = value


def _known(config: Any) -> dict[str, Any]:
    """The entries of a configuration, those that hold a configuration of their own as such."""
    if isinstance(config, dict):
        return config
    return {name: getattr(config, name, value) for name, value in config.to_dict().items()}


def _architecture(library: ModuleType, config: Any, path: Path) -> Any:
    """The class that the configuration names; where it names none, the causal language model or the bare model of its type."""
    names = config.architectures or ()
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        fault = f"{path}: architectures is {shortened(repr(names))} and not a list of names"
        raise SourceError(fault, hint='write a list: "architectures": ["LlamaForCausalLM"]')
    for name in names:
        found = getattr(library, name, None)
        if isinstance(found, type) and issubclass(found, library.PreTrainedModel):
            return found
    if names:
        fault = f"{path} names the architecture {shortened(', '.join(names))}, and transformers {library.__version__}"
        hint = "code outside transformers is not run; --set architectures=None takes the usual model of this model_type"
        raise SourceError(f"{fault} has no model of this name", hint=hint)
    for mapping in (library.MODEL_FOR_CAUSAL_LM_MAPPING, library.MODEL_MAPPING):
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    fault = f"{path} names no architecture, and transformers has no usual model for {config.model_type!r}"
    raise SourceError(fault, hint='name it in the file: "architectures": ["..."]')


def _library(name: str) -> ModuleType:
    """One of the collections' packages, with torch, or an error that says what to install."""
    for wanted in ("torch", name):
        if importlib.util.find_spec(wanted) is None:
            raise MissingFramework(f"{wanted} is not installed", hint=f"pip install {wanted}")
    declare_torchvision_operators()  # each of them imports torchvision where it is installed
    try:
        return importlib.import_module(name)
    except Exception as exc:
        raise MissingFramework(f"{name} is installed but cannot be imported: {type(exc).__name__}: {exc}") from exc


UNFIT = Note(
    "torchvision-operators",
    "the compiled operators of torchvision do not fit the installed torch, and importing it fails: those that it asks for were "
    "declared without code, and the import was tried again; a model that runs one of them on real values will fail",
)
"""The note on a user's code that can only be imported in this way."""


def repaired(run: Callable[[], Result]) -> tuple[Result, tuple[Note, ...]]:
    """What a function makes that may import torchvision, once more if the import fails because its operators do not fit."""
    try:
        return run(), ()
    except Exception as exc:
        behind: BaseException | None = exc  # whether it, or one behind it, says that torchvision has no operators
        while behind is not None and not str(behind).startswith("operator torchvision::"):
            behind = behind.__cause__ or behind.__context__
        if _declared or not isinstance(behind, RuntimeError):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # parts of an import that failed
    declare_torchvision_operators()
    return run(), (UNFIT,)


_declared: list[object] = []


def declare_torchvision_operators() -> None:
    """Make `import torchvision` work where its compiled operators do not fit the installed torch.

    torchvision registers shape functions for two operators of its compiled part and fails if that part was built for
    another torch; models need only their names to exist. timm and transformers import torchvision, and fail with it.
    """
    spec = importlib.util.find_spec("torchvision")
    if _declared or spec is None or spec.origin is None:
        return
    import torch

    missing = []
    for name in _OPERATORS:
        try:
            torch._C._dispatch_find_schema_or_throw(f"torchvision::{name}", "")
        except RuntimeError:
            missing.append(name)
    if missing == list(_OPERATORS):  # else torchvision or another package has declared them
        for library in sorted(Path(spec.origin).parent.glob("_C.*")):
            try:
                torch.ops.load_library(str(library))
            except OSError:
                continue
            return
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(operators)


_OPERATORS = ("nms", "qnms")
