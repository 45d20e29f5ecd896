"""Laws fitted as if a family of models had never been seen: without the operators that only its models gave to the calibration.

`h200_families.json.gz` says of each row of the calibration from which families of models it was drawn (operators.py); rows of
random sizes are from none and stay. A family is what is alike, in whichever library it is.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any

from fit_laws import CALIBRATIONS, calibrated, compiled_models, fitted_kernels, taking_memory
from harness import load_torchvision
from opcost.analysis.prediction.speeds import Speeds, fit_laws
from opcost.analysis.prediction.workspaces import Workspaces, fit_workspaces
from opcost.devices.calibration import Calibration, Laws, Measured
from opcost.recorders.calibration.plan import Case, plan
from opcost.recorders.calibration.run import DTYPES, GPU, fitting
from opcost.rules import default_rules

GROUPS = {
    "(wide_|se)?resnet|(se)?resnext": "resnet|byobnet|senet",
    "vit_|deit|beit|eva02|hf/(vit|dinov2)": "vision_transformer|deit|beit|eva|naflexvit",
    "swin": "swin",
    "vgg": "vgg",
    "convnext|convmixer|poolformer": "convnext|convmixer|metaformer",
    "densenet": "densenet",
    "efficientvit": "efficientvit",
    "efficientformer": "efficientformer",
    "efficientnet|(se)?mnasnet|mobilenet|ghostnet|hardcorenas": "efficientnet|mnasnet|mobilenet|ghostnet|hardcorenas",
    "regnet": "regnet",
    "squeezenet|alexnet": "squeezenet|alexnet",
    "maxvit|coatnet": "maxvit|maxxvit",
    "inception_next": "inception_next",
    "inception|googlenet": "inception|googlenet",
    "shufflenet": "shufflenet",
    "(dm_)?nfnet": "nfnet",
    "pvt": "pvt",
    "mixer|gmlp|resmlp": "mlp_mixer",
    "xcit|cait": "xcit|cait",
    "fastvit": "fastvit",
    "tresnet": "tresnet",
    "repvgg": "byobnet|repvit|repghost",
    "res2net": "res2net",
    "mobilevit": "mobilevit|hf MobileViT",
    "(ese_)?vovnet": "vovnet",
    "convit": "convit",
    "davit": "davit",
    "dla": "dla",
    "edgenext": "edgenext",
    "focalnet": "focalnet",
    "hiera": "hiera",
    "hrnet": "hrnet",
    "levit": "levit",
    "twins": "twins",
    "hf/(bert|distilbert|roberta|electra|albert)": "hf .*(Bert|Roberta|Electra|Ernie|Camembert|XLM|MPNet)",
    "hf/(openai)?gpt|hf/opt": "hf (GPT|OPT|Open|CTRL|ImageGPT)",
    "hf/(llama|qwen|phi|gemma|olmo|granite)": "hf .*(Llama|Qwen|Mistral|Phi|Gemma|Olmo|DeepSeek|Granite)",
    "csatv2": "csatv2",
    "nest": "nest",
    "hf/segformer": "hf Segformer",
    "hf/bart": "hf .*M?Bart",
    "hf/wav2vec2": "hf .*(Wav2Vec2|Hubert)",
    "hf/t5": "hf .*T5",
    "hf/clip": "hf .*C[Ll][Ii][Pp]",
    "hf/modernbert": "hf ModernBert",
    "hf/whisper": "hf .*(Whisper|Speech2Text|Moonshine)",
}
"""Models by how their names begin, and the families of theirs in the sample."""


def group(row: dict[str, Any]) -> str:
    """The families of the sample that are those of a measured model."""
    library, _, name = row["name"].rpartition("/")
    whole = row["name"] if library == "hf" else name
    found = next((families for models, families in GROUPS.items() if re.match(models, whole, re.IGNORECASE)), None)
    if found is None and library == "timm":  # the module that defines it
        load_torchvision()
        import timm

        found = str(timm.models._registry._model_to_module[name])  # noqa: SLF001 - no public function says it
    if found is None:
        raise SystemExit(f"{row['name']} is of no family in left_out.GROUPS")
    return found


def speeds(row: dict[str, Any], first: int | None = None) -> Speeds:
    """The speeds of an H200 without the family of a model, from the first cases of a calibration's plan or from all."""
    return Speeds(_without(group(row), first)[0])


class CompiledSpeeds(Speeds):
    """The same, and of kernels of a compiler those without the measured models of this family."""

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(_without(group(row))[0])
        self._kernels = _compiled_without(group(row))

    def merging(self, added: Laws | None = None) -> Speeds:
        return super().merging(added or self._kernels)


def workspaces(row: dict[str, Any]) -> Workspaces:
    """What operators take, without the convolutions of the family alone."""
    return _workspaces_without(group(row))


@lru_cache(maxsize=8)
def _workspaces_without(families: str) -> Workspaces:
    rows = [row for row, of in _taking_memory() if not (of and all(re.search(families, name) for name in of))]
    return Workspaces(fit_workspaces(rows, default_rules()))


_taking_memory = lru_cache(maxsize=1)(lambda: taking_memory("h200"))


@lru_cache(maxsize=1)
def _without(families: str, first: int | None = None) -> tuple[Laws, Calibration]:
    file = json.loads(gzip.decompress((CALIBRATIONS / "h200_families.json.gz").read_bytes()))
    own = {number for number, name in enumerate(file["families"]) if re.search(families, name)}
    whole = calibrated("h200")
    kept = [row for row, drawn in zip(whole.rows, file["of"], strict=True) if not drawn or not own.issuperset(drawn)]
    if first is not None:
        early = {_what(case) for case in islice(fitting(plan(), DTYPES["cuda"], GPU), first)}
        kept = [row for row in kept if _what(row) in early]
    given = replace(whole, rows=tuple(kept))
    return fit_laws(given, default_rules()), given


@lru_cache(maxsize=1)
def _compiled_without(families: str) -> Laws:
    rows = [row for row in compiled_models("h200") if group(row) != families]
    return fitted_kernels(*_without(families), rows)


def _what(case: Case | Measured) -> tuple[Any, ...]:
    """An operator on its sizes."""
    return case.raw, tuple(sorted(case.attrs.items())), case.ins
