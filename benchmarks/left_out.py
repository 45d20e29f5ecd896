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

from fit_laws import CALIBRATIONS, calibrated
from opcost.analysis.prediction.speeds import Speeds, fit_laws
from opcost.devices.calibration import Measured
from opcost.recorders.calibration.plan import Case, plan
from opcost.recorders.calibration.run import DTYPES, GPU, fitting
from opcost.rules import default_rules

GROUPS = {
    "resnet|resnext|resnetaa": "resnet|byobnet|senet",
    "vit_|deit|beit|eva02": "vision_transformer|deit|beit|eva|naflexvit",
    "swin": "swin",
    "vgg": "vgg",
    "convnext|convmixer|poolformer": "convnext|convmixer|metaformer",
    "densenet": "densenet",
    "efficientvit": "efficientvit",
    "efficientformer": "efficientformer",
    "efficientnet|mnasnet|mobilenet|ghostnet|hardcorenas": "efficientnet|mnasnet|mobilenet|ghostnet|hardcorenas",
    "regnet": "regnet",
    "squeezenet|alexnet": "squeezenet|alexnet",
    "maxvit|coatnet": "maxvit|maxxvit",
    "inception|googlenet": "inception|googlenet",
    "shufflenet": "shufflenet",
    "nfnet": "nfnet",
    "pvt": "pvt",
    "mixer": "mlp_mixer",
    "xcit": "xcit",
    "fastvit": "fastvit",
    "tresnet": "tresnet",
    "hf/(bert|distilbert|roberta)": "hf .*(Bert|Roberta|Electra|Ernie|Camembert|XLM|MPNet)",
    "hf/(gpt2|opt)": "hf (GPT|OPT|Open|CTRL|ImageGPT)",
    "hf/(llama|qwen)": "hf .*(Llama|Qwen|Mistral|Phi|Gemma|Olmo|DeepSeek|Granite)",
    "hf/t5": "hf .*T5",
    "hf/clip": "hf .*C[Ll][Ii][Pp]",
    "hf/modernbert": "hf ModernBert",
    "hf/whisper": "hf .*(Whisper|Speech2Text|Moonshine)",
}
"""Models by a pattern of their names, and the families of theirs in the sample."""


def group(row: dict[str, Any]) -> str:
    """The families of the sample that are those of a measured model."""
    found = next((families for models, families in GROUPS.items() if re.search(models, row["name"])), None)
    if found is None:
        raise SystemExit(f"{row['name']} is of no family in left_out.GROUPS")
    return found


def speeds(row: dict[str, Any], first: int | None = None) -> Speeds:
    """The speeds of an H200 without the family of a model, from the first cases of a calibration's plan or from all."""
    return _without(group(row), first)


@lru_cache(maxsize=1)
def _without(families: str, first: int | None) -> Speeds:
    file = json.loads(gzip.decompress((CALIBRATIONS / "h200_families.json.gz").read_bytes()))
    own = {number for number, name in enumerate(file["families"]) if re.search(families, name)}
    whole = calibrated("h200")
    kept = [row for row, drawn in zip(whole.rows, file["of"], strict=True) if not drawn or not own.issuperset(drawn)]
    if first is not None:
        early = {_what(case) for case in islice(fitting(plan(), DTYPES["cuda"], GPU), first)}
        kept = [row for row in kept if _what(row) in early]
    return Speeds(fit_laws(replace(whole, rows=tuple(kept)), default_rules()))


def _what(case: Case | Measured) -> tuple[Any, ...]:
    """An operator on its sizes."""
    return case.raw, tuple(sorted(case.attrs.items())), case.ins
