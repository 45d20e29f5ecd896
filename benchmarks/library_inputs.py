"""Count every model type of transformers, or every model class of diffusers, on default inputs, and list the outcomes.

    python benchmarks/library_inputs.py {transformers,diffusers} [--only PATTERN] [--jobs N] [--limit SECONDS] [--to FILE]

Nothing is downloaded: a model is made from the default configuration of the library, without weights and with few layers, or
with all layers if it cannot be counted so. Some default configurations have parts that do not fit together (`settle` repairs
known ones) or lack what the model needs. Prints how many models were counted on which inputs, and why the others were not;
`--to` writes one JSON row for each model.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from harness import Table, arguments, load_torchvision

LAYERS = 2
DEPTHS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_encoder_layers",
    "num_decoder_layers", "decoder_num_layers", "depth",
)  # fmt: skip
TASKS = (
    "FOR_MULTIMODAL_LM_", "FOR_IMAGE_TEXT_TO_TEXT_", "FOR_SPEECH_SEQ_2_SEQ_", "FOR_SEQ_TO_SEQ_CAUSAL_LM_", "FOR_CAUSAL_LM_",
    "",
)  # fmt: skip
"""Of the classes of one model type, that of the first of these tasks is counted."""
OPEN = {
    "image_token_index": 9,
    "image_token_id": 9,
    "num_experts_per_tok": 2,
    "prediction_length": 24,
    "sliding_window": 512,
}
"""Entries that some default configurations leave as None, and a value for each."""
CAUSES = {
    "was not guessed": r"cannot be guessed|nothing was given",
    "most parameters unread": r"unread, most of them",
    "depends on values of its weights": r"depends on values",
    "took too long": r"took more than",
    "has no forward": r"missing the required \"forward\"",
    "library not installed": r"library but it was not found|requires the",
}
"""Outcomes by the message of the error; any other was raised by the model itself on its inputs."""


def transformers_classes() -> list[str]:
    """One class for each model type that has a model."""
    from transformers.models.auto import modeling_auto

    tables = [getattr(modeling_auto, f"MODEL_{task}MAPPING_NAMES") for task in TASKS]
    found = set()
    for model_type in modeling_auto.CONFIG_MAPPING_NAMES:
        named = next((table[model_type] for table in tables if model_type in table), None)
        if named is not None:
            found.add(named if isinstance(named, str) else named[0])
    return sorted(found)


def diffusers_classes() -> list[str]:
    """The classes of models."""
    import diffusers
    from torch import nn

    found = {name: getattr(diffusers, name, None) for name in dir(diffusers)}
    return sorted(name for name, cls in found.items() if isinstance(cls, type) and issubclass(cls, nn.Module))


def shrink(config: Any) -> None:
    """Few layers, but one of each type."""
    types = getattr(config, "layer_types", None)
    least = max([LAYERS, *(types.index(each) + 1 for each in set(types or ()))])
    for name in DEPTHS:
        if isinstance(depth := getattr(config, name, None), int) and depth > least:
            setattr(config, name, least)
    if types:
        config.layer_types = types[:least]
    for part in parts(config):
        shrink(part)


def settle(config: Any) -> None:
    """Give outputs of the image and sound parts the width of the text part, and a value to each missing entry."""
    width = getattr(config.get_text_config(), "hidden_size", None)
    for part in parts(config):
        names = ["out_hidden_size", "text_hidden_size", *(["hidden_size"] if hasattr(part, "embed_dim") else [])]
        for name in names:
            if width is not None and isinstance(getattr(part, name, None), int):
                setattr(part, name, width)
    tokens, images = getattr(config, "mm_tokens_per_image", None), getattr(config, "vision_config", None)
    if tokens and getattr(images, "image_size", None):
        images.image_size = images.patch_size * round(tokens**0.5)
    heard = getattr(getattr(config, "encoder_config", None), "hidden_dim", None)
    if heard and hasattr(getattr(config, "projector_config", None), "encoder_hidden_size"):
        config.projector_config.encoder_hidden_size = heard
    complete(config)


def complete(config: Any) -> None:
    """Set entries that a configuration leaves as None, and rotary sections that fill a head."""
    wide, heads = getattr(config, "hidden_size", None), getattr(config, "num_attention_heads", None)
    each = wide // heads if isinstance(wide, int) and isinstance(heads, int) else None
    for name, value in {**OPEN, "head_dim": each, "num_key_value_heads": heads}.items():
        if value is not None and getattr(config, name, 0) is None:
            setattr(config, name, value)
    rotated = getattr(config, "rope_parameters", None)
    if each and isinstance(rotated, dict) and "mrope_section" in rotated:
        half = int((getattr(config, "head_dim", None) or each) * rotated.get("partial_rotary_factor", 1)) // 2
        third = half // 3
        rotated["mrope_section"] = [half - 2 * third, third, third]
    for part in parts(config):
        complete(part)


def parts(config: Any) -> Iterator[Any]:
    """The configurations inside one."""
    return (part for part in vars(config).values() if hasattr(part, "to_dict"))


def model(library: str, name: str, few: bool) -> Any:  # noqa: FBT001 - set by name, as from the command line
    """A model as `opcost` makes it from `library_inputs.py:model`."""
    module = __import__(library)
    cls = getattr(module, name)
    if library == "diffusers":
        return cls().eval()
    config = cls.config_class()
    settle(config)
    if few:
        shrink(config)
    return cls(config).eval()


def count(library: str, name: str) -> dict[str, Any]:
    """The outcome of one model."""
    import opcost

    faults = []
    alone = None
    for few in (True, False) if library == "transformers" else (True,):
        try:
            report = opcost.count(f"{__file__}:model", set={"library": library, "name": name, "few": few})
        except Exception as exc:
            faults.append(f"{type(exc).__name__}: {exc}")
            continue
        inputs = "".join(note.text for note in report.notes if note.code == "guessed-inputs")
        row = {"kind": "counted", "macs": report.totals.macs, "params": report.totals.params, "why": inputs}
        if "a text alone" not in inputs:
            return row
        alone = alone or {**row, "kind": "counted on a text alone"}  # too few layers may be the cause
    if alone is not None:
        return alone
    made = next((fault for fault in faults if "could not be made" not in fault), None)
    if made is None:
        return {"kind": "could not be made", "why": faults[0]}
    cause = next((cause for cause, words in CAUSES.items() if re.search(words, made)), "fails on its inputs")
    return {"kind": f"not counted: {cause}", "why": made}


def child(library: str, name: str, to: Connection) -> None:
    """Count one model in a process of its own, because some take the process down."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    to.send(count(library, name))


