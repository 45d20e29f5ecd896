"""From what was typed to a report: used by every command that takes a SOURCE."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.cli.options import CountChoice, given_of
from opcost.cli.settings import parse_settings
from opcost.core.devices import autocasts_like
from opcost.core.progress import working
from opcost.core.report import Report
from opcost.core.scan import Scan
from opcost.errors import OpcostError
from opcost.frontends.inputs import parse_precision, spelled_out
from opcost.frontends.options import Mode, usual_mode

if TYPE_CHECKING:
    from opcost.frontends.source import Source


def report_of(
    source: str | Source,
    choice: CountChoice,
    *,
    quiet: bool,
    data: Mapping[str, Any] | None = None,
    device: str | None = None,
    runs_on: str | None = None,
) -> Report:
    """The report of a SOURCE: read if it was saved, else counted. What the user's code prints goes to stderr.

    A source that was resolved before, with its settings, is not looked at again. `data` is what the library is told
    of input data, in place of `--input`. Memory is told as `device` would hold it; autocast casts as there, or as where it
    `runs_on`; a saved report then stays as it is.
    """
    from opcost.api import count, load_report
    from opcost.frontends.source import SavedReport, resolve

    name = source if isinstance(source, str) else source.label
    asked, shapes = asked_of(choice, device or runs_on), inputs_of(choice)
    with working(f"counting {name}", quiet=quiet), redirect_stdout(sys.stderr):
        found = resolve(source, parse_settings(choice.model.settings, "--set")) if isinstance(source, str) else source
        if isinstance(found, SavedReport):
            if choice != CountChoice() or data or (device and runs_on is None):
                raise OpcostError(
                    f"{name} is a saved report; options about counting do not apply to it",
                    hint="count the model again with these options",
                )
            return load_report(found.path)
        return count(found, device=device, **asked, **(data or shapes))


def asked_of(choice: CountChoice, runs_on: str | None = None) -> dict[str, Any]:
    """What `opcost.count` is told, but for the source, its settings, its inputs and a device; autocast as where it `runs_on`."""
    return {
        "kwargs": parse_settings(choice.model.arguments, "--arg"),
        "batch": choice.model.batch,
        "tokens": choice.model.tokens,
        "image": choice.model.image,
        "prefill": choice.prefill,
        "decode": choice.decode,
        "cache": choice.cache,
        "static": choice.static,
        "cache_dtype": choice.cache_dtype,
        "dtype": choice.model.dtype,
        "precision": parse_precision(choice.precision, autocasts_like(runs_on)),
        "checkpoint": choice.checkpoint,
        "accumulate": choice.accumulate,
        "zero_grad": choice.zero_grad,
        "backward": choice.backward or choice.optimizer is not None,
        "optimizer": choice.optimizer,
        "real": choice.real,
        "mode": mode_of(train=choice.train),
        "causal": choice.causal,
        "options": given_of(choice.frontend),
    }


def inputs_of(choice: CountChoice) -> dict[str, Any]:
    """The shapes and types that `--input` names."""
    shapes, dtypes = spelled_out(list(choice.model.inputs) or None, None)
    return {"shapes": shapes, "dtypes": dtypes}


def told_of(choice: CountChoice) -> dict[str, Any]:
    """All that doors which count a source several times are told of it."""
    settings = parse_settings(choice.model.settings, "--set")
    return {**asked_of(choice), "precision": choice.precision, **inputs_of(choice), "set": settings}


def sources_of(
    sources: Sequence[str], choice: CountChoice, *, quiet: bool, runs_on: str | None = None
) -> list[Report | Scan]:
    """What is to be compared. Options about counting are for those that are counted; with none, they are refused."""
    from opcost.comparing import source_or_scan
    from opcost.frontends.source import SavedReport

    settings = parse_settings(choice.model.settings, "--set")
    with redirect_stdout(sys.stderr):
        # What is set is for code that makes a model; a file among the sources has nothing that could be set.
        found = [source_or_scan(source, settings if _is_code(source) else None) for source in sources]
    counted = [not isinstance(source, (SavedReport, Scan)) for source in found]
    if not any(counted) and choice != CountChoice():
        raise OpcostError(
            "options about counting do not apply to saved reports and checkpoints",
            hint="count the models again with them",
        )
    usual = CountChoice()
    done: list[Report | Scan] = []
    with working("counting", share=lambda: (len(done), len(found)), quiet=quiet):
        for source, anew in zip(found, counted, strict=True):
            done.append(
                source
                if isinstance(source, Scan)
                else report_of(source, choice if anew else usual, quiet=quiet, runs_on=runs_on)
            )
    return done


def _is_code(source: str) -> bool:
    try:
        return not Path(source).exists()
    except (OSError, ValueError):  # no file could have such a name; what else it is shows when it is looked for
        return True


def mode_of(*, train: bool | None) -> Mode | None:
    """What `--train` or `--eval` asks for; with neither, the library decides."""
    return None if train is None else usual_mode(training=train)