def sweep(
    names: list[str], start: Callable[[str, Connection], Any], jobs: int, limit: float
) -> Iterator[dict[str, Any]]:
    """Every model, several at once, none longer than the limit."""
    waiting, running = names[::-1], {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mine, its = multiprocessing.Pipe(duplex=False)
            running[mine] = (waiting[-1], start(waiting.pop(), its), time.monotonic() + limit)
            its.close()
        ready = wait(list(running), timeout=1)
        for mine, (name, process, end) in list(running.items()):
            if mine in ready or time.monotonic() > end:
                row = {"kind": "not counted: took too long", "why": f"took more than {limit:.0f} s"}
                if mine in ready:
                    try:
                        row = mine.recv()
                    except EOFError:
                        row = {"kind": "not counted: its process died", "why": ""}
                process.kill()
                process.join()
                del running[mine]
                yield {"model": name, **row}


def main() -> int:
    """Sweep, then print how often each outcome occurred."""
    parser = arguments(__doc__)
    parser.add_argument("library", choices=["transformers", "diffusers"])
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=100)
    parser.add_argument("--to", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    load_torchvision()
    from torch import nn

    import opcost

    opcost.count(nn.Linear(1, 1), shapes=(1, 1))  # common imports, once
    classes = transformers_classes() if options.library == "transformers" else diffusers_classes()
    fork = multiprocessing.get_context("fork")

    def start(name: str, to: Connection) -> Any:
        process = fork.Process(target=child, args=(options.library, name, to))
        process.start()
        return process

    if options.quick:
        options.only = options.only or "^(BertForM|GPT2|AutoencoderTiny)"
    rows = []
    for row in sweep([name for name in classes if re.search(options.only, name)], start, options.jobs, options.limit):
        rows.append(row)
        if options.to is not None:
            options.to.write_text("".join(f"{json.dumps(each)}\n" for each in rows), encoding="utf-8")
    table = Table(f"inputs_{options.library}", ("outcome", "classes"))
    for kind, number in Counter(row["kind"] for row in rows).most_common():
        table.add(kind, number)
    table.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
